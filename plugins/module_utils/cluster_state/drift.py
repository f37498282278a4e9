# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs on one node from what its pool declares, as short sentences (pure)."""

from __future__ import annotations

import typing as t

from ..catalog.names import CONFIG_LABEL, CORDONED_ANNOTATION, FAILED_KEY, MIG_CONFIG_LABEL, MIG_STATE_LABEL, POOL_LABEL
from .node_check import check

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan
    from .node import Node
    from .ownership import NodeEdit

# Labels that come and go with others, or are told by the proof already.
_NOT_TOLD = frozenset({MIG_STATE_LABEL})


def drift_of_node(
    node: Node, pool: PoolPlan | None, change: NodeEdit | None, claiming: t.Sequence[str] = ()
) -> list[str]:
    """All of it: what the node shows, what a run would change on it, and the pools that match it beside each other.

    `pool` is the one that the node belongs to, `change` what would make it so (without a pool: what the node would give
    back). Empty when the node is as declared.
    """
    if claiming:
        return [f"matches the pools {', '.join(claiming)}, and is in none of them"]
    told = [] if pool is None or node.ready else ["is not ready"]
    told.extend(_begun(node))
    finding = check(node, pool) if pool else None
    told.extend(finding.seen if finding else ())
    told.extend(text for text in _of_edit(change) if text not in told)
    return told


def _begun(node: Node) -> t.Iterator[str]:
    """What a run has noted on a node with which it was not done."""
    if CORDONED_ANNOTATION in node.annotations:
        yield f"is cordoned by a run of ours that has not ended: {node.annotations[CORDONED_ANNOTATION]}"
    if FAILED_KEY in node.annotations:
        yield f"its last change failed: {node.annotations[FAILED_KEY]}"


def _of_edit(change: NodeEdit | None) -> t.Iterator[str]:
    if change is None:
        return
    before, after = change.before.get("labels") or {}, change.after.get("labels") or {}
    for key, value in sorted(change.labels.items()):
        if key in _NOT_TOLD:
            continue
        live = before.get(key)
        if value is None:
            yield f"label {key}={live} is to be taken out"
        elif key == POOL_LABEL:
            yield f"is to join pool {after[key]}" if live is None else f"is to leave pool {live} for {after[key]}"
        elif key in (CONFIG_LABEL, MIG_CONFIG_LABEL):
            yield f"label {key} is {live or 'absent'}, {value} is expected"
        else:
            yield f"label {key} is {live or 'absent'}, {value} is declared"
    taints_before, taints_after = (set(part.get("taints") or ()) for part in (change.before, change.after))
    yield from (f"taint {taint} is missing" for taint in sorted(taints_after - taints_before))
    yield from (f"taint {taint} is to be taken out" for taint in sorted(taints_before - taints_after))
    if set(change.before) | set(change.after) == {"annotations"}:
        yield "is to be noted as ours"
