# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that may have GPUs of a pool, but that discovery does not see."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.models import has_nvidia_gpu
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import assign_pools
from ansible_collections.accel.gpu.plugins.module_utils.nodes.warnings import (
    awaited_by_nfd,
    gpu_sign,
    hidden_messages,
    hidden_nodes,
    pools_without_visible_nodes,
)
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Plan

NFD = "feature.node.kubernetes.io/"
PCI = f"{NFD}pci-10de.present"
SKU = {"key": "sku", "value": "gpu", "effect": "NoSchedule"}
T4 = {"name": "t4", "match": {"model": "T4"}}


def plan_of(*pools: dict[str, t.Any], **cluster: t.Any) -> Plan:
    return derive({"name": "lab", **cluster}, {}, list(pools or (T4,)))


def plain(name: str = "n", labels: t.Mapping[str, str] | None = None, **fields: t.Any) -> Node:
    return Node(name, labels or {}, **{"ready": True, **fields})


def found(*nodes: Node, plan: Plan | None = None, **options: t.Any) -> list[tuple[str, str, str]]:
    plan = plan or plan_of()
    hidden = hidden_nodes(plan, nodes, assign_pools(plan.pools, nodes), **options)
    return [(node.name, node.sign, f"{node.cause}. {node.remedy}") for node in hidden]


@pytest.mark.parametrize(
    ("labels", "fields", "sign"),
    [
        ({}, {"capacity": {"nvidia.com/gpu": 4}}, "its capacity has nvidia.com/gpu: 4"),
        ({}, {"capacity": {"nvidia.com/gpu": 0}}, ""),
        ({PCI: "true"}, {}, f"label {PCI}=true"),
        ({f"{NFD}pci-0300_10de.present": "true"}, {}, f"label {NFD}pci-0300_10de.present=true"),
        ({f"{NFD}pci-0302_10de_1eb8.present": "true"}, {}, f"label {NFD}pci-0302_10de_1eb8.present=true"),
        ({f"{NFD}pci-10de_1eb8.sriov.capable": "true"}, {}, f"label {NFD}pci-10de_1eb8.sriov.capable=true"),
        ({f"{NFD}pci-0300_1002.present": "true"}, {}, ""),
        ({f"{NFD}pci-0300_1234_10dead.present": "true"}, {}, ""),
        ({"nvidia.com/gpu.product": "Tesla-T4"}, {}, "label nvidia.com/gpu.product=Tesla-T4"),
        (
            {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"},
            {},
            "label cloud.google.com/gke-accelerator=nvidia-tesla-t4",
        ),
        ({"accelerator": "amd"}, {}, ""),
        (
            {"node.kubernetes.io/instance-type": "g4dn.xlarge"},
            {},
            "label node.kubernetes.io/instance-type=g4dn.xlarge, a machine type with GPUs",
        ),
        ({"node.kubernetes.io/instance-type": "m5.xlarge"}, {}, ""),
        ({}, {"taints": ({"key": "nvidia.com/gpu", "effect": "NoSchedule"},)}, "taint nvidia.com/gpu:NoSchedule"),
        ({}, {"taints": (SKU,)}, "taint sku=gpu:NoSchedule"),
        ({}, {"taints": ({"key": "dedicated", "value": "db", "effect": "NoSchedule"},)}, ""),
        ({}, {"annotations": {"accel.gpu/gpus": "2"}}, "annotation accel.gpu/gpus=2 of an earlier run"),
    ],
)
def test_signs_of_a_gpu(labels: dict[str, str], fields: dict[str, t.Any], sign: str) -> None:
    assert gpu_sign(plain(labels=labels, **fields)) == sign


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("g4dn.metal", True),
        ("g5g.xlarge", True),
        ("p4d.24xlarge", True),
        ("g4ad.xlarge", False),
        ("Standard_NC4as_T4_v3", True),
        ("Standard_ND96isr_MI300X_v5", False),
        ("Standard_NV4as_v4", False),
        ("Standard_NV36ads_A10_v5", True),
        ("a2-highgpu-1g", True),
        ("n1-standard-4", False),
        ("VM.GPU.A10.1", True),
        ("BM.GPU.MI300X.8", False),
        ("ecs.gn7i-c8g1.2xlarge", True),
    ],
)
def test_machine_types_with_gpus_of_nvidia(name: str, expected: bool) -> None:
    assert has_nvidia_gpu(name) is expected


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (plain(taints=(SKU,)), ["sku=gpu:NoSchedule", "taints: [{key: sku, value: gpu, effect: NoSchedule}]"]),
        (plain(labels={PCI: "true"}, ready=False), ["it is not Ready", "kubectl describe node n"]),
        (plain(unschedulable=True), ["NFD has not labeled it", "--field-selector spec.nodeName=n"]),
        (plain(labels={f"{NFD}pci-10de_1eb8.present": "true"}), ["sources.pci.deviceLabelFields: [vendor]"]),
        (
            plain(labels={f"{NFD}cpu-cpuid.AVX": "true"}, capacity={"nvidia.com/gpu": 1}),
            ["NFD has found no PCI device of NVIDIA", "lspci"],
        ),
        (
            plain(labels={"nvidia.com/gpu.present": "false", "nvidia.com/gpu.product": "Tesla-T4"}),
            ["nvidia.com/gpu.present=false"],
        ),
        (plain(labels={PCI: "true", "nvidia.com/gpu.deploy.operands": "false"}), ["gpu.deploy.operands=false"]),
        (
            plain(taints=({"key": "karpenter.sh/unregistered", "effect": "NoExecute"},)),
            ["temporary taint karpenter.sh/unregistered:NoExecute", "once the taint is gone"],
        ),
    ],
)
def test_each_cause_is_named_with_its_remedy(node: Node, words: list[str]) -> None:
    [(name, dummy, text)] = found(node)
    assert name == "n"
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize(
    "node",
    [
        # Roles and machines without GPUs, unless there is a sign.
        plain(labels={"node-role.kubernetes.io/control-plane": ""}),
        plain(taints=({"key": "node-role.kubernetes.io/infra", "effect": "NoSchedule"},)),
        plain(labels={"kubernetes.io/os": "windows"}),
        plain(labels={"type": "virtual-kubelet"}),
        # NFD has examined it.
        plain(labels={f"{NFD}cpu-cpuid.AVX": "true"}),
        # Another machine type, another model, another label.
        plain(labels={"node.kubernetes.io/instance-type": "g6.xlarge"}),
        plain(labels={"nvidia.com/gpu.present": "false", "nvidia.com/gpu.product": "NVIDIA-L4"}),
        # It is a member or will be one.
        plain(labels={PCI: "true"}),
        plain(labels={PCI: "true", "nvidia.com/gpu.product": "Tesla-T4"}),
        plain(labels={"accel.gpu/pool": "t4"}, taints=(SKU,)),
    ],
)
def test_nodes_that_are_not_hidden(node: Node) -> None:
    assert found(node) == []


def test_only_labels_that_discovery_sets_may_be_missing() -> None:
    plan = plan_of({"name": "a", "match": {"model": "T4", "labels": {"team": "x"}}})
    assert found(plain(taints=(SKU,)), plan=plan) == []
    assert len(found(plain(labels={"team": "x"}, taints=(SKU,)), plan=plan)) == 1


def test_declared_taints_and_the_operator_s_tolerations_hide_nothing() -> None:
    values = {"operator": {"values": {"daemonsets": {"tolerations": [{"key": "sku", "operator": "Exists"}]}}}}
    for plan in (plan_of({**T4, "taints": [SKU]}), plan_of(**values)):
        [(dummy, sign, text)] = found(plain(taints=(SKU,)), plan=plan)
        assert sign == "taint sku=gpu:NoSchedule"
        assert text.startswith("NFD has not labeled it")


def test_before_the_installation_only_what_remains_afterwards_is_reported() -> None:
    nodes = [plain("a"), plain("b", taints=(SKU,)), plain("c", ready=False)]
    assert [name for name, dummy, dummy_text in found(*nodes, before_discovery=True)] == ["b", "c"]


def test_messages_are_about_empty_pools_and_certain_gpus() -> None:
    plan = plan_of(T4, {"name": "l4", "match": {"model": "L4"}})
    member = plain("m", {PCI: "true", "nvidia.com/gpu.product": "NVIDIA-L4"})
    nodes = [member, plain("a", taints=(SKU,)), plain("b", taints=(SKU,)), plain("c")]
    membership = assign_pools(plan.pools, nodes)
    hidden = hidden_nodes(plan, nodes, membership)
    assert pools_without_visible_nodes(hidden, membership) == ["t4"]
    first, second = hidden_messages(hidden, membership)
    assert first.startswith("a, b may belong to pools t4 or l4: taint sku=gpu:NoSchedule; no pool declares its taint ")
    assert second.startswith("c may belong to pool t4: NFD has not labeled it, so its hardware is unknown. Check ")
    # The failure of a run is only about the pools that lack nodes.
    assert all("pool t4:" in text for text in hidden_messages(hidden, membership, ["t4"]))


def test_a_cause_that_is_reported_in_any_case_is_repeated_only_for_an_empty_pool() -> None:
    plan = plan_of()
    disabled = plain("a", {PCI: "true", "nvidia.com/gpu.deploy.operands": "false"})
    member = plain("m", {PCI: "true", "nvidia.com/gpu.product": "Tesla-T4"})
    for nodes, count in (([disabled], 1), ([disabled, member], 0)):
        membership = assign_pools(plan.pools, nodes)
        assert len(hidden_messages(hidden_nodes(plan, nodes, membership), membership)) == count


def test_a_pool_that_starts_without_nodes_lacks_none() -> None:
    pool = {"name": "burst", "match": {"model": "T4"}, "nodes": {"flavor": "f"}, "autoscale": {"min": 0, "max": 2}}
    plan = derive({"name": "lab", "cloud": {"magnum": {}}}, {}, [pool])
    nodes = [plain(taints=(SKU,))]
    membership = assign_pools(plan.pools, nodes)
    hidden = hidden_nodes(plan, nodes, membership)
    assert pools_without_visible_nodes(hidden, membership) == []
    assert len(hidden_messages(hidden, membership)) == 1


def test_a_run_waits_for_nodes_that_nfd_labels_late() -> None:
    plan = plan_of()
    labeled = plain("a", {PCI: "true", "nvidia.com/gpu.product": "Tesla-T4"})
    nodes = [labeled, plain("b"), plain("c", taints=(SKU,)), plain("d", ready=False)]
    assert awaited_by_nfd(plan, nodes, assign_pools(plan.pools, nodes)) == ["b"]
    # Without any label of NFD, NFD itself is missing.
    unlabeled = [dataclasses.replace(node, labels={}) for node in nodes]
    assert awaited_by_nfd(plan, unlabeled, assign_pools(plan.pools, unlabeled)) == []
