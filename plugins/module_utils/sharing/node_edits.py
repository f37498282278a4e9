# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The patches by which a node is closed for its change, opened again, or left with the reason (pure).

The cordon itself is cluster_state.cordon's; here is what a change of sharing puts beside it.
"""

from __future__ import annotations

import typing as t

from ..catalog.names import CLIENT_LABEL, FAILED_KEY, MIG_CONFIG_LABEL, MIG_STATE_LABEL, PAUSED_FOR_MIG
from ..catalog.taints import STARTUP_TAINT_KEY
from ..cluster_state.cordon import LONGEST, Patch, cordon_edit, patch, uncordon_edit
from ..cluster_state.node import Node
from ..cluster_state.node_check import clients_paused
from ..nvidia_config import mig_parted

if t.TYPE_CHECKING:
    from ..cluster_state.pool_edit import LastGood


def cordon_patch(node: Node, why: str) -> Patch | None:
    """Cordon it, with the note that the cordon is ours; None when nobody is scheduled there already.

    The taint of a change that failed goes, since NVIDIA's pods do not tolerate it and have to come back.
    """
    spec, annotations = ({}, {}) if node.tainted(STARTUP_TAINT_KEY) else cordon_edit(node, why)
    if node.tainted(FAILED_KEY):
        spec["taints"] = _without(node, FAILED_KEY)
    return patch(node, spec, annotations)


def uncordon_patch(node: Node, failed: str | None = None) -> Patch | None:
    """Take back what is ours of the closing; with `failed`, why the change was taken back is noted. None: nothing is ours."""
    spec, annotations = uncordon_edit(node)
    note = failed[:LONGEST] if failed else None
    if node.annotations.get(FAILED_KEY) != note:
        annotations[FAILED_KEY] = note
    ours = {FAILED_KEY} if failed else {FAILED_KEY, STARTUP_TAINT_KEY}
    if any(node.tainted(key) for key in ours):
        spec["taints"] = _without(node, *ours)
    return _with_labels(node, patch(node, spec, annotations), clients_paused(node), {CLIENT_LABEL: "true"})


def pause_clients(node: Node) -> Patch | None:
    """Stop the DaemonSets that select nvidia.com/gpu.deploy.client, as MIG managers from v0.15 on do it; None where they do not run."""
    return _with_labels(node, None, node.labels.get(CLIENT_LABEL) == "true", {CLIENT_LABEL: PAUSED_FOR_MIG})


def quarantine_patch(node: Node, reason: str, why: str) -> Patch | None:
    """Keep it closed: tainted with the reason (a label value), and with the whole story in the annotation."""
    taint = {"key": FAILED_KEY, "value": reason, "effect": "NoSchedule"}
    taints = [*_without(node, FAILED_KEY), taint]
    spec: Patch = {} if taints == [dict(found) for found in node.taints] else {"taints": taints}
    note = why[:LONGEST]
    return patch(node, spec, {} if node.annotations.get(FAILED_KEY) == note else {FAILED_KEY: note})


def rollback_patch(node: Node, good: LastGood) -> Patch | None:
    """The labels of the last good profile; the state of the one that failed goes with it.

    GPUs that nobody had cut are to be whole again, and the MIG manager acts only where it is told.
    """
    wanted = dict(good.labels)
    if node.mig_config:
        wanted[MIG_CONFIG_LABEL] = wanted.get(MIG_CONFIG_LABEL) or mig_parted.DISABLED
    labels = {key: value for key, value in wanted.items() if node.labels.get(key) != value}
    if MIG_CONFIG_LABEL in labels:
        labels[MIG_STATE_LABEL] = None
    return {"metadata": {"labels": labels}} if labels else None


def _with_labels(node: Node, found: Patch | None, needed: bool, labels: dict[str, str]) -> Patch | None:
    """A patch with labels added where they are `needed`."""
    if not needed:
        return found
    found = found or {"metadata": {"resourceVersion": node.resource_version}}
    return {**found, "metadata": {**found["metadata"], "labels": labels}}


def _without(node: Node, *keys: str) -> list[dict[str, t.Any]]:
    return [dict(taint) for taint in node.taints if taint.get("key") not in keys]
