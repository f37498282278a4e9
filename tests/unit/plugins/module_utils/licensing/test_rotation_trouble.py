# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rotations that lose their lease, a response, or a driver pod: the node is named, and the next run continues."""

from __future__ import annotations

from typing import Any, cast
from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import TIMEOUT, PartialFailure
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import LeaseLost
from ansible_collections.accel.gpu.plugins.module_utils.licensing.container import START, LicenseContainers
from ansible_collections.accel.gpu.plugins.module_utils.licensing.diagnosis import CONFIG_PATH, TOKEN_PATH
from ansible_collections.accel.gpu.plugins.module_utils.licensing.rotation import RotationResult
from tests.helpers.license_nodes import Container, initial_files, lost_connection
from tests.helpers.rotations import CONFIG, NEW, OLD, NoLease, cluster, plan, rotate, rotator

STEPS = ["unchanged", "written", "written", "ended", "replaced", "replaced", "started"]


@pytest.mark.parametrize("checks", range(6))
def test_a_lost_lease_is_reported_with_its_node(checks: int) -> None:
    containers = cluster(3)
    access, rotations = plan(containers)
    result = RotationResult()
    with pytest.raises(LeaseLost) as error:
        rotator(access, NoLease(6 + checks)).run(rotations, result)
    actual = error.value.partial["license_rotation"]
    assert (actual["rotated"], actual["failed"], actual["pending"]) == (["n0"], "n1", ["n2"])
    assert actual["reached"] == STEPS[checks]
    assert "The rotation stopped at node n1, " in str(error.value)
    assert "The lease was lost: it was taken." in str(error.value)
    assert "Already rotated: node n0." in str(error.value)
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
    container, remaining = containers.by_node["n0"], delay

    def lose(node: str, command: tuple[str, ...]) -> None:
        nonlocal remaining
        if command == START and container.started == 1:
            container.hidden = delay > 0
            raise lost_connection()
        if command[0] == "cat" and container.hidden:
            remaining -= 1
            container.hidden = remaining > 0

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
    rotator(access).run(plan(containers)[1], result)
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
    remaining = number

    def replace(node: str, command: tuple[str, ...]) -> None:
        nonlocal remaining
        if node == "n0" and command[0] in ("cp", "mv", "kill", "env"):
            remaining -= 1
            if remaining == -1:
                containers.starting["n0"] = 3
                containers.replace_pod("n0", Container(initial_files(token, CONFIG)))
                raise lost_connection()

    setattr(containers, moment, replace)
    assert rotate(containers, timeout=5).rotated == ["n0", "n1"]
    container = containers.by_node["n0"]
    assert container.loaded == {TOKEN_PATH: NEW.encode(), CONFIG_PATH: CONFIG.encode()}
    # A driver that has started with the new files has a client that uses them.
    assert container.started == (0 if token == NEW else 1)


def test_a_driver_pod_that_was_replaced_before_its_turn() -> None:
    containers = cluster(2)
    access, rotations = plan(containers)
    containers.replace_pod("n1", Container(initial_files(NEW, CONFIG), delay=2))
    result = RotationResult()
    rotator(access).run(rotations, result)
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
        rotate(containers, timeout=0.1)
    assert (
        "The rotation stopped at node n1, after its new files were written next to the old ones: Not done within 0 s (wait_timeout). The driver pod "
        "driver-n1 was replaced. The driver does not run: "
    ) in str(error.value)
    actual = error.value.partial["license_rotation"]
    assert (actual["rotated"], actual["failed"], actual["reached"], actual["pending"]) == (
        ["n0"],
        "n1",
        "written",
        ["n2"],
    )


def test_a_state_that_cannot_be_read_without_a_client_does_not_leave_the_node_without_one() -> None:
    containers = cluster(1, sticky=True)

    def fail(node: str, command: tuple[str, ...]) -> None:
        if command[0] == "nvidia-smi" and containers.by_node[node].pid is None:
            raise ApiError("nvidia-smi did not end within 30 s", reason=TIMEOUT, method="GET", path="/exec")

    containers.before = fail
    assert rotate(containers).rotated == ["n0"]
    assert containers.by_node["n0"].licensed


@pytest.mark.parametrize("command", ["sha256sum", "cp", "kill", "mv", "env"])
@pytest.mark.parametrize("pod_stays", [False, True])
def test_a_node_that_leaves_the_cluster_does_not_end_the_run(command: str, pod_stays: bool) -> None:
    containers = cluster(3)

    def remove(node: str, sent: tuple[str, ...]) -> None:
        if node == "n1" and sent[0] == command and containers.mutations():
            containers.remove_node(node, pod_stays=pod_stays)

    containers.after = remove
    result = rotate(containers, timeout=1)
    assert (result.rotated, result.removed, result.failed) == (["n0", "n2"], ["n1"], "")


def test_a_node_that_leaves_the_cluster_while_its_license_is_awaited() -> None:
    containers = cluster(2)

    def remove(node: str, sent: tuple[str, ...]) -> None:
        if node == "n0" and containers.by_node[node].started:
            containers.remove_node(node)

    containers.after = remove
    assert (rotate(containers).rotated, rotate(containers).removed) == (["n1"], [])


def test_a_node_that_may_have_left_is_reported_with_its_error() -> None:
    containers = cluster(2)
    containers.by_node["n0"].immortal = True
    access, rotations = plan(containers)
    with (
        mock.patch.object(access, "has_node", side_effect=lost_connection()),
        pytest.raises(PartialFailure, match="is still running 60 s after SIGTERM"),
    ):
        rotator(access).run(rotations, RotationResult())
