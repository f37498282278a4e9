# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two hosts of one play that name the same cluster are rejected, and the message has both names, and whatever else their variables hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible import constants

from ansible_collections.accel.gpu.plugins.plugin_utils.same_cluster import same_cluster
from tests.helpers.playbook import run_playbook
from tests.programs import environment

BLUE, GREEN, OTHER = {"name": "prod", "kubeconfig": "b"}, {"name": "prod"}, {"name": "test"}
INVENTORY = """
gpu_clusters:
  hosts:
    blue: {gpu_cluster: {name: prod, kubeconfig: /nowhere}}
    green: {gpu_cluster: {name: "{{ 'pr' ~ 'od' }}", kubeconfig: /nowhere}}
  vars: {gpu_pools: [{name: t4, match: {model: Tesla-T4}}]}
"""


class Hostvars(dict[str, Any]):
    """Counts how often the variables of a host are asked for; some cannot be templated."""

    asked = 0

    def __getitem__(self, host: str) -> Any:
        self.asked += 1
        if super().__getitem__(host) == "undefined":
            raise KeyError(host)
        return super().__getitem__(host)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this run, as ansible-playbook makes one."""
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    return tmp_path


def variables(own: str, clusters: Mapping[str, Any]) -> dict[str, Any]:
    hostvars = Hostvars({host: {"gpu_cluster": cluster} for host, cluster in clusters.items()})
    return {"inventory_hostname": own, "ansible_play_hosts_all": list(clusters), "hostvars": hostvars}


@pytest.mark.parametrize(
    ("clusters", "refused"),
    [
        ({"blue": BLUE, "green": GREEN}, True),
        ({"blue": BLUE, "red": OTHER, "green": GREEN}, True),
        ({"blue": BLUE, "red": OTHER}, False),
        ({"blue": BLUE}, False),
        ({"blue": BLUE, "none": None, "text": "prod", "list": ["prod"], "number": {"name": 4}}, False),
    ],
)
def test_two_hosts_of_one_cluster(clusters: dict[str, Any], refused: bool) -> None:
    for dummy in range(2):
        message = same_cluster(BLUE, variables("blue", clusters))
        assert bool(message) is refused
        if refused:
            assert "blue, green" in message
            assert "prod" in message


def test_the_options_of_a_task_count_more_than_the_variables() -> None:
    clusters = {"blue": BLUE, "green": GREEN}
    assert not same_cluster(OTHER, variables("blue", clusters))
    assert same_cluster(GREEN, variables("red", {"red": OTHER, "green": GREEN}))


def test_a_module_of_a_cloud_has_the_cluster_of_its_host() -> None:
    """There `cluster` is a text or nothing at all."""
    for cluster in (None, "magnum-1"):
        assert same_cluster(cluster, variables("blue", {"blue": BLUE, "green": GREEN}))
        assert not same_cluster(cluster, variables("blue", {"blue": BLUE, "red": OTHER}))
        assert not same_cluster(cluster, variables("blue", {"blue": None, "none": None}))


def test_outside_of_a_play_nothing_is_known() -> None:
    assert not same_cluster(BLUE, {})
    assert not same_cluster(BLUE, variables("localhost", {"blue": BLUE}) | {"ansible_play_hosts_all": ["green"]})


def test_variables_that_cannot_be_read_are_left_to_their_host() -> None:
    broken = variables("blue", {"blue": BLUE, "green": GREEN})
    dict.__setitem__(broken["hostvars"], "green", "undefined")
    assert not same_cluster(BLUE, broken)


def test_the_variables_of_all_hosts_are_read_once_a_run(folder: Path) -> None:
    given = variables("blue", {f"h{number}": {"name": f"c{number}"} for number in range(50)} | {"blue": BLUE})
    for dummy in range(5):
        assert not same_cluster(BLUE, given)
    assert given["hostvars"].asked == 51
    # Another play of the same run may have other hosts.
    assert same_cluster(BLUE, variables("blue", {"blue": BLUE, "green": GREEN}))
    assert len(list(folder.iterdir())) == 2


def test_without_room_for_a_file_it_is_found_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", "/nowhere/at/all")
    assert same_cluster(BLUE, variables("blue", {"blue": BLUE, "green": GREEN}))


def test_a_playbook_ends_before_it_asks_any_cluster(tmp_path: Path) -> None:
    """A limit leaves localhost and its guards out; neither host has a kubeconfig, which would be the next error."""
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(INVENTORY)
    arguments = ["--limit", "blue,green"]
    run = run_playbook("accel.gpu.share", environ=environment(), inventory=inventory, arguments=arguments)
    assert run.rc != 0
    for host in ("blue", "green"):
        assert "blue, green all have the cluster prod" in run.failure(host)


def test_a_task_with_run_once_is_no_second_run(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(INVENTORY)
    task = {"accel.gpu.gpu_info": {"gpu_cluster": "{{ gpu_cluster }}"}, "run_once": True}
    playbook = tmp_path / "once.yml"
    playbook.write_text(
        json.dumps([{"hosts": "blue,green", "connection": "local", "gather_facts": False, "tasks": [task]}])
    )
    run = run_playbook(str(playbook), environ=environment(), inventory=inventory)
    assert run.rc != 0
    assert "all have the cluster prod" not in run.failure("blue")
