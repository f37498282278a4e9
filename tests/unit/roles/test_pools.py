# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role pools in a playbook: invalid variables fail with a message, and each host has its own plan."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.variables import CLUSTER, LAB_POOLS, Document
from tests.programs import environment

NAMES = {"ansible.builtin.debug": {"msg": "{{ gpu_plan.pools | map(attribute='name') | join(' ') }}"}}
PLAY: list[Document] = [
    {
        "hosts": "all",
        "gather_facts": False,
        "connection": "local",
        "roles": ["accel.gpu.pools"],
        "tasks": [
            {"name": "First", **NAMES},
            {"name": "Then", **NAMES, "vars": {"gpu_pools": [{"name": "other"}]}},
        ],
    }
]


def play(folder: Path, **hosts: Document) -> PlaybookRun:
    """Run the role on hosts with these variables."""
    playbook, inventory = folder / "play.yml", folder / "hosts.yml"
    playbook.write_text(yaml.safe_dump(PLAY, sort_keys=False))
    inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts}}, sort_keys=False))
    return run_playbook(str(playbook), environ=environment(), inventory=inventory)


@pytest.mark.usual(4)
def test_each_cluster_has_its_own_plan(tmp_path: Path) -> None:
    run = play(
        tmp_path,
        one={"gpu_cluster": CLUSTER, "gpu_pools": LAB_POOLS[:2]},
        two={"gpu_cluster": {"name": "two"}, "gpu_pools": LAB_POOLS[4:]},
        none={"gpu_cluster": CLUSTER, "gpu_pools": []},
    ).require_success()
    message = {
        host: [result["msg"] for name, result in run.results(host) if name in {"First", "Then"}]
        for host in ("one", "two", "none")
    }
    assert message == {
        "one": ["notebooks inference", "other"],
        "two": ["train-h200", "other"],
        "none": ["", "other"],
    }
    checked = [run.module_results("ansible.builtin.assert", host)[0]["msg"] for host in ("one", "two", "none")]
    assert checked == ["2 pools", "1 pool", "0 pools"]


@pytest.mark.usual(3)
def test_every_mistake_is_reported_and_nothing_else_runs(tmp_path: Path) -> None:
    run = play(tmp_path, one={"gpu_pools": [{"name": "A", "match": {"model": "T9"}}]})
    (failed,) = [result for _name, result in run.results("one") if result.get("failed")]
    assert run.rc == 2
    assert [line.split(":")[0] for line in failed["msg"]] == [
        "gpu_cluster.name",
        "gpu_pools[0].name",
        "gpu_pools[0].match.model",
    ]
    assert "Traceback" not in run.stdout + run.stderr
    assert not [name for name, _result in run.results("one") if name == "First"]
