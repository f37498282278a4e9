# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU nodes for which a run does not wait: their model stays unknown, or their operands fail (pure)."""

from __future__ import annotations

import typing as t

from ..schema.messages import abbreviate
from ..schema.operand_labels import without_discovery
from .pool_assignment import pool_members, undiscovered_candidates

if t.TYPE_CHECKING:
    from ..pools.membership import Membership
    from ..pools.plan import PoolPlan
    from .node import Node

NOT_LABELLED = "gpu-feature-discovery has not labelled it"


def unusual_nodes(
    pools: t.Sequence[PoolPlan], nodes: t.Iterable[Node], membership: Membership, failures: t.Mapping[str, str]
) -> dict[str, str]:
    """By name, why the GPUs of a node are unknown, or why its operands fail (`failures`, by node).

    A node that is only not labelled yet, and may still belong to a pool, is not among them.
    """
    nodes = list(nodes)
    awaited = {*undiscovered_candidates(pools, nodes, membership), *pool_members(membership)}
    reasons: dict[str, str] = {}
    for node in nodes:
        if not node.has_gpu or (node.discovered and node.name not in failures):
            continue
        # The user's own labels explain more than their consequences.
        reason = "; ".join(filter(None, (without_discovery(node.labels), failures.get(node.name, ""))))
        if not reason and node.name not in awaited:
            reason = f"{NOT_LABELLED}, and no declared pool can match it"
        if reason:
            reasons[node.name] = reason
    return dict(sorted(reasons.items()))


def as_list(reasons: t.Mapping[str, str], limit: int | None) -> list[dict[str, str]]:
    """For a result: name and reason of each."""
    return [{"name": name, "reason": reason} for name, reason in list(reasons.items())[:limit]]


def unusual_node_warnings(reasons: t.Mapping[str, str], members: t.Collection[str]) -> t.Iterator[str]:
    """A sentence for each reason, with its nodes that belong to no pool."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        if name not in members:
            by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        yield f"In no pool, so the run does not wait for {abbreviate(names)}: {reason}."
