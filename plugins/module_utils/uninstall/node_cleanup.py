# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the patches that remove this collection's metadata, and the residue of NVIDIA's operator and of NFD, from a node (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, fields, replace

from ..catalog.names import (
    CORDONED_ANNOTATION,
    DEPLOY_PREFIX,
    DRIVER_UPGRADE_LABEL,
    FAILED_KEY,
    GPU_PRESENT_LABEL,
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    NFD_PREFIX,
    OWN_PREFIX,
    POOL_LABEL,
)
from ..catalog.taints import STARTUP_TAINT_KEY, format_taint
from ..cluster_state.node import Node
from ..cluster_state.ownership import NODE_METADATA_OWNER, POOL_OWNER, NodeEdit, build_edit, recorded
from ..nvidia_config import mig_parted

# The labels and annotations that the operator sets on nodes and does not remove (gpu-operator v25.10.1 controllers/state_manager.go; its
# upgrade library: k8s-operator-libs pkg/upgrade/consts.go). The value "false" of a deploy label is set by administrators.
_OPERATOR_LABELS = (GPU_PRESENT_LABEL, MIG_STATE_LABEL, DRIVER_UPGRADE_LABEL)
_OPERATOR_PREFIXES = ("nvidia.com/gpu-operator.",)
_OPERATOR_ANNOTATIONS = (
    "nvidia.com/gpu-driver-upgrade-enabled",
    "nvidia.com/gpu-driver-upgrade-requested",
    "nvidia.com/gpu-driver-upgrade.driver-wait-for-safe-load",
    "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable",
    "nvidia.com/gpu-driver-upgrade-wait-for-pod-completion-start-time",
    "nvidia.com/gpu-driver-upgrade-validation-start-time",
    "nvidia.com/gpu-driver-upgrade-requestor-mode",
)
_NOT_UPGRADING = ("", "upgrade-done")

# NFD's records of the metadata that it has set on a node (node-feature-discovery v0.19.0 pkg/nfd-master/nfd-master.go,
# prune).
_NFD_RECORDS = "nfd.node.kubernetes.io/"

_Entries = dict[str, "str | None"]


@dataclass(frozen=True)
class Residue:
    """The metadata to remove from one node; `resources` are extended resources in the node's status."""

    labels: frozenset[str] = frozenset()
    annotations: frozenset[str] = frozenset()
    taints: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()

    def __or__(self, other: Residue) -> Residue:
        """Combine both: the union of each kind of metadata."""
        return Residue(*(getattr(self, part.name) | getattr(other, part.name) for part in fields(self)))


@dataclass(frozen=True)
class NodeRestoration:
    """The patch of one node; `partitioned`: whether the collection's layout, which is reset first, partitions its GPUs."""

    edit: NodeEdit | None
    partitioned: bool = False


def managed_parts(node: Node) -> Residue:
    """All metadata that the collection's annotations record, these annotations, and the collection's own taints."""
    owned = recorded(node, POOL_OWNER, NODE_METADATA_OWNER)
    own = {key for key in node.annotations if key.startswith(OWN_PREFIX)}
    own_taints = {format_taint(taint) for taint in node.taints if taint.get("key") in (FAILED_KEY, STARTUP_TAINT_KEY)}
    return Residue(owned.labels, owned.annotations | own, owned.taints | own_taints)


def restore_node(node: Node, *, reset_mig: bool) -> NodeRestoration:
    """Remove all of this collection's metadata. If its layout partitions the GPUs, the layout is reset first (with `reset_mig`).

    Until the MIG manager has reset the layout, the node keeps all other metadata and its records: the taints keep workloads away, and the next
    run can continue if this one fails or is killed. Only the taint of a failed change is removed immediately, because the reset restarts NVIDIA's
    pods, which do not tolerate it; the cordon of the failed change is kept.
    """
    managed = managed_parts(node)
    is_own = MIG_CONFIG_LABEL in managed.labels and MIG_CONFIG_LABEL in node.labels
    is_reset = (
        node.labels.get(MIG_CONFIG_LABEL) == mig_parted.DISABLED and node.labels.get(MIG_STATE_LABEL) == "success"
    )
    if not is_own or is_reset or not reset_mig:
        return NodeRestoration(removal_edit(node, managed))
    failed = frozenset(format_taint(taint) for taint in node.taints if taint.get("key") == FAILED_KEY)
    changed: _Entries = {}
    if node.labels[MIG_CONFIG_LABEL] != mig_parted.DISABLED:
        # The old state is removed in the same patch, so that any later state belongs to this change.
        changed = {MIG_CONFIG_LABEL: mig_parted.DISABLED, MIG_STATE_LABEL: None}
    return NodeRestoration(removal_edit(node, Residue(taints=failed), labels=changed), partitioned=True)


def removal_edit(node: Node, residue: Residue, *, labels: t.Mapping[str, str | None] | None = None) -> NodeEdit | None:
    """The merge patch that removes the residue and sets the labels, or None if nothing differs."""
    label_patch = _patch(node.labels, residue.labels, labels or {})
    annotation_patch = _patch(node.annotations, residue.annotations, {})
    kept = [dict(taint) for taint in node.taints if format_taint(taint) not in residue.taints]
    return build_edit(
        node,
        label_patch,
        annotation_patch,
        kept if len(kept) != len(node.taints) else None,
        records={},
        # The annotation that records the cordon shows that this collection has set it.
        uncordon=CORDONED_ANNOTATION in annotation_patch and node.unschedulable,
    )


def operator_residue(node: Node) -> Residue:
    """The labels and annotations that an uninstalled operator leaves on a node."""
    labels = {
        key
        for key, value in node.labels.items()
        if key in _OPERATOR_LABELS
        or key.startswith(_OPERATOR_PREFIXES)
        or (key.startswith(DEPLOY_PREFIX) and value != "false")
        or (key == MIG_CONFIG_LABEL and value == mig_parted.DISABLED)
    }
    return Residue(frozenset(labels), frozenset(key for key in _OPERATOR_ANNOTATIONS if key in node.annotations))


def kept_parts(node: Node, *, operator: bool) -> t.Iterator[str]:
    """Descriptions of foreign labels with the collection's keys; with `operator`, also of kept operand labels and of the operator's cordon."""
    managed = managed_parts(node).labels
    pool, mig = node.labels.get(POOL_LABEL), node.labels.get(MIG_CONFIG_LABEL)
    if pool is not None and POOL_LABEL not in managed:
        yield f"label {POOL_LABEL}={pool}, which this collection did not set"
    if not operator:
        return
    for key, value in sorted(node.labels.items()):
        if key.startswith(DEPLOY_PREFIX) and value == "false":
            yield f"label {key}=false, which was set to keep that operand away"
    if mig not in (None, mig_parted.DISABLED) and MIG_CONFIG_LABEL not in managed:
        yield f"label {MIG_CONFIG_LABEL}={mig}, which this collection did not set"
    if node.unschedulable and node.labels.get(DRIVER_UPGRADE_LABEL, "") not in _NOT_UPGRADING:
        yield "cordon of the operator, which was upgrading the driver; uncordon the node when it is ready"


def nfd_residue(node: Node, instance: str = "") -> Residue:
    """The residue of an uninstalled NFD according to its records; NFD's own cleanup job would remove the same metadata."""
    records = f"{instance}.{_NFD_RECORDS}" if instance else _NFD_RECORDS
    return Residue(
        labels=_full_names(node.annotations.get(f"{records}feature-labels")),
        annotations=_full_names(node.annotations.get(f"{records}feature-annotations"))
        | {key for key in node.annotations if key.startswith(records)},
        taints=frozenset((node.annotations.get(f"{_NFD_RECORDS}taints") or "").split(",")) - {""},
        resources=_full_names(node.annotations.get(f"{records}extended-resources")),
    )


def with_short_diff(edit: NodeEdit) -> NodeEdit:
    """The edit with a shorter diff that contains only the prefixes of labels and annotations, because NFD and GFD set about a hundred on a node."""
    before = {
        name: entries if name == "taints" else sorted({f"{key.partition('/')[0]}/..." for key in entries})
        for name, entries in edit.before.items()
    }
    after = {name: entries if name == "taints" else [] for name, entries in edit.after.items()}
    return replace(edit, before=before, after=after)


def _patch(live: t.Mapping[str, str], removed: t.Iterable[str], desired: t.Mapping[str, str | None]) -> _Entries:
    patch: _Entries = {key: None for key in removed if key in live and key not in desired}
    return patch | {key: value for key, value in desired.items() if value != live.get(key)}


def _full_names(text: str | None) -> frozenset[str]:
    """The full names of the entries in a record of NFD, which omits NFD's prefix."""
    names = [name for name in (text or "").split(",") if name]
    return frozenset(name if "/" in name else f"{NFD_PREFIX}{name}" for name in names)
