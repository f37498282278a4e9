# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which node states count as verified, and what is reported for the others."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node_check import check_node, repair_reason
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import PoolPlan
from tests.helpers.fleet import node, pool


@pytest.mark.parametrize(
    ("of_node", "of_pool"),
    [
        (node(), pool()),
        (node(gpus=8), pool(gpus_per_node=8)),
        (node(replicas=4), pool(replicas=4)),
        (node(gpus=2, replicas=4, rename=True), pool(replicas=4, rename=True)),
        # A resource that was there before stays as a key at 0, in life too.
        (node(allocatable={"nvidia.com/gpu": 1, "nvidia.com/gpu.shared": 0}), pool()),
        # A leftover label on a node without a MIG manager is ignored.
        (node(labels={"nvidia.com/mig.config": "all-disabled"}), pool()),
        # The same if a run has replaced a configuration that did not exist. GPUs without MIG have no MIG manager.
        (
            node(
                labels={"nvidia.com/mig.config": "all-disabled", "nvidia.com/mig.capable": "false"},
                annotations={"accel.gpu/pool-labels": '["nvidia.com/mig.config"]'},
            ),
            pool(),
        ),
    ],
)
def test_verified(of_node: Node, of_pool: PoolPlan) -> None:
    assert check_node(of_node, of_pool) is None


@pytest.mark.parametrize(
    ("of_node", "of_pool", "words"),
    [
        (node(labels=dict.fromkeys(("nvidia.com/gpu.product", "nvidia.com/gpu.count"))), pool(), ["not labeled yet"]),
        (
            node(labels={"nvidia.com/gpu.product": None}),
            pool(),
            ["no label nvidia.com/gpu.product", "strategy to mixed"],
        ),
        (node(labels={"nvidia.com/gpu.product": "NVIDIA-A100-MIG-INVALID"}), pool(), ["MIG layout"]),
        (
            node(),
            pool(replicas=4),
            ["gpu.replicas is 1, but 4 is", "product is Tesla-T4, but Tesla-T4-SHARED", "is 1, but 4 is"],
        ),
        (
            node(replicas=4),
            pool(),
            ["Tesla-T4-SHARED, but Tesla-T4 is", "strategy is time-slicing, but none", "is 4, but 1 is"],
        ),
        (node(allocatable={}, capacity={}), pool(), ["allocatable nvidia.com/gpu is 0, but 1 is expected"]),
        (
            node(allocatable={}),
            pool(),
            ["is 0 of a capacity of 1: no plugin is registered, or all its GPUs are unhealthy, but 1"],
        ),
        (node(gpus=8, allocatable={"nvidia.com/gpu": 7}), pool(), ["is 7 of a capacity of 8: GPUs are unhealthy"]),
        (
            node(replicas=4, rename=True, allocatable={"nvidia.com/gpu": 1, "nvidia.com/gpu.shared": 4}),
            pool(replicas=4, rename=True),
            ["nvidia.com/gpu is still 1"],
        ),
        (node(labels={"nvidia.com/gpu.replicas": None}), pool(), ["gpu.replicas is absent, but 1 is expected"]),
        (
            # What the operator writes on a new node, before the MIG manager has stopped the agents to look at it.
            node(labels={"nvidia.com/mig.config": "all-disabled", "nvidia.com/gpu.deploy.mig-manager": "true"}),
            pool(),
            ["the MIG manager has not processed all-disabled yet"],
        ),
    ],
)
def test_not_verified(of_node: Node, of_pool: PoolPlan, words: list[str]) -> None:
    finding = check_node(of_node, of_pool)
    assert finding is not None
    assert [word for word in words if word not in str(finding)] == []
    assert not finding.final


def test_a_node_on_which_the_operator_finds_no_gpu_is_not_waited_for() -> None:
    examined = {"feature.node.kubernetes.io/cpu-model.family": "6"}
    # Without any label of NFD, NFD may be starting.
    for labels, final in ((examined, True), ({}, False)):
        finding = check_node(node(labels={"nvidia.com/gpu.present": "false", **labels}), pool())
        assert finding is not None
        assert finding.final is final
        assert "gpu.present=false" in str(finding)
        assert "check that NFD runs there" in str(finding)


def test_a_missing_card_is_not_waited_for() -> None:
    finding = check_node(node(gpus=7), pool(gpus_per_node=8))
    assert finding is not None
    assert finding.final
    assert "has 7 GPU(s), but gpus_per_node is 8" in str(finding)


def test_a_missing_card_of_an_unsettled_node_is_waited_for() -> None:
    finding = check_node(node(gpus=7, allocatable={}), pool(gpus_per_node=8))
    assert finding is not None
    assert not finding.final


A100 = "NVIDIA-A100-SXM4-40GB"
SINGLE = pool(layout={"1g.5gb": 7})
MIXED = pool(layout=["1g.5gb", "1g.5gb", "3g.20gb"])
SLICED = pool(layout={"3g.20gb": 2}, replicas=2, rename=True)
CUT = {"nvidia.com/mig.capable": "true", "nvidia.com/mig.config": "cut", "nvidia.com/mig.config.state": "success"}

NOTED = {"accel.gpu/pool-labels": '["nvidia.com/mig.config"]'}


def single(**changes: t.Any) -> Node:
    """A node of two GPUs cut into seven each, as its agents leave it under the strategy single."""
    labels = {**CUT, "nvidia.com/mig.strategy": "single", "nvidia.com/gpu.product": f"{A100}-MIG-1g.5gb"}
    return node(
        model=A100,
        gpus=14,
        **{
            "annotations": {"accel.gpu/gpus": "2"},
            "labels": {**labels, **changes.pop("labels", {})},
            "allocatable": {"nvidia.com/gpu": 14},
            **changes,
        },
    )


def mixed(**changes: t.Any) -> Node:
    """A node of two GPUs, each cut into 2 x 1g.5gb and 3g.20gb, under the strategy mixed."""
    labels = {**CUT, "nvidia.com/mig.strategy": "mixed", "nvidia.com/gpu.replicas": "0"}
    for profile, count in (("1g.5gb", 4), ("3g.20gb", 2)):
        for key, value in (("count", str(count)), ("replicas", "1"), ("sharing-strategy", "none")):
            labels[f"nvidia.com/mig-{profile}.{key}"] = value
    offered = {"nvidia.com/mig-1g.5gb": 4, "nvidia.com/mig-3g.20gb": 2, "nvidia.com/gpu": 0}
    return node(
        model=A100,
        gpus=2,
        **{"labels": {**labels, **changes.pop("labels", {})}, "allocatable": offered, **changes},
    )


def sliced() -> Node:
    """A node of one GPU cut into two, each shared by two, renamed."""
    prefix = "nvidia.com/mig-3g.20gb"
    labels = {**CUT, "nvidia.com/mig.strategy": "single", "nvidia.com/gpu.product": f"{A100}-MIG-3g.20gb"}
    return node(
        model=A100,
        gpus=2,
        replicas=2,
        rename=True,
        labels={**labels, f"{prefix}.x": "1"},
        annotations={"accel.gpu/gpus": "1"},
        allocatable={"nvidia.com/gpu.shared": 4},
    )


@pytest.mark.parametrize(
    ("of_node", "of_pool"),
    [
        (single(), SINGLE),
        (single(), pool(layout={"1g.5gb": 7}, gpus_per_node=2)),
        # Partitioned manually, without annotations: the layout gives the number of GPUs behind the devices.
        (single(annotations={}), SINGLE),
        (mixed(), MIXED),
        (sliced(), SLICED),
        (node(replicas=4, labels={"nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/mps.capable": "true"}),
         pool(mode="mps", replicas=4)),
        (node(labels={**CUT, "nvidia.com/mig.config": "all-disabled"}), pool()),
        (node(labels={**CUT, "nvidia.com/mig.config": "all-disabled"}, annotations=NOTED), pool()),
        # The operator's own default, for which its MIG manager may not have reported a state yet.
        (node(labels={"nvidia.com/mig.config": "all-disabled"}), pool()),
    ],
)  # fmt: skip
def test_mig_and_mps_verified(of_node: Node, of_pool: PoolPlan) -> None:
    assert str(check_node(of_node, of_pool)) == "None"


@pytest.mark.parametrize(
    ("of_node", "of_pool", "words", "final"),
    [
        (single(labels={"nvidia.com/mig.config.state": "pending"}), SINGLE, ["mig.config.state is pending"], False),
        (single(labels={"nvidia.com/mig.config.state": None}), SINGLE, ["has not processed cut yet"], False),
        (
            single(labels={"nvidia.com/mig.config.state": "failed"}),
            SINGLE,
            ["is failed for cut", "does not retry"],
            True,
        ),
        (
            single(labels={"nvidia.com/mig.config.state": "failed", "nvidia.com/mig.config": "old"}),
            SINGLE,
            ["mig.config is old, but cut is"],
            False,
        ),
        (single(labels={"nvidia.com/mig.capable": "false"}), SINGLE, ["does not support MIG"], True),
        # What GFD says of MIG in a vGPU guest does not matter.
        (
            single(labels={"nvidia.com/vgpu.present": "true"}),
            SINGLE,
            ["its GPUs are vGPUs: a vGPU cannot be partitioned with MIG by its node"],
            True,
        ),
        (
            node(labels={"nvidia.com/vgpu.present": "true"}),
            pool(mode="mps", replicas=4),
            ["its GPUs are vGPUs: MPS does not work on vGPUs"],
            True,
        ),
        (
            single(labels={"nvidia.com/gpu.deploy.device-plugin": "paused-for-mig-change"}),
            SINGLE,
            ["operands are paused for the change: device-plugin"],
            False,
        ),
        (single(allocatable={"nvidia.com/gpu": 13}), SINGLE, ["nvidia.com/gpu is 13", "14 is expected"], False),
        (mixed(allocatable={"nvidia.com/mig-1g.5gb": 4}), MIXED, ["allocatable nvidia.com/mig-3g.20gb is 0"], False),
        (mixed(), pool(), ["allocatable nvidia.com/mig-1g.5gb is still 4", "nvidia.com/gpu is 0"], False),
        (node(replicas=4), pool(mode="mps", replicas=4), ["sharing-strategy is time-slicing, but mps"], False),
        # Offered as whole already, before the MIG manager makes them so.
        (
            node(labels={"nvidia.com/mig.config": "all-disabled"}, annotations=NOTED),
            pool(),
            ["has not processed all-disabled yet"],
            False,
        ),
        (
            node(labels={**CUT, "nvidia.com/mig.config": "old"}, annotations=NOTED),
            pool(),
            ["mig.config is old, but all-disabled is expected"],
            False,
        ),
    ],
)
def test_mig_and_mps_not_verified(of_node: Node, of_pool: PoolPlan, words: list[str], final: bool) -> None:
    finding = check_node(of_node, of_pool)
    assert finding is not None
    assert [word for word in words if word not in str(finding)] == []
    assert finding.final is final


def test_a_run_does_not_wait_for_a_node_whose_own_label_keeps_the_device_plugin_away() -> None:
    off = {"nvidia.com/gpu.deploy.device-plugin": "false"}
    finding = check_node(node(labels=off, allocatable={}), pool())
    assert finding is not None
    assert finding.final
    assert "gpu.deploy.device-plugin=false keeps the operator's device plugin away, so it cannot reach" in str(finding)
    assert "remove the label or, if another device plugin serves the node" in str(finding)
    # The pool says so itself.
    assert check_node(node(labels=off, allocatable={}), pool(labels=off)) is None


@pytest.mark.parametrize(("labels", "is_stuck"), [({}, True), ({"nvidia.com/gpu.deploy.operands": "false"}, False)])
def test_a_mig_manager_that_a_user_has_disabled_is_not_restarted(labels: dict[str, str], is_stuck: bool) -> None:
    failed = node(labels={"nvidia.com/mig.config": "accel-1", "nvidia.com/mig.config.state": "failed", **labels})
    assert bool(repair_reason(failed, pool())) is is_stuck
