# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SharedLease: the first user acquires it, the last one releases it, and the next one acquires a new one. The order of the steps for nodes that stay."""

from __future__ import annotations

import typing as t
from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import CORDONED_ANNOTATION
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import Lease, LeaseHeld
from ansible_collections.accel.gpu.plugins.module_utils.nodes.drain import NodeDrainer, NodeRemoval, SharedLease
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import parse_node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node_check import REMOVAL_REASON


class Leases:
    """Creates leases that record acquire and release; `taken` ones are held by another run."""

    def __init__(self, taken: bool = False) -> None:
        self.events: list[str] = []
        self._taken, self._count = taken, 0

    def make(self) -> Lease:
        self._count += 1
        return t.cast("Lease", _RecordingLease(self.events, self._count, self._taken))


class _RecordingLease:
    def __init__(self, events: list[str], number: int, taken: bool) -> None:
        self.events, self.number, self.taken = events, number, taken

    def __enter__(self) -> _RecordingLease:
        if self.taken:
            raise LeaseHeld("another run")
        self.events.append(f"acquire {self.number}")
        return self

    def __exit__(self, *dummy: object) -> None:
        self.events.append(f"release {self.number}")


def test_the_lease_is_held_until_the_last_user_ends() -> None:
    leases = Leases()
    shared = SharedLease(leases.make)
    with shared.held() as first:
        with shared.held() as second:
            assert first is second
        assert leases.events == ["acquire 1"]
    assert leases.events == ["acquire 1", "release 1"]
    with shared.held():
        pass
    assert leases.events == ["acquire 1", "release 1", "acquire 2", "release 2"]


def test_the_lease_is_released_after_a_failure() -> None:
    leases = Leases()
    shared = SharedLease(leases.make)
    with pytest.raises(RuntimeError), shared.held():
        raise RuntimeError
    assert leases.events == ["acquire 1", "release 1"]


def test_users_fail_while_another_run_holds_the_lease() -> None:
    leases = Leases(taken=True)
    shared = SharedLease(leases.make)
    for dummy in range(2):
        with pytest.raises(LeaseHeld), shared.held():
            pass
    assert leases.events == []


class _Killed(BaseException):
    """The end of the run by a signal."""


def test_the_work_on_nodes_that_stay_is_done_before_their_cordon_is_removed() -> None:
    leases, canceled = Leases(), list[str]()
    removal = mock.Mock(NodeRemoval)
    removal.cancel.side_effect = lambda nodes: canceled.extend(node.name for node in nodes)
    drainer = NodeDrainer(mock.Mock(), mock.Mock(), SharedLease(leases.make), lambda node, text: None, removal=removal)
    cordon = {CORDONED_ANNOTATION: REMOVAL_REASON}
    nodes = [parse_node({"metadata": {"name": name, "annotations": cordon if name == "a" else {}}}) for name in "ab"]
    # The next run finds these nodes by their cordon.
    with (
        mock.patch.object(drainer, "cluster_nodes", return_value=nodes),
        mock.patch.object(drainer, "_patch_all", side_effect=_Killed),
        pytest.raises(_Killed),
    ):
        drainer.uncordon(["a", "b"])
    assert canceled == ["a"]
