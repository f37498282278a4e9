# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one node is to carry by all the sets it is in, and the one patch that brings it there (pure)."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, field

from ..catalog.taints import Taint, format_taint, merge_taints, taint_identity
from ..cluster_state.node import Node
from ..cluster_state.ownership import NODES, POOLS, NodeEdit, recorded_keys
from .node_sets import NodeSet

ANNOTATIONS_NOTE = "accel.gpu/annotations"

_Marks = dict[str, "str | None"]


@dataclass
class NodeMetadata:
    """Labels, annotations (None: take ours out) and taints that the sets of a node want together."""

    labels: _Marks = field(default_factory=dict)
    annotations: _Marks = field(default_factory=dict)
    taints: dict[tuple[str, str], Taint] = field(default_factory=dict)
    dropped_taints: set[tuple[str, str]] = field(default_factory=set)
    purge: bool = False


class ConflictingSets(Exception):
    """Two sets, or a set and the node's pool, want different things of the same node."""


def metadata_of(node: Node, sets: t.Sequence[NodeSet]) -> NodeMetadata | None:
    """What the sets that hold the node want, None when none does; raises Contradiction."""
    holding = [candidate for candidate in sets if candidate.holds(node)]
    if not holding:
        return None
    wish = NodeMetadata()
    by: dict[tuple[str, t.Any], str] = {}
    for chosen in holding:
        for word, into, marks in (
            ("label", wish.labels, chosen.labels),
            ("annotation", wish.annotations, chosen.annotations),
        ):
            for key, value in marks.items():
                _agree(node, by, (word, key), into.setdefault(key, value) == value, chosen)
        for taint in (*chosen.taints, *chosen.dropped_taints):
            place = taint_identity(taint)
            dropped = taint in chosen.dropped_taints
            other = place in wish.taints if dropped else place in wish.dropped_taints
            same = not other and (dropped or format_taint(wish.taints.setdefault(place, taint)) == format_taint(taint))
            _agree(node, by, ("taint", f"{place[0]}:{place[1]}"), same, chosen)
            if dropped:
                wish.dropped_taints.add(place)
        wish.purge = wish.purge or chosen.purge
    _respect_pool(node, wish)
    return wish


def node_edit(node: Node, wish: NodeMetadata) -> NodeEdit | None:
    """The merge patch, or None when the node is as wished. What was there before us is not noted as ours."""
    labels, owned_labels = _marks(node.labels, recorded_keys(node.annotations, NODES.labels), wish.labels, wish.purge)
    annotations, owned_annotations = _marks(
        node.annotations, recorded_keys(node.annotations, ANNOTATIONS_NOTE), wish.annotations, wish.purge
    )
    taints, owned_taints = merge_taints(
        node.taints,
        recorded_keys(node.annotations, NODES.taints),
        wish.taints.values(),
        lambda identity: wish.purge or identity in wish.dropped_taints,
    )
    notes = {NODES.labels: owned_labels, NODES.taints: owned_taints, ANNOTATIONS_NOTE: owned_annotations}
    for note, owned in notes.items():
        value = json.dumps(owned) if owned else None
        if value != node.annotations.get(note):
            annotations[note] = value
    if not labels and not annotations and taints is None:
        return None
    metadata: dict[str, t.Any] = {}
    before: dict[str, t.Any] = {}
    after: dict[str, t.Any] = {}
    for word, live, patch in (("labels", node.labels, labels), ("annotations", node.annotations, annotations)):
        if patch:
            metadata[word] = patch
            before[word] = {key: live[key] for key in patch if key in live}
            after[word] = {key: value for key, value in patch.items() if value is not None}
    body: dict[str, t.Any] = {"metadata": metadata}
    if taints is not None:
        # The list is atomic: it is written whole, and only over the very object that was read.
        metadata["resourceVersion"] = node.resource_version
        body["spec"] = {"taints": taints}
        # Controllers put theirs on and off at any time: only what this patch changes is shown.
        old, new = ({format_taint(taint) for taint in found} for found in (node.taints, taints))
        before["taints"], after["taints"] = sorted(old - new), sorted(new - old)
    return NodeEdit(node.name, body, before, after)


def _agree(node: Node, by: dict[tuple[str, t.Any], str], what: tuple[str, t.Any], same: bool, chosen: NodeSet) -> None:
    if not same:
        raise ConflictingSets(
            f"Node {node.name} is in the sets {by[what]} and {chosen.name}, which want different things of its "
            f"{what[0]} {what[1]}."
        )
    by.setdefault(what, chosen.name)


def _respect_pool(node: Node, wish: NodeMetadata) -> None:
    """A label or taint that its pool put on a node is the pool's alone; two writers would never come to rest."""
    pools = set(recorded_keys(node.annotations, POOLS.labels))
    for key, value in wish.labels.items():
        if key in pools and value is not None and node.labels.get(key) != value:
            raise ConflictingSets(
                f"Label {key} of node {node.name} is {node.labels.get(key)!r} by its pool; change it in gpu_pools."
            )
    places = {
        text.partition("=")[0].partition(":")[0] + ":" + text.rpartition(":")[2]: text
        for text in recorded_keys(node.annotations, POOLS.taints)
    }
    for (key, effect), taint in wish.taints.items():
        theirs = places.get(f"{key}:{effect}")
        if theirs is not None and theirs != format_taint(taint):
            raise ConflictingSets(f"Taint {theirs} of node {node.name} is its pool's; change it in gpu_pools.")


def _marks(live: t.Mapping[str, str], ours: t.Sequence[str], wanted: _Marks, purge: bool) -> tuple[_Marks, list[str]]:
    """The part of the patch, and the keys that are ours once it is made."""
    patch: _Marks = {key: value for key, value in wanted.items() if value is not None and live.get(key) != value}
    written = set(patch)
    leaving = {key for key in ours if wanted.get(key) is None and (purge or key in wanted)}
    patch.update({key: None for key in leaving if key in live})
    return patch, sorted((set(ours) - leaving) | written)
