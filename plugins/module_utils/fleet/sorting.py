# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pool each node belongs to, the pins that we set ourselves looked at again (pure)."""

from __future__ import annotations

import typing as t

from ..catalog.names import NFD_PREFIX, POOL_LABEL
from ..pools.membership import Membership, NodeFacts, members
from .ownership import POOLS, noted

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan
    from .node import Node

# Where the operator was told to keep away, gpu-feature-discovery never comes (gpu-operator state_manager.go).
_OPTED_OUT = ("nvidia.com/gpu.deploy.operands", "nvidia.com/gpu.deploy.gpu-feature-discovery")


def sort(pools: t.Sequence[PoolPlan], nodes: t.Sequence[Node]) -> Membership:
    """The membership; a pin of ours keeps a node in its pool only as long as the pool's match fits it.

    A pin that the user has set counts whatever the match says.
    """
    facts = {node.name: NodeFacts(node.name, node.labels, node.annotations) for node in nodes}
    membership = members(pools, facts.values())
    strayed = [name for names in membership.mismatched.values() for name in names]
    ours = [name for name in strayed if POOL_LABEL in noted(facts[name].annotations, POOLS.labels)]
    if not ours:
        return membership
    for name in ours:
        labels = {key: value for key, value in facts[name].labels.items() if key != POOL_LABEL}
        facts[name] = NodeFacts(name, labels, facts[name].annotations)
    return members(pools, facts.values())


def awaited(pools: t.Sequence[PoolPlan], nodes: t.Iterable[Node], membership: Membership) -> list[str]:
    """The nodes whose pool shows only when gpu-feature-discovery has named their model, and will."""
    if not any(pool.match.products for pool in pools):
        return []
    member = {name for names in membership.by_pool.values() for name in names}
    undiscovered = set(membership.undiscovered) - member
    return [
        node.name
        for node in nodes
        if node.name in undiscovered and node.ready and not any(node.labels.get(key) == "false" for key in _OPTED_OUT)
    ]


def undiscovered_cluster(nodes: t.Iterable[Node]) -> bool:
    """Whether NFD has not been at work on any node, so that nothing is known of their hardware."""
    return not any(key.startswith(NFD_PREFIX) for node in nodes for key in node.labels)
