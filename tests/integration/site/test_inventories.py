# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventories at the edges: no cluster in it, no pool in it, two clusters in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import audit
from lab.layout import Lab as LabLayout
from tests.helpers.playbook import run_playbook
from tests.labs import Lab, own_lab
from tests.programs import REPO, environment, run

SITE = "accel.gpu.site"
VARIABLES = REPO / "inventories/lab/group_vars/gpu_clusters.yml"


def inventory(folder: Path, document: dict[str, Any]) -> Path:
    """Write an inventory beside the lab's group variables and return its folder."""
    (folder / "group_vars").mkdir()
    (folder / "group_vars" / "gpu_clusters.yml").write_text(VARIABLES.read_text())
    (folder / "hosts.yml").write_text(yaml.safe_dump(document))
    return folder


@pytest.mark.parametrize("playbook", [SITE, "accel.gpu.plan"])
def test_an_inventory_without_the_group_fails_and_says_what_to_do(tmp_path: Path, playbook: str) -> None:
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"somewhere": None}}}))
    played = run_playbook(playbook, environ=environment(), inventory=tmp_path)
    assert played.rc != 0
    message = played.failure("localhost")
    assert "no host that matches gpu_clusters" in message
    assert "-e gpu_hosts=PATTERN" in message


def test_an_empty_pool_list_is_a_clear_nothing(lab: Lab) -> None:
    lab.reset()
    mark = audit.mark(LabLayout.named(lab.name))
    played = run_playbook(SITE, environ=lab.env, variables={"gpu_pools": []}).require_success()
    assert played.changed() == 0
    assert not [r for r in audit.requests(LabLayout.named(lab.name), mark, "accel.gpu/") if r.mutating]
    assert "No pools are declared" in played.stderr


@pytest.fixture
def second_lab() -> Iterator[Lab]:
    """Another lab beside the one of the tests."""
    with own_lab("second") as lab:
        yield lab


@pytest.mark.usual(120)
def test_two_clusters_in_one_run_both_come_right(lab: Lab, second_lab: Lab, tmp_path: Path) -> None:
    labs = {lab.name: lab, second_lab.name: second_lab}
    lab.reset()
    hosts = {name: {"gpu_kubeconfig": str(each.kubeconfig)} for name, each in labs.items()}
    folder = inventory(tmp_path, {"gpu_clusters": {"hosts": hosts}})
    variables = yaml.safe_load(VARIABLES.read_text())
    variables["gpu_cluster"] |= {"name": "{{ inventory_hostname }}", "kubeconfig": "{{ gpu_kubeconfig }}"}
    (folder / "group_vars" / "gpu_clusters.yml").write_text(yaml.safe_dump(variables))
    environ = {k: v for k, v in lab.env.items() if k not in ("KUBECONFIG", "K8S_AUTH_KUBECONFIG")}
    run_playbook(SITE, environ=environ, inventory=folder).require_success()
    again = run_playbook(SITE, environ=environ, inventory=folder).require_success()
    for name, each in labs.items():
        assert again.changed(name) == 0
        pinned = json.loads(
            run("kubectl", "get", "nodes", "-l", "accel.gpu/pool=notebooks", "-o", "json", env=each.env)
        )
        assert {node["status"]["allocatable"]["nvidia.com/gpu"] for node in pinned["items"]} == {"4"}
