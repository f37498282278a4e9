# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The desired metadata of one node from all its sets, and the one patch that applies it (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.taints import Taint, format_taint, merge_taints, taint_identity
from ..cluster_state.node import Node
from ..cluster_state.ownership import NODES, POOLS, NodeEdit, build_edit, merge_entries, recorded_keys
from .node_sets import NodeSet

_Entries = dict[str, "str | None"]


@dataclass
class NodeMetadata:
    """Desired labels, annotations (None: remove a managed entry) and taints of a node."""

    labels: _Entries = field(default_factory=dict)
    annotations: _Entries = field(default_factory=dict)
    taints: dict[tuple[str, str], Taint] = field(default_factory=dict)
    absent_taints: set[tuple[str, str]] = field(default_factory=set)
    purge: bool = False


class ConflictingSets(Exception):
    """Two sets, or a set and the node's pool, require different metadata of the same node."""


def desired_metadata(node: Node, sets: t.Sequence[NodeSet]) -> NodeMetadata | None:
    """The metadata that all sets of the node require, None when it is in no set; raises ConflictingSets."""
    desired = NodeMetadata()
    required_by: dict[tuple[str, str], str] = {}
    matching = [node_set for node_set in sets if node_set.contains(node)]

    def require(kind: str, key: str, agrees: bool, node_set: NodeSet) -> None:
        if not agrees:
            raise ConflictingSets(
                f"Node {node.name} is in the sets {required_by[kind, key]} and {node_set.name}, which require different values of its "
                f"{kind} {key}."
            )
        required_by.setdefault((kind, key), node_set.name)

    for node_set in matching:
        for kind, target, entries in (
            ("label", desired.labels, node_set.labels),
            ("annotation", desired.annotations, node_set.annotations),
        ):
            for key, value in entries.items():
                require(kind, key, target.setdefault(key, value) == value, node_set)
        for taint in node_set.taints:
            identity = taint_identity(taint)
            same = format_taint(desired.taints.setdefault(identity, taint)) == format_taint(taint)
            require("taint", ":".join(identity), same and identity not in desired.absent_taints, node_set)
        for taint in node_set.absent_taints:
            identity = taint_identity(taint)
            require("taint", ":".join(identity), identity not in desired.taints, node_set)
            desired.absent_taints.add(identity)
        desired.purge = desired.purge or node_set.purge
    _require_pool_agrees(node, desired)
    return desired if matching else None


def node_edit(node: Node, desired: NodeMetadata) -> NodeEdit | None:
    """The merge patch, or None when nothing differs. What existed before is not recorded as managed."""
    labels, owned_labels = merge_entries(
        node.labels, recorded_keys(node.annotations, NODES.labels), desired.labels, remove_others=desired.purge
    )
    annotations, owned_annotations = merge_entries(
        node.annotations,
        recorded_keys(node.annotations, NODES.annotations),
        desired.annotations,
        remove_others=desired.purge,
    )
    taints, owned_taints = merge_taints(
        node.taints,
        recorded_keys(node.annotations, NODES.taints),
        desired.taints.values(),
        lambda identity: desired.purge or identity in desired.absent_taints,
    )
    records = {NODES.labels: owned_labels, NODES.taints: owned_taints, NODES.annotations: owned_annotations}
    return build_edit(node, labels, annotations, taints, records)


def _require_pool_agrees(node: Node, desired: NodeMetadata) -> None:
    """A label or taint of the node's pool cannot be changed here: two writers would overwrite each other on every run."""
    pool_labels = recorded_keys(node.annotations, POOLS.labels)
    for key, value in desired.labels.items():
        if key in pool_labels and value is not None and node.labels.get(key) != value:
            raise ConflictingSets(
                f"Label {key} of node {node.name} is set to {node.labels.get(key)!r} by its pool; change it in gpu_pools."
            )
    for text in recorded_keys(node.annotations, POOLS.taints):
        key, effect = text.partition("=")[0].partition(":")[0], text.rpartition(":")[2]
        taint = desired.taints.get((key, effect))
        if taint is not None and text != format_taint(taint):
            raise ConflictingSets(f"Taint {text} of node {node.name} is set by its pool; change it in gpu_pools.")
