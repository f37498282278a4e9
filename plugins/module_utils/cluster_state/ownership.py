# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels and taints of a node that this collection owns: which to set, to remove and to keep (pure).

Labels and taints that existed before are not recorded as owned, so that they stay when the node is released. Those that are set are
recorded in an annotation in the same patch, so that a killed run leaves nothing unrecorded.
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
    """The annotations in which one owner records what it has set on a node."""

    labels: str
    taints: str


# Two owners, so that pools and the module node_metadata do not remove each other's labels and taints.
NODES = Owner("accel.gpu/labels", "accel.gpu/taints")
POOLS = Owner("accel.gpu/pool-labels", "accel.gpu/pool-taints")


@dataclass(frozen=True)
class NodeEdit:
    """One merge patch of one node; before and after contain only the differences."""

    name: str
    patch: dict[str, t.Any]
    before: dict[str, t.Any] = field(default_factory=dict)
    after: dict[str, t.Any] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str | None]:
        """The labels that the patch sets (None: removes)."""
        return dict(self.patch["metadata"].get("labels") or {})


def metadata_edit(
    node: Node,
    owner: Owner,
    *,
    labels: t.Mapping[str, str | None] | None = None,
    taints: t.Sequence[Taint] = (),
    remove_others: bool = False,
    annotations: t.Mapping[str, str | None] | None = None,
    invalidates: t.Mapping[str, str] | None = None,
    handed_over: t.Mapping[str, str] | None = None,
) -> NodeEdit | None:
    """The patch that sets these labels and taints, or None if the node has them.

    A label of None is removed if it is owned. With remove_others every owned label and taint that is not listed is removed.
    `annotations` are set, or removed (None). `invalidates` maps labels to labels of others that become invalid when the former change; these
    are removed in the same patch, even if the node did not have them when it was read. `handed_over` are labels that the node has
    afterwards and that are not recorded as owned.
    """
    desired = {key: value for key, value in (labels or {}).items() if value is not None}
    removed = [key for key, value in (labels or {}).items() if value is None]
    label_patch, owned_labels = _labels(
        node, recorded_keys(node.annotations, owner.labels), desired, removed, remove_others
    )
    for key, value in (handed_over or {}).items():
        label_patch.pop(key, None)
        if node.labels.get(key) != value:
            label_patch[key] = value
        owned_labels = [owned for owned in owned_labels if owned != key]
    merged, owned_taints = merge_taints(
        node.taints, recorded_keys(node.annotations, owner.taints), taints, lambda dummy: remove_others
    )
    records = {
        key: json.dumps(owned) if owned else None
        for key, owned in ((owner.labels, owned_labels), (owner.taints, owned_taints))
    }
    written = {
        key: value for key, value in {**(annotations or {}), **records}.items() if value != node.annotations.get(key)
    }
    taints_differ = merged is not None
    if not label_patch and not written and not taints_differ:
        return None
    label_patch.update({invalid: None for key, invalid in (invalidates or {}).items() if key in label_patch})
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
    before, after = edit_difference(node, label_patch, written, merged)
    return NodeEdit(node.name, patch, before, after)


def recorded_keys(annotations: t.Mapping[str, str], annotation: str) -> list[str]:
    """The entries of an annotation; none where it cannot be parsed."""
    text = annotations.get(annotation)
    return list(_entries(text)) if text else []


@functools.lru_cache(maxsize=1024)
def _entries(text: str) -> tuple[str, ...]:
    """Cached, since many nodes have the same annotation."""
    try:
        entries = json.loads(text)
    except ValueError:
        return ()
    return tuple(str(entry) for entry in entries) if isinstance(entries, list) else ()


def _labels(
    node: Node, owned: list[str], desired: t.Mapping[str, str], removed: t.Sequence[str], remove_others: bool
) -> tuple[dict[str, str | None], list[str]]:
    patch: dict[str, str | None] = {key: value for key, value in desired.items() if node.labels.get(key) != value}
    dropped = [key for key in owned if key not in desired and (remove_others or key in removed)]
    patch.update({key: None for key in dropped if key in node.labels})
    written = {key for key, value in patch.items() if value is not None}
    return patch, sorted((set(owned) - set(dropped)) | written)


def edit_difference(
    node: Node,
    label_patch: t.Mapping[str, str | None],
    annotations: t.Mapping[str, str | None],
    merged: list[dict[str, t.Any]] | None,
) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """Before and after of patches of a node's labels and annotations, and of its new taints (None: they stay), for a NodeEdit."""
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
