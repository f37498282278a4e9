# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The patches that cordon a node for its change, uncordon it, quarantine it or roll it back (pure).

The cordon itself is in cluster_state.cordon; this file adds what a change of sharing needs.
"""

from __future__ import annotations

import typing as t

from ..catalog.names import CLIENT_LABEL, FAILED_KEY, MIG_CONFIG_LABEL, MIG_STATE_LABEL, PAUSED_FOR_MIG
from ..catalog.taints import STARTUP_TAINT_KEY
from ..cluster_state.cordon import MAX_REASON, Patch, cordon_edit, merge_patch, uncordon_edit
from ..cluster_state.node import Node
from ..cluster_state.node_check import clients_paused
from ..nvidia_config import mig_parted

if t.TYPE_CHECKING:
    from ..cluster_state.pool_edit import LastGood


def cordon_patch(node: Node, reason: str) -> Patch | None:
    """Cordon the node and record that; None if nothing is scheduled to it already.

    The taint of an earlier failure is removed, because NVIDIA's pods do not tolerate it and have to run during the change.
    """
    spec, annotations = ({}, {}) if node.has_taint(STARTUP_TAINT_KEY) else cordon_edit(node, reason)
    if node.has_taint(FAILED_KEY):
        spec["taints"] = _taints_without(node, FAILED_KEY)
    return merge_patch(node, spec, annotations)


def uncordon_patch(node: Node, failure: str | None = None) -> Patch | None:
    """Remove the collection's cordon, taints and pauses; `failure` is recorded as the reason of a rollback. None: nothing to remove."""
    spec, annotations = uncordon_edit(node)
    note = failure[:MAX_REASON] if failure else None
    if node.annotations.get(FAILED_KEY) != note:
        annotations[FAILED_KEY] = note
    keys = {FAILED_KEY} if failure else {FAILED_KEY, STARTUP_TAINT_KEY}
    if any(node.has_taint(key) for key in keys):
        spec["taints"] = _taints_without(node, *keys)
    found = merge_patch(node, spec, annotations)
    return _with_client_label(node, found, "true") if clients_paused(node) else found


def pause_clients(node: Node) -> Patch | None:
    """Stop the DaemonSets that select nvidia.com/gpu.deploy.client, as MIG managers from v0.15 on do; None if the label is not true."""
    return _with_client_label(node, None, PAUSED_FOR_MIG) if node.labels.get(CLIENT_LABEL) == "true" else None


def quarantine_patch(node: Node, reason: str, message: str) -> Patch | None:
    """Taint the node with the reason (a label value) and annotate it with the message."""
    taint = {"key": FAILED_KEY, "value": reason, "effect": "NoSchedule"}
    taints = [*_taints_without(node, FAILED_KEY), taint]
    spec: Patch = {} if taints == [dict(actual) for actual in node.taints] else {"taints": taints}
    note = message[:MAX_REASON]
    return merge_patch(node, spec, {} if node.annotations.get(FAILED_KEY) == note else {FAILED_KEY: note})


def rollback_patch(node: Node, good: LastGood) -> Patch | None:
    """Restore the labels of the last good configuration, and remove the MIG state of the failed one.

    If that had no MIG configuration, the label names the one for whole GPUs, because the MIG manager acts only on a label.
    """
    desired = dict(good.labels)
    if node.mig_config:
        desired[MIG_CONFIG_LABEL] = desired.get(MIG_CONFIG_LABEL) or mig_parted.DISABLED
    labels = {key: value for key, value in desired.items() if node.labels.get(key) != value}
    if MIG_CONFIG_LABEL in labels:
        labels[MIG_STATE_LABEL] = None
    return {"metadata": {"labels": labels}} if labels else None


def _with_client_label(node: Node, found: Patch | None, value: str) -> Patch:
    found = found or {"metadata": {"resourceVersion": node.resource_version}}
    return {**found, "metadata": {**found["metadata"], "labels": {CLIENT_LABEL: value}}}


def _taints_without(node: Node, *keys: str) -> list[dict[str, t.Any]]:
    return [dict(taint) for taint in node.taints if taint.get("key") not in keys]
