# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for the very nodes that are there: each demand spread over them, and what their GPUs cannot be (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..cluster_state.mig_allocation import KnownLayouts, MigAllocation, allocate
from ..mig import layout as layouts
from ..mig.fit_error import fit_error
from ..nvidia_config import mig_parted
from ..schema.messages import abbreviate
from .change_plan import ConfigMaps
from .scope import EVERYTHING, PRESENT, Scope

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..drain.pods_on_nodes import PodsByNode
    from ..pools.membership import Membership
    from ..pools.plan import Plan, PoolPlan


@dataclass(frozen=True)
class DemandPlan:
    """What bounds it: whom a run is for, which nodes it leaves alone, and how it has settled some of them before."""

    scope: Scope = EVERYTHING
    left_out: t.Collection[str] = ()
    before: t.Mapping[str, layouts.Layout] | None = None

    def free(self, node: Node, pool: PoolPlan) -> bool:
        """Whether the node may be cut anew."""
        return not self.scope.repairs and node.name not in self.left_out and self.scope.holds(node, pool)


def plan_demand(
    plan: Plan,
    nodes: t.Sequence[Node],
    membership: Membership,
    configmaps: ConfigMaps,
    asked: PodsByNode | None = None,
    settling: DemandPlan | None = None,
) -> MigAllocation:
    """Spread each demand; `asked` is who is on the nodes, None: nobody has looked."""
    settling = settling or DemandPlan()
    known = KnownLayouts(
        entries={**plan.mig.usual, **configmaps.generated.entries, **mig_parted.read(configmaps.mig)},
        geometries=configmaps.offered.geometries,
        used=None if asked is None else {name for name, users in asked.gpu_pods.items() if users},
        settled=settling.before or {},
    )
    return allocate(plan, nodes, membership, known, settling.free)


def misfits(plan: Plan, nodes: t.Sequence[Node], membership: Membership, configmaps: ConfigMaps) -> list[str]:
    """The layouts that the nodes themselves cannot have, whatever the catalog says, a sentence each."""
    geometries = configmaps.offered.geometries
    found = []
    for pool in plan.pools:
        reasons: dict[str, list[str]] = {}
        for name in membership.by_pool[pool.name]:
            for part in pool.sharing.layout if name in geometries else ():
                reason = fit_error(geometries[name], part.profiles)
                if reason:
                    reasons.setdefault(reason, []).append(name)
        found += [
            f"gpu_pools: the layout of pool {pool.name} does not fit {abbreviate(names)}: the GPU {reason}"
            for reason, names in reasons.items()
        ]
    return found


def unmet_demand(
    allotment: MigAllocation, nodes: t.Mapping[str, Node], membership: Membership, scope: Scope = EVERYTHING
) -> list[str]:
    """The demands for which the nodes that are there have no room, a sentence each.

    None while nodes are not discovered or not ready, which may bring the room, and none of a run that is not for whole pools.
    """
    if scope.state != PRESENT or scope.selectors:
        return []
    found = []
    for pool in allotment.plan.pools:
        missing = allotment.missing.get(pool.name)
        members = [nodes[name] for name in membership.by_pool[pool.name] if name in nodes]
        asked = scope.pools is None or pool.name in scope.pools
        if missing and asked and members and all(node.discovered and node.ready for node in members):
            found.append(
                f"gpu_pools: sharing.demand of pool {pool.name} is {layouts.format_layout(pool.sharing.demand)}, and its {len(members)} node(s) "
                f"have no room for {layouts.format_layout(missing)} of it; ask for less, or give the pool more nodes"
            )
    return found
