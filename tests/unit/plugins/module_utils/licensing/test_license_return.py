# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Licenses are returned before machines are removed, and requested again if the nodes stay."""

from __future__ import annotations

import itertools
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import LeaseLost
from ansible_collections.accel.gpu.plugins.module_utils.licensing.container import LicenseContainers, LicenseReturn
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node, parse_node
from tests.helpers.license_nodes import Container, Containers, initial_files, lost_connection
from tests.helpers.license_tokens import make_token

TOKEN = make_token()


def node(name: str, *, vgpu: bool = True) -> Node:
    return parse_node({"metadata": {"name": name, "labels": {"nvidia.com/vgpu.present": str(vgpu).lower()}}})


def cluster(count: int = 3, **options: Any) -> tuple[Containers, LicenseReturn, list[str]]:
    containers = Containers({f"n{index}": Container(initial_files(TOKEN), **options) for index in range(count)})
    client, warnings = cast(Any, containers), list[str]()
    access = LicenseContainers(client, sleep=lambda dummy: None, clock=itertools.count().__next__)
    return containers, LicenseReturn(client, warnings.append, access), warnings


def pids(containers: Containers) -> list[int | None]:
    return [container.pid for container in containers.by_node.values()]


def test_the_licenses_of_removed_nodes_are_returned() -> None:
    containers, returning, warnings = cluster()
    returning.prepare([node("n0"), node("n2"), node("gone")])
    assert pids(containers) == [None, 100, None]
    assert {command for dummy, command in containers.mutations()} == {("kill", "-TERM", "100")}
    # A run that is repeated.
    containers.commands.clear()
    returning.prepare([node("n0"), node("n2")])
    assert containers.mutations() == []
    assert warnings == []


def test_nodes_without_a_vgpu_cause_no_request() -> None:
    containers, returning, dummy = cluster()
    containers.list = None  # type: ignore[assignment,method-assign]
    returning.prepare([node("n0", vgpu=False)])
    returning.cancel([])
    assert containers.commands == []


def test_nodes_that_stay_get_a_license_again() -> None:
    containers, returning, warnings = cluster()
    del containers.by_node["n2"].files["/etc/nvidia/ClientConfigToken/client_configuration_token.tok"]
    nodes = [node("n0"), node("n1"), node("n2")]
    returning.prepare([node("n0"), node("n2")])
    returning.cancel(nodes)
    assert pids(containers) == [101, 100, None]
    assert containers.by_node["n0"].licensed
    assert warnings == []


def test_a_failure_is_a_warning() -> None:
    containers, returning, warnings = cluster()
    containers.by_node["n1"].immortal = True
    containers.starting["n2"] = 10

    def fail(name: str, command: tuple[str, ...]) -> None:
        if name == "n0":
            raise lost_connection()

    containers.before = fail
    returning.prepare([node("n0"), node("n1"), node("n2")])
    assert sorted(warnings) == [
        "node n0: The license stays assigned until it expires. connection reset.",
        "node n1: The license stays assigned until it expires. nvidia-gridd (PID 100) in pod driver-n1 is still running 60 s after SIGTERM.",
    ]


def test_a_missing_right_is_one_warning() -> None:
    containers, returning, warnings = cluster()

    def refuse(name: str, command: tuple[str, ...]) -> None:
        raise ApiError(
            f'pods "{name}" is forbidden: User "u" cannot create resource "pods/exec"',
            status=403,
            reason="Forbidden",
            method="GET",
            path="/exec",
        )

    containers.before = refuse
    returning.prepare([node("n0"), node("n1"), node("n2")])
    assert warnings == [
        "3 nodes, n0, n1, n2: The license stays assigned until it expires. This user is not allowed to list driver pods or to run commands in them (pods/exec)."
    ]


def test_a_lost_lease_ends_the_run() -> None:
    containers, returning, warnings = cluster()

    def lose(name: str, command: tuple[str, ...]) -> None:
        raise LeaseLost("lost")

    containers.before = lose
    with pytest.raises(LeaseLost):
        returning.prepare([node("n0"), node("n1")])
    assert warnings == []
