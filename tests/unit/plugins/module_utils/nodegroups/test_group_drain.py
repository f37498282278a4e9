# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes are emptied before a cloud takes their machines, opened again when it does not, and those of another cluster left alone."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.common.errors import ServiceError
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import LeaseLost
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.group_drain import GroupFailed
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.group_reconciler import GroupReconciler
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.list_cache import GroupListCache
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.plan import plan_changes
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.provider import ClusterNode
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import NodeGroupSpec, NodeGroupState

from .slow_cloud import SlowCloud, Time


class Cluster:
    """Nodes of groups, of which some are closed; tells what was asked of it."""

    def __init__(self, count: int, group: str = "train") -> None:
        self._groups = {f"n{number}": group for number in range(count)}
        self.closed: set[str] = set()
        self.told: list[str] = []
        self.lease_lost = False

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *why: object) -> None:
        """Nothing to give back."""

    def check(self) -> None:
        if self.lease_lost:
            raise LeaseLost("lost")

    def cluster_nodes(self) -> list[ClusterNode]:
        return [ClusterNode(name, True, (), "", {"group": group}) for name, group in self._groups.items()]

    def join(self, name: str, group: str) -> None:
        self._groups[name] = group

    def scale_down_candidates(self, names: Sequence[str], count: int) -> list[str]:
        return sorted(names, reverse=True)[:count]

    def drain(self, names: Sequence[str]) -> None:
        self.told.append(f"empty {' '.join(sorted(names))}")
        self.closed |= set(names)

    def uncordon(self, names: Sequence[str]) -> None:
        self.told.append(f"reopen {' '.join(sorted(names))}")
        self.closed -= set(names)


class Refusing(SlowCloud):
    """Refuses every resize and deletion in the same way; `seen` is told what was asked."""

    def __init__(self, error: ServiceError | None, told: list[str], lives: Sequence[NodeGroupState]) -> None:
        super().__init__(random.Random(3), Time(), lives)
        self._error, self._told = error, told

    def _answered(self, what: str, do: Callable[[], None]) -> None:
        self._told.append(what)
        if self._error is not None:
            raise self._error
        do()

    def _resize(self, name: str, count: int) -> None:
        self._answered(f"resize {count}", lambda: self._begin(name, "UPDATE_COMPLETE", settled=True, count=count))

    def delete(self, live: NodeGroupState) -> None:
        self._answered("delete", lambda: self._end(live.name))

    def _begin(self, name: str, status: str, **more: Any) -> None:
        self.groups[name] = dataclasses.replace(self.groups[name], status=status, **more)


def following(cloud: Refusing, cluster: Cluster, wish: NodeGroupSpec) -> GroupReconciler:
    (change,), problems = plan_changes([wish], cloud.survey(lambda dummy: True), cloud.words, cloud.unchangeable, 20)
    assert not problems
    time = cloud._time
    return GroupReconciler(
        GroupListCache(cloud),
        change,
        cluster,
        timeout=30,
        interval=1,
        say=lambda dummy: None,
        clock=time.clock,
        sleep=time.sleep,
    )


def follow(cloud: Refusing, cluster: Cluster, wish: NodeGroupSpec) -> None:
    following(cloud, cluster, wish).go()


def of_three(**more: Any) -> NodeGroupState:
    return NodeGroupState("train", "train", "UPDATE_COMPLETE", True, False, 3, fields={"flavor": "g4"}, **more)


SHRINK, DELETE = NodeGroupSpec("train", count=1), NodeGroupSpec("train", present=False)


@pytest.mark.parametrize(
    ("wish", "told"),
    [(SHRINK, ["empty n1 n2", "resize 1"]), (DELETE, ["empty n0 n1 n2", "delete"])],
)
def test_nodes_are_emptied_before_their_machines_go(wish: NodeGroupSpec, told: list[str]) -> None:
    cluster = Cluster(3)
    follow(Refusing(None, cluster.told, [of_three()]), cluster, wish)
    assert cluster.told == told


@pytest.mark.parametrize("wish", [SHRINK, DELETE])
def test_what_the_cloud_refuses_leaves_no_node_closed(wish: NodeGroupSpec) -> None:
    cluster = Cluster(3)
    with pytest.raises(ServiceError, match="no rights"):
        follow(Refusing(ServiceError("no rights", status=403), cluster.told, [of_three()]), cluster, wish)
    assert cluster.told[-1].startswith("reopen")
    assert cluster.closed == set()


@pytest.mark.parametrize("wish", [SHRINK, DELETE])
def test_another_clusters_kubeconfig_is_told_before_anything_is_asked(wish: NodeGroupSpec) -> None:
    cluster = Cluster(3, group="somebody else's")
    with pytest.raises(GroupFailed, match=r"None of the machines vm-1 of node group train .*kubeconfig"):
        follow(Refusing(None, cluster.told, [of_three(machines=("vm-1",))]), cluster, wish)
    assert cluster.told == []


@pytest.mark.parametrize(
    ("wish", "told"),
    [(SHRINK, ["empty n1 n2", "resize 1"]), (DELETE, ["empty n0 n1 n2", "delete"])],
)
def test_nodes_are_emptied_also_by_whoever_does_not_wait_for_the_cloud(wish: NodeGroupSpec, told: list[str]) -> None:
    cluster = Cluster(3)
    following(Refusing(None, cluster.told, [of_three()]), cluster, wish).request()
    assert cluster.told == told


@pytest.mark.parametrize("wish", [SHRINK, DELETE])
def test_whoever_does_not_wait_leaves_no_node_closed_for_what_the_cloud_refuses(wish: NodeGroupSpec) -> None:
    cluster = Cluster(3)
    refusing = Refusing(ServiceError("no rights", status=403), cluster.told, [of_three()])
    with pytest.raises(ServiceError, match="no rights"):
        following(refusing, cluster, wish).request()
    assert cluster.closed == set()


@pytest.mark.parametrize(
    ("there", "told"),
    [
        (3, ["reopen n0 n1 n2", "empty other", "delete"]),
        # One is on its way out, and nobody knows which.
        (4, ["empty other", "delete"]),
    ],
)
def test_a_group_that_stays_takes_pods_again_before_its_replacement_is_emptied(there: int, told: list[str]) -> None:
    cluster = Cluster(there)
    cluster.closed = {"n0", "n1"}
    cluster.join("other", "train-0123")
    spare = dataclasses.replace(of_three(), id="train-0123", name="train-0123", count=1, fields={"flavor": "g5"})
    wish = NodeGroupSpec("train", count=3, recreate=True, fields={"flavor": "g4"})
    follow(Refusing(None, cluster.told, [of_three(), spare]), cluster, wish)
    assert cluster.told == told


class LosesItsLease(Cluster):
    """The process is stopped past its lease while the nodes are emptied."""

    def drain(self, names: Sequence[str]) -> None:
        super().drain(names)
        self.lease_lost = True


@pytest.mark.parametrize("how", ["go", "request"])
@pytest.mark.parametrize("wish", [SHRINK, DELETE])
def test_the_cloud_is_asked_for_nothing_once_the_lease_is_lost(wish: NodeGroupSpec, how: str) -> None:
    cluster = LosesItsLease(3)
    with pytest.raises(LeaseLost):
        getattr(following(Refusing(None, cluster.told, [of_three()]), cluster, wish), how)()
    assert [what for what in cluster.told if what.startswith(("resize", "delete"))] == []


@pytest.mark.parametrize("wish", [SHRINK, DELETE])
def test_the_wait_for_the_cloud_ends_once_the_lease_is_lost(wish: NodeGroupSpec) -> None:
    cluster = Cluster(3)

    class LostMeanwhile(Refusing):
        def _answered(self, what: str, do: Callable[[], None]) -> None:
            cluster.lease_lost = True

    cloud = LostMeanwhile(None, cluster.told, [of_three()])
    with pytest.raises(LeaseLost):
        follow(cloud, cluster, wish)
    assert cloud._time.now < 2
