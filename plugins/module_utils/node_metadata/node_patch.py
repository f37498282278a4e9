# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The desired metadata of one node from all its sets, and the one patch that applies it (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.taints import Taint, format_taint, merge_taints
from ..cluster_state.node import Node
from ..cluster_state.ownership import NODES, POOLS, Entries, NodeEdit, build_edit, merge_entries, recorded_keys
from .node_sets import NodeSet

V = t.TypeVar("V")


@dataclass(frozen=True)
class NodeMetadata:
    """The names of a node's sets, and the labels, annotations and taints that they require (None: remove a managed entry)."""

    sets: list[str]
    labels: Entries
    annotations: Entries
    taints: t.Mapping[str, Taint | None]
    purge: bool


class ConflictingSets(Exception):
    """Two sets, or a set and the node's pool, require different metadata of the same node."""


def desired_metadata(node: Node, sets: t.Sequence[NodeSet]) -> NodeMetadata | None:
    """The metadata that all sets of the node require; None if the node is in no set. Raises ConflictingSets."""
    matching = [node_set for node_set in sets if node_set.contains(node)]
    if not matching:
        return None
    desired = NodeMetadata(
        sets=[node_set.name for node_set in matching],
        labels=_combine(node, "label", [(node_set.name, node_set.labels) for node_set in matching]),
        annotations=_combine(node, "annotation", [(node_set.name, node_set.annotations) for node_set in matching]),
        taints=_combine(node, "taint", [(node_set.name, node_set.taints) for node_set in matching]),
        purge=any(node_set.purge for node_set in matching),
    )
    _require_pool_agrees(node, desired)
    return desired


def _combine(node: Node, kind: str, sets: t.Iterable[tuple[str, t.Mapping[str, V]]]) -> dict[str, V]:
    """The entries of all sets, each given with its name."""
    combined: dict[str, V] = {}
    required_by: dict[str, str] = {}
    for name, entries in sets:
        for key, value in entries.items():
            if combined.setdefault(key, value) != value:
                raise ConflictingSets(
                    f"Node {node.name} is in the sets {required_by[key]} and {name}, which require different values of its {kind} {key}."
                )
            required_by.setdefault(key, name)
    return combined


def node_edit(node: Node, desired: NodeMetadata) -> NodeEdit | None:
    """The merge patch, or None if nothing differs. Metadata that existed before is not recorded as managed."""
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
        [taint for taint in desired.taints.values() if taint is not None],
        lambda identity: desired.purge or ":".join(identity) in desired.taints,
    )
    records = {NODES.labels: owned_labels, NODES.taints: owned_taints, NODES.annotations: owned_annotations}
    return build_edit(node, labels, annotations, taints, records)


def _require_pool_agrees(node: Node, desired: NodeMetadata) -> None:
    """Check that no label or taint of the node's pool is changed, because two writers would overwrite each other in every run."""
    pool_labels = recorded_keys(node.annotations, POOLS.labels)
    for key, value in desired.labels.items():
        if key in pool_labels and value is not None and node.labels.get(key) != value:
            raise ConflictingSets(
                f"Label {key} of node {node.name} is set to {node.labels.get(key)!r} by its pool; change it in gpu_pools."
            )
    for text in recorded_keys(node.annotations, POOLS.taints):
        key, effect = text.partition("=")[0].partition(":")[0], text.rpartition(":")[2]
        taint = desired.taints.get(f"{key}:{effect}")
        if taint is not None and text != format_taint(taint):
            raise ConflictingSets(f"Taint {text} of node {node.name} is set by its pool; change it in gpu_pools.")
