# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes are drained before the cloud removes them, uncordoned when it refuses, and those of another cluster are left alone."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ServiceError
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import LeaseLost
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.reconciler import (
    GroupFailed,
    GroupListCache,
    GroupReconciler,
    ReconcileOptions,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import (
    NodeGroupSpec,
    NodeGroupState,
    plan_group_changes,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodes.drain import NodeDrainer
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node

from .slow_cloud import SlowCloud, Time


class Cluster:
    """Nodes of groups, of which some are cordoned; records its calls."""

    def __init__(self, count: int, group: str = "train") -> None:
        self._groups = {f"n{number}": group for number in range(count)}
        self.cordoned: set[str] = set()
        self.calls: list[str] = []
        self.lease_lost = False

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *why: object) -> None:
        """Nothing to release."""

    def check(self) -> None:
        if self.lease_lost:
            raise LeaseLost("lost")

    def cluster_nodes(self) -> list[Node]:
        return [Node(name, {"group": group}, ready=True) for name, group in self._groups.items()]

    def join(self, name: str, group: str) -> None:
        self._groups[name] = group

    def scale_down_candidates(self, names: Sequence[str], count: int) -> list[str]:
        return sorted(names, reverse=True)[:count]

    def drain(self, names: Sequence[str]) -> None:
        self.calls.append(f"empty {' '.join(sorted(names))}")
        self.cordoned |= set(names)

    def uncordon(self, names: Sequence[str]) -> None:
        self.calls.append(f"reopen {' '.join(sorted(names))}")
        self.cordoned -= set(names)


class Refusing(SlowCloud):
    """Refuses every resize and deletion with the same error; `calls` records the requests."""

    def __init__(self, error: ServiceError | None, calls: list[str], states: Sequence[NodeGroupState]) -> None:
        super().__init__(random.Random(3), Time(), states)
        self._error, self._calls = error, calls

    def _answered(self, what: str, do: Callable[[], None]) -> None:
        self._calls.append(what)
        if self._error is not None:
            raise self._error
        do()

    def _resize(self, name: str, count: int) -> None:
        self._answered(f"resize {count}", lambda: self._begin(name, "UPDATE_COMPLETE", settled=True, count=count))

    def delete(self, live: NodeGroupState) -> None:
        self._answered("delete", lambda: self._end(live.name))

    def _begin(self, name: str, status: str, **more: Any) -> None:
        self.groups[name] = dataclasses.replace(self.groups[name], status=status, **more)


def reconciler(cloud: Refusing, cluster: Cluster, spec: NodeGroupSpec) -> GroupReconciler:
    (change,), problems = plan_group_changes([spec], cloud.read(lambda dummy: True), cloud.immutable_fields, 20)
    assert not problems
    time = cloud._time
    return GroupReconciler(
        GroupListCache(cloud),
        change,
        cast(NodeDrainer, cluster),
        ReconcileOptions(timeout=30, interval=1),
        lambda dummy: None,
        time.clock,
        time.sleep,
    )


def reconcile(cloud: Refusing, cluster: Cluster, spec: NodeGroupSpec) -> None:
    reconciler(cloud, cluster, spec).reconcile()


def group_of_three(**more: Any) -> NodeGroupState:
    return NodeGroupState("train", "train", "UPDATE_COMPLETE", True, False, 3, fields={"flavor": "g4"}, **more)


SHRINK, DELETE = NodeGroupSpec("train", count=1), NodeGroupSpec("train", present=False)


@pytest.mark.parametrize(
    ("spec", "calls"),
    [(SHRINK, ["empty n1 n2", "resize 1"]), (DELETE, ["empty n0 n1 n2", "delete"])],
)
def test_nodes_are_drained_before_their_machines_are_removed(spec: NodeGroupSpec, calls: list[str]) -> None:
    cluster = Cluster(3)
    reconcile(Refusing(None, cluster.calls, [group_of_three()]), cluster, spec)
    assert cluster.calls == calls


class Scaled(Refusing):
    """An autoscaler scales its groups."""

    def stop_autoscaling(self, group: NodeGroupState) -> None:
        self._calls.append("stop autoscaling")


@pytest.mark.parametrize("method", ["reconcile", "request"])
def test_no_autoscaler_adds_nodes_to_a_group_that_is_drained_for_its_deletion(method: str) -> None:
    cluster = Cluster(3)
    getattr(reconciler(Scaled(None, cluster.calls, [group_of_three()]), cluster, DELETE), method)()
    assert cluster.calls == ["stop autoscaling", "empty n0 n1 n2", "delete"]


@pytest.mark.parametrize("spec", [SHRINK, DELETE])
def test_a_refused_request_leaves_no_node_cordoned(spec: NodeGroupSpec) -> None:
    cluster = Cluster(3)
    with pytest.raises(ServiceError, match="no permission"):
        reconcile(Refusing(ServiceError("no permission", status=403), cluster.calls, [group_of_three()]), cluster, spec)
    assert cluster.calls[-1].startswith("reopen")
    assert cluster.cordoned == set()


@pytest.mark.parametrize("spec", [SHRINK, DELETE])
def test_the_kubeconfig_of_another_cluster_is_reported_before_any_request(spec: NodeGroupSpec) -> None:
    cluster = Cluster(3, group="another")
    with pytest.raises(GroupFailed, match=r"No machine of node group train .vm-1. .*kubeconfig"):
        reconcile(Refusing(None, cluster.calls, [group_of_three(machines=("vm-1",))]), cluster, spec)
    assert cluster.calls == []


@pytest.mark.parametrize(
    ("spec", "calls"),
    [(SHRINK, ["empty n1 n2", "resize 1"]), (DELETE, ["empty n0 n1 n2", "delete"])],
)
def test_nodes_are_also_drained_without_wait(spec: NodeGroupSpec, calls: list[str]) -> None:
    cluster = Cluster(3)
    reconciler(Refusing(None, cluster.calls, [group_of_three()]), cluster, spec).request()
    assert cluster.calls == calls


@pytest.mark.parametrize("spec", [SHRINK, DELETE])
def test_a_refused_request_leaves_no_node_cordoned_without_wait(spec: NodeGroupSpec) -> None:
    cluster = Cluster(3)
    refusing = Refusing(ServiceError("no permission", status=403), cluster.calls, [group_of_three()])
    with pytest.raises(ServiceError, match="no permission"):
        reconciler(refusing, cluster, spec).request()
    assert cluster.cordoned == set()


@pytest.mark.parametrize(
    ("count", "calls"),
    [
        (3, ["reopen n0 n1 n2", "empty other", "delete"]),
        # One of them is about to be removed, and it is unknown which.
        (4, ["empty other", "delete"]),
    ],
)
def test_a_group_that_stays_is_uncordoned_before_the_other_one_is_drained(count: int, calls: list[str]) -> None:
    cluster = Cluster(count)
    cluster.cordoned = {"n0", "n1"}
    cluster.join("other", "train-0123")
    orphan = dataclasses.replace(
        group_of_three(), id="train-0123", name="train-0123", owner="train", count=1, fields={"flavor": "g5"}
    )
    spec = NodeGroupSpec("train", count=3, recreate=True, fields={"flavor": "g4"})
    reconcile(Refusing(None, cluster.calls, [group_of_three(), orphan]), cluster, spec)
    assert cluster.calls == calls


class LosesItsLease(Cluster):
    """The process is stopped past its lease during the drain."""

    def drain(self, names: Sequence[str]) -> None:
        super().drain(names)
        self.lease_lost = True


@pytest.mark.parametrize("method", ["reconcile", "request"])
@pytest.mark.parametrize("spec", [SHRINK, DELETE])
def test_no_request_is_sent_once_the_lease_is_lost(spec: NodeGroupSpec, method: str) -> None:
    cluster = LosesItsLease(3)
    with pytest.raises(LeaseLost):
        getattr(reconciler(Refusing(None, cluster.calls, [group_of_three()]), cluster, spec), method)()
    assert [what for what in cluster.calls if what.startswith(("resize", "delete"))] == []


@pytest.mark.parametrize("spec", [SHRINK, DELETE])
def test_the_wait_ends_once_the_lease_is_lost(spec: NodeGroupSpec) -> None:
    cluster = Cluster(3)

    class LostMeanwhile(Refusing):
        def _answered(self, what: str, do: Callable[[], None]) -> None:
            cluster.lease_lost = True

    cloud = LostMeanwhile(None, cluster.calls, [group_of_three()])
    with pytest.raises(LeaseLost):
        reconcile(cloud, cluster, spec)
    assert cloud._time.now < 2
