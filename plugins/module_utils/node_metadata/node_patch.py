# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Combines the desired metadata of one node from all its sets, and builds the patch (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.taints import format_taint
from ..cluster_state.node import Node
from ..cluster_state.ownership import NODE_METADATA_OWNER, POOL_OWNER, NodeEdit, metadata_edit, recorded
from ..pools.metadata import NodeMetadata
from .node_sets import NodeSet

V = t.TypeVar("V")


@dataclass(frozen=True)
class RequiredMetadata:
    """The names of a node's sets, and the metadata that they require; `purge` removes all other managed metadata."""

    sets: list[str]
    metadata: NodeMetadata
    purge: bool


class ConflictingSets(Exception):
    """Raised if two sets, or a set and the node's pool, require different metadata for the same node."""


def required_metadata(node: Node, sets: t.Sequence[NodeSet]) -> RequiredMetadata | None:
    """The metadata that all sets of the node require; None if the node is in no set. Raises ConflictingSets."""
    matching = [node_set for node_set in sets if node_set.contains(node)]
    if not matching:
        return None
    metadata = NodeMetadata(
        labels=_combine(node, "label", [(node_set.name, node_set.labels) for node_set in matching]),
        annotations=_combine(node, "annotation", [(node_set.name, node_set.annotations) for node_set in matching]),
        taints=_combine(node, "taint", [(node_set.name, node_set.taints) for node_set in matching]),
    )
    _require_pool_agrees(node, metadata)
    return RequiredMetadata(
        [node_set.name for node_set in matching], metadata, any(node_set.purge for node_set in matching)
    )


def _combine(node: Node, kind: str, sets: t.Iterable[tuple[str, t.Mapping[str, V]]]) -> dict[str, V]:
    """Merge the entries of all sets, given with their names; raises ConflictingSets if two sets require different values."""
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


def required_metadata_edit(node: Node, required: RequiredMetadata) -> NodeEdit | None:
    """The edit that sets the required metadata; None if nothing differs. Metadata that already existed is not recorded as managed."""
    return metadata_edit(node, NODE_METADATA_OWNER, required.metadata, remove_others=required.purge)


def _require_pool_agrees(node: Node, desired: NodeMetadata) -> None:
    """Raise ConflictingSets if metadata set by the node's pool would be changed, because the pool and the set would overwrite each other in every run."""
    owned = recorded(node, POOL_OWNER)
    for kind, live, entries, owned_keys in (
        ("Label", node.labels, desired.labels, owned.labels),
        ("Annotation", node.annotations, desired.annotations, owned.annotations),
    ):
        for key, value in entries.items():
            if key in owned_keys and value is not None and live.get(key) != value:
                raise ConflictingSets(
                    f"{kind} {key} of node {node.name} is set to {live.get(key)!r} by its pool; change it in gpu_pools."
                )
    for text in sorted(owned.taints):
        key, effect = text.partition("=")[0].partition(":")[0], text.rpartition(":")[2]
        taint = desired.taints.get(f"{key}:{effect}")
        if taint is not None and text != format_taint(taint):
            raise ConflictingSets(f"Taint {text} of node {node.name} is set by its pool; change it in gpu_pools.")
