# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module returns the same in a fork of Ansible's worker as when Ansible packs it, with each supported ansible-core."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.kube import Kube
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.programs import BUILD, REPO, environment

NO_PYTHON = 3
CORE = "this"


def play(folder: Path, core: str, *tasks: dict[str, Any], **variables: str) -> PlaybookRun:
    """Tasks on a local host in a playbook of this folder, which is not the folder where ansible-playbook starts."""
    playbook, inventory = folder / "play.yml", folder / "hosts"
    document = {"hosts": "all", "gather_facts": False, "connection": "local", "tasks": list(tasks)}
    playbook.write_text(yaml.safe_dump([document]))
    inventory.write_text("prod ansible_python_interpreter={{ansible_playbook_python}}\n")
    environ = environment(**variables)
    if core != CORE:
        created = subprocess.run([REPO / "tools" / "core-venv", core], capture_output=True, text=True, check=False)
        if created.returncode == NO_PYTHON:
            pytest.skip(created.stderr.strip())
        assert created.returncode == 0, created.stderr
        environ["PATH"] = f"{created.stdout.strip()}/bin{os.pathsep}{environ['PATH']}"
        environ["ANSIBLE_COLLECTIONS_PATH"] = f"{BUILD}{os.pathsep}{sysconfig.get_path('purelib')}"
    return run_playbook(str(playbook), environ=environ, inventory=inventory)


def _both_ways(kube: Kube, core: str, calls: list[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """The results of these tasks in a fork, and of the same tasks packed by Ansible, which a delegation requires."""
    run = play(kube.folder, core, *calls, *({**call, "delegate_to": "localhost"} for call in calls))
    results = [dict(result) for _name, result in run.require_success().results("prod")]
    forked, packed = results[: len(calls)], results[len(calls) :]
    for result in packed:
        result.pop("_ansible_delegated_vars", None)
    return forked, packed


@pytest.mark.usual(20)
@pytest.mark.parametrize(
    "core",
    [CORE, *(pytest.param(core, marks=pytest.mark.sampled(1, group="other releases")) for core in ("2.16", "2.21"))],
)
def test_both_ways_return_the_same(kube: Kube, core: str) -> None:
    """Both find a relative path from the folder of the playbook, and both report the same warnings, changes and failures."""
    shutil.copy(kube.kubeconfig, kube.folder / "kubeconfig")
    name = f"{kube.prefix}-both"
    configmap = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
    options = {"kubeconfig": "kubeconfig", "definitions": [{**configmap, "data": {"text": "ü"}}]}
    calls: list[dict[str, Any]] = [
        {"accel.gpu.kube_object": options, "check_mode": True, "diff": True},
        {"accel.gpu.kube_object": {**options, "kubeconfig": "elsewhere"}, "ignore_errors": True},
        {"accel.gpu.kube_object": {**options, "definitions": "none"}, "ignore_errors": True},
        {"accel.gpu.gpu_info": {"kubeconfig": "kubeconfig"}},
    ]
    forked, packed = _both_ways(kube, core, calls)
    if forked != packed:
        # The cluster may have changed between the two reads of its nodes; a difference between the ways remains.
        forked, packed = _both_ways(kube, core, calls)
    assert forked == packed
    assert [bool(result.get("failed")) for result in forked] == [False, True, True, False]
    assert forked[0]["changed"]
