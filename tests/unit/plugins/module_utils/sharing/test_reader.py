# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Demands and layouts that do not fit the nodes."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.mig import mig_capacity
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import assign_pools
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.sharing import change_plan
from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import ConfigMaps, Scope
from ansible_collections.accel.gpu.plugins.module_utils.sharing.reader import (
    demand_problems,
    layout_problems,
    plan_demand,
)
from tests.helpers.fleet import node as fleet_node

MODEL = "A100-SXM4-40GB"
# Of a driver before R525, which has no 1g.10gb (MIG user guide).
PUBLISHED = {"1g.5gb": 7, "1g.5gb+me": 1, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1}


def a100(name: str, **changes: t.Any) -> Node:
    labels = {"nvidia.com/mig.capable": "true", "nvidia.com/gpu.memory": "40960"}
    return dataclasses.replace(fleet_node(name, f"NVIDIA-{MODEL}", labels=labels), **changes)


def problems_of(sharing: dict[str, t.Any], nodes: list[Node], **options: t.Any) -> tuple[list[str], list[str]]:
    """The problems of layouts and those of demands."""
    plan = derive({"name": "lab"}, {}, [{"name": "train", "match": {"model": MODEL}, "sharing": sharing}])
    entries = {
        f"all-{name.replace('+', '.')}": [{"devices": "all", "mig-enabled": True, "mig-devices": {name: most}}]
        for name, most in PUBLISHED.items()
    }
    membership = assign_pools(plan.pools, nodes)
    published = {node.name: entries for node in nodes if options.get("published")}
    configmaps = ConfigMaps(capacity=mig_capacity(nodes, published))
    scope = options.get("scope", change_plan.EVERYTHING)
    allocation = plan_demand(plan, nodes, membership, configmaps, scope=scope)
    by_name = {node.name: node for node in nodes}
    layout = layout_problems(allocation.plan, nodes, membership, configmaps)
    return layout, demand_problems(allocation, by_name, membership, scope)


def test_a_layout_with_a_profile_that_the_node_does_not_publish() -> None:
    doubled = {"mode": "mig", "layout": {"1g.10gb": 4}}
    assert problems_of(doubled, [a100("n1")]) == ([], [])
    (problem,), dummy = problems_of(doubled, [a100("n1"), a100("n2")], published=True)
    assert problem.startswith(
        "gpu_pools: the layout of pool train does not fit n1, n2: the GPU has no profile 1g.10gb; it has 1g.5gb, "
    )


def test_a_demand_is_packed_into_the_profiles_that_nodes_publish() -> None:
    doubled = {"mode": "mig", "demand": {"1g.10gb": 1}}
    assert problems_of(doubled, [a100("n1")]) == ([], [])
    dummy, (problem,) = problems_of(doubled, [a100("n1")], published=True)
    assert "have no room for 1 x 1g.10gb of it; reduce the demand, or add nodes to the pool" in problem


def test_a_demand_that_does_not_fit_names_the_missing_devices() -> None:
    dummy, (problem,) = problems_of({"mode": "mig", "demand": {"7g.40gb": 3}}, [a100("n1"), a100("n2")])
    assert problem == (
        "gpu_pools: sharing.demand of pool train is 3 x 7g.40gb, but its 2 node(s) have no room for 1 x 7g.40gb of it; "
        "reduce the demand, or add nodes to the pool"
    )


UNDISCOVERED = a100("n2", labels={"accel.gpu/pool": "train", "nvidia.com/gpu.present": "true"})


@pytest.mark.parametrize(
    ("nodes", "scope"),
    [
        ([a100("n1"), UNDISCOVERED], change_plan.EVERYTHING),
        ([a100("n1"), a100("n2", ready=False)], change_plan.EVERYTHING),
        ([], change_plan.EVERYTHING),
        ([a100("n1")], Scope(change_plan.NEW_NODES)),
        ([a100("n1")], Scope(change_plan.REPAIRED)),
        ([a100("n1")], Scope(pools=frozenset({"another"}))),
    ],
    ids=[
        "undiscovered node",
        "node not ready",
        "no node",
        "new nodes only",
        "repair",
        "another pool",
    ],
)
def test_a_demand_is_not_refused_if_the_run_cannot_know(nodes: list[Node], scope: Scope) -> None:
    assert problems_of({"mode": "mig", "demand": {"7g.40gb": 2}}, nodes, scope=scope) == ([], [])
