# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cordons of ours: the note that tells them from everybody else's, and the patches that set and lift them (pure).

Every patch names the resourceVersion that was read: between our look and our cordon an admin may have cordoned the node, and
what is not ours must not be taken back by us.
"""

from __future__ import annotations

import typing as t

from ..catalog.names import CORDONED_ANNOTATION

if t.TYPE_CHECKING:
    from .node import Node

Patch = dict[str, t.Any]
Annotations = dict[str, "str | None"]
# Annotations hold 256 KiB together; nobody reads more than this of one.
LONGEST = 1000
# Why a node is cordoned whose machine is being taken out; the next run knows it by these words.
LEAVING = "its machine is being taken out of the cluster"


class CordonEdit(t.NamedTuple):
    """Parts of a patch: fields of the node's spec, and annotations (None takes one out)."""

    spec: Patch
    annotations: Annotations


def cordon_edit(node: Node, why: str) -> CordonEdit:
    """Cordon it, with the note that the cordon is ours; nothing where it is cordoned already, by whomever."""
    if node.unschedulable:
        return CordonEdit({}, {})
    return CordonEdit({"unschedulable": True}, {CORDONED_ANNOTATION: why[:LONGEST]})


def uncordon_edit(node: Node) -> CordonEdit:
    """Take back a cordon of ours, with its note; nothing where it is somebody else's."""
    if CORDONED_ANNOTATION not in node.annotations:
        return CordonEdit({}, {})
    return CordonEdit({"unschedulable": None}, {CORDONED_ANNOTATION: None})


def patch(node: Node, spec: Patch, annotations: Annotations) -> Patch | None:
    """The merge patch over the node as it was read; None when there is nothing in it."""
    if not spec and not annotations:
        return None
    metadata: Patch = {"resourceVersion": node.resource_version}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"metadata": metadata, **({"spec": spec} if spec else {})}


def is_cordoned_for_removal(node: Node) -> bool:
    """Whether a run of ours has cordoned it because its machine is to be taken out."""
    return node.annotations.get(CORDONED_ANNOTATION) == LEAVING


def cordon_for_removal(node: Node) -> Patch | None:
    """Cordon a node whose machine is to be taken out; a cordon of ours for another reason becomes one for this."""
    if CORDONED_ANNOTATION in node.annotations and not is_cordoned_for_removal(node):
        return patch(node, {}, {CORDONED_ANNOTATION: LEAVING})
    return patch(node, *cordon_edit(node, LEAVING))


def cancel_removal(node: Node) -> Patch | None:
    """Take that back: the node is to stay after all. None for every other cordon."""
    return patch(node, *uncordon_edit(node)) if is_cordoned_for_removal(node) else None
