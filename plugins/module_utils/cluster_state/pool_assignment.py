# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pool of each node for a run, and the GPU nodes whose pool is not known yet (pure).

The pool follows from the labels (pools.membership), without outdated ones of earlier runs.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ..catalog.names import NFD_PREFIX, POOL_LABEL
from ..pools.membership import Membership, membership_by_labels
from ..schema.operand_labels import without_discovery
from .ownership import POOLS, recorded_keys

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan
    from .node import Node

# Labels with these prefixes are set by discovery; all others exist from the start, or are set by others.
_DISCOVERED = ("nvidia.com/", NFD_PREFIX)


def assign_pools(pools: t.Sequence[PoolPlan], nodes: t.Sequence[Node]) -> Membership:
    """The membership by labels, where an accel.gpu/pool that a run has set only counts while the pool's match fits the node.

    One that the user has set always counts.
    """
    membership = membership_by_labels(pools, nodes)
    by_name = {node.name: node for node in nodes}
    mismatched = [name for names in membership.mismatched.values() for name in names]
    owned = [name for name in mismatched if POOL_LABEL in recorded_keys(by_name[name].annotations, POOLS.labels)]
    if not owned:
        return membership
    for name in owned:
        labels = {key: value for key, value in by_name[name].labels.items() if key != POOL_LABEL}
        by_name[name] = dataclasses.replace(by_name[name], labels=labels)
    return membership_by_labels(pools, by_name.values())


def pool_members(membership: Membership) -> set[str]:
    """The nodes of all pools."""
    return {name for names in membership.by_pool.values() for name in names}


def may_match(pool: PoolPlan, node: Node) -> bool:
    """Whether the pool's match can still fit a node of unknown model; labels that exist do not change."""
    if pool.match.pins_only:
        return False
    return all(
        node.labels[key] == value if key in node.labels else key.startswith(_DISCOVERED)
        for key, value in pool.match.labels.items()
    )


def undiscovered_candidates(pools: t.Sequence[PoolPlan], nodes: t.Iterable[Node], membership: Membership) -> list[str]:
    """The nodes of no pool that may belong to one once gpu-feature-discovery has labelled them, which it will do."""
    undiscovered = set(membership.undiscovered) - pool_members(membership)
    return [
        node.name
        for node in nodes
        if node.name in undiscovered
        and not without_discovery(node.labels)
        and any(may_match(pool, node) for pool in pools)
    ]


def awaited_nodes(pools: t.Sequence[PoolPlan], nodes: t.Iterable[Node], membership: Membership) -> list[str]:
    """The ready nodes whose pool is known only once gpu-feature-discovery has labelled them."""
    return undiscovered_candidates(pools, [node for node in nodes if node.ready], membership)


def is_undiscovered(nodes: t.Iterable[Node]) -> bool:
    """Whether NFD has not labelled any node, so that nothing is known of their hardware."""
    return not any(node.has_nfd_labels for node in nodes)


def ignorable_nodes(pools: t.Sequence[PoolPlan], nodes: t.Sequence[Node]) -> set[str]:
    """The GPU nodes whose failing operands do not stop a run for the others.

    These are nodes of no pool, and nodes without labels of gpu-feature-discovery: if a pool has one of the latter, its sharing fails in the end.
    """
    members = pool_members(assign_pools(pools, nodes))
    return {node.name for node in nodes if node.has_gpu and (node.name not in members or not node.discovered)}


def can_continue_without(failing: t.Collection[str], pools: t.Sequence[PoolPlan], nodes: t.Sequence[Node]) -> bool:
    """Whether a run need not wait for the failing nodes: another GPU node is discovered, or none of them is or may become a pool's."""
    membership = assign_pools(pools, nodes)
    candidates = {*pool_members(membership), *undiscovered_candidates(pools, nodes, membership)}
    others_discovered = any(node.discovered and node.name not in failing for node in nodes)
    return others_discovered or candidates.isdisjoint(failing)
