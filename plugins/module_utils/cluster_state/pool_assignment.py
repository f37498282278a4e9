# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Assigns the nodes to pools for a run, and finds the GPU nodes whose pool is not known yet (pure).

The pool is derived from the node's labels (pools.membership); outdated labels set by earlier runs are ignored.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ..catalog.names import POOL_LABEL
from ..pools.membership import DISCOVERED_PREFIXES, Membership, membership_by_labels
from ..schema.operand_labels import reason_without_discovery
from .ownership import POOL_OWNER, recorded

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan
    from .node import Node


def assign_pools(pools: t.Sequence[PoolPlan], nodes: t.Sequence[Node]) -> Membership:
    """The pool membership according to the nodes' labels. A label accel.gpu/pool that the user has set always counts.

    If a run has set the label, it counts unless the labels of the node's GPU contradict the pool's match. If these labels are gone, for example because
    NFD does not run any longer, the node keeps its pool.
    """
    membership = membership_by_labels(pools, nodes)
    by_name = {node.name: node for node in nodes}
    mismatched = [name for names in membership.mismatched.values() for name in names]
    owned = [name for name in mismatched if POOL_LABEL in recorded(by_name[name], POOL_OWNER).labels]
    if not owned:
        return membership
    for name in owned:
        labels = {key: value for key, value in by_name[name].labels.items() if key != POOL_LABEL}
        by_name[name] = dataclasses.replace(by_name[name], labels=labels)
    return membership_by_labels(pools, by_name.values())


def pool_members(membership: Membership) -> set[str]:
    """The names of the nodes of all pools."""
    return {name for names in membership.by_pool.values() for name in names}


def may_match(pool: PoolPlan, node: Node) -> bool:
    """Whether the pool's match may fit a node of unknown model once it is discovered, if its existing labels stay as they are."""
    if pool.match.pins_only:
        return False
    return all(
        node.labels[key] == value if key in node.labels else key.startswith(DISCOVERED_PREFIXES)
        for key, value in pool.match.labels.items()
    )


def undiscovered_candidates(pools: t.Sequence[PoolPlan], nodes: t.Iterable[Node], membership: Membership) -> list[str]:
    """The nodes without a pool that a pool may match as soon as gpu-feature-discovery labels them."""
    undiscovered = set(membership.undiscovered) - pool_members(membership)
    return [
        node.name
        for node in nodes
        if node.name in undiscovered
        and not reason_without_discovery(node.labels)
        and any(may_match(pool, node) for pool in pools)
    ]


def awaited_nodes(pools: t.Sequence[PoolPlan], nodes: t.Iterable[Node], membership: Membership) -> list[str]:
    """The ready nodes whose pool is not known until gpu-feature-discovery has labeled them."""
    return undiscovered_candidates(pools, [node for node in nodes if node.ready], membership)


def is_undiscovered(nodes: t.Iterable[Node]) -> bool:
    """Whether no node has NFD labels yet, so the hardware of all nodes is unknown."""
    return not any(node.has_nfd_labels for node in nodes)


def ignorable_nodes(pools: t.Sequence[PoolPlan], nodes: t.Sequence[Node]) -> set[str]:
    """The GPU nodes that are in no pool, or that gpu-feature-discovery has not labeled.

    A run never waits for operands that fail on these nodes. If one of the nodes belongs to a pool, the pool's sharing fails later.
    """
    members = pool_members(assign_pools(pools, nodes))
    return {node.name for node in nodes if node.has_gpu and (node.name not in members or not node.discovered)}


def can_continue_without(failing: t.Collection[str], pools: t.Sequence[PoolPlan], nodes: t.Sequence[Node]) -> bool:
    """Whether a run can continue without the failing nodes: another GPU node is discovered, or no failing node belongs or may belong to a pool."""
    membership = assign_pools(pools, nodes)
    candidates = {*pool_members(membership), *undiscovered_candidates(pools, nodes, membership)}
    others_discovered = any(node.discovered and node.name not in failing for node in nodes)
    return others_discovered or candidates.isdisjoint(failing)
