# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Spreads each demand over the nodes of its pool, and reports layouts and demands that do not fit (pure)."""

from __future__ import annotations

import typing as t

from ..cluster_state.mig_allocation import KnownLayouts, MigAllocation, allocate
from ..mig import layout as layouts
from ..mig.fit_error import fit_error
from ..nvidia_config import mig_parted
from ..schema.messages import abbreviate
from .change_plan import ConfigMaps
from .scope import EVERYTHING, PRESENT, Scope

if t.TYPE_CHECKING:
    from ..cluster_state.gpu_pods import PodsByNode
    from ..cluster_state.node import Node
    from ..pools.membership import Membership
    from ..pools.plan import Plan, PoolPlan


def plan_demand(
    plan: Plan,
    nodes: t.Sequence[Node],
    membership: Membership,
    configmaps: ConfigMaps,
    pods: PodsByNode | None = None,
    *,
    scope: Scope = EVERYTHING,
    excluded: t.Collection[str] = (),
    settled: t.Mapping[str, layouts.Layout] | None = None,
) -> MigAllocation:
    """Spread each demand over the nodes of its pool.

    `pods` are those on the nodes; None: they have not been listed. Nodes outside the scope and `excluded` ones keep their layout;
    `settled` are layouts that the same run has chosen before.
    """

    def may_change(node: Node, pool: PoolPlan) -> bool:
        return not scope.repairs and node.name not in excluded and scope.contains(node, pool)

    known = KnownLayouts(
        entries={
            **plan.mig.default_entries,
            **configmaps.generated.entries,
            **mig_parted.parse_configmap(configmaps.mig),
        },
        geometries=configmaps.capacity.geometries,
        nodes_in_use=None if pods is None else {name for name, users in pods.gpu_pods.items() if users},
        previous=settled or {},
    )
    return allocate(plan, nodes, membership, known, may_change)


def layout_problems(plan: Plan, nodes: t.Sequence[Node], membership: Membership, configmaps: ConfigMaps) -> list[str]:
    """The layouts that do not fit what the nodes publish about their GPUs, one sentence each."""
    geometries = configmaps.capacity.geometries
    problems = []
    for pool in plan.pools:
        nodes_by_reason: dict[str, list[str]] = {}
        for name in membership.by_pool[pool.name]:
            for part in pool.sharing.layout if name in geometries else ():
                reason = fit_error(geometries[name], part.profiles)
                if reason:
                    nodes_by_reason.setdefault(reason, []).append(name)
        problems += [
            f"gpu_pools: the layout of pool {pool.name} does not fit {abbreviate(names)}: the GPU {reason}"
            for reason, names in nodes_by_reason.items()
        ]
    return problems


def demand_problems(
    allocation: MigAllocation, nodes: t.Mapping[str, Node], membership: Membership, scope: Scope = EVERYTHING
) -> list[str]:
    """The demands that do not fit the nodes, one sentence each.

    None while nodes are not discovered or not ready, since these may add capacity, and none if the run is not for whole pools.
    """
    if scope.state != PRESENT or scope.selectors:
        return []
    problems = []
    for pool in allocation.plan.pools:
        missing = allocation.missing.get(pool.name)
        members = [nodes[name] for name in membership.by_pool[pool.name] if name in nodes]
        in_scope = scope.pools is None or pool.name in scope.pools
        if missing and in_scope and members and all(node.discovered and node.ready for node in members):
            problems.append(
                f"gpu_pools: sharing.demand of pool {pool.name} is {layouts.format_layout(pool.sharing.demand)}, but its {len(members)} node(s) "
                f"have no room for {layouts.format_layout(missing)} of it; reduce the demand, or add nodes to the pool"
            )
    return problems
