# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU nodes whose model nobody tells: which of them a declared pool may still claim, and what is known of the others (pure)."""

from __future__ import annotations

import typing as t

from ..catalog.names import NFD_PREFIX
from ..schema.messages import abbreviate
from ..schema.operand_labels import without_discovery

if t.TYPE_CHECKING:
    from ..pools.membership import Membership
    from ..pools.plan import PoolPlan
    from .node import Node

# Labels with these prefixes come with discovery; all others are there from the start, or somebody sets them.
_DISCOVERED = ("nvidia.com/", NFD_PREFIX)
NOT_LABELLED = "gpu-feature-discovery has not labelled it"


def may_claim(pool: PoolPlan, node: Node) -> bool:
    """Whether the pool's match can still fit a node of unknown model; what its labels say already cannot become otherwise."""
    if pool.match.pins_only:
        return False
    return all(
        node.labels[key] == value if key in node.labels else key.startswith(_DISCOVERED)
        for key, value in pool.match.labels.items()
    )


def members(membership: Membership) -> set[str]:
    """The nodes of all pools."""
    return {name for names in membership.by_pool.values() for name in names}


def claimable(pools: t.Sequence[PoolPlan], nodes: t.Iterable[Node], membership: Membership) -> list[str]:
    """The nodes of no pool that one may get once gpu-feature-discovery has labelled them, and which it will label."""
    undiscovered = set(membership.undiscovered) - members(membership)
    return [
        node.name
        for node in nodes
        if node.name in undiscovered
        and not without_discovery(node.labels)
        and any(may_claim(pool, node) for pool in pools)
    ]


def unusual_nodes(
    pools: t.Sequence[PoolPlan], nodes: t.Iterable[Node], membership: Membership, failures: t.Mapping[str, str]
) -> dict[str, str]:
    """By name, why nothing is known of the GPUs of a node, or why its operands fail; `failures` is what is known of the latter.

    A node that is only not labelled yet, and may still be, is not among them.
    """
    waited_for = {*claimable(pools, nodes := list(nodes), membership), *members(membership)}
    found: dict[str, str] = {}
    for node in nodes:
        if not node.has_gpu or (node.discovered and node.name not in failures):
            continue
        # What the user has declared says more than what follows from it.
        reason = "; ".join(filter(None, (without_discovery(node.labels), failures.get(node.name, ""))))
        if not reason and node.name not in waited_for:
            reason = f"{NOT_LABELLED}, and no declared pool can match it"
        if reason:
            found[node.name] = reason
    return dict(sorted(found.items()))


def as_list(found: t.Mapping[str, str], limit: int | None) -> list[dict[str, str]]:
    """For a result: name and reason of each."""
    return [{"name": name, "reason": reason} for name, reason in list(found.items())[:limit]]


def warnings(found: t.Mapping[str, str], members: t.Collection[str]) -> t.Iterator[str]:
    """A sentence for each reason, with the nodes of no pool that it is true of."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in found.items():
        if name not in members:
            by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        yield f"Not waited for, and of no pool: {abbreviate(names)}: {reason}."
