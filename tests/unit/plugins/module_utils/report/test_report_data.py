# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The totals of a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.mig import MigAllocation
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import NodeEdit, assign_pools
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.report import data
from tests.helpers.fleet import node


def test_totals_count_gpus_not_mig_devices() -> None:
    """With the strategy single, the label nvidia.com/gpu.count is the number of MIG devices."""
    mig = node("a100-1", "A100-SXM4-80GB-MIG-3g.40gb", gpus=16, annotations={"accel.gpu/gpus": "8"})
    nodes = [mig, node("t4-1", gpus=2)]
    results = [data.node_result(one, None) for one in nodes]
    actual = data.cluster_result(nodes, results)
    assert actual["totals"]["gpus"] == sum(result["gpus"] for result in results) == 10
    assert sum(model["gpus"] for model in actual["models"].values()) == 10


@pytest.mark.parametrize(
    ("product", "count", "recorded", "gpus"),
    [
        ("A100-SXM4-80GB", 8, "", 8),
        ("A100-SXM4-80GB-MIG-3g.40gb", 16, "8", 8),
        ("A100-SXM4-80GB-MIG-3g.40gb", 16, "", 8),
        ("A100-SXM4-80GB-MIG-1g.10gb-SHARED", 56, "", 8),
        ("A100-SXM4-80GB-MIG-1g.10gb.me", 8, "", 8),
        # One device of each of two GPUs: the smallest number of GPUs with that many.
        ("A100-SXM4-80GB-MIG-3g.40gb", 3, "", 2),
        # Two models with this name.
        ("NVIDIA-H100-MIG-1g.12gb", 14, "", 2),
        ("NVIDIA-H100-MIG-1g.8gb", 14, "", 2),
        ("A100-SXM4-80GB-MIG-9g.90gb", 16, "", 16),
        ("Unknown-MIG-1g.10gb", 14, "", 14),
    ],
)
def test_gpus_of_a_node_without_pool(product: str, count: int, recorded: str, gpus: int) -> None:
    annotations = {"accel.gpu/gpus": recorded} if recorded else {}
    actual = data.node_result(node("n1", product, gpus=count, annotations=annotations), None)
    assert actual["gpus"] == gpus


@pytest.mark.parametrize(
    ("product", "labeled", "labels", "memory", "mode"),
    [
        ("NVIDIA-A100-SXM4-80GB", 81920, {}, 81920, "none"),
        # Under the MIG strategy single, the label has the memory of one device.
        ("NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", 40192, {}, 81920, "mig"),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb-SHARED", 9728, {}, 81920, "mig"),
        ("Unknown-MIG-1g.10gb", 9728, {}, 0, "mig"),
        ("NVIDIA-A100-SXM4-80GB", 81920, {"nvidia.com/mig-3g.40gb.count": "2"}, 81920, "mig"),
    ],
)
def test_memory_and_mode_of_a_node_with_mig_devices(
    product: str, labeled: int, labels: dict[str, str], memory: int, mode: str
) -> None:
    labels = {**labels, "nvidia.com/gpu.memory": str(labeled), "nvidia.com/gpu.sharing-strategy": "none"}
    actual = data.node_result(node("a100-1", product, gpus=2, labels=labels), None)
    assert (actual["memory_mib"], actual["mode"]) == (memory, mode)


def test_changes_separate_what_is_set_from_what_is_removed() -> None:
    edit = NodeEdit(
        "n1",
        {
            "metadata": {
                "labels": {"team": "x", "tier": None},
                "annotations": {"owner": "x", "contact": None, "accel.gpu/pool-labels": "[]"},
            }
        },
        before={"taints": ["k=old:NoSchedule"]},
        after={"taints": ["k=new:NoSchedule"]},
    )
    changes = data.changes_result([edit], [node("n1")])
    assert (changes["labels"], changes["removed_labels"]) == (["team"], ["tier"])
    assert (changes["annotations"], changes["removed_annotations"]) == (["owner"], ["contact"])
    assert (changes["taints"], changes["removed_taints"]) == (["k=new:NoSchedule"], ["k=old:NoSchedule"])


@pytest.mark.parametrize(
    ("nodes", "autoscale", "as_declared"),
    [({}, {"min": 0, "max": 3}, True), ({}, {"min": 1, "max": 3}, False), ({"count": 0}, None, True), ({"count": 1}, None, False)],
)  # fmt: skip
def test_a_pool_that_may_be_empty_is_no_drift(
    nodes: dict[str, int], autoscale: dict[str, int] | None, as_declared: bool
) -> None:
    pool = {"name": "t4", "model": "T4", "nodes": {"like": "worker", "flavor": "g4dn.xlarge", **nodes}}
    pool |= {"autoscale": autoscale} if autoscale else {}
    plan = derive({"name": "lab", "cloud": {"machineset": {}}}, {}, [{**pool, "sharing": {"mode": "none"}}])
    results = data.pool_results(MigAllocation(plan), [], assign_pools(plan.pools, []), {}, [], {})
    assert results["t4"]["as_declared"] is as_declared


@pytest.mark.parametrize(
    ("nodes", "autoscale", "drift"),
    [
        ({"count": 2}, None, []),
        ({"count": 1}, None, ["2 node(s) instead of the declared 1, which the next run of site applies"]),
        ({"count": 5}, None, ["2 node(s) instead of the declared 5, which the next run of site applies"]),
        ({"count": 0}, None, ["2 node(s) instead of the declared 0, which the next run of site applies"]),
        ({"count": 5}, {"min": 1, "max": 6}, []),
    ],
)
def test_another_number_of_nodes_is_drift(
    nodes: dict[str, int], autoscale: dict[str, int] | None, drift: list[str]
) -> None:
    pool = {"name": "t4", "model": "T4", "nodes": {"like": "worker", "flavor": "g4dn.xlarge", **nodes}}
    pool |= {"autoscale": autoscale} if autoscale else {}
    plan = derive({"name": "lab", "cloud": {"machineset": {}}}, {}, [{**pool, "sharing": {"mode": "none"}}])
    members = [node("t4-1"), node("t4-2")]
    membership = replace(assign_pools(plan.pools, []), by_pool={"t4": ["t4-1", "t4-2"]})
    result = data.pool_results(MigAllocation(plan), members, membership, {}, [], {})["t4"]
    assert (result["nodes"], result["drift"], result["as_declared"]) == (2, drift, not drift)
