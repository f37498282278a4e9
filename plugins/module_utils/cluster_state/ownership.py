# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels and taints of a node that are ours: what to write, what to take back, what to leave (pure).

A label or taint that was there before we came is not noted as ours, so that it stays when we leave. What we put is
noted in an annotation, written in the same patch, so that a killed run leaves nothing that is not noted.
"""

from __future__ import annotations

import functools
import json
import typing as t
from dataclasses import dataclass, field

from ..catalog.taints import Taint, format_taint, merge_taints
from .node import Node


@dataclass(frozen=True)
class Owner:
    """The annotations in which one owner notes what it put on a node."""

    labels: str
    taints: str


# Two owners, so that what a pool declares and what a user sets with the module nodes do not take each other out.
NODES = Owner("accel.gpu/labels", "accel.gpu/taints")
POOLS = Owner("accel.gpu/pool-labels", "accel.gpu/pool-taints")


@dataclass(frozen=True)
class NodeEdit:
    """One merge patch of one node; before and after hold only what differs."""

    name: str
    patch: dict[str, t.Any]
    before: dict[str, t.Any] = field(default_factory=dict)
    after: dict[str, t.Any] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str | None]:
        """The labels that the patch sets (or takes out: None)."""
        return dict(self.patch["metadata"].get("labels") or {})


def edit(
    node: Node,
    owner: Owner,
    *,
    labels: t.Mapping[str, str | None] | None = None,
    taints: t.Sequence[Taint] = (),
    drop_others: bool = False,
    annotations: t.Mapping[str, str | None] | None = None,
    stale: t.Mapping[str, str] | None = None,
    handed_over: t.Mapping[str, str] | None = None,
) -> NodeEdit | None:
    """The patch that makes a node carry the labels and taints, or None when it does.

    A label of None is taken out if it is ours. With drop_others everything of ours that is not wanted is taken out.
    `annotations` are set, or taken out (None). `stale` tells of labels of others which of them no longer says anything
    once that label is changed, by the label that is: `{changed: stale}`; it is taken out in the same patch, also where the
    node did not have it when it was read. `handed_over` are labels that the node has afterwards and that are not noted as the owner's.
    """
    wanted = {key: value for key, value in (labels or {}).items() if value is not None}
    dropped = [key for key, value in (labels or {}).items() if value is None]
    label_patch, owned_labels = _labels(
        node, recorded_keys(node.annotations, owner.labels), wanted, dropped, drop_others
    )
    for key, value in (handed_over or {}).items():
        label_patch.pop(key, None)
        if node.labels.get(key) != value:
            label_patch[key] = value
        owned_labels = [owned for owned in owned_labels if owned != key]
    merged, owned_taints = merge_taints(
        node.taints, recorded_keys(node.annotations, owner.taints), taints, lambda dummy: drop_others
    )
    noting = {
        key: json.dumps(owned) if owned else None
        for key, owned in ((owner.labels, owned_labels), (owner.taints, owned_taints))
    }
    written = {
        key: value for key, value in {**(annotations or {}), **noting}.items() if value != node.annotations.get(key)
    }
    taints_differ = merged is not None
    if not label_patch and not written and not taints_differ:
        return None
    label_patch.update({of: None for key, of in (stale or {}).items() if key in label_patch})
    metadata: dict[str, t.Any] = {}
    if label_patch:
        metadata["labels"] = label_patch
    if written:
        metadata["annotations"] = written
    patch: dict[str, t.Any] = {"metadata": metadata}
    if taints_differ:
        # The list is atomic: it is written whole, and only over the very object that was read.
        metadata["resourceVersion"] = node.resource_version
        patch["spec"] = {"taints": merged}
    before, after = _difference(node, label_patch, written, merged)
    return NodeEdit(node.name, patch, before, after)


def recorded_keys(annotations: t.Mapping[str, str], annotation: str) -> list[str]:
    """What an annotation of ours lists; what cannot be read lists nothing."""
    text = annotations.get(annotation)
    return list(_entries(text)) if text else []


@functools.lru_cache(maxsize=1024)
def _entries(text: str) -> tuple[str, ...]:
    """Read once for all nodes on which the same is noted."""
    try:
        entries = json.loads(text)
    except ValueError:
        return ()
    return tuple(str(entry) for entry in entries) if isinstance(entries, list) else ()


def _labels(
    node: Node, ours: list[str], wanted: t.Mapping[str, str], dropped: t.Sequence[str], drop_others: bool
) -> tuple[dict[str, str | None], list[str]]:
    patch: dict[str, str | None] = {key: value for key, value in wanted.items() if node.labels.get(key) != value}
    leaving = [key for key in ours if key not in wanted and (drop_others or key in dropped)]
    patch.update({key: None for key in leaving if key in node.labels})
    written = {key for key, value in patch.items() if value is not None}
    owned = (set(ours) - set(leaving)) | written
    return patch, sorted(owned)


def _difference(
    node: Node,
    label_patch: t.Mapping[str, str | None],
    annotations: t.Mapping[str, str | None],
    merged: list[dict[str, t.Any]] | None,
) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    before: dict[str, t.Any] = {}
    after: dict[str, t.Any] = {}
    for part, live, patch in (("labels", node.labels, label_patch), ("annotations", node.annotations, annotations)):
        if patch:
            before[part] = {key: live[key] for key in patch if key in live}
            after[part] = {key: value for key, value in patch.items() if value is not None}
    if merged is not None:
        before["taints"] = sorted(format_taint(taint) for taint in node.taints)
        after["taints"] = sorted(format_taint(taint) for taint in merged)
    return before, after
