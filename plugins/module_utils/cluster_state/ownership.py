# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects that this collection has created, and the labels and taints of nodes that it owns: which to set, to remove and to keep (pure).

Labels and taints that existed before are not recorded as owned, so they stay when the node is released. The patch that sets a label or taint
also records it in an annotation, so a killed run leaves nothing unrecorded.
"""

from __future__ import annotations

import functools
import json
import typing as t
from dataclasses import dataclass, field

from ..catalog.names import CREATED_ANNOTATION, MIG_CONFIG_LABEL, MIG_STATE_LABEL
from ..catalog.taints import Taint, format_taint, merge_taints
from ..common.nested import parse_json
from .node import Node

# Labels or annotations; None removes one.
Entries = t.Mapping[str, "str | None"]


def is_created_by_collection(item: t.Mapping[str, t.Any]) -> bool:
    """Whether this collection has created an object of any kind."""
    return (item["metadata"].get("annotations") or {}).get(CREATED_ANNOTATION) == "true"


@dataclass(frozen=True)
class Owner:
    """The annotations in which one owner records what it has set on a node; `annotations` is empty if the owner sets no annotations."""

    labels: str
    taints: str
    annotations: str = ""


# Two owners, so that pools and the module node_metadata do not remove each other's labels and taints.
NODES = Owner("accel.gpu/labels", "accel.gpu/taints", "accel.gpu/annotations")
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
    labels: Entries | None = None,
    taints: t.Sequence[Taint] = (),
    remove_others: bool = False,
    annotations: Entries | None = None,
    handed_over: t.Mapping[str, str] | None = None,
) -> NodeEdit | None:
    """The patch that sets these labels and taints, or None if the node has them.

    A label of None is removed if it is owned. With remove_others, every owned label and taint that is not listed is removed.
    `annotations` are set, or removed (None). `handed_over` are labels that the patch sets without recording them as owned.
    """
    recorded = recorded_keys(node.annotations, owner.labels)
    patch, owned = merge_entries(node.labels, recorded, labels or {}, remove_others=remove_others)
    for key, value in (handed_over or {}).items():
        patch.pop(key, None)
        if node.labels.get(key) != value:
            patch[key] = value
        owned = [name for name in owned if name != key]
    if MIG_CONFIG_LABEL in patch:
        # This state belongs to the previous configuration, and may have been set since the node was read.
        patch[MIG_STATE_LABEL] = None
    merged, owned_taints = merge_taints(
        node.taints, recorded_keys(node.annotations, owner.taints), taints, lambda dummy: remove_others
    )
    records = {owner.labels: owned, owner.taints: owned_taints}
    return build_edit(node, patch, annotations or {}, merged, records)


def merge_entries(
    live: t.Mapping[str, str], recorded: t.Sequence[str], desired: Entries, *, remove_others: bool
) -> tuple[dict[str, str | None], list[str]]:
    """The patch of labels or annotations, and the keys that are owned after it.

    A desired entry of None is removed if it is recorded as owned. With remove_others, every owned entry that is not desired is removed, too.
    """
    patch = {key: value for key, value in desired.items() if value is not None and live.get(key) != value}
    removed = {key for key in recorded if desired.get(key) is None and (remove_others or key in desired)}
    owned = sorted((set(recorded) - removed) | set(patch))
    return patch | {key: None for key in removed if key in live}, owned


def build_edit(
    node: Node,
    labels: Entries,
    annotations: Entries,
    taints: list[dict[str, t.Any]] | None,
    records: t.Mapping[str, t.Sequence[str]],
    *,
    uncordon: bool = False,
) -> NodeEdit | None:
    """The edit with these patches of labels and annotations, and this list of taints (None: unchanged); None if nothing changes.

    `records` are the annotations that record owned labels and taints, with their entries.
    """
    recorded = {key: json.dumps(entries) if entries else None for key, entries in records.items()}
    annotations = {
        key: value for key, value in {**annotations, **recorded}.items() if value != node.annotations.get(key)
    }
    metadata: dict[str, t.Any] = {}
    spec: dict[str, t.Any] = {}
    before: dict[str, t.Any] = {}
    after: dict[str, t.Any] = {}
    for part, live, patch in (("labels", node.labels, labels), ("annotations", node.annotations, annotations)):
        if patch:
            metadata[part] = dict(patch)
            before[part] = {key: live[key] for key in sorted(patch) if key in live}
            after[part] = {key: value for key, value in sorted(patch.items()) if value is not None}
    if taints is not None:
        spec["taints"] = taints
        # Controllers add and remove taints at any time: only the changes of this patch are shown.
        old, new = ({format_taint(taint) for taint in each} for each in (node.taints, taints))
        before["taints"], after["taints"] = sorted(old - new), sorted(new - old)
    if uncordon:
        spec["unschedulable"] = None
        before["unschedulable"], after["unschedulable"] = True, False
    if spec:
        # The list of taints is atomic, and another user may have cordoned the node, so the patch must only apply to the
        # object as read.
        metadata["resourceVersion"] = node.resource_version
    body = {"metadata": metadata, **({"spec": spec} if spec else {})}
    return NodeEdit(node.name, body, before, after) if metadata else None


def recorded_keys(annotations: t.Mapping[str, str], annotation: str) -> list[str]:
    """The entries of an annotation; empty if it cannot be parsed."""
    text = annotations.get(annotation)
    return list(_entries(text)) if text else []


@functools.lru_cache(maxsize=1024)
def _entries(text: str) -> tuple[str, ...]:
    """Cached because many nodes have the same annotation."""
    return tuple(str(entry) for entry in parse_json(text, list) or ())
