# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node gives back of ours, and what NVIDIA's operator and NFD leave on it once they are gone (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.names import (
    CORDONED_ANNOTATION,
    FAILED_KEY,
    GPU_PRESENT_LABEL,
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    NFD_PREFIX,
    POOL_LABEL,
)
from ..catalog.taints import STARTUP_TAINT_KEY, format_taint
from ..cluster_state.node import Node
from ..cluster_state.ownership import NODES, POOLS, NodeEdit, recorded_keys

OURS = "accel.gpu/"
# In which the module nodes notes the annotations that it has put on a node (node_metadata/node_patch.py).
_ANNOTATIONS_NOTE = "accel.gpu/annotations"

# What the operator writes on nodes and leaves there (gpu-operator v25.10.1 controllers/state_manager.go; its upgrade library:
# k8s-operator-libs pkg/upgrade/consts.go). Whoever wants an operand off a node says "false", which is not the operator's.
_DEPLOY = "nvidia.com/gpu.deploy."
_OPERATORS_LABELS = (GPU_PRESENT_LABEL, MIG_STATE_LABEL, "nvidia.com/gpu-driver-upgrade-state")
_OPERATORS_PREFIXES = ("nvidia.com/gpu-operator.",)
_OPERATORS_ANNOTATIONS = (
    "nvidia.com/gpu-driver-upgrade-enabled",
    "nvidia.com/gpu-driver-upgrade-requested",
    "nvidia.com/gpu-driver-upgrade.driver-wait-for-safe-load",
    "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable",
    "nvidia.com/gpu-driver-upgrade-wait-for-pod-completion-start-time",
    "nvidia.com/gpu-driver-upgrade-validation-start-time",
    "nvidia.com/gpu-driver-upgrade-requestor-mode",
)
_UPGRADE_STATE = "nvidia.com/gpu-driver-upgrade-state"
_AT_REST = ("", "upgrade-done")
MIG_OFF = "all-disabled"

# What NFD notes of what it has put on a node (node-feature-discovery v0.19.0 pkg/nfd-master/nfd-master.go, prune).
_NFD_NOTES = "nfd.node.kubernetes.io/"

_Marks = dict[str, "str | None"]


@dataclass(frozen=True)
class Residue:
    """What goes from one node; `resources` are extended resources, which stand in the node's status."""

    labels: frozenset[str] = frozenset()
    annotations: frozenset[str] = frozenset()
    taints: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()

    def __or__(self, other: Residue) -> Residue:
        """Both together."""
        return Residue(
            self.labels | other.labels,
            self.annotations | other.annotations,
            self.taints | other.taints,
            self.resources | other.resources,
        )


@dataclass(frozen=True)
class NodeRestoration:
    """One node's patch, and whether its GPUs are cut by a layout of ours, which has to be undone first."""

    edit: NodeEdit | None
    cut: bool = False


def managed_parts(node: Node) -> Residue:
    """What annotations of ours note, and those annotations themselves."""
    return Residue(
        labels=frozenset(
            (*recorded_keys(node.annotations, POOLS.labels), *recorded_keys(node.annotations, NODES.labels))
        ),
        annotations=frozenset(
            (
                *recorded_keys(node.annotations, _ANNOTATIONS_NOTE),
                *(key for key in node.annotations if key.startswith(OURS)),
            )
        ),
        taints=frozenset(
            (
                *recorded_keys(node.annotations, POOLS.taints),
                *recorded_keys(node.annotations, NODES.taints),
                *(format_taint(taint) for taint in node.taints if taint.get("key") in (FAILED_KEY, STARTUP_TAINT_KEY)),
            )
        ),
    )


def restore(node: Node, *, undo_mig: bool) -> NodeRestoration:
    """Take out what is ours. Where a layout of ours cuts the GPUs, they are made whole first (undo_mig).

    Until the MIG manager has done that, the node keeps everything else of ours, noted as ours: its taints keep workloads away, and a
    run that fails or is killed in between goes on from there. Only the taint of a change that failed goes at once, since NVIDIA's
    pods do not tolerate it and are started again by the change; the cordon that comes with it stays.
    """
    leaving = managed_parts(node)
    mine = MIG_CONFIG_LABEL in leaving.labels and MIG_CONFIG_LABEL in node.labels
    whole = node.labels.get(MIG_CONFIG_LABEL) == MIG_OFF and node.labels.get(MIG_STATE_LABEL) == "success"
    if not mine or whole or not undo_mig:
        return NodeRestoration(without(node, leaving))
    failed = frozenset(format_taint(taint) for taint in node.taints if taint.get("key") == FAILED_KEY)
    changed: _Marks = {}
    if node.labels[MIG_CONFIG_LABEL] != MIG_OFF:
        # The old state goes in the same patch: what is there afterwards is about this change.
        changed = {MIG_CONFIG_LABEL: MIG_OFF, MIG_STATE_LABEL: None}
    return NodeRestoration(without(node, Residue(taints=failed), labels=changed), cut=True)


def without(node: Node, leaving: Residue, *, labels: t.Mapping[str, str | None] | None = None) -> NodeEdit | None:
    """The merge patch that takes it out and sets the labels, or None when all is so already."""
    label_patch = _patch(node.labels, leaving.labels, labels or {})
    annotation_patch = _patch(node.annotations, leaving.annotations, {})
    kept = [dict(taint) for taint in node.taints if format_taint(taint) not in leaving.taints]
    metadata: dict[str, t.Any] = {}
    before: dict[str, t.Any] = {}
    after: dict[str, t.Any] = {}
    for word, live, patch in (
        ("labels", node.labels, label_patch),
        ("annotations", node.annotations, annotation_patch),
    ):
        if patch:
            metadata[word] = patch
            before[word] = {key: live[key] for key in sorted(patch) if key in live}
            after[word] = {key: value for key, value in sorted(patch.items()) if value is not None}
    body: dict[str, t.Any] = {"metadata": metadata}
    spec: dict[str, t.Any] = {}
    if len(kept) != len(node.taints):
        spec["taints"] = kept
        before["taints"] = sorted(format_taint(taint) for taint in node.taints)
        after["taints"] = sorted(format_taint(taint) for taint in kept)
    if CORDONED_ANNOTATION in annotation_patch and node.unschedulable:
        # A change that was killed, or failed: the note says that the cordon is ours.
        spec["unschedulable"] = None
        before["unschedulable"], after["unschedulable"] = True, False
    if spec:
        # The list of taints is atomic, a cordon may be somebody else's by now: over the very object that was read only.
        metadata["resourceVersion"] = node.resource_version
        body["spec"] = spec
    return NodeEdit(node.name, body, before, after) if metadata else None


def of_operator(node: Node) -> Residue:
    """What an operator that is gone has left on a node."""
    labels = {
        key
        for key, value in node.labels.items()
        if key in _OPERATORS_LABELS
        or key.startswith(_OPERATORS_PREFIXES)
        or (key.startswith(_DEPLOY) and value != "false")
        or (key == MIG_CONFIG_LABEL and value == MIG_OFF)
    }
    return Residue(frozenset(labels), frozenset(key for key in _OPERATORS_ANNOTATIONS if key in node.annotations))


def staying(node: Node, *, operator: bool) -> t.Iterator[str]:
    """What somebody else has put on a node and that only looks like ours, or (operator) like the operator's."""
    mine = managed_parts(node).labels
    pool, mig = node.labels.get(POOL_LABEL), node.labels.get(MIG_CONFIG_LABEL)
    if pool is not None and POOL_LABEL not in mine:
        yield f"label {POOL_LABEL}={pool}, which this collection did not set"
    if not operator:
        return
    for key, value in sorted(node.labels.items()):
        if key.startswith(_DEPLOY) and value == "false":
            yield f"label {key}=false, by which somebody keeps that operand away"
    if mig not in (None, MIG_OFF) and MIG_CONFIG_LABEL not in mine:
        yield f"label {MIG_CONFIG_LABEL}={mig}, which somebody else has set"
    if node.unschedulable and node.labels.get(_UPGRADE_STATE, "") not in _AT_REST:
        yield "cordoned by the operator, which was upgrading the driver; uncordon it when it is fit to work"


def of_nfd(node: Node, instance: str = "") -> Residue:
    """What an NFD that is gone has noted as its own on a node, as its own clean-up job would take it out."""
    notes = f"{instance}.{_NFD_NOTES}" if instance else _NFD_NOTES
    return Residue(
        labels=_named(node.annotations.get(f"{notes}feature-labels")),
        annotations=_named(node.annotations.get(f"{notes}feature-annotations"))
        | {key for key in node.annotations if key.startswith(notes)},
        taints=frozenset((node.annotations.get(f"{_NFD_NOTES}taints") or "").split(",")) - {""},
        resources=_named(node.annotations.get(f"{notes}extended-resources")),
    )


def in_short(edit: NodeEdit) -> NodeEdit:
    """The same patch; of its labels and annotations, only whose they are is shown: NFD and GFD put a hundred on a node."""
    before = {
        word: shown if word == "taints" else sorted({f"{key.partition('/')[0]}/..." for key in shown})
        for word, shown in edit.before.items()
    }
    after = {word: shown if word == "taints" else [] for word, shown in edit.after.items()}
    return NodeEdit(edit.name, edit.patch, before, after)


def _patch(live: t.Mapping[str, str], leaving: t.Iterable[str], wanted: t.Mapping[str, str | None]) -> _Marks:
    patch: _Marks = {key: None for key in leaving if key in live and key not in wanted}
    for key, value in wanted.items():
        if value != live.get(key):
            patch[key] = value
    return patch


def _named(text: str | None) -> frozenset[str]:
    """NFD leaves its own prefix out."""
    names = [name for name in (text or "").split(",") if name]
    return frozenset(name if "/" in name else f"{NFD_PREFIX}{name}" for name in names)
