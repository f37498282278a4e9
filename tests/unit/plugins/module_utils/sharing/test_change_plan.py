# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""plan_sharing_changes: which nodes and ConfigMap entries change, before anything is sent."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.messages import MAX_LISTED
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import (
    POOL_OWNER,
    assign_pools,
    awaited_nodes,
    is_undiscovered,
)
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Plan
from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import (
    ChangePlan,
    ConfigMaps,
    held_back_taints,
    plan_sharing_changes,
)
from ansible_collections.accel.gpu.plugins.module_utils.sharing.operation import lost_entries
from tests.helpers.fleet import node

CONFIG = "nvidia.com/device-plugin.config"


def _plan(*pools: dict[str, t.Any]) -> Plan:
    return derive({"name": "lab"}, {}, list(pools))


def _changes(plan: Plan, nodes: list[Node], configmap: dict[str, t.Any] | None = None) -> ChangePlan:
    return plan_sharing_changes(plan, nodes, assign_pools(plan.pools, nodes), ConfigMaps(configmap))


def _converged(plan: Plan, nodes: list[Node]) -> tuple[list[Node], dict[str, t.Any]]:
    """The nodes and the ConfigMap after a run."""
    changes = _changes(plan, nodes)
    edits = {edit.name: edit for edit in changes.edits}
    after = []
    for before in nodes:
        metadata = edits[before.name].patch["metadata"] if before.name in edits else {}
        labels = {**before.labels, **metadata.get("labels", {})}
        annotations = {**before.annotations, **metadata.get("annotations", {})}
        taints = (
            edits[before.name].patch.get("spec", {}).get("taints", before.taints)
            if before.name in edits
            else before.taints
        )
        after.append(
            Node(
                before.name,
                {key: value for key, value in labels.items() if value is not None},
                {key: value for key, value in annotations.items() if value is not None},
                tuple(taints),
                before.allocatable,
                ready=True,
            )
        )
    managed = [
        {"manager": "accel.gpu", "fieldsV1": {"f:data": {f"f:{key}": {} for key in changes.device_plugin.after}}}
    ]
    return after, {"data": changes.device_plugin.after, "metadata": {"managedFields": managed}}


T4X4 = {"name": "notebooks", "match": {"model": "Tesla-T4"}, "sharing": {"mode": "time-slicing", "replicas": 4}}
T4X8 = {**T4X4, "sharing": {"mode": "time-slicing", "replicas": 8}}
T4 = {**T4X4, "sharing": {"mode": "none"}}
L40S = {"name": "inference", "match": {"model": "L40S"}, "sharing": {"mode": "none"}}
TAINTED = {**T4X4, "taints": [{"key": "restricted", "value": "yes", "effect": "NoSchedule"}], "labels": {"team": "a"}}


def test_an_entry_that_somebody_has_removed_is_named_with_its_nodes() -> None:
    plan = _plan(T4X4)
    nodes, configmap = _converged(plan, [node("t4-1"), node("t4-2")])
    assert lost_entries(_changes(plan, nodes, configmap), nodes) == []
    entry = nodes[0].labels[CONFIG]
    (text,) = lost_entries(_changes(plan, nodes, {**configmap, "data": {}}), nodes)
    assert f"lacks {entry}, which the label {CONFIG} of 2 nodes" in text
    # Before the first run, no label selects the entries.
    assert lost_entries(_changes(plan, [node("t4-1")]), [node("t4-1")]) == []


def _fleet() -> list[Node]:
    return [node("t4-1"), node("t4-2"), node("l40s-1", model="NVIDIA-L40S"), Node("cpu-1", {"a": "b"}, ready=True)]


def test_members_get_pool_labels_and_no_other_node_is_touched() -> None:
    changes = _changes(_plan(T4X4), _fleet())
    assert [edit.name for edit in changes.edits] == ["t4-1", "t4-2"]
    key = next(iter(_plan(T4X4).config.data))
    assert changes.edits[0].labels == {"accel.gpu/pool": "notebooks", CONFIG: key}
    assert changes.nodes_to_refresh == ["t4-1", "t4-2"]
    assert list(changes.device_plugin.added) == [key]


@pytest.mark.parametrize("pool", [T4, T4X4, TAINTED])
def test_a_second_run_changes_nothing(pool: dict[str, t.Any]) -> None:
    plan = _plan(pool, L40S)
    nodes, configmap = _converged(plan, _fleet())
    assert not _changes(plan, nodes, configmap).changed


def test_another_sharing_adds_its_entry_and_removes_the_old_one() -> None:
    nodes, configmap = _converged(_plan(T4X4), _fleet())
    (old,) = configmap["data"]
    changes = _changes(_plan(T4X8), nodes, configmap)
    (new,) = changes.device_plugin.added
    assert changes.device_plugin.removed == (old,)
    assert set(changes.device_plugin.applied) == {old, new}
    before, after = changes.diff()
    assert before["configmap"].keys() == {old}
    assert after["configmap"].keys() == {new}
    assert after["nodes"]["t4-1"]["labels"] == {CONFIG: new}


def test_an_entry_that_another_node_names_stays() -> None:
    nodes, configmap = _converged(_plan(T4X4), _fleet())
    (old,) = configmap["data"]
    nodes.append(Node("by-hand", {CONFIG: old}))
    assert _changes(_plan(T4X8), nodes, configmap).device_plugin.removed == ()


def test_a_released_node_loses_only_what_its_pool_has_set() -> None:
    nodes, configmap = _converged(_plan(TAINTED), [node("t4-1", labels={"rack": "7"})])
    changes = _changes(_plan(L40S), nodes, configmap)
    (edit,) = changes.edits
    assert edit.labels == {"accel.gpu/pool": None, CONFIG: None, "team": None}
    assert edit.patch["spec"]["taints"] == []
    assert changes.released == ["t4-1"]
    assert changes.nodes_to_refresh == []


def test_a_match_that_no_longer_fits_releases_managed_pins_only() -> None:
    nodes, dummy = _converged(_plan(T4X4), [node("managed")])
    nodes.append(node("pinned", labels={"accel.gpu/pool": "notebooks"}))
    moved = {**T4X4, "match": {"model": "L40S"}}
    membership = assign_pools(_plan(moved).pools, nodes)
    assert membership.by_pool == {"notebooks": ["pinned"]}


def test_nodes_that_several_pools_match_are_left_alone() -> None:
    other = {"name": "rack7", "match": {"labels": {"rack": "7"}}, "sharing": {"mode": "none"}}
    both = node("both", labels={"rack": "7"})
    managed = Node("both", both.labels, {POOL_OWNER.labels: json.dumps(["rack"])}, ready=True)
    assert _changes(_plan(T4X4, other), [managed]).edits == ()


def test_a_renamed_pool_relabels_its_nodes() -> None:
    nodes, configmap = _converged(_plan(T4X4), [node("t4-1")])
    changes = _changes(_plan({**T4X4, "name": "lectures"}), nodes, configmap)
    assert changes.edits[0].labels == {"accel.gpu/pool": "lectures"}
    assert changes.nodes_to_refresh == []


def test_the_diff_is_limited() -> None:
    changes = _changes(_plan(T4X4), [node(f"n{index:04}") for index in range(MAX_LISTED + 7)])
    before, after = changes.diff()
    assert len(before["nodes"]) == MAX_LISTED
    assert after["nodes_not_shown"] == 7


UNDISCOVERED = {"feature.node.kubernetes.io/pci-10de.present": "true"}


@pytest.mark.parametrize(
    ("labels", "pool", "names"),
    [
        (UNDISCOVERED, T4X4, ["n"]),
        ({**UNDISCOVERED, "nvidia.com/gpu.deploy.operands": "false"}, T4X4, []),
        ({**UNDISCOVERED, "accel.gpu/pool": "notebooks"}, T4X4, []),
        (UNDISCOVERED, {"name": "x", "match": {"labels": {"rack": "7"}}}, []),
        ({}, T4X4, []),
    ],
)
def test_which_nodes_wait_for_discovery(labels: dict[str, str], pool: dict[str, t.Any], names: list[str]) -> None:
    nodes = [Node("n", labels, ready=True)]
    plan = _plan(pool)
    assert awaited_nodes(plan.pools, nodes, assign_pools(plan.pools, nodes)) == names


def test_a_cluster_without_nfd_is_undiscovered() -> None:
    assert is_undiscovered([Node("n", {"a": "b"})])
    assert not is_undiscovered([Node("n", {"feature.node.kubernetes.io/cpu-cpuid.AVX": "true"})])


def test_a_taint_that_is_held_back_is_neither_removed_nor_added() -> None:
    plan, text = _plan(TAINTED), "restricted=yes:NoSchedule"
    first, second, *others = _fleet()
    (tainted, *_rest), configmap = _converged(plan, [first])
    nodes = [tainted, second, *others]
    membership = assign_pools(plan.pools, nodes)
    configmaps = ConfigMaps(configmap)
    assert plan_sharing_changes(plan, nodes, membership, configmaps).new_taints == {text}
    changes = plan_sharing_changes(plan, nodes, membership, configmaps, held_back=[text])
    assert [edit.name for edit in changes.edits] == ["t4-2"]
    assert "spec" not in changes.edits[0].patch
    assert changes.new_taints == set()
    assert held_back_taints(changes, {node.name: node for node in nodes}, plan.pools) == {"notebooks": [text]}
    assert held_back_taints(changes, {tainted.name: tainted}, plan.pools) == {}


A100 = "NVIDIA-A100-SXM4-40GB"
MIG = {"name": "train", "match": {"model": "A100-SXM4-40GB"}, "sharing": {"mode": "mig", "layout": {"3g.20gb": 2}}}
WHOLE = {**MIG, "sharing": {"mode": "none"}}
CAPABLE = {
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mig.config": "all-disabled",
    "nvidia.com/mig.config.state": "success",
}


def _a100(**changes: t.Any) -> Node:
    return node("a100-1", model=A100, gpus=8, labels={**CAPABLE, **changes.pop("labels", {})}, **changes)


def test_mig_is_configured_by_one_patch_that_removes_the_old_state() -> None:
    plan = _plan(MIG)
    (edit,) = _changes(plan, [_a100()]).edits
    assert edit.labels["nvidia.com/mig.config"] == plan.pools[0].mig_key
    assert edit.labels["nvidia.com/mig.config.state"] is None
    assert edit.patch["metadata"]["annotations"]["accel.gpu/gpus"] == "8"
    assert set(_changes(plan, [_a100()]).mig.added) == {*plan.mig.default_entries, plan.pools[0].mig_key}


def test_whole_gpus_are_configured_explicitly_and_the_label_stays() -> None:
    cut, _configmap = _converged(_plan(MIG), [_a100()])
    after, configmap = _converged(_plan(WHOLE), cut)
    assert after[0].labels["nvidia.com/mig.config"] == "all-disabled"
    assert "accel.gpu/gpus" not in after[0].annotations
    assert not _changes(_plan(WHOLE), after, configmap).edits


@pytest.mark.parametrize("label", [None, "all-disabled"])
def test_the_operators_label_for_whole_gpus_is_left_alone(label: str | None) -> None:
    (edit,) = _changes(_plan(WHOLE), [_a100(labels={"nvidia.com/mig.config": label})]).edits
    assert "nvidia.com/mig.config" not in edit.labels


def test_a_released_node_gets_the_operators_mig_configuration_back() -> None:
    cut, _configmap = _converged(_plan(MIG), [_a100()])
    changes = _changes(_plan(T4), cut)
    (edit,) = changes.edits
    # Not removed: the MIG manager fails without the label and leaves the GPUs partitioned.
    assert edit.labels["nvidia.com/mig.config"] == "all-disabled"
    assert edit.labels["nvidia.com/mig.config.state"] is None
    annotations = edit.patch["metadata"]["annotations"]
    assert (annotations["accel.gpu/gpus"], annotations["accel.gpu/pool-labels"]) == (None, None)
    (change,) = changes.rolling_changes
    assert (change.released_from, change.transition.kind) == ("train", "mig-mode")
