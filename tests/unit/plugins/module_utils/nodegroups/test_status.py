# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes of the pools' groups, their edits, and the texts while they are awaited."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import StateTimer
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.nodes import (
    GroupStatus,
    StatusHistory,
    group_statuses,
    progress_text,
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
    ready_condition = {"type": "Ready", "status": "True" if ready else "False", **(condition or {})}
    return {
        "metadata": {"name": name, "labels": labels, "resourceVersion": "1"},
        "spec": {"taints": rest.get("taints", [])},
        "status": {"conditions": [ready_condition], "allocatable": rest.get("allocatable", {})},
    }


def statuses(
    *raws: Document,
    pools: tuple[Document, ...] = (TRAIN,),
    nodegroups: Document | None = None,
    cluster: Document | None = None,
) -> list[GroupStatus]:
    return group_statuses(derive(cluster or CLUSTER, {}, list(pools)), nodegroups or {}, raws)


def test_nodes_by_the_labels_of_the_cloud_and_of_the_pool() -> None:
    (train,) = statuses(
        raw("new", {GROUP: "gpus-a"}),
        # The cloud's module reports the name of a replacement; another group with such a name belongs to others.
        raw("replaced", {GROUP: "gpus-a-0f3c"}),
        raw("2026", {GROUP: "gpus-a-2026"}),
        raw("pinned before", {GROUP: "gpus-a-beef", PIN: "train"}),
        raw("pinned", {PIN: "train"}),
        raw("other", {GROUP: "default-worker"}),
        raw("brought", {GROUP: "default-worker", PIN: "train"}),
        raw("away", {GROUP: "gpus-a-0f3c", PIN: "another"}),
        nodegroups={"gpus-a": {"name": "gpus-a-0f3c"}},
    )
    assert [node.name for node in train.nodes] == ["away", "pinned", "replaced"]


@pytest.mark.parametrize("other", ["gpus-a-beef", "gpus-a", "gpus-a-2026"])
@pytest.mark.parametrize("ready", [True, False])
def test_nodes_of_a_group_with_the_name_of_a_replacement_are_not_counted(other: str, ready: bool) -> None:
    """Its nodes carry the label of the pool, for example because the group was copied, but the cloud's module has reported the pool's group."""
    reported = {"gpus-a": {"name": "gpus-a-0f3c", "node_count": 2}}
    copies = [raw("copy-1", {GROUP: other, PIN: "train"}), raw("copy-2", {GROUP: other, PIN: "train"}, ready=ready)]
    (train,) = statuses(*copies, nodegroups=reported)
    assert (train.nodes, train.missing, train.complete) == ((), 2, False)


def test_without_a_report_of_the_cloud_a_replacement_is_known_by_its_name_and_the_label_of_the_pool() -> None:
    (train,) = statuses(
        raw("replaced", {GROUP: "gpus-a-beef", PIN: "train"}),
        raw("unlabeled", {GROUP: "gpus-a-beef"}),
        raw("another", {GROUP: "gpus-a-2026x", PIN: "train"}),
    )
    assert [node.name for node in train.nodes] == ["replaced"]


def test_the_nodes_that_an_adopted_group_already_has_are_taken_in() -> None:
    machineset: Document = {"name": "lab", "distribution": "openshift", "cloud": {"machineset": {}}}
    pool: Document = {"name": "t4", "model": "T4", "nodes": {"flavor": "g4dn.xlarge", "count": 2, "adopt": True}}
    existing = [raw("old", {}), raw("joined", {PIN: "t4"}), raw("other", {}), raw("elsewhere", {PIN: "a100"})]
    result = {"t4": {"name": "t4", "node_count": 2, "adopted_nodes": ["old", "elsewhere", "gone"]}}
    (status,) = statuses(*existing, pools=(pool,), cluster=machineset, nodegroups=result)
    assert [node.name for node in status.nodes] == ["joined", "old"]
    assert (status.missing, status.complete) == (0, True)
    edits = {node.name: status.edit_of(node) for node in status.nodes}
    assert edits["old"] is not None
    assert edits["old"].patch["metadata"]["labels"][PIN] == "t4"


def test_nodes_of_a_cloud_without_such_a_label() -> None:
    (train,) = statuses(raw("a", {PIN: "train"}), raw("b", {}), cluster=VKS)
    assert [node.name for node in train.nodes] == ["a"]


@pytest.mark.parametrize(
    ("pool", "nodegroups", "desired"),
    [
        (TRAIN, {}, 2),
        (TRAIN, {"gpus-a": {"node_count": 3}}, 3),
        (TRAIN, {"gpus-a": {"node_count": 0}}, 0),
        (TRAIN, {"gpus-a": {"action": "none"}}, 2),
        (SCALED, {}, 1),
        (SCALED, {"scaled": {"node_count": 4}}, 4),
    ],
)
def test_the_desired_number_of_nodes(pool: Document, nodegroups: Document, desired: int) -> None:
    (actual,) = statuses(pools=(pool,), nodegroups=nodegroups)
    assert (actual.desired, actual.missing, actual.complete) == (desired, desired, desired == 0)


def test_ready_and_surplus_nodes() -> None:
    gone = raw("gone", {GROUP: "gpus-a"}, ready=False)
    (train,) = statuses(raw("a", {GROUP: "gpus-a"}), gone)
    assert (train.ready, train.missing, train.complete) == (1, 0, False)
    (train,) = statuses(raw("a", {GROUP: "gpus-a"}), raw("b", {GROUP: "gpus-a"}), gone)
    assert (train.ready, train.missing, train.complete) == (2, 0, True)


def test_a_new_node_gets_all_metadata() -> None:
    (train,) = statuses(raw("new", {GROUP: "gpus-a"}, ready=False))
    edit = train.edit_of(train.nodes[0])
    assert edit is not None
    assert edit.labels == train.pool.node_labels
    assert edit.after["taints"] == ["team=x:NoSchedule"]
    assert edit.after["annotations"]["accel.gpu/pool-taints"] == '["team=x:NoSchedule"]'


def test_a_node_that_registers_with_its_metadata_is_not_changed() -> None:
    (pool,) = derive(CLUSTER, {}, [TRAIN]).pools
    (train,) = statuses(raw("new", {GROUP: "gpus-a", **pool.registration.node_labels}, taints=[TAINT]))
    assert train.edit_of(train.nodes[0]) is None


@pytest.mark.parametrize(
    ("labels", "allocatable", "patched"),
    [
        ({PRODUCT: "Tesla-T4", "nvidia.com/gpu.present": "true"}, {}, {PIN: "train"}),
        ({}, {"nvidia.com/gpu": "4"}, {PIN: "train"}),
        ({PRODUCT: "Tesla-T4", "nvidia.com/gpu.present": "true", PIN: "train"}, {"nvidia.com/gpu": "4"}, None),
    ],
)
def test_a_node_with_gpus_only_gets_the_label_of_the_pool(
    labels: Document, allocatable: Document, patched: Document | None
) -> None:
    (train,) = statuses(raw("old", {GROUP: "gpus-a", **labels}, allocatable=allocatable))
    edit = train.edit_of(train.nodes[0])
    assert (edit.patch["metadata"]["labels"] if edit else None) == patched


def test_named_pools() -> None:
    plan = derive(CLUSTER, {}, [TRAIN, SCALED, {"name": "old", "match": {"model": "T4"}}])
    assert [status.pool.name for status in group_statuses(plan, {}, [])] == ["train", "scaled"]
    assert [status.pool.name for status in group_statuses(plan, {}, [], ["scaled"])] == ["scaled"]


def test_the_message_of_a_timeout() -> None:
    now = [0.0]
    history = StatusHistory(StateTimer(lambda: now[0]))
    actual = statuses(
        raw(
            "b", {GROUP: "gpus-a"}, ready=False, condition={"reason": "KubeletNotReady", "message": "cni is not there"}
        ),
        pools=(TRAIN, {**SCALED, "autoscale": {"min": 0, "max": 4}}),
    )
    assert progress_text(actual) == "nodes ready: gpus-a 0/2"
    history.record(actual)
    now[0] = 60.0
    assert history.timeout_message(actual, "the console") == (
        "Node group gpus-a (pool train): 0 of 2 nodes are ready, for 60 s; 1 never joined the cluster; b is not ready for 60 s or longer "
        "(KubeletNotReady: cni is not there). Check the machines in the cloud (the console), and run the playbook again."
    )


def test_a_node_without_conditions() -> None:
    silent = raw("b", {GROUP: "gpus-a"})
    silent["status"] = {}
    (train,) = statuses(silent)
    assert train.not_ready == {"b": "the kubelet has not reported yet"}
    many = statuses(*(raw(f"n{number}", {GROUP: "gpus-a"}, ready=False) for number in range(7)))
    assert "2 more are not ready" in StatusHistory().timeout_message(many, "x")


def leaving(name: str, why: str = "the machine is being removed from the cluster", **rest: t.Any) -> Document:
    """A node of the group that a run has cordoned."""
    actual = raw(name, {GROUP: "gpus-a", PIN: "train", "team": "x"}, taints=[TAINT], **rest)
    actual["metadata"]["annotations"] = {"accel.gpu/cordoned": why}
    actual["spec"]["unschedulable"] = True
    return actual


@pytest.mark.parametrize("allocatable", [{}, {"nvidia.com/gpu": "1"}])
def test_a_node_that_stays_after_all_is_uncordoned(allocatable: Document) -> None:
    (train,) = statuses(leaving("a", allocatable=allocatable), raw("b", {GROUP: "gpus-a"}))
    edit = train.edit_of(train.nodes[0])
    assert edit is not None
    assert edit.patch["spec"]["unschedulable"] is None
    assert edit.patch["metadata"]["annotations"]["accel.gpu/cordoned"] is None
    assert edit.patch["metadata"]["resourceVersion"] == "1"
    assert (edit.before["unschedulable"], edit.after["unschedulable"]) == (True, False)


def uncordoned(status: GroupStatus) -> list[str]:
    edits = filter(None, map(status.edit_of, status.nodes))
    return [edit.name for edit in edits if "unschedulable" in edit.patch.get("spec", {})]


def test_surplus_nodes_and_nodes_cordoned_for_other_reasons_stay_cordoned() -> None:
    (train,) = statuses(leaving("a"), raw("b", {GROUP: "gpus-a"}), raw("c", {GROUP: "gpus-a"}))
    assert not uncordoned(train)
    (train,) = statuses(leaving("a", "GPU sharing is being changed"), raw("b", {GROUP: "gpus-a"}))
    assert not uncordoned(train)
