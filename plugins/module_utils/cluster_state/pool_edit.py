# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes a node a member of its pool, and to what it can be taken back when that fails (pure)."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass

from ..catalog.names import (
    CONFIG_LABEL,
    DEPLOY_PREFIX,
    GPUS_ANNOTATION,
    LAST_GOOD_ANNOTATION,
    MIG_CONFIG_LABEL,
    ROLLOUT_ANNOTATION,
)
from ..catalog.taints import format_taint
from ..mig import layout as mig
from ..nvidia_config import mig_parted
from . import expected_state
from .node import Node
from .node_check import paused
from .ownership import POOLS, NodeEdit, edit, recorded_keys
from .pool_release import STALE, is_managed, release_edit
from .rollout_record import record

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan

_PROFILE = (CONFIG_LABEL, MIG_CONFIG_LABEL)


@dataclass(frozen=True)
class LastGood:
    """A profile with which a node was seen to work: its two labels (None: not there), and what it offered of GPUs."""

    labels: t.Mapping[str, str | None]
    offers: t.Mapping[str, int]

    def __str__(self) -> str:
        return json.dumps({"labels": dict(self.labels), "offers": dict(self.offers)}, sort_keys=True)


def node_edit(node: Node, pool: PoolPlan | None, held: t.Collection[str] = ()) -> NodeEdit | None:
    """What makes a node a member of the pool (of none: what gives back all that is ours), or None when it is.

    A held taint is not put on the node, and stays where the node has it. With another profile goes a note of the one that
    the node has, if it works.
    """
    good = is_working(node) if pool and _is_another(node, pool) else None
    return _edit(node, pool, held, {LAST_GOOD_ANNOTATION: str(good)} if good else {})


def whole_patch(node: Node) -> dict[str, t.Any] | None:
    """The first half of the release of a node whose GPUs are cut: whole GPUs by an explicit configuration, all notes kept.

    None when the node is told so already. The profile that worked until then is noted, so that a failure can be rolled back.
    """
    labels: dict[str, str | None] = {}
    if CONFIG_LABEL in node.labels and CONFIG_LABEL in recorded_keys(node.annotations, POOLS.labels):
        labels[CONFIG_LABEL] = None
    if node.mig_config != mig_parted.DISABLED:
        labels.update({MIG_CONFIG_LABEL: mig_parted.DISABLED, STALE[MIG_CONFIG_LABEL]: None})
    good = is_working(node) if labels and is_managed(node) else None
    annotations = {LAST_GOOD_ANNOTATION: str(good)} if good else {}
    metadata = {key: part for key, part in (("labels", labels), ("annotations", annotations)) if part}
    return {"metadata": metadata} if metadata else None


def is_working(node: Node) -> LastGood | None:
    """The node's profile, when what it shows is a node that works: GPUs are offered, and nothing is in the middle of a change."""
    offers = {name: count for name, count in sorted(node.allocatable.items()) if count and expected_state.of_gpus(name)}
    if not offers or not node.ready or paused(node) or node.mig_state not in ("", "success"):
        return None
    return LastGood({key: node.labels.get(key) for key in _PROFILE}, offers)


def last_good(node: Node) -> LastGood | None:
    """The profile that is noted on the node; None where none is, or nothing readable."""
    try:
        found = json.loads(node.annotations.get(LAST_GOOD_ANNOTATION) or "null")
        return LastGood({key: found["labels"].get(key) for key in _PROFILE}, dict(found["offers"]))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _is_another(node: Node, pool: PoolPlan) -> bool:
    """Whether the node gets another profile than it has."""
    cut = _cut(node, pool)
    return node.labels.get(CONFIG_LABEL) != pool.on(node.name).config_key or bool(cut and node.mig_config != cut)


def _cut(node: Node, pool: PoolPlan) -> str | None:
    return expected_state.mig_config(node, pool, ours=MIG_CONFIG_LABEL in recorded_keys(node.annotations, POOLS.labels))


def _unpaused(node: Node, labels: t.Mapping[str, str]) -> dict[str, str]:
    """The pool's labels without those of operands that are stopped for the time of a change; whoever stopped them starts them again."""
    return {
        key: value
        for key, value in labels.items()
        if not (
            value == "true" and key.startswith(DEPLOY_PREFIX) and node.labels.get(key, "").startswith("paused-for-")
        )
    }


def _edit(
    node: Node, pool: PoolPlan | None, held: t.Collection[str], more: t.Mapping[str, str | None]
) -> NodeEdit | None:
    if pool is None:
        return release_edit(node)
    there = {format_taint(taint) for taint in node.taints}
    taints = [taint for taint in pool.taints if format_taint(taint) in there or format_taint(taint) not in held]
    cut = _cut(node, pool)
    counted = (
        str(expected_state.expected_gpus(node, pool))
        if pool.sharing.strategy == mig.SINGLE and node.discovered
        else None
    )
    return edit(
        node,
        POOLS,
        labels={**_unpaused(node, pool.on(node.name).node_labels), **({MIG_CONFIG_LABEL: cut} if cut else {})},
        taints=taints,
        drop_others=True,
        annotations={GPUS_ANNOTATION: counted, ROLLOUT_ANNOTATION: record(pool.rollout), **more},
        stale=STALE,
    )
