# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the patches that add and remove this collection's cordons, which an annotation distinguishes from other cordons (pure).

Every patch contains the resourceVersion that was read, because an administrator may have cordoned the node since then, and that cordon must not
be removed.
"""

from __future__ import annotations

import typing as t

from ..catalog.names import CLIENT_LABEL, CORDONED_ANNOTATION, DRIVER_RESTART_ANNOTATION, PAUSED_FOR_MIG
from .node_check import clients_paused

if t.TYPE_CHECKING:
    from .node import Node

Patch = dict[str, t.Any]
Annotations = dict[str, "str | None"]
# Parts of a patch: fields of the node's spec, and annotations (None removes one).
CordonEdit = tuple[Patch, Annotations]
# Kubernetes limits the total size of an object's annotations to 256 KiB, and a longer reason would not be useful.
MAX_REASON = 1000
# The reason for the cordon of a node whose machine is being removed. The next run recognizes the node by this text, so the text must not change
# between releases.
REMOVAL_REASON = "the machine is being removed from the cluster"
_DRIVER_RESTART_REASON = "its driver is being restarted to load a licensing token"


def cordon_edit(node: Node, reason: str) -> CordonEdit:
    """The edit that cordons a node and stores the reason in the annotation; empty if the node is already cordoned."""
    if node.unschedulable:
        return {}, {}
    return {"unschedulable": True}, {CORDONED_ANNOTATION: reason[:MAX_REASON], **_without_driver_restart(node)}


def uncordon_edit(node: Node) -> CordonEdit:
    """The edit that removes this collection's cordon and its annotations; empty if the node has no such cordon."""
    if CORDONED_ANNOTATION not in node.annotations:
        return {}, {}
    return {"unschedulable": None}, {CORDONED_ANNOTATION: None, **_without_driver_restart(node)}


def _without_driver_restart(node: Node) -> Annotations:
    return {DRIVER_RESTART_ANNOTATION: None} if DRIVER_RESTART_ANNOTATION in node.annotations else {}


def merge_patch(node: Node, spec: Patch, annotations: Annotations) -> Patch | None:
    """The merge patch for the version of the node that was read; None if it would be empty."""
    if not spec and not annotations:
        return None
    metadata: Patch = {"resourceVersion": node.resource_version}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"metadata": metadata, **({"spec": spec} if spec else {})}


def unfinished_run_message(node: Node) -> str:
    """The message, without its subject, for a node that a run has cordoned but not yet uncordoned; empty for other nodes."""
    reason = node.annotations.get(CORDONED_ANNOTATION)
    return f"is cordoned by a run that has not finished: {reason}" if reason is not None else ""


def is_cordoned_for_removal(node: Node) -> bool:
    """Whether a run has cordoned the node because its machine is being removed."""
    return node.annotations.get(CORDONED_ANNOTATION) == REMOVAL_REASON


def cordon_for_removal(node: Node) -> Patch | None:
    """The patch that cordons a node whose machine is being removed; this reason replaces any earlier reason set by this collection."""
    if CORDONED_ANNOTATION in node.annotations and not is_cordoned_for_removal(node):
        return merge_patch(node, {}, {CORDONED_ANNOTATION: REMOVAL_REASON, **_without_driver_restart(node)})
    return merge_patch(node, *cordon_edit(node, REMOVAL_REASON))


def cancel_removal(node: Node) -> Patch | None:
    """The patch that removes the cordon for removal because the node stays in the cluster; None if the node has no such cordon."""
    return merge_patch(node, *uncordon_edit(node)) if is_cordoned_for_removal(node) else None


def cordon_for_driver_restart(node: Node, pod: str) -> Patch | None:
    """The patch that cordons a node and records the driver pod that will be restarted, so that the next run can determine whether that pod was restarted.

    The record of an earlier pod is replaced. A node that another tool or user has cordoned gets only the record.
    None if another run is changing the node.
    """
    recorded = driver_pod_to_restart(node)
    if recorded is None and CORDONED_ANNOTATION in node.annotations:
        return None
    spec, annotations = cordon_edit(node, _DRIVER_RESTART_REASON)
    if spec or recorded != pod:
        annotations[DRIVER_RESTART_ANNOTATION] = pod
    return merge_patch(node, spec, annotations)


def driver_pod_to_restart(node: Node) -> str | None:
    """The driver pod whose restart a run has begun but not completed; None if there is none."""
    return node.annotations.get(DRIVER_RESTART_ANNOTATION)


def end_driver_restart(node: Node) -> Patch | None:
    """The patch that removes the cordon and the record of a driver restart, and restarts the DaemonSets of GPU clients; other cordons remain."""
    spec, annotations = uncordon_edit(node) if driver_pod_to_restart(node) is not None else ({}, {})
    return resume_clients(node, merge_patch(node, spec, {**annotations, **_without_driver_restart(node)}))


def pause_clients(node: Node) -> Patch | None:
    """The patch that stops the DaemonSets that select nvidia.com/gpu.deploy.client; None if the label is not true.

    The MIG manager has also stopped these DaemonSets since v0.15.
    """
    return _with_client_label(node, None, PAUSED_FOR_MIG) if node.labels.get(CLIENT_LABEL) == "true" else None


def resume_clients(node: Node, patch: Patch | None) -> Patch | None:
    """The given patch, extended to start the DaemonSets of GPU clients again if they are stopped."""
    return _with_client_label(node, patch, "true") if clients_paused(node) else patch


def _with_client_label(node: Node, patch: Patch | None, value: str) -> Patch:
    patch = patch or {"metadata": {"resourceVersion": node.resource_version}}
    return {**patch, "metadata": {**patch["metadata"], "labels": {CLIENT_LABEL: value}}}
