# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for the very nodes that are there: each demand spread over them, and what their GPUs cannot be (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..cluster_state.mig_allocation import Allotment, Known, allot
from ..mig import layout as layouts
from ..mig.fit_error import misfit
from ..nvidia_config import mig_parted
from ..schema.messages import some
from .change_plan import ConfigMaps
from .scope import EVERYTHING, PRESENT, Scope

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..pools.membership import Membership
    from ..pools.plan import Plan, PoolPlan
    from .node_change import Asked


@dataclass(frozen=True)
class Settling:
    """What bounds it: whom a run is for, which nodes it leaves alone, and how it has settled some of them before."""

    scope: Scope = EVERYTHING
    left_out: t.Collection[str] = ()
    before: t.Mapping[str, layouts.Layout] | None = None

    def free(self, node: Node, pool: PoolPlan) -> bool:
        """Whether the node may be cut anew."""
        return not self.scope.repairs and node.name not in self.left_out and self.scope.holds(node, pool)


def settle(
    plan: Plan,
    nodes: t.Sequence[Node],
    membership: Membership,
    configmaps: ConfigMaps,
    asked: Asked | None = None,
    settling: Settling | None = None,
) -> Allotment:
    """Spread each demand; `asked` is who is on the nodes, None: nobody has looked."""
    settling = settling or Settling()
    known = Known(
        entries={**plan.mig.usual, **configmaps.generated.entries, **mig_parted.read(configmaps.mig)},
        geometries=configmaps.offered.geometries,
        used=None if asked is None else {name for name, users in asked.users.items() if users},
        settled=settling.before or {},
    )
    return allot(plan, nodes, membership, known, settling.free)


def unfit(plan: Plan, nodes: t.Sequence[Node], membership: Membership, configmaps: ConfigMaps) -> list[str]:
    """The layouts that the nodes themselves cannot have, whatever the catalog says, a sentence each."""
    geometries = configmaps.offered.geometries
    found = []
    for pool in plan.pools:
        reasons: dict[str, list[str]] = {}
        for name in membership.by_pool[pool.name]:
            for part in pool.sharing.layout if name in geometries else ():
                reason = misfit(geometries[name], part.profiles)
                if reason:
                    reasons.setdefault(reason, []).append(name)
        found += [
            f"gpu_pools: the layout of pool {pool.name} does not fit {some(names)}: the GPU {reason}"
            for reason, names in reasons.items()
        ]
    return found


def unmet(
    allotment: Allotment, nodes: t.Mapping[str, Node], membership: Membership, scope: Scope = EVERYTHING
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
                f"gpu_pools: sharing.demand of pool {pool.name} is {layouts.spelled(pool.sharing.demand)}, and its {len(members)} node(s) "
                f"have no room for {layouts.spelled(missing)} of it; ask for less, or give the pool more nodes"
            )
    return found
