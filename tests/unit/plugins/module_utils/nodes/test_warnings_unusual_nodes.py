# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes of unknown model may still join a pool, which are never labeled, and what is reported for them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node_check import check_node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import (
    assign_pools,
    awaited_nodes,
    can_continue_without,
    ignorable_nodes,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodes.warnings import (
    as_list,
    unusual_node_warnings,
    unusual_nodes,
)
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import PoolPlan
from ansible_collections.accel.gpu.plugins.module_utils.schema.validators import (
    Match,
    invalid_value,
    reason_without_containers,
    reason_without_discovery,
)
from tests.helpers.fleet import node, pool

PRESENT = "feature.node.kubernetes.io/pci-10de.present"
WORKLOAD, DEPLOY = "nvidia.com/gpu.workload.config", "nvidia.com/gpu.deploy."


def unknown(name: str = "n1", **labels: str) -> Node:
    """A node with a GPU of which nothing more is known."""
    actual = {PRESENT: "true", **{key.replace("__", "/"): value for key, value in labels.items()}}
    return Node(name, labels=actual, ready=True)


def labeled(name: str = "n1", labels: t.Mapping[str, str] | None = None) -> Node:
    return Node(name, labels={PRESENT: "true", **(labels or {})}, ready=True)


def matching(model: str | None = "Tesla-T4", **labels: str) -> PoolPlan:
    written = {key.replace("__", "/"): value for key, value in labels.items()}
    return pool(match=Match(model, model, (model,) if model else (), written))


@pytest.mark.parametrize(
    ("labels", "never"),
    [
        ({}, ""),
        ({WORKLOAD: "container"}, ""),
        ({WORKLOAD: "vm-passthrough"}, "assigns its GPUs to virtual machines"),
        ({WORKLOAD: "vm-vgpu"}, "assigns its GPUs to virtual machines"),
        ({f"{DEPLOY}operands": "false"}, f"{DEPLOY}operands=false"),
        ({f"{DEPLOY}gpu-feature-discovery": "false"}, f"{DEPLOY}gpu-feature-discovery=false"),
        ({f"{DEPLOY}gpu-feature-discovery": "true"}, ""),
        ({f"{DEPLOY}gpu-feature-discovery": "paused-for-mig-change"}, ""),
        ({f"{DEPLOY}device-plugin": "false"}, ""),
        # KubeVirt, by the ClusterPolicy's default workload.
        ({f"{DEPLOY}sandbox-device-plugin": "true"}, "sandboxWorkloads.defaultWorkload"),
        ({f"{DEPLOY}sandbox-validator": "true", f"{DEPLOY}gpu-feature-discovery": "true"}, ""),
    ],
)
def test_nodes_that_gpu_feature_discovery_never_labels(labels: dict[str, str], never: str) -> None:
    reason = reason_without_discovery(labels)
    assert (never in reason) if never else reason == ""
    actual = labeled(labels=labels)
    membership = assign_pools([pool()], [actual])
    assert awaited_nodes([pool()], [actual], membership) == ([] if never else ["n1"])
    assert list(unusual_nodes([pool()], [actual], membership, {})) == (["n1"] if never else [])


def test_a_node_without_the_device_plugin_is_labeled_and_offers_nothing() -> None:
    assert "device-plugin=false" in reason_without_containers({f"{DEPLOY}device-plugin": "false"})
    assert reason_without_containers({f"{DEPLOY}dcgm": "false"}) == ""


@pytest.mark.parametrize(
    ("key", "value", "good"),
    [
        (WORKLOAD, "vm-vgpu", True),
        (WORKLOAD, "passthrough", False),
        (f"{DEPLOY}dcgm", "false", True),
        (f"{DEPLOY}dcgm", "no", False),
        (f"{DEPLOY}dcgm", "paused-for-mig-change", False),
        ("nvidia.com/vgpu.config", "A40-4Q", True),
        ("team", "x", True),
    ],
)
def test_values_of_labels_for_users(key: str, value: str, good: bool) -> None:
    assert (invalid_value(key, value) is None) is good


@pytest.mark.parametrize(
    ("of_pool", "labels", "may"),
    [
        (matching(), {}, True),
        (matching(None), {}, False),
        (matching(rack="a"), {"rack": "a"}, True),
        (matching(rack="a"), {"rack": "b"}, False),
        # No component sets a user's label meanwhile, but discovery sets its own.
        (matching(rack="a"), {}, False),
        (matching(None, nvidia_com__x="1"), {}, False),
        (pool(match=Match(None, None, (), {"nvidia.com/gpu.family": "ampere"})), {}, True),
        (pool(match=Match(None, None, (), {"feature.node.kubernetes.io/x": "true"})), {}, True),
        (
            pool(match=Match(None, None, (), {"nvidia.com/gpu.family": "ampere"})),
            {"nvidia.com/gpu.family": "ada"},
            False,
        ),
    ],
)
def test_a_match_that_can_still_fit(of_pool: PoolPlan, labels: dict[str, str], may: bool) -> None:
    actual = labeled(labels=labels)
    membership = assign_pools([of_pool], [actual])
    assert awaited_nodes([of_pool], [actual], membership) == (["n1"] if may else [])
    reason = unusual_nodes([of_pool], [actual], membership, {}).get("n1", "")
    assert ("no declared pool can match it" in reason) is not may


def test_what_is_known_of_each_and_who_is_warned_of() -> None:
    nodes = [
        node("t4"),
        unknown("broken"),
        unknown("new"),
        labeled("virtual", {WORKLOAD: "vm-passthrough"}),
        labeled("pinned", {WORKLOAD: "vm-passthrough", "accel.gpu/pool": "notebooks"}),
        Node("cpu", ready=True),
    ]
    pools = [pool()]
    membership = assign_pools(pools, nodes)
    actual = unusual_nodes(pools, nodes, membership, {"broken": "pod nvidia-driver-x: CrashLoopBackOff"})
    virtual = f"label {WORKLOAD}=vm-passthrough assigns its GPUs to virtual machines"
    assert actual == {"broken": "pod nvidia-driver-x: CrashLoopBackOff", "pinned": virtual, "virtual": virtual}
    assert as_list(actual, 1) == [{"name": "broken", "reason": "pod nvidia-driver-x: CrashLoopBackOff"}]
    in_no_pool = [
        "Not in a pool, so the run does not wait for broken: pod nvidia-driver-x: CrashLoopBackOff.",
        f"Not in a pool, so the run does not wait for virtual: {virtual}.",
    ]
    # A run fails with the nodes of pools.
    assert list(unusual_node_warnings(actual, {"t4", "pinned"}, run=True)) == in_no_pool
    in_pool = f"In a pool, but without usable GPUs: pinned: {virtual}."
    warnings = list(unusual_node_warnings(actual, {"t4", "pinned"}, run=False))
    assert sorted(warnings) == sorted([*in_no_pool, in_pool])


def test_a_discovered_node_of_a_pool_whose_operands_fail_or_are_kept_away() -> None:
    off = node("off", labels={f"{DEPLOY}operands": "false"}, allocatable={"nvidia.com/gpu": 0})
    works = node("works", labels={f"{DEPLOY}gpu-feature-discovery": "false"})
    nodes, pools = [node("t4"), node("broken"), off, works], [pool()]
    membership = assign_pools(pools, nodes)
    actual = unusual_nodes(pools, nodes, membership, {"broken": "pod nvidia-driver-x: CrashLoopBackOff"})
    assert sorted(actual) == ["broken", "off"]
    finding = check_node(off, pool())
    assert finding is not None
    assert finding.final
    assert "operands=false" in str(finding)
    assert check_node(works, pool()) is None
    declared = pool(labels={WORKLOAD: "vm-vgpu"})
    virtual = node("vm", labels={WORKLOAD: "vm-vgpu"})
    assert unusual_nodes([declared], [virtual], assign_pools([declared], [virtual]), {}) == {}


def test_a_pinned_node_that_is_never_labeled_is_not_waited_for() -> None:
    finding = check_node(labeled(labels={WORKLOAD: "vm-vgpu"}), pool())
    assert finding is not None
    assert finding.final
    declared = pool(labels={WORKLOAD: "vm-vgpu"})
    assert declared.reason_without_containers
    assert check_node(labeled(labels={WORKLOAD: "vm-vgpu"}), declared) is None


def test_whose_failing_operands_do_not_keep_the_operator_waiting() -> None:
    pools = [pool()]
    nodes = [node("t4"), node("l40s", model="NVIDIA-L40S"), unknown("broken"), Node("cpu", ready=True)]
    # A member that is labeled is waited for: its pool would be taken for well.
    assert ignorable_nodes(pools, nodes) == {"l40s", "broken"}
    assert can_continue_without({"broken"}, pools, nodes)
    assert not can_continue_without({"broken"}, pools, [unknown("broken"), unknown("other")])
    assert can_continue_without({"l40s"}, pools, [nodes[1]])
    assert can_continue_without({"broken"}, [matching(rack="a")], [unknown("broken")])
