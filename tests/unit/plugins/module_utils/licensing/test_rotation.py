# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rotation of tokens node by node: order, verification, the first failure, and its continuation after an end at any command."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.common.errors import PartialFailure
from ansible_collections.accel.gpu.plugins.module_utils.common.progress import Progress
from ansible_collections.accel.gpu.plugins.module_utils.common.wait import WaitOptions
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.exec import ExecResult
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import LeaseLost
from ansible_collections.accel.gpu.plugins.module_utils.licensing.container import START, LicenseContainers
from ansible_collections.accel.gpu.plugins.module_utils.licensing.content import LicenseFiles
from ansible_collections.accel.gpu.plugins.module_utils.licensing.diagnosis import Expected
from ansible_collections.accel.gpu.plugins.module_utils.licensing.driver_pods import CONFIG_PATH, TOKEN_PATH
from ansible_collections.accel.gpu.plugins.module_utils.licensing.rotation import (
    NONE,
    REPLACE,
    RESTART,
    NodeRotation,
    RotationResult,
    Rotator,
    plan_rotation,
)
from ansible_collections.accel.gpu.plugins.module_utils.licensing.targets import SECRET, LicenseTarget
from ansible_collections.accel.gpu.plugins.module_utils.licensing.token import parse_token
from tests.helpers.license_nodes import (
    NAMESPACE,
    Container,
    Containers,
    Killed,
    initial_files,
    license_node,
    lost_connection,
)
from tests.helpers.license_tokens import make_token

OLD, NEW = make_token(hosts=["old.example.com"]), make_token(hosts=["new.example.com"])
CONFIG = "# Managed by accel.gpu\nFeatureType=1\n"


class NoLease:
    """A lease that is held, for a number of checks at most; counts how often it was checked."""

    checks = 0

    def __init__(self, held: int | None = None) -> None:
        self.held = held

    def check(self) -> None:
        if self.checks == self.held:
            raise LeaseLost("The lease was lost: it was taken. No further request was sent; run again.")
        self.checks += 1


def expected(text: str = NEW, config: str = CONFIG) -> Expected:
    files = LicenseFiles(text.encode(), config.encode())
    return Expected(LicenseTarget(SECRET, "licensing-config"), NAMESPACE, files, parse_token(text))


def cluster(count: int = 3, **options: Any) -> Containers:
    return Containers({f"n{index}": Container(initial_files(OLD), **options) for index in range(count)})


def plan(containers: Containers, names: Sequence[str] | None = None) -> tuple[LicenseContainers, list[NodeRotation]]:
    access = LicenseContainers(cast(Any, containers), sleep=lambda dummy: None, clock=itertools.count().__next__)
    nodes = [license_node(name) for name in names or containers.by_node]
    return access, plan_rotation(nodes, access.read_all(nodes, client=True), lambda dummy: expected())


def rotate(containers: Containers, timeout: float = 0.1) -> RotationResult:
    access, rotations = plan(containers)
    containers.commands.clear()
    result = RotationResult(unchanged=len(containers.by_node) - len(rotations))
    Rotator(access, WaitOptions(timeout, 0.01, Progress(None)), cast(Any, NoLease())).run(rotations, result)
    return result


def test_every_node_gets_the_new_token_one_after_the_other() -> None:
    containers = cluster(delay=2)
    result = rotate(containers)
    assert result.as_dict() == {
        "rotated": ["n0", "n1", "n2"],
        "rotated_count": 3,
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
        rotate(containers)
    message = str(error.value)
    assert (
        "The rotation stopped at node n1, after its license client was started with the new files: Not done" in message
    )
    assert "new.example.com:443 grants no license, even though the node reaches it." in message
    assert "Done: node n0." in message
    assert "Not started: node n2." in message
    assert "run again" in message
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
        left = number

        def kill(node: str, command: tuple[str, ...]) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        setattr(containers, moment, kill)
        rotator = Rotator(access, WaitOptions(0.1, 0.01, Progress(None)), cast(Any, NoLease()))
        with pytest.raises(Killed):
            rotator.run(rotations, RotationResult())
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
        left = number

        def fail(node: str, command: tuple[str, ...]) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                raise lost_connection()

        setattr(containers, moment, fail)
        result = RotationResult()
        waiting = WaitOptions(0.2, 0.01, Progress(None))
        Rotator(access, waiting, cast(Any, NoLease())).run(rotations, result)
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
    rotator = Rotator(access, WaitOptions(0.1, 0.01, Progress(None)), cast(Any, NoLease()))
    with pytest.raises(PartialFailure, match="has not written /etc/nvidia/ClientConfigToken"):
        rotator.run(rotations, RotationResult())
    assert containers.by_node["n0"].licensed
    assert containers.by_node["n0"].pid == 100


def test_the_license_of_the_former_client_is_no_evidence() -> None:
    containers = cluster(1, sticky=True, accepts=lambda token: token == OLD.encode())
    with pytest.raises(PartialFailure, match="nvidia-smi still shows the license of the former client"):
        rotate(containers)
    assert rotate(cluster(1, sticky=True, delay=2)).rotated == ["n0"]


def test_a_client_that_ends_after_its_start() -> None:
    containers = cluster(1, sticky=True)

    def end(node: str, command: tuple[str, ...]) -> None:
        container = containers.by_node[node]
        if command == ("nvidia-smi", "-q") and container.started:
            container.pid = None

    containers.after = end
    with pytest.raises(PartialFailure, match="The license client \\(nvidia-gridd\\) does not run"):
        rotate(containers)


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
    rotator = Rotator(access, WaitOptions(0.1, 0.01, Progress(None)), cast(Any, NoLease()))
    with pytest.raises(
        PartialFailure, match=r"nvidia-gridd \(PID 100\) in pod driver-n0 has not ended 60 s after SIGTERM"
    ):
        rotator.run(plan(containers)[1], RotationResult())
    assert len([command for dummy, command in containers.commands if command[0] == "kill"]) == 1


def test_a_start_that_fails_once_is_repeated() -> None:
    assert rotate(cluster(1, refused_starts=1)).rotated == ["n0"]


def test_a_client_that_does_not_start() -> None:
    containers = cluster(2, refused_starts=2)
    with pytest.raises(PartialFailure) as error:
        rotate(containers)
    assert (
        "The rotation stopped at node n0, after its license client was ended and its files were replaced: nvidia-gridd does not start in pod driver-n0: nvidia-gridd: cannot start. The license client of this node is "
        "stopped. Correct the cause and run license_rotate again, or restart the driver pod."
    ) in str(error.value)
    assert containers.by_node["n0"].pid is None
    containers.by_node["n1"].refused_starts = 0
    assert sorted(rotate(containers).rotated) == ["n0", "n1"]


def test_the_lease_is_checked_before_each_change() -> None:
    containers = cluster(1)
    access, rotations = plan(containers)
    containers.commands.clear()
    lease = NoLease()
    Rotator(access, WaitOptions(0.1, 0.01, Progress(None)), cast(Any, lease)).run(rotations, RotationResult())
    assert lease.checks == len(containers.mutations())


def test_the_license_servers_are_checked_from_every_node() -> None:
    containers = cluster(2)
    containers.by_node["n1"].connection = ExecResult(6, "0 0 0", "curl: (6) Could not resolve host: new.example.com")
    nodes = [license_node("n0"), license_node("n1"), license_node("n2", failure="it crashes")]
    found = LicenseContainers(cast(Any, containers)).check_all(nodes, lambda dummy: expected())
    assert {name: [check.layer for check in checks] for name, checks in found.items()} == {"n0": [""], "n1": ["dns"]}
    assert LicenseContainers(cast(Any, containers)).check_all(nodes, lambda dummy: None) == {}


def test_a_container_without_curl_is_not_checked() -> None:
    def fail(node: str, command: tuple[str, ...]) -> None:
        raise ApiError("curl: executable file not found", status=500, method="GET", path="/exec")

    containers = cluster(1)
    containers.before = fail
    found = LicenseContainers(cast(Any, containers)).check_all([license_node("n0")], lambda dummy: expected())
    (check,) = found["n0"]
    assert (check.layer, check.failed) == ("unknown", False)
    assert check.message == "new.example.com:443 could not be checked from the node: curl: executable file not found."


STEPS = ["unchanged", "written", "written", "ended", "replaced", "replaced", "started"]


@pytest.mark.parametrize("checks", range(6))
def test_a_lost_lease_is_reported_with_its_node(checks: int) -> None:
    containers = cluster(3)
    access, rotations = plan(containers)
    result = RotationResult()
    rotator = Rotator(access, WaitOptions(0.1, 0.01, Progress(None)), cast(Any, NoLease(6 + checks)))
    with pytest.raises(LeaseLost) as error:
        rotator.run(rotations, result)
    found = error.value.partial["license_rotation"]
    assert (found["rotated"], found["failed"], found["pending"]) == (["n0"], "n1", ["n2"])
    assert found["reached"] == STEPS[checks]
    assert "The rotation stopped at node n1, " in str(error.value)
    assert "The lease was lost: it was taken." in str(error.value)
    assert "Done: node n0." in str(error.value)
    assert set(rotate(containers).rotated) == {"n1", "n2"}
    assert all(container.loaded[TOKEN_PATH] == NEW.encode() for container in containers.by_node.values())


def test_a_lease_that_is_lost_while_the_license_is_awaited() -> None:
    containers = cluster(2)

    def fail(node: str, command: tuple[str, ...]) -> None:
        if containers.by_node[node].started:
            raise LeaseLost("The lease was lost.")

    containers.before = fail
    with pytest.raises(LeaseLost, match="node n0, after its license client was started") as error:
        rotate(containers)
    assert error.value.partial["license_rotation"]["reached"] == "started"


@pytest.mark.parametrize("delay", [0, 3])
def test_a_start_whose_response_is_lost_starts_no_second_client(delay: int) -> None:
    containers = cluster(1)
    container, left = containers.by_node["n0"], delay

    def lose(node: str, command: tuple[str, ...]) -> None:
        nonlocal left
        if command == START and container.started == 1:
            container.hidden = delay > 0
            raise lost_connection()
        if command[0] == "cat" and container.hidden:
            left -= 1
            container.hidden = left > 0

    containers.after = lose
    assert rotate(containers).rotated == ["n0"]
    assert container.started == 1


def test_a_start_that_never_reached_the_node_is_repeated() -> None:
    containers = cluster(1)
    failures = 1

    def lose(node: str, command: tuple[str, ...]) -> None:
        nonlocal failures
        if command == START and failures:
            failures -= 1
            raise lost_connection()

    containers.before = lose
    access = LicenseContainers(cast(Any, containers), sleep=lambda dummy: None, clock=iter(range(0, 1000, 6)).__next__)
    result = RotationResult()
    waiting = WaitOptions(0.1, 0.01, Progress(None))
    Rotator(access, waiting, cast(Any, NoLease())).run(plan(containers)[1], result)
    assert (result.rotated, containers.by_node["n0"].started) == (["n0"], 1)


def count_mutations() -> int:
    containers = cluster(1)
    rotate(containers)
    return len(containers.mutations())


@pytest.mark.parametrize("token", [NEW, OLD])
@pytest.mark.parametrize("number", range(count_mutations()))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_driver_pod_that_is_replaced(moment: str, number: int, token: str) -> None:
    containers = cluster(2)
    left = number

    def replace(node: str, command: tuple[str, ...]) -> None:
        nonlocal left
        if node == "n0" and command[0] in ("cp", "mv", "kill", "env"):
            left -= 1
            if left == -1:
                containers.starting["n0"] = 3
                containers.replace_pod("n0", Container(initial_files(token, CONFIG)))
                raise lost_connection()

    setattr(containers, moment, replace)
    assert rotate(containers).rotated == ["n0", "n1"]
    container = containers.by_node["n0"]
    assert container.loaded == {TOKEN_PATH: NEW.encode(), CONFIG_PATH: CONFIG.encode()}
    # A driver that has started with the new files has a client that uses them.
    assert container.started == (0 if token == NEW else 1)


def test_a_driver_pod_that_was_replaced_before_its_turn() -> None:
    containers = cluster(2)
    access, rotations = plan(containers)
    containers.replace_pod("n1", Container(initial_files(NEW, CONFIG), delay=2))
    result = RotationResult()
    Rotator(access, WaitOptions(0.2, 0.01, Progress(None)), cast(Any, NoLease())).run(rotations, result)
    assert result.rotated == ["n0", "n1"]
    assert containers.by_node["n1"].started == 0


def test_a_driver_pod_that_is_replaced_and_does_not_start() -> None:
    containers = cluster(3)

    def replace(node: str, command: tuple[str, ...]) -> None:
        if node == "n1" and command[0] == "kill":
            containers.starting["n1"] = 10_000
            containers.replace_pod("n1", Container(initial_files(NEW, CONFIG)))

    containers.after = replace
    with pytest.raises(PartialFailure) as error:
        rotate(containers)
    assert (
        "The rotation stopped at node n1, after its new files were written next to the old ones: Not done within 0 s (wait_timeout). The driver pod "
        "driver-n1 was replaced. The driver does not run: "
    ) in str(error.value)
    found = error.value.partial["license_rotation"]
    assert (found["rotated"], found["failed"], found["reached"], found["pending"]) == (["n0"], "n1", "written", ["n2"])
