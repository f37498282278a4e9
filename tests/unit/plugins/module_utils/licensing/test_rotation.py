# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rotation of tokens node by node: order, verification, the first failure, and its continuation after an end at any command."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import PartialFailure
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.transport import ExecResult
from ansible_collections.accel.gpu.plugins.module_utils.licensing.container import START, LicenseContainers
from ansible_collections.accel.gpu.plugins.module_utils.licensing.diagnosis import CONFIG_PATH, TOKEN_PATH
from ansible_collections.accel.gpu.plugins.module_utils.licensing.rotation import NONE, REPLACE, RESTART, RotationResult
from tests.helpers.license_nodes import Container, Containers, Killed, license_node, lost_connection
from tests.helpers.rotations import CONFIG, NEW, OLD, NoLease, cluster, expected, plan, rotate, rotator


def test_every_node_gets_the_new_token_one_after_the_other() -> None:
    containers = cluster(delay=2)
    result = rotate(containers)
    assert result.as_dict() == {
        "rotated": ["n0", "n1", "n2"],
        "rotated_count": 3,
        "restarted": [],
        "evicted": [],
        "removed": [],
        "unchanged_count": 0,
        "pending": [],
        "failed": None,
        "reached": None,
    }
    for container in containers.by_node.values():
        assert container.files == {TOKEN_PATH: NEW.encode(), CONFIG_PATH: CONFIG.encode()} == container.loaded
        assert container.licensed
        assert container.started == 1
    assert [command for node, command in containers.mutations() if node == "n0"] == [
        ("cp", "/dev/stdin", f"{TOKEN_PATH}.new"),
        ("cp", "/dev/stdin", f"{CONFIG_PATH}.new"),
        ("kill", "-TERM", "100"),
        ("mv", f"{TOKEN_PATH}.new", TOKEN_PATH),
        ("mv", f"{CONFIG_PATH}.new", CONFIG_PATH),
        START,
    ]
    order = [node for node, dummy in containers.mutations()]
    assert order == sorted(order)
    assert NEW not in str(containers.commands)
    assert plan(containers)[1] == []


def test_a_container_never_runs_a_client_of_the_old_token_beside_the_new_file() -> None:
    containers = cluster(1)

    def check(node: str, command: tuple[str, ...]) -> None:
        container = containers.by_node[node]
        if container.files[TOKEN_PATH] == NEW.encode() and container.pid:
            assert container.loaded[TOKEN_PATH] == NEW.encode()

    containers.after = check
    rotate(containers)


def test_the_needed_actions() -> None:
    containers = cluster(4)
    containers.by_node["n1"].files[TOKEN_PATH] = NEW.encode()
    containers.by_node["n1"].files[CONFIG_PATH] = CONFIG.encode()
    containers.by_node["n2"] = Container({TOKEN_PATH: NEW.encode(), CONFIG_PATH: CONFIG.encode()}, pid=None)
    del containers.by_node["n3"].files[TOKEN_PATH]
    dummy, rotations = plan(containers)
    # n1 has a license with the files of n2, so these files are not the problem of n2.
    assert [(each.node.name, each.action) for each in rotations] == [("n0", REPLACE), ("n3", REPLACE), ("n2", RESTART)]
    assert NONE not in {each.action for each in rotations}


def test_only_the_changed_file_is_sent() -> None:
    containers = cluster(1)
    containers.by_node["n0"].files[CONFIG_PATH] = CONFIG.encode()
    rotate(containers)
    assert {command[2] for dummy, command in containers.mutations() if command[0] == "cp"} == {f"{TOKEN_PATH}.new"}


def test_the_first_node_without_a_license_ends_the_run() -> None:
    containers = cluster(3)
    containers.by_node["n1"].accepts = lambda text: text == OLD.encode()
    with pytest.raises(PartialFailure) as error:
        rotate(containers, timeout=0.1)
    message = str(error.value)
    assert (
        "The rotation stopped at node n1, after its license client was started with the new files: Not done" in message
    )
    assert "new.example.com:443 grants no license, even though the node can reach it." in message
    assert "Already rotated: node n0." in message
    assert "Not rotated yet: node n2." in message
    assert "run the playbook again" in message
    result = error.value.partial["license_rotation"]
    assert (result["rotated"], result["failed"], result["pending"]) == (["n0"], "n1", ["n2"])
    assert containers.by_node["n2"].loaded[TOKEN_PATH] == OLD.encode()

    containers.by_node["n1"].accepts = lambda text: True
    # The client of n1 has a license by now.
    assert rotate(containers).rotated == ["n2"]
    assert all(container.licensed for container in containers.by_node.values())


def count_commands() -> int:
    containers = cluster(2)
    rotate(containers)
    return len(containers.commands)


@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_that_is_killed_at_any_command_is_continued(moment: str, sticky: bool) -> None:
    for number in range(count_commands()):
        containers = cluster(2, sticky=sticky)
        access, rotations = plan(containers)
        remaining = number

        def kill(node: str, command: tuple[str, ...]) -> None:
            nonlocal remaining
            remaining -= 1
            if remaining < 0:
                raise Killed

        setattr(containers, moment, kill)
        with pytest.raises(Killed):
            rotator(access).run(rotations, RotationResult())
        setattr(containers, moment, lambda node, command: None)
        rotate(containers)
        for container in containers.by_node.values():
            assert container.licensed, number
            assert container.loaded == {TOKEN_PATH: NEW.encode(), CONFIG_PATH: CONFIG.encode()}, number


@pytest.mark.parametrize("moment", ["before", "after"])
def test_lost_connections_do_not_end_the_run(moment: str) -> None:
    for number in range(count_commands()):
        containers = cluster(2)
        access, rotations = plan(containers)
        remaining = number

        def fail(node: str, command: tuple[str, ...]) -> None:
            nonlocal remaining
            remaining -= 1
            if remaining == -1:
                raise lost_connection()

        setattr(containers, moment, fail)
        result = RotationResult()
        rotator(access).run(rotations, result)
        assert result.rotated == ["n0", "n1"]
        assert all(container.licensed for container in containers.by_node.values()), number


def test_a_container_without_the_folder_of_the_token() -> None:
    containers = cluster(1)

    def fail(node: str, command: tuple[str, ...]) -> None:
        if command[0] == "cp":
            containers.by_node[node].files.pop(command[2], None)

    containers.after = fail
    access = LicenseContainers(cast(Any, containers), sleep=lambda dummy: None, clock=iter(range(0, 1000, 10)).__next__)
    rotations = plan(containers)[1]
    with pytest.raises(PartialFailure, match="did not write /etc/nvidia/ClientConfigToken"):
        rotator(access).run(rotations, RotationResult())
    assert containers.by_node["n0"].licensed
    assert containers.by_node["n0"].pid == 100


def test_the_license_of_the_former_client_is_no_evidence() -> None:
    containers = cluster(1, sticky=True, accepts=lambda token: token == OLD.encode())
    with pytest.raises(PartialFailure, match="nvidia-smi still shows the license of the previous license client"):
        rotate(containers, timeout=0.1)
    assert rotate(cluster(1, sticky=True, delay=2)).rotated == ["n0"]


def test_a_client_that_ends_after_its_start() -> None:
    containers = cluster(1, sticky=True)

    def end(node: str, command: tuple[str, ...]) -> None:
        container = containers.by_node[node]
        if command == ("nvidia-smi", "-q") and container.started:
            container.pid = None

    containers.after = end
    with pytest.raises(
        PartialFailure, match=r"The license client \(nvidia-gridd\) does not run\. To restart the driver"
    ):
        rotate(containers, timeout=0.1)


def test_a_node_without_a_client_is_not_finished() -> None:
    files = {TOKEN_PATH: NEW.encode(), CONFIG_PATH: CONFIG.encode()}
    containers = Containers(
        {"n0": Container(files, pid=None, sticky=True, shown="Licensed (Expiry: 2030-1-5 4:02:0 GMT)")}
    )
    assert [each.action for each in plan(containers)[1]] == [RESTART]
    assert rotate(containers).rotated == ["n0"]
    assert plan(containers)[1] == []


@pytest.mark.parametrize("name", ["", "systemd"])
def test_a_stale_pid_file_names_no_client(name: str) -> None:
    containers = cluster(1, pid=None, stale_pid=4711, stale_name=name)
    assert rotate(containers).rotated == ["n0"]
    assert "kill" not in {command[0] for dummy, command in containers.commands}


def test_a_client_that_does_not_end() -> None:
    containers = cluster(1, immortal=True)
    access = LicenseContainers(cast(Any, containers), sleep=lambda dummy: None, clock=iter(range(0, 1000, 10)).__next__)
    with pytest.raises(
        PartialFailure, match=r"nvidia-gridd \(PID 100\) in pod driver-n0 is still running 60 s after SIGTERM"
    ):
        rotator(access).run(plan(containers)[1], RotationResult())
    assert len([command for dummy, command in containers.commands if command[0] == "kill"]) == 1


def test_a_start_that_fails_once_is_repeated() -> None:
    assert rotate(cluster(1, refused_starts=1)).rotated == ["n0"]


def test_a_client_that_does_not_start() -> None:
    containers = cluster(2, refused_starts=2)
    with pytest.raises(PartialFailure) as error:
        rotate(containers)
    assert (
        "The rotation stopped at node n0, after its license client was stopped and its files were replaced: nvidia-gridd does not start in pod driver-n0: nvidia-gridd: cannot start. The license client of this node is "
        "stopped. Correct the cause and run license_rotate again. To restart the driver of the node after a drain, set gpu_licensing_restart_drivers (option "
        "restart_drivers of the module)."
    ) in str(error.value)
    assert containers.by_node["n0"].pid is None
    containers.by_node["n1"].refused_starts = 0
    assert sorted(rotate(containers).rotated) == ["n0", "n1"]


def test_the_lease_is_checked_before_each_change() -> None:
    containers = cluster(1)
    access, rotations = plan(containers)
    containers.commands.clear()
    lease = NoLease()
    rotator(access, lease).run(rotations, RotationResult())
    assert lease.checks == len(containers.mutations())


def test_the_license_servers_are_checked_from_every_node() -> None:
    containers = cluster(2)
    containers.by_node["n1"].connection = ExecResult(6, "0 0 0", "curl: (6) Could not resolve host: new.example.com")
    nodes = [license_node("n0"), license_node("n1"), license_node("n2", failure="it crashes")]
    actual = LicenseContainers(cast(Any, containers)).check_all(nodes, lambda dummy: expected())
    assert {name: [check.layer for check in checks] for name, checks in actual.items()} == {"n0": [""], "n1": ["dns"]}
    assert LicenseContainers(cast(Any, containers)).check_all(nodes, lambda dummy: None) == {}


def test_a_container_without_curl_is_not_checked() -> None:
    def fail(node: str, command: tuple[str, ...]) -> None:
        raise ApiError("curl: executable file not found", status=500, method="GET", path="/exec")

    containers = cluster(1)
    containers.before = fail
    actual = LicenseContainers(cast(Any, containers)).check_all([license_node("n0")], lambda dummy: expected())
    (check,) = actual["n0"]
    assert (check.layer, check.failed) == ("unknown", False)
    assert check.message == "new.example.com:443 could not be checked from the node: curl: executable file not found."
