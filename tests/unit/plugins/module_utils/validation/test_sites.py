# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The choice of the nodes, and the negative checks that can be run there."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import GpuRequest
from ansible_collections.accel.gpu.plugins.module_utils.schema.validation_programs import NODE_PROGRAMS, NodeProgram
from ansible_collections.accel.gpu.plugins.module_utils.validation.pods import (
    NodeProgramSite,
    NotTestable,
    ValidationSite,
    choose_node,
    choose_nodes,
)
from tests.helpers.fleet import node, pool

SHARED = pool(replicas=4)
STARTING = {"key": "startup-taint.cluster-autoscaler.kubernetes.io/accel-gpu", "effect": "NoSchedule"}
MAINTENANCE = {"key": "maintenance", "value": "x", "effect": "NoSchedule"}
NO_EXECUTE = {"key": "repair", "effect": "NoExecute"}
PREFERRED = {"key": "maintenance", "value": "x", "effect": "PreferNoSchedule"}
TOLERATION = {"key": "maintenance", "operator": "Exists"}
NODE, NETWORK = NODE_PROGRAMS
FLEET = [
    node("a", gpus=8),
    node("b", gpus=8),
    node("c", gpus=4),
    node("d", gpus=8, unschedulable=True),
    node("e", gpus=8, taints=(STARTING,)),
]


def lenient(of_pool: t.Any) -> t.Any:
    """The pool, without failRequestsGreaterThanOne."""
    return replace(of_pool, sharing=replace(of_pool.sharing, fail_requests_greater_than_one=False))


def _used(name: str, count: int) -> dict[str, list[GpuRequest]]:
    return {name: [GpuRequest("ns", "p", "nvidia.com/gpu", count)]}


def test_the_node_with_most_free_shares_is_chosen() -> None:
    nodes = [node("a", gpus=4), node("b", gpus=4)]
    assert choose_node(pool(), nodes, _used("a", 1), 8) == ValidationSite(
        nodes[1], ("nvidia.com/gpu",) * 4, one_more="nvidia.com/gpu"
    )


@pytest.mark.parametrize(
    ("nodes", "used", "words"),
    [
        ([node(ready=False), node("b", unschedulable=True)], {}, "ready and schedulable"),
        ([node(taints=(STARTING,))], {}, "ready and schedulable"),
        (
            [node("a", taints=(MAINTENANCE,)), node("b", taints=(NO_EXECUTE,))],
            {},
            "all nodes have taints that the pool does not declare: maintenance=x:NoSchedule on a; repair:NoExecute on b.",
        ),
        (
            [node("a", taints=(MAINTENANCE,)), node("b", ready=False)],
            {},
            "does not declare: maintenance=x:NoSchedule on a. Remove",
        ),
        ([node(allocatable={})], {}, "has allocatable nvidia.com/gpu"),
        ([node(gpus=2)], _used("n1", 2), "all 2 nvidia.com/gpu of the pool are in use"),
    ],
)
def test_why_no_node(nodes: list[t.Any], used: dict[str, list[GpuRequest]], words: str) -> None:
    actual = choose_node(pool(), nodes, used, 8)
    assert isinstance(actual, NotTestable)
    assert words in actual.reason
    assert actual.busy == ("in use" in words)


@pytest.mark.parametrize(
    ("of_pool", "taint", "chosen"),
    [
        (pool(), MAINTENANCE, "b"),
        (pool(), NO_EXECUTE, "b"),
        (pool(), PREFERRED, "a"),
        (pool(tolerations=(TOLERATION,)), MAINTENANCE, "a"),
        (pool(tolerations=(TOLERATION,)), NO_EXECUTE, "b"),
    ],
)
def test_nodes_with_taints_that_the_pool_does_not_tolerate_are_left_out(
    of_pool: t.Any, taint: dict[str, str], chosen: str
) -> None:
    nodes = [node("a", gpus=4, taints=(taint,)), node("b", gpus=2)]
    site = choose_node(of_pool, nodes, {}, 8)
    assert isinstance(site, ValidationSite)
    assert site.node.name == chosen
    measured = choose_nodes(NODE, of_pool, nodes, {}, {})
    assert isinstance(measured, NodeProgramSite)
    assert [each.name for each in measured.nodes] == [chosen]
    both = choose_nodes(NETWORK, of_pool, nodes, {}, {"all_reduce_nodes": 2})
    assert isinstance(both, NodeProgramSite) == (chosen == "a")


@pytest.mark.parametrize(("gpus", "replicas", "pods"), [(1, 4, 4), (8, 4, 9), (2, 4, 8), (16, 1, 8), (2, 1, 2)])
def test_required_pods(gpus: int, replicas: int, pods: int) -> None:
    site = choose_node(pool(replicas=replicas), [node(gpus=gpus, replicas=replicas)], {}, 8)
    assert isinstance(site, ValidationSite)
    assert site.pods == pods


MIXTURE = pool(layout={0: {"3g.20gb": 1, "1g.5gb": 4}}, gpus_per_node=2)
MIXED = {"nvidia.com/mig-1g.5gb": 4, "nvidia.com/mig-3g.20gb": 1, "nvidia.com/gpu": 1}

# What is offered, what others hold of it, how many pods there may be, and what is tried beside them (one more pod, two shares).
NEGATIVE_CHECKS: list[tuple[str, t.Any, t.Any, int, int, tuple[str, str]]] = [
    ("exclusive", pool(), node(gpus=8), 0, 8, ("nvidia.com/gpu", "")),
    ("more GPUs than pods", pool(), node(gpus=16), 0, 8, ("", "")),
    ("one GPU is held", pool(), node(gpus=4), 1, 8, ("", "")),
    ("shared", SHARED, node(replicas=4), 0, 8, ("nvidia.com/gpu", "nvidia.com/gpu")),
    ("shared, one share is held", SHARED, node(replicas=4), 1, 8, ("", "")),
    ("shared, three stay free", SHARED, node(gpus=4, replicas=4), 5, 8, ("", "nvidia.com/gpu")),
    ("MPS", pool(replicas=4, mode="mps"), node(replicas=4), 0, 8, ("nvidia.com/gpu", "nvidia.com/gpu")),
    ("two may be asked for", lenient(SHARED), node(replicas=4), 0, 8, ("nvidia.com/gpu", "")),
    ("renamed", pool(replicas=4, rename=True), node(replicas=4, rename=True), 0, 8, ("nvidia.com/gpu.shared",) * 2),
    ("a mixture, all of it", MIXTURE, node(gpus=2, allocatable=MIXED), 0, 8, ("nvidia.com/mig-1g.5gb", "")),
    ("a mixture, the first pods of it", MIXTURE, node(gpus=2, allocatable=MIXED), 0, 4, ("nvidia.com/mig-3g.20gb", "")),
    (
        "MIG devices that are shared",
        pool(layout={"1g.5gb": 7}, replicas=2),
        node(allocatable={"nvidia.com/gpu": 14}),
        0,
        14,
        ("nvidia.com/gpu", "nvidia.com/gpu"),
    ),
]


@pytest.mark.parametrize(
    ("of_pool", "of_node", "others", "limit", "tried"),
    [case[1:] for case in NEGATIVE_CHECKS],
    ids=[case[0] for case in NEGATIVE_CHECKS],
)
def test_negative_checks_that_can_be_run(
    of_pool: t.Any, of_node: t.Any, others: int, limit: int, tried: tuple[str, str]
) -> None:
    site = choose_node(of_pool, [of_node], _used("n1", others), limit)
    assert isinstance(site, ValidationSite)
    assert (site.one_more, site.two_shares) == tried
    assert [(request.name, request.count, request.holds) for request in site.negative_checks] == [
        (name, count, False) for name, count, on in (("one_more", 1, tried[0]), ("two_shares", 2, tried[1])) if on
    ]


@pytest.mark.parametrize(
    ("program", "of_pool", "others", "count", "expected"),
    [
        (NODE, pool(), {}, 1, (["a"], 8)),
        (NODE, pool(), _used("a", 3), 1, (["b"], 8)),
        (NETWORK, pool(), {}, 2, (["a", "b"], 8)),
        (NETWORK, pool(), _used("a", 6), 2, (["b", "c"], 4)),
        (NETWORK, pool(), _used("a", 8), 3, "fewer than 3 of its nodes have 1 or more free GPUs"),
        (NETWORK, pool(), {}, 4, "fewer than 4 of its nodes"),
        (NODE, pool(replicas=4), {}, 1, "shared or partitioned"),
        (NODE, pool(layout={"1g.5gb": 7}), {}, 1, "shared or partitioned"),
    ],
)
def test_nodes_of_a_program(program: NodeProgram, of_pool: t.Any, others: t.Any, count: int, expected: t.Any) -> None:
    site = choose_nodes(program, of_pool, FLEET, others, {"all_reduce_nodes": count})
    if isinstance(expected, str):
        assert isinstance(site, str)
        assert expected in site
    else:
        assert isinstance(site, NodeProgramSite)
        assert ([each.name for each in site.nodes], site.gpus) == expected


def test_one_gpu_is_too_few() -> None:
    assert choose_nodes(NODE, pool(), [node("a")], {}, {}) == "fewer than 1 of its nodes have 2 or more free GPUs"
