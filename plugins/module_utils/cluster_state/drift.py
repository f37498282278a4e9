# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The differences between a node and its pool's declaration, as short sentences (pure)."""

from __future__ import annotations

import typing as t

from ..catalog.names import CONFIG_LABEL, CORDONED_ANNOTATION, FAILED_KEY, MIG_CONFIG_LABEL, MIG_STATE_LABEL, POOL_LABEL
from .node_check import check

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan
    from .node import Node
    from .ownership import NodeEdit


def drift_of_node(
    node: Node, pool: PoolPlan | None, change: NodeEdit | None, matching: t.Sequence[str] = ()
) -> list[str]:
    """What the node shows that is not as declared, what a run would change on it, and the pools that match it at the same time.

    `pool` is the pool of the node, `change` the edit that a run would make (without a pool: the release). Empty without drift.
    """
    if matching:
        return [f"matches the pools {', '.join(matching)}, and is in none of them"]
    drift = [] if pool is None or node.ready else ["is not ready"]
    drift.extend(_unfinished_runs(node))
    finding = check(node, pool) if pool else None
    drift.extend(finding.differences if finding else ())
    drift.extend(text for text in _changes(change) if text not in drift)
    return drift


def _unfinished_runs(node: Node) -> t.Iterator[str]:
    if CORDONED_ANNOTATION in node.annotations:
        yield f"is cordoned by a run that has not finished: {node.annotations[CORDONED_ANNOTATION]}"
    if FAILED_KEY in node.annotations:
        yield f"its last change failed: {node.annotations[FAILED_KEY]}"


def _changes(change: NodeEdit | None) -> t.Iterator[str]:
    if change is None:
        return
    before, after = change.before.get("labels") or {}, change.after.get("labels") or {}
    for key, value in sorted(change.labels.items()):
        # This label is removed together with the configuration that it is about.
        if key == MIG_STATE_LABEL:
            continue
        live = before.get(key)
        if value is None:
            yield f"label {key}={live} is to be removed"
        elif key == POOL_LABEL:
            yield f"is to join pool {after[key]}" if live is None else f"is to move from pool {live} to {after[key]}"
        else:
            verb = "expected" if key in (CONFIG_LABEL, MIG_CONFIG_LABEL) else "declared"
            yield f"label {key} is {live or 'absent'}, {value} is {verb}"
    taints_before, taints_after = (set(part.get("taints") or ()) for part in (change.before, change.after))
    yield from (f"taint {taint} is missing" for taint in sorted(taints_after - taints_before))
    yield from (f"taint {taint} is to be removed" for taint in sorted(taints_before - taints_after))
    if set(change.before) | set(change.after) == {"annotations"}:
        yield "its annotations are to be updated"
