# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The impact of a change on the nodes of a pool, and the differences of one node in words."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog import operands
from ansible_collections.accel.gpu.plugins.module_utils.nodes import pods as operand_pods
from ansible_collections.accel.gpu.plugins.module_utils.nodes.impact import (
    COUNTS,
    NO_POOL,
    NodeImpact,
    OperandRestart,
    RunningPods,
    displaced_pods,
    impact,
    impact_by_pool,
    total_impact,
    transition,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node_check import check_node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import assign_pools
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import PodOnNode, classify_pods, parse_pods
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pool_edit import membership_edit
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import PoolPlan
from ansible_collections.accel.gpu.plugins.module_utils.report.data import drift_of_node
from tests.helpers.fleet import node, pod, pool

A100 = "NVIDIA-A100-SXM4-40GB"
AMPERE = {"nvidia.com/mig.capable": "true", "nvidia.com/gpu.family": "ampere", "nvidia.com/mig.config": "all-disabled"}
HOPPER = {**AMPERE, "nvidia.com/gpu.family": "hopper"}
CUT = {
    **AMPERE,
    "nvidia.com/mig.config": "all-1g.5gb",
    "nvidia.com/mig.config.state": "success",
    "nvidia.com/gpu.product": f"{A100}-MIG-1g.5gb",
}
APPS = [
    operands.DRIVER,
    operands.PLUGIN,
    operands.DISCOVERY,
    operands.MIG_MANAGER,
    "nvidia-dcgm-exporter",
    operands.VALIDATOR,
]
SEVENTHS = pool(layout={"1g.5gb": 7})
THIRDS = pool(layout={"3g.20gb": 2})
NOTHING = OperandRestart()
DRIVER = OperandRestart(every=True)
IN_PLACE = OperandRestart(apps=frozenset({operands.DRIVER}), in_place=True)
PLUGIN = OperandRestart(apps=frozenset({operands.PLUGIN, operands.DISCOVERY}))


@pytest.mark.parametrize(
    ("of_node", "of_pool", "roll", "counts"),
    [
        (node(gpus=2), pool(), NOTHING, {}),
        # Two that hold one GPU each where one is left.
        (node(), pool(), NOTHING, {"pods": 1}),
        (node(), pool(replicas=4), NOTHING, {}),
        (node(), pool(replicas=4), PLUGIN, {"operand_pods": 2}),
        (node(), pool(), DRIVER, {"driver_restarts": 1, "pods": 2, "operand_pods": 6}),
        (node(gpus=2), pool(), IN_PLACE, {"driver_restarts": 1, "operand_pods": 1}),
        # The driver stays loaded, but one GPU less is left.
        (node(), pool(), IN_PLACE, {"driver_restarts": 1, "pods": 1, "operand_pods": 1}),
        (node(labels=AMPERE), SEVENTHS, NOTHING, {"pods": 2, "operand_pods": 5, "repartitioned_nodes": 1, "resets": 1}),
        (node(labels=HOPPER), SEVENTHS, NOTHING, {"pods": 2, "operand_pods": 5, "repartitioned_nodes": 1}),
        (node(labels=AMPERE), SEVENTHS, DRIVER, {"driver_restarts": 1, "pods": 2, "operand_pods": 6, "repartitioned_nodes": 1, "resets": 1}),
        # The devices are there already, under another name of the configuration.
        (node(gpus=7, labels=CUT), SEVENTHS, NOTHING, {}),
        # From one layout to another the mode stays on.
        (node(gpus=7, labels=CUT), THIRDS, NOTHING, {"pods": 2, "operand_pods": 5, "repartitioned_nodes": 1}),
        (node(gpus=7, labels=CUT), pool(), NOTHING, {"pods": 2, "operand_pods": 5, "repartitioned_nodes": 1, "resets": 1}),
    ],
)  # fmt: skip
def test_costs(of_node: Node, of_pool: PoolPlan, roll: OperandRestart, counts: dict[str, int]) -> None:
    existing = [PodOnNode("a", name, name, {"nvidia.com/gpu": 1}, ("requests nvidia.com/gpu",)) for name in ("x", "y")]
    change = transition(of_node, of_pool, membership_edit(of_node, of_pool))
    felt = {"n1": NodeImpact(change, displaced_pods(change, existing))}
    actual = impact([of_node], felt, roll, RunningPods({"n1": APPS}, {"n1": existing}))
    assert actual == {**dict.fromkeys(COUNTS, 0), **counts}
    assert total_impact([actual, actual]) == {name: 2 * count for name, count in actual.items()}


def test_what_rolls_rolls_on_nodes_of_no_pool_too() -> None:
    nodes = [node("in", labels={"accel.gpu/pool": "notebooks"}), node("out", "NVIDIA-L4")]
    pods = [pod("driver", item.name) for item in nodes] + [pod("work", "out", limits={"nvidia.com/gpu": 1})]
    for one in pods[:2]:
        one["metadata"]["labels"] = {"app": operands.DRIVER}
    pools = [pool()]
    running = RunningPods(
        operand_pods.operands_by_node(pods), classify_pods(parse_pods(pods, operator_namespace="gpu-operator")).gpu_pods
    )
    actual = impact_by_pool(pools, nodes, assign_pools(pools, nodes), {}, DRIVER, running)
    assert actual["notebooks"] == {**dict.fromkeys(COUNTS, 0), "driver_restarts": 1, "operand_pods": 1}
    assert actual[NO_POOL] == {**dict.fromkeys(COUNTS, 0), "driver_restarts": 1, "operand_pods": 1, "pods": 1}


def test_operands_are_nvidia_s_pods_by_node() -> None:
    pods: list[dict[str, t.Any]] = [pod("a", "n1"), pod("b", "n1"), pod("c", "n2"), pod("d"), pod("e", "n1")]
    for one, app in zip(
        pods, (f"{operands.DRIVER}-418.94", operands.PLUGIN, "web", operands.PLUGIN, None), strict=True
    ):
        one["metadata"]["labels"] = {"app": app} if app else {}
    assert operand_pods.operands_by_node(pods) == {"n1": [operands.DRIVER, operands.PLUGIN]}


TAINT = {"key": "a", "value": "b", "effect": "NoSchedule"}
SETTLED = {"accel.gpu/pool": "notebooks", "nvidia.com/device-plugin.config": pool().config_key}


@pytest.mark.parametrize(
    ("of_node", "of_pool", "expected"),
    [
        (node(labels=SETTLED), pool(), []),
        (node(), None, []),
        (node(labels=SETTLED, ready=False), pool(), ["is not ready"]),
        (
            node(labels=SETTLED, annotations={"accel.gpu/cordoned": "why", "accel.gpu/failed": "because"}),
            pool(),
            ["is cordoned by a run that has not finished: why", "its last change failed: because"],
        ),
        (
            node(labels=SETTLED),
            pool(labels={"team": "x"}, taints=(TAINT,)),
            ["label team is absent, but x is declared", "taint a=b:NoSchedule is missing"],
        ),
        (
            node(),
            pool(),
            [
                "will join pool notebooks",
                f"label nvidia.com/device-plugin.config is absent, but {pool().config_key} is expected",
            ],
        ),
        (
            node(
                labels={**SETTLED, "team": "x"},
                taints=(TAINT,),
                annotations={"accel.gpu/pool-labels": '["team"]', "accel.gpu/pool-taints": '["a=b:NoSchedule"]'},
            ),
            pool(),
            ["label team=x will be removed", "taint a=b:NoSchedule will be removed"],
        ),
        (
            node(labels={"accel.gpu/pool": "old"}, annotations={"accel.gpu/pool-labels": '["accel.gpu/pool"]'}),
            None,
            ["label accel.gpu/pool=old will be removed"],
        ),
        (
            node(labels={**SETTLED, "accel.gpu/pool": "old"}),
            pool(),
            ["will move from pool old to notebooks"],
        ),
        (node(labels=SETTLED, allocatable={}), pool(), ["allocatable nvidia.com/gpu is 0 of a capacity of 1: no plugin is registered, or all its GPUs are unhealthy, but 1 is expected"]),
        (
            node(labels={**SETTLED, **AMPERE}),
            SEVENTHS,
            # The verification reports the label; the changes do not repeat it.
            [
                "label nvidia.com/mig.config is all-disabled, but cut is expected",
                "label nvidia.com/gpu.count is 1, but 7 is expected",
                "label nvidia.com/gpu.product is Tesla-T4, but Tesla-T4-MIG-1g.5gb is expected",
                "label nvidia.com/mig.strategy is absent, but single is expected",
                "allocatable nvidia.com/gpu is 1, but 7 is expected",
                f"label nvidia.com/device-plugin.config is {pool().config_key}, but {SEVENTHS.config_key} is expected",
            ],
        ),
    ],
)  # fmt: skip
def test_differences(of_node: Node, of_pool: PoolPlan | None, expected: list[str]) -> None:
    finding = check_node(of_node, of_pool) if of_pool else None
    actual = drift_of_node(of_node, of_pool, finding, membership_edit(of_node, of_pool))
    assert sorted(actual) == sorted(expected)


def test_a_node_of_several_pools_is_in_none_of_them() -> None:
    assert drift_of_node(node(), None, None, None, ["a", "b"]) == [
        "matches the pools a, b, and belongs to none of them"
    ]
