# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Warnings about the nodes that a pool's node group has created."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import CORDONED_ANNOTATION
from ansible_collections.accel.gpu.plugins.module_utils.catalog.operands import DEVICE_PLUGINS
from ansible_collections.accel.gpu.plugins.module_utils.nodes import warnings
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import assign_pools
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive

GROUP, PRODUCT = "magnum.openstack.org/nodegroup", "nvidia.com/gpu.product"


def test_a_flavor_with_another_model_than_the_pool_says() -> None:
    pool = {"name": "train", "model": "T4", "nodes": {"flavor": "f", "count": 2}}
    pools = derive({"name": "lab", "cloud": {"magnum": {}}}, {}, [pool]).pools
    nodes = [
        Node(name, {GROUP: "train", PRODUCT: product, "nvidia.com/gpu.present": "true"}, ready=True)
        for name, product in (("a", "Tesla-T4"), ("b", "NVIDIA-L40S"))
    ]
    assert warnings.all_warnings(nodes, assign_pools(pools, nodes), (), {}, run=False) == [
        "The GPU model differs from the model that pool train declares: b. Correct the flavor or model."
    ]


def test_a_run_warns_of_nodes_as_the_report_does() -> None:
    labels = {"accel.gpu/pool": "train", "nvidia.com/gpu.present": "true"}
    nodes = [
        Node("a", {**labels, PRODUCT: "NVIDIA-Unheard-Of"}, ready=True),
        Node("b", {**labels, PRODUCT: "Tesla-T4"}),
    ]
    pools = derive({"name": "lab"}, {}, [{"name": "train"}]).pools
    membership = assign_pools(pools, nodes)
    unusual = {"c": "why"}
    run, report = (warnings.all_warnings(nodes, membership, (), unusual, run=run) for run in (True, False))
    assert run == report
    assert [text.partition(":")[0] for text in run] == [
        "The run neither waits for these nodes nor verifies them, because they are not ready",
        "The catalog has no GPU model NVIDIA-Unheard-Of (a); a MIG layout for it cannot be verified before it is applied.",
        "Not in a pool, so the run does not wait for c",
    ]


def test_the_report_names_nodes_that_others_have_cordoned() -> None:
    """Their GPUs still count as allocatable, so the pool looks as if it accepted pods. A cordon of the collection has its own messages."""
    labels = {"nvidia.com/gpu.present": "true", PRODUCT: "Tesla-T4"}
    nodes = [
        Node("a", labels, ready=True, unschedulable=True),
        Node("b", labels, {CORDONED_ANNOTATION: "GPU sharing is being changed"}, ready=True, unschedulable=True),
        Node("c", labels, ready=True),
        Node("d", ready=True, unschedulable=True),
    ]
    pools = derive({"name": "lab"}, {}, [{"name": "train", "match": {"model": "T4"}}]).pools
    membership = assign_pools(pools, nodes)
    assert warnings.all_warnings(nodes, membership, (), {}, run=True) == []
    assert warnings.all_warnings(nodes, membership, (), {}, run=False) == [
        "No new pods are scheduled to these nodes, because they are cordoned, but not by this collection: a."
    ]


@pytest.mark.parametrize(
    ("nodes", "autoscale", "is_normal"),
    [({}, {"min": 0, "max": 2}, True), ({}, {"min": 1, "max": 2}, False), ({"count": 0}, None, True), ({"count": 1}, None, False)],
)  # fmt: skip
def test_a_pool_that_may_have_no_node(nodes: dict[str, int], autoscale: dict[str, int] | None, is_normal: bool) -> None:
    pool = {"name": "burst", "model": "T4", "nodes": {"flavor": "f", **nodes}}
    pool |= {"autoscale": autoscale} if autoscale else {}
    pools = derive({"name": "lab", "cloud": {"magnum": {}}}, {}, [pool]).pools
    messages = warnings.all_warnings([], assign_pools(pools, []), (), {}, run=True)
    assert messages == ([] if is_normal else ["No node of the cluster belongs to: burst."])


def test_only_a_run_warns_of_empty_pools_before_any_gpu_node_is_known() -> None:
    pools = derive({"name": "lab"}, {}, [{"name": "train", "match": {"model": "T4"}}]).pools
    membership = assign_pools(pools, [])
    assert warnings.all_warnings([], membership, (), {}, run=False) == []
    assert warnings.all_warnings([], membership, (), {}, run=True) == ["No node of the cluster belongs to: train."]


T4_LABELS = {"nvidia.com/gpu.present": "true", PRODUCT: "Tesla-T4", "nvidia.com/gpu.count": "1"}
NFD = {"feature.node.kubernetes.io/cpu-model.family": "6"}


@pytest.mark.parametrize(
    ("labels", "capacity", "words"),
    [
        (T4_LABELS, 1, None),
        ({"nvidia.com/gpu.present": "true", **NFD}, 0, "NFD has found no PCI device of NVIDIA"),
        ({"nvidia.com/gpu.present": "true", **NFD, "feature.node.kubernetes.io/pci-10de.present": "true"}, 0, None),
        ({"nvidia.com/gpu.present": "true"}, 0, None),
        ({**T4_LABELS, "node.kubernetes.io/instance-type": "g6.xlarge"}, 1, "Tesla-T4, but the machine type has L4"),
        ({**T4_LABELS, "node.kubernetes.io/instance-type": "g4dn.xlarge"}, 1, None),
        (
            {**T4_LABELS, "nvidia.com/gpu.sharing-strategy": "none", "nvidia.com/gpu.replicas": "4"},
            1,
            "gpu.replicas is 4",
        ),
        ({**T4_LABELS, "nvidia.com/gpu.sharing-strategy": "none"}, 10, "gpu.count is 1, but the capacity has"),
        ({**T4_LABELS, "nvidia.com/gpu.sharing-strategy": "time-slicing"}, 4, None),
        (
            {**T4_LABELS, "nvidia.com/mig.strategy": "single", "nvidia.com/mig-1g.5gb.count": "2"},
            1,
            "mig.strategy is single",
        ),
    ],
)
def test_labels_that_contradict_each_other(labels: dict[str, str], capacity: int, words: str | None) -> None:
    node = Node(
        "n", labels, capacity={"nvidia.com/gpu": capacity}, allocatable={"nvidia.com/gpu": capacity}, ready=True
    )
    contradictions = list(warnings.label_contradictions(node))
    assert len(contradictions) == bool(words)
    assert (words or "") in "".join(contradictions)
    texts = warnings.all_warnings([node], assign_pools([], [node]), (), {}, run=True)
    assert any(text.startswith("Labels contradict each other on n: ") for text in texts) is bool(words)


def test_other_device_plugins_of_a_pools_nodes_are_named() -> None:
    labels = {"accel.gpu/pool": "train", "nvidia.com/gpu.present": "true", PRODUCT: "Tesla-T4"}
    without = {**labels, "nvidia.com/gpu.deploy.device-plugin": "false"}
    nodes = [
        Node("a", labels, {"hami.io/node-nvidia-register": "GPU-1,10,15360:"}, ready=True),
        Node("b", labels, ready=True, foreign_resources=("4paradigm.com/vgpu",)),
        Node("c", labels, ready=True, foreign_resources=("4paradigm.com/vgpu",)),
        # HAMi's plugin for the devices of another vendor.
        Node("f", labels, {"hami.io/node-handshake-hcu": "Requesting"}, ready=True),
        # No pool, or a pool that leaves the GPUs to the other plugin.
        Node("d", ready=True, foreign_resources=("volcano.sh/vgpu-number",)),
        Node("e", without, ready=True, foreign_resources=("volcano.sh/vgpu-number",)),
    ]
    plugins = {("DaemonSet kube-system/nvdp", DEVICE_PLUGINS[-2]): ["c", "d"]}
    pools = derive({"name": "lab"}, {}, [{"name": "train"}]).pools
    for run in (True, False):
        texts = warnings.all_warnings(nodes, assign_pools(pools, nodes), (), {}, run=run, plugins=plugins)
        assert [text.partition(". Use one device plugin")[0] for text in texts] == [
            "Another device plugin serves c (DaemonSet kube-system/nvdp, the stand-alone device plugin of NVIDIA): it also registers nvidia.com/gpu, and "
            "the kubelet only uses the plugin that registered last",
            "Another device plugin serves a (the annotation hami.io/node-nvidia-register, HAMi): it also registers nvidia.com/gpu, and the kubelet only "
            "uses the plugin that registered last",
            "An unknown device plugin offers 4paradigm.com/vgpu on b, c. Pods that request it do not count as users of NVIDIA GPUs, and are not evicted as "
            "such. If the resource represents NVIDIA GPUs, stop these pods before a change of MIG.",
        ]
