# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pool each node belongs to, the pins that we set ourselves looked at again (pure)."""

from __future__ import annotations

import typing as t

from ..catalog.names import NFD_PREFIX, POOL_LABEL
from ..pools.membership import Membership, NodeFacts, members
from .ownership import POOLS, recorded_keys
from .unusual_nodes import claimable
from .unusual_nodes import members as members_of

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan
    from .node import Node


def assign_pools(pools: t.Sequence[PoolPlan], nodes: t.Sequence[Node]) -> Membership:
    """The membership; a pin of ours keeps a node in its pool only as long as the pool's match fits it.

    A pin that the user has set counts whatever the match says.
    """
    facts = {node.name: NodeFacts(node.name, node.labels, node.annotations) for node in nodes}
    membership = members(pools, facts.values())
    strayed = [name for names in membership.mismatched.values() for name in names]
    ours = [name for name in strayed if POOL_LABEL in recorded_keys(facts[name].annotations, POOLS.labels)]
    if not ours:
        return membership
    for name in ours:
        labels = {key: value for key, value in facts[name].labels.items() if key != POOL_LABEL}
        facts[name] = NodeFacts(name, labels, facts[name].annotations)
    return members(pools, facts.values())


def awaited_nodes(pools: t.Sequence[PoolPlan], nodes: t.Iterable[Node], membership: Membership) -> list[str]:
    """The nodes whose pool shows only when gpu-feature-discovery has labelled them, and will."""
    ready = [node for node in nodes if node.ready]
    return claimable(pools, ready, membership)


def undiscovered_cluster(nodes: t.Iterable[Node]) -> bool:
    """Whether NFD has not been at work on any node, so that nothing is known of their hardware."""
    return not any(key.startswith(NFD_PREFIX) for node in nodes for key in node.labels)


def may_be_set_aside(pools: t.Sequence[PoolPlan], nodes: t.Sequence[Node]) -> set[str]:
    """The GPU nodes whose failing operands do not keep the others from going on.

    Those of no pool, and those that gpu-feature-discovery has not labelled: where a pool has one of these, its sharing fails in the end.
    """
    of_pools = members_of(assign_pools(pools, nodes))
    return {node.name for node in nodes if node.has_gpu and (node.name not in of_pools or not node.discovered)}


def some_work(nodes: t.Iterable[Node], failing: t.Collection[str]) -> bool:
    """Whether NVIDIA's pods have labelled any GPU node beside those on which they fail."""
    return any(node.discovered and node.name not in failing for node in nodes)


def any_claimed(pools: t.Sequence[PoolPlan], nodes: t.Sequence[Node], names: t.Collection[str]) -> bool:
    """Whether one of the named nodes is of a pool, or may become so."""
    membership = assign_pools(pools, nodes)
    claimed = {*members_of(membership), *claimable(pools, nodes, membership)}
    return any(name in claimed for name in names)
