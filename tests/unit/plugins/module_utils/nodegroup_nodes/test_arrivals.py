# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes of the pools' groups have come, what they lack, and what is told while they are awaited."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.common.wait import StateTimer
from ansible_collections.accel.gpu.plugins.module_utils.nodegroup_nodes.arrivals import GroupArrival, arrivals
from ansible_collections.accel.gpu.plugins.module_utils.nodegroup_nodes.messages import (
    ArrivalMessages,
    progress,
    summary,
)
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from tests.helpers.variables import Document

GROUP, PIN, PRODUCT = "magnum.openstack.org/nodegroup", "accel.gpu/pool", "nvidia.com/gpu.product"
CLUSTER: Document = {"name": "lab", "cloud": {"magnum": {}}}
VKS: Document = {"name": "lab", "cloud": {"vks": {}}}
TAINT: Document = {"key": "team", "value": "x", "effect": "NoSchedule"}
TRAIN: Document = {
    "name": "train",
    "nodes": {"flavor": "f", "count": 2, "name": "gpus-a"},
    "labels": {"team": "x"},
    "taints": [TAINT],
}
SCALED: Document = {"name": "scaled", "nodes": {"flavor": "f"}, "autoscale": {"min": 1, "max": 4}}


def raw(
    name: str, labels: Document, *, ready: bool = True, condition: Document | None = None, **rest: t.Any
) -> Document:
    """A Node object."""
    told = {"type": "Ready", "status": "True" if ready else "False", **(condition or {})}
    return {
        "metadata": {"name": name, "labels": labels, "resourceVersion": "1"},
        "spec": {"taints": rest.get("taints", [])},
        "status": {"conditions": [told], "allocatable": rest.get("allocatable", {})},
    }


def came(
    *raws: Document,
    pools: tuple[Document, ...] = (TRAIN,),
    told: Document | None = None,
    cluster: Document | None = None,
) -> list[GroupArrival]:
    return arrivals(derive(cluster or CLUSTER, {}, list(pools)), told or {}, raws)


def test_nodes_by_the_clouds_label_and_by_the_pools() -> None:
    (train,) = came(
        raw("new", {GROUP: "gpus-a"}),
        raw("replaced", {GROUP: "gpus-a-0f3c"}),
        raw("pinned", {PIN: "train"}),
        raw("other", {GROUP: "default-worker"}),
        raw("brought", {GROUP: "default-worker", PIN: "train"}),
        raw("away", {GROUP: "gpus-a", PIN: "another"}),
    )
    assert [arrived.node.name for arrived in train.nodes] == ["away", "new", "pinned", "replaced"]


def test_nodes_of_a_cloud_without_such_a_label() -> None:
    (train,) = came(raw("a", {PIN: "train"}), raw("b", {}), cluster=VKS)
    assert [arrived.node.name for arrived in train.nodes] == ["a"]


@pytest.mark.parametrize(
    ("pool", "told", "wanted"),
    [
        (TRAIN, {}, 2),
        (TRAIN, {"gpus-a": {"node_count": 3}}, 3),
        (TRAIN, {"gpus-a": {"node_count": 0}}, 0),
        (TRAIN, {"gpus-a": {"action": "none"}}, 2),
        (SCALED, {}, 1),
        (SCALED, {"scaled": {"node_count": 4}}, 4),
    ],
)
def test_how_many_are_awaited(pool: Document, told: Document, wanted: int) -> None:
    (found,) = came(pools=(pool,), told=told)
    assert (found.wanted, found.missing, found.done) == (wanted, wanted, wanted == 0)


def test_words_of_vks() -> None:
    (found,) = came(told={"gpus-a": {"num_nodes": 5, "node_count": 1}}, cluster=VKS)
    assert found.wanted == 5


def test_ready_and_on_its_way_out() -> None:
    gone = raw("gone", {GROUP: "gpus-a"}, ready=False)
    (train,) = came(raw("a", {GROUP: "gpus-a"}), gone)
    assert (train.ready, train.missing, train.done) == (1, 0, False)
    (train,) = came(raw("a", {GROUP: "gpus-a"}), raw("b", {GROUP: "gpus-a"}), gone)
    assert (train.ready, train.missing, train.done) == (2, 0, True)


def test_a_new_node_gets_all_of_it() -> None:
    (train,) = came(raw("new", {GROUP: "gpus-a"}, ready=False))
    edit = train.nodes[0].edit
    assert edit is not None
    assert edit.labels == train.pool.node_labels
    assert edit.after["taints"] == ["team=x:NoSchedule"]
    assert edit.after["annotations"]["accel.gpu/pool-taints"] == '["team=x:NoSchedule"]'


def test_a_node_that_is_born_right_gets_nothing() -> None:
    (pool,) = derive(CLUSTER, {}, [TRAIN]).pools
    (train,) = came(raw("new", {GROUP: "gpus-a", **pool.registration.node_labels}, taints=[TAINT]))
    assert train.nodes[0].edit is None


@pytest.mark.parametrize(
    ("labels", "allocatable", "patched"),
    [
        ({PRODUCT: "Tesla-T4", "nvidia.com/gpu.present": "true"}, {}, {PIN: "train"}),
        ({}, {"nvidia.com/gpu": "4"}, {PIN: "train"}),
        ({PRODUCT: "Tesla-T4", "nvidia.com/gpu.present": "true", PIN: "train"}, {"nvidia.com/gpu": "4"}, None),
    ],
)
def test_a_node_that_offers_gpus_is_only_made_sure_to_be_the_pools(
    labels: Document, allocatable: Document, patched: Document | None
) -> None:
    (train,) = came(raw("old", {GROUP: "gpus-a", **labels}, allocatable=allocatable))
    edit = train.nodes[0].edit
    assert (edit.patch["metadata"]["labels"] if edit else None) == patched


def test_pools_that_are_not_asked_for() -> None:
    plan = derive(CLUSTER, {}, [TRAIN, SCALED, {"name": "old", "match": {"model": "T4"}}])
    assert [of.pool.name for of in arrivals(plan, {}, [])] == ["train", "scaled"]
    assert [of.pool.name for of in arrivals(plan, {}, [], ["scaled"])] == ["scaled"]


def test_story() -> None:
    now = [0.0]
    story = ArrivalMessages(StateTimer(lambda: now[0]))
    found = came(
        raw(
            "b", {GROUP: "gpus-a"}, ready=False, condition={"reason": "KubeletNotReady", "message": "cni is not there"}
        ),
        pools=(TRAIN, {**SCALED, "autoscale": {"min": 0, "max": 4}}),
    )
    assert progress(found) == "nodes ready: gpus-a 0/2"
    assert summary(found)["train"] == {"group": "gpus-a", "wanted": 2, "nodes": 1, "ready": 0}
    story.note(found)
    now[0] = 60.0
    assert story.told(found, "the console") == (
        "Node group gpus-a (pool train): 0 of 2 nodes are ready, for 60 s; 1 never came to the cluster; b is not ready for 60 s or longer "
        "(KubeletNotReady: cni is not there). Look at the machines in the cloud (the console), and run again."
    )


def test_a_node_that_says_nothing() -> None:
    silent = raw("b", {GROUP: "gpus-a"})
    silent["status"] = {}
    (train,) = came(silent)
    assert train.nodes[0].why == "its kubelet has said nothing yet"
    many = came(*(raw(f"n{number}", {GROUP: "gpus-a"}, ready=False) for number in range(5)))
    assert "2 more are not ready" in ArrivalMessages().told(many, "x")


def leaving(name: str, why: str = "its machine is being removed from the cluster", **rest: t.Any) -> Document:
    """A node of the group that a run has closed."""
    found = raw(name, {GROUP: "gpus-a", PIN: "train", "team": "x"}, taints=[TAINT], **rest)
    found["metadata"]["annotations"] = {"accel.gpu/cordoned": why}
    found["spec"]["unschedulable"] = True
    return found


@pytest.mark.parametrize("allocatable", [{}, {"nvidia.com/gpu": "1"}])
def test_a_node_that_was_to_leave_and_stays_is_opened_again(allocatable: Document) -> None:
    (train,) = came(leaving("a", allocatable=allocatable), raw("b", {GROUP: "gpus-a"}))
    edit = train.nodes[0].edit
    assert edit is not None
    assert edit.patch["spec"]["unschedulable"] is None
    assert edit.patch["metadata"]["annotations"]["accel.gpu/cordoned"] is None
    assert edit.patch["metadata"]["resourceVersion"] == "1"
    assert (edit.before["unschedulable"], edit.after["unschedulable"]) == (True, False)


def test_one_on_its_way_out_and_one_that_is_closed_for_another_reason_stay_closed() -> None:
    (train,) = came(leaving("a"), raw("b", {GROUP: "gpus-a"}), raw("c", {GROUP: "gpus-a"}))
    assert not any(
        "spec" in of.edit.patch and "unschedulable" in of.edit.patch["spec"] for of in train.nodes if of.edit
    )
    (train,) = came(leaving("a", "the sharing of its GPUs is being changed"), raw("b", {GROUP: "gpus-a"}))
    assert not any(
        "spec" in of.edit.patch and "unschedulable" in of.edit.patch["spec"] for of in train.nodes if of.edit
    )
