# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stages of a removal, the marks that prove that an object is the collection's, and what happens to nodes."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field, fields, replace

from ..catalog import operands
from ..catalog.names import (
    CONFIG_LABEL,
    CORDONED_ANNOTATION,
    DEPLOY_PREFIX,
    DRIVER_UPGRADE_LABEL,
    FAILED_KEY,
    FIELD_MANAGER,
    GPU_PRESENT_LABEL,
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    NFD_PREFIX,
    OWN_PREFIX,
    POOL_LABEL,
)
from ..catalog.taints import STARTUP_TAINT_KEY, format_taint
from ..core.errors import PartialFailure
from ..core.messages import MAX_LISTED, MAX_NAMED, abbreviate, abbreviate_nodes
from ..core.values import Document, Object, apply_merge_patch
from ..core.waits import Outcome, Progress, StateTimer, WaitOptions, is_fatal, run_bounded
from ..kube.errors import ApiError
from ..kube.fields import (
    child,
    is_created_by_collection,
    is_own_entry,
    is_written,
    managed_fields,
    owned_by,
    owned_keys,
    without_own_entries,
)
from ..kube.objects import NOT_CHECKED
from ..kube.paths import NODES
from ..nodes.node import Node, parse_node
from ..nodes.node_check import FAILED
from ..nodes.node_metadata import patch_node
from ..nodes.ownership import (
    NODE_METADATA_OWNER,
    POOL_OWNER,
    NodeEdit,
    build_edit,
    former_labels,
    keeps_layout,
    recorded,
)
from ..nodes.pods import PREFIX, daemonset_status, log_end, pod_of, pods_by_node, pods_on, read_operand_pods
from ..sharing_modes import mig_parted

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..kube.lease import Lease

# Determines which parts of an object this collection owns, from annotations and the server's record of field managers (pure).

COPIED = "another tool created it, as a copy of an object of this collection"


def own_annotations(live: Document) -> dict[str, str]:
    """The collection's annotations on an object."""
    annotations = live["metadata"].get("annotations") or {}
    return {key: value for key, value in annotations.items() if key.startswith(OWN_PREFIX)}


def is_marked(live: Document) -> bool:
    """Whether any mark on the object shows that the collection has written it."""
    return bool(own_annotations(live)) or is_written(live)


def is_created(live: Document) -> bool:
    """Whether the collection has created the object, and the object is not a copy of such an object."""
    return is_created_by_collection(live) and is_written(live)


def is_copy(live: Document) -> bool:
    """Whether another tool has created the object from one that the collection has created, for example from an export of it."""
    return is_created_by_collection(live) and not is_written(live)


def unmark_patch(live: Document) -> Object | None:
    """The merge patch that removes the collection's annotations and field manager, and changes no field; None if there are none.

    The patch applies only to the object as it was read.
    """
    if not is_marked(live):
        return None
    metadata: Object = {"resourceVersion": live["metadata"]["resourceVersion"]}
    if own_annotations(live):
        metadata["annotations"] = dict.fromkeys(own_annotations(live))
    if is_written(live):
        metadata["managedFields"] = without_own_entries(live)
    return {"metadata": metadata}


def applied_labels(live: Document) -> set[str]:
    """The labels that the collection has applied to an object."""
    return {entry[2:] for entry in child(child(owned_by(live, FIELD_MANAGER), "metadata"), "labels") if entry != "."}


def split_keys(configmap: Document) -> tuple[list[str], list[str]]:
    """The keys of a ConfigMap that only the collection has written, and the foreign keys."""
    own = owned_keys(configmap)
    present = sorted({**(configmap.get("data") or {}), **(configmap.get("binaryData") or {})})
    return [key for key in present if key in own], [key for key in present if key not in own]


def has_foreign_entries(configmap: Document) -> bool:
    """Whether another manager has written an entry; only needs the metadata of the ConfigMap."""
    return any(
        not is_own_entry(entry) and child(entry.get("fieldsV1") or {}, "data") for entry in managed_fields(configmap)
    )


def spec_managers(live: Document) -> list[str]:
    """The field managers of the object's spec other than this collection."""
    return sorted(
        {
            str(entry.get("manager"))
            for entry in managed_fields(live)
            if not is_own_entry(entry) and not entry.get("subresource") and child(entry.get("fieldsV1") or {}, "spec")
        }
    )


# Collects the objects that were removed (or would be removed in check mode), and the kept objects with the reasons (pure).

# The text in the diff for an object whose content is not shown.
EXISTS = "exists"
# The action of a removal that deletes a whole object.
DELETED = "deleted"


@dataclass
class UninstallResult:
    """The result of a run; it is filled during the run, so that a failed run also reports its changes."""

    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    held_back: list[str] = field(default_factory=list)
    nodes: set[str] = field(default_factory=set)
    unchecked: str | None = None
    _before: Object = field(default_factory=dict)
    _after: Object = field(default_factory=dict)
    _kept_on_nodes: dict[str, list[str]] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        """Whether anything was removed."""
        return bool(self.removed or self.nodes)

    def add_node(self, edit: NodeEdit) -> None:
        """Add the patch of a node; a second patch of the same node is merged into the first."""
        before, after = self._before.setdefault("nodes", {}), self._after.setdefault("nodes", {})
        if edit.name in before or len(before) < MAX_LISTED:
            earlier = before.get(edit.name, {}), _remaining(after.get(edit.name, {}), edit)
            before[edit.name] = _both_taints(apply_merge_patch(edit.before, earlier[0]), earlier[0], edit.before)
            after[edit.name] = _both_taints(apply_merge_patch(earlier[1], edit.after), earlier[1], edit.after)
        self.nodes.add(edit.name)

    def add_kept_on_node(self, node: str, description: str) -> None:
        """Add the description of metadata that is kept on a node; nodes with the same description are reported together."""
        nodes = self._kept_on_nodes.setdefault(description, [])
        if node not in nodes:
            nodes.append(node)

    def add_removed(self, label: str, before: t.Any = EXISTS, after: t.Any = None, action: str = DELETED) -> None:
        """Add an object that was deleted, or (with `after`) from which the collection's part was removed."""
        line = f"{label}: {action}"
        if line in self.removed:
            return
        self.removed.append(line)
        self._before[label] = before
        if after is not None:
            self._after[label] = after

    def add_kept(self, label: str, reason: str) -> None:
        """Add an object that is kept."""
        line = f"{label}: {reason}"
        if line not in self.kept:
            self.kept.append(line)

    def as_dict(self) -> Object:
        """The result of the module, with up to MAX_LISTED names of nodes."""
        on_nodes = sorted(self._kept_on_nodes.items())
        return {
            "removed": list(self.removed),
            "nodes_changed": len(self.nodes),
            "names_changed": sorted(self.nodes)[:MAX_LISTED],
            "kept": [*self.kept, *(f"{abbreviate_nodes(nodes)}: {description}" for description, nodes in on_nodes)],
            "held_back": list(self.held_back),
            **({"unchecked": self.unchecked} if self.unchecked else {}),
        }

    def diff(self) -> tuple[Object, Object]:
        """The states before and after the run."""
        before, after = dict(self._before), dict(self._after)
        hidden = len(self.nodes) - len(before.get("nodes", {}))
        if hidden > 0:
            after["nodes_not_shown"] = hidden
        return before, after


def _both_taints(merged: Object, earlier: Object, later: Object) -> Object:
    """The merged state with the taints of both patches, because each patch only contains the taints that it changes."""
    taints = dict.fromkeys([*earlier.get("taints", ()), *later.get("taints", ())])
    return {**merged, "taints": list(taints)} if taints else merged


def _remaining(after: Object, edit: NodeEdit) -> Object:
    """The part of an earlier patch that a later edit does not remove."""
    return {
        part: {key: value for key, value in values.items() if key not in edit.before.get(part, {})}
        if isinstance(values, dict)
        else [value for value in values if value not in edit.before.get(part, ())]
        if isinstance(values, list)
        else values
        for part, values in after.items()
    }


# Defines a stage of the uninstallation: a list of removals, and an edit of each node.


@dataclass(frozen=True)
class Removal:
    """The removal of one object, or of a part of it; `label` is its name in the result.

    action: the kind of removal; empty if the result does not mention it. kept: the reason why the object, or the rest of it, is kept.
    after: the part of the object that is kept; None if it is deleted. held_back: a field that is not removed because its removal would restart the driver.
    send: sends the requests. check: sends them as a dry run. wait: waits for their effect.
    """

    label: str
    action: str = DELETED
    kept: str = ""
    before: t.Any = EXISTS
    after: t.Any = None
    held_back: str = ""
    send: t.Callable[[], object] | None = None
    check: t.Callable[[], object] | None = None
    wait: t.Callable[[WaitOptions], object] | None = None

    @property
    def planned(self) -> str:
        """The object and, unless it is deleted as a whole, the kind of removal."""
        return self.label if self.action == DELETED else f"{self.label} ({self.action})"

    def report(self, result: UninstallResult) -> None:
        """Add the object to the result."""
        if self.action:
            result.add_removed(self.label, self.before, self.after, self.action)
        if self.kept:
            result.add_kept(self.label, self.kept)
        if self.held_back:
            result.held_back.append(self.held_back)


@dataclass(kw_only=True)
class Stage:
    """One stage on one cluster. read() sets `nodes` and `removals`; `result` contains the changes so far."""

    client: Client
    progress: Progress
    # None means that the stage does not wait.
    waiting: WaitOptions | None
    nodes: list[Node] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    result: UninstallResult = field(default_factory=UninstallResult)

    def read(self) -> None:
        """Read the nodes and the objects to remove."""
        raise NotImplementedError

    def node_edit(self, _node: Node) -> NodeEdit | None:
        """The patch of a node; None if nothing must be removed from it."""
        return None

    def kept_on_node(self, _node: Node) -> t.Iterable[str]:
        """Descriptions of the metadata that is kept on a node."""
        return ()

    def warnings(self) -> t.Iterable[str]:
        """Warnings for the user before anything is removed."""
        return ()

    def has_changes(self) -> bool:
        """Whether there are any changes."""
        return any(removal.action for removal in self.removals) or any(map(self.node_edit, self.nodes))

    def planned(self) -> list[str]:
        """Descriptions of the changes, for the confirmation; the object of which only a part is removed has the kind of removal in parentheses."""
        nodes = [node.name for node in self.nodes if self.node_edit(node) is not None]
        removals = [removal.planned for removal in self.removals if removal.action]
        return [*removals, *([f"metadata of nodes {abbreviate_nodes(nodes)}"] if nodes else [])]

    def preview(self) -> None:
        """Report the changes of a run; the server checks one patch of a node, and all objects that can be checked."""
        edits = [edit for edit in map(self.node_edit, self.nodes) if edit is not None]
        for edit in edits:
            self.result.add_node(edit)
        for removal in self.removals:
            removal.report(self.result)
        self.report_kept_on_nodes()
        try:
            for edit in edits[:1]:
                checked = patch_node(
                    self.client, edit, lambda raw: self.node_edit(parse_node(raw)), lambda: None, dry_run=True
                )
                if checked.status == "unchecked":
                    self.result.unchecked = NOT_CHECKED
            for removal in self.removals:
                if removal.check is not None:
                    removal.check()
        except ApiError as error:
            if not error.lacks_right:
                raise
            self.result.unchecked = NOT_CHECKED

    def remove(self, lease: Lease) -> None:
        """Remove everything; raises WaitTimeout, and PartialFailure if nodes cannot be changed."""
        self.patch_nodes(lease)
        self.send(self.removals, lease)
        self.report_kept_on_nodes()

    def finish(self) -> None:
        """Remove the objects that are needed until the lease is released; called after the release."""

    def send(self, removals: t.Iterable[Removal], lease: Lease) -> None:
        """Remove these objects one after another."""
        for removal in removals:
            lease.check()
            if removal.send is not None:
                removal.send()
            removal.report(self.result)
            if removal.wait is not None and self.waiting is not None:
                removal.wait(self.waiting)

    def report_kept_on_nodes(self) -> None:
        """Add the metadata that is kept on nodes to the result."""
        for node in self.nodes:
            for description in self.kept_on_node(node):
                self.result.add_kept_on_node(node.name, description)

    def patch_nodes(self, lease: Lease) -> None:
        """Patch the nodes in parallel; raises PartialFailure if a node could not be changed.

        What a patch removes from a node is first removed from the node's Machine.
        """
        changed = [node for node in self.nodes if self.node_edit(node) is not None]

        def on_done(outcome: Outcome[NodeEdit | None], finished: int) -> None:
            if outcome.value is not None:
                self.result.add_node(outcome.value)
            self.progress.report("nodes cleaned up", finished, len(changed))

        def patch(node: Node) -> NodeEdit | None:
            edit = self.node_edit(node)
            if edit is None:
                return None
            patched = patch_node(self.client, edit, lambda raw: self.node_edit(parse_node(raw)), lease.check)
            return patched.edit if patched.status == "changed" else None

        calls = [(node.name, functools.partial(patch, node)) for node in changed]
        failed = {}
        for outcome in run_bounded(calls, on_done=on_done, stop=lease.lost):
            if outcome.error is not None and is_fatal(outcome.error):
                raise outcome.error
            if outcome.error is not None:
                failed[outcome.name] = str(outcome.error)
        lease.check()
        if failed:
            messages = [f"{name}: {message}" for name, message in sorted(failed.items())]
            raise PartialFailure(f"{len(failed)} node(s) could not be changed: {abbreviate(messages, separator='; ')}")


def read_nodes(client: Client) -> list[Node]:
    """All nodes, read with one paged list."""
    return [parse_node(raw) for raw in client.list(NODES)]


def deletion(
    client: Client,
    path: str,
    live: t.Mapping[str, t.Any],
    label: str,
    *,
    wait: t.Callable[[WaitOptions], object] | None = None,
) -> Removal:
    """The deletion of an object, unless another object has replaced it; check mode sends a dry run."""
    delete = functools.partial(client.delete, path, body={"preconditions": {"uid": live["metadata"]["uid"]}})
    return Removal(label, send=delete, check=functools.partial(delete, dry_run=True), wait=wait)


def await_gone(
    client: Client,
    path: str,
    uid: str,
    label: str,
    reason: t.Callable[[t.Mapping[str, t.Any]], str],
    waiting: WaitOptions,
) -> None:
    """Wait until a deleted object is gone; raises WaitTimeout with the reason for the delay."""
    waiting.until(
        lambda: client.get(path),
        lambda live: live is None or live["metadata"].get("uid") != uid,
        max_interval=0.5,
        describe=lambda live: f"{label} still exists: {reason(live or {})}",
        progress_text=lambda dummy: f"waiting for the deletion of {label}",
    )


# Waits until NVIDIA's DaemonSets and pods are gone, and until no other pod needs a managed ConfigMap.


def await_operands(
    client: Client,
    namespaces: t.Collection[str],
    deleted: set[str],
    configmaps: t.Collection[str],
    waiting: WaitOptions,
) -> None:
    """Wait until the DaemonSets and pods of the deleted objects (given by uid) are gone, and no other pod needs the ConfigMaps; raises WaitTimeout."""

    def read() -> list[str]:
        lines: list[str] = []
        for namespace in sorted(namespaces):
            daemonsets = list(client.list(f"/apis/apps/v1/namespaces/{namespace}/daemonsets"))
            remaining = [item for item in daemonsets if _owners(item, "uid") & deleted]
            lines += [f"DaemonSet {item['metadata']['name']} still exists" for item in remaining]
            others = [item for item in daemonsets if item not in remaining and "ClusterPolicy" in _owners(item, "kind")]
            lines += unfinished_daemonsets(others, configmaps)
            if deleted and not remaining:
                lines += _orphaned_pods(client, namespace, {str(item["metadata"]["uid"]) for item in daemonsets})
        return lines

    waiting.until(
        read,
        lambda lines: not lines,
        describe=lambda lines: f"The operator's pods are not removed or updated yet: {abbreviate(lines)}.",
        progress_text=lambda lines: f"waiting for {len(lines)} of the operator's objects: {lines[0]}" if lines else "",
    )


def await_no_pods(client: Client, namespace: str, selector: str, waiting: WaitOptions) -> None:
    """Wait until all selected pods, which could write to nodes, are gone; raises WaitTimeout."""
    waiting.until(
        lambda: [
            pod["metadata"]["name"]
            for pod in client.list(f"/api/v1/namespaces/{namespace}/pods", label_selector=selector, metadata_only=True)
        ],
        lambda names: not names,
        describe=lambda names: f"Pods in namespace {namespace} still exist: {abbreviate(names)}.",
        progress_text=lambda names: f"waiting for {len(names)} pods in namespace {namespace} to terminate",
    )


def unfinished_daemonsets(daemonsets: t.Iterable[Document], configmaps: t.Collection[str]) -> list[str]:
    """The messages about DaemonSets whose pods may still need one of these ConfigMaps.

    The driver's DaemonSets (update strategy OnDelete) are skipped: they mount no managed ConfigMap, and the operator decides when their pods restart.
    """
    lines = []
    for daemonset in daemonsets:
        if (daemonset["spec"].get("updateStrategy") or {}).get("type") == "OnDelete":
            continue
        name, status = daemonset["metadata"]["name"], daemonset_status(daemonset)
        volumes = daemonset["spec"]["template"]["spec"].get("volumes") or []
        mounted = sorted({str((volume.get("configMap") or {}).get("name")) for volume in volumes} & set(configmaps))
        if mounted:
            lines.append(f"DaemonSet {name} still mounts {', '.join(mounted)}")
        elif status.is_outdated or not status.current:
            lines.append(f"DaemonSet {name}: {status.updated} of {status.desired} pods are updated")
    return lines


def _orphaned_pods(client: Client, namespace: str, daemonsets: set[str]) -> list[str]:
    """The messages about pods whose DaemonSet was deleted."""
    return [
        f"pod {pod['metadata']['name']} still exists"
        for pod in client.list(f"/api/v1/namespaces/{namespace}/pods", metadata_only=True)
        if any(
            owner.get("kind") == "DaemonSet" and owner.get("uid") not in daemonsets
            for owner in pod["metadata"].get("ownerReferences") or []
        )
    ]


def _owners(item: Document, key: str) -> set[str]:
    """The uids (or kinds) of an object's owners."""
    return {str(owner.get(key)) for owner in item["metadata"].get("ownerReferences") or ()}


# Builds the patches that remove this collection's metadata, and the residue of NVIDIA's operator and of NFD, from a node (pure).

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
    """The patch of one node; `partitioned`: whether the collection's layout, which is reset first, partitions its GPUs.

    mig_config: the MIG configuration that the reset applies.
    """

    edit: NodeEdit | None
    partitioned: bool = False
    mig_config: str = mig_parted.DISABLED


@dataclass(frozen=True)
class AgentEntries:
    """The entries of the ConfigMaps that NVIDIA's agents read: those of the device plugin after the run, and those of the MIG manager before it.

    A label that selects a missing entry is not restored, because the device plugin would crash and the MIG manager would fail.
    plugin_reason: why an entry of the device plugin is missing.
    """

    plugin: frozenset[str] = frozenset()
    mig: frozenset[str] = frozenset()
    plugin_reason: str = ""


NO_ENTRIES = AgentEntries()


def managed_parts(node: Node) -> Residue:
    """All metadata that the collection's annotations record, these annotations, and the collection's own taints."""
    owned = recorded(node, POOL_OWNER, NODE_METADATA_OWNER)
    own = {key for key in node.annotations if key.startswith(OWN_PREFIX)}
    own_taints = {format_taint(taint) for taint in node.taints if taint.get("key") in (FAILED_KEY, STARTUP_TAINT_KEY)}
    return Residue(owned.labels, owned.annotations | own, owned.taints | own_taints)


def restored_labels(node: Node, entries: AgentEntries) -> dict[str, str]:
    """The former labels for NVIDIA's agents that a pool's labels are replaced by.

    The former MIG configuration is restored if the node has its layout, or if the MIG manager can apply it.
    """
    owned, former = recorded(node, POOL_OWNER).labels, former_labels(node).labels
    usable = {
        CONFIG_LABEL: former.get(CONFIG_LABEL) in entries.plugin,
        MIG_CONFIG_LABEL: former.get(MIG_CONFIG_LABEL) in entries.mig or keeps_layout(node),
    }
    return {key: former[key] for key, fits in usable.items() if fits and key in owned and key in node.labels}


def restore_node(node: Node, *, reset_mig: bool, entries: AgentEntries = NO_ENTRIES) -> NodeRestoration:
    """Remove all of this collection's metadata. If its layout partitions the GPUs, the layout is reset first (with `reset_mig`).

    Labels for NVIDIA's agents get the values that they had before a pool overwrote them (restored_labels()). If the former MIG configuration has the
    node's layout, nothing is reset; otherwise, the reset applies the former configuration instead of the one for whole GPUs.

    Until the MIG manager has reset the layout, the node keeps all other metadata and its records: the taints keep workloads away, and the next
    run can continue if this one fails or is killed. Only the taint of a failed change is removed immediately, because the reset restarts NVIDIA's
    pods, which do not tolerate it; the cordon of the failed change is kept.
    """
    managed = managed_parts(node)
    is_own = MIG_CONFIG_LABEL in managed.labels and MIG_CONFIG_LABEL in node.labels
    restored = restored_labels(node, entries)
    target = restored.get(MIG_CONFIG_LABEL, mig_parted.DISABLED)
    is_reset = node.labels.get(MIG_CONFIG_LABEL) == target and node.labels.get(MIG_STATE_LABEL) == "success"
    if not is_own or is_reset or not reset_mig or keeps_layout(node):
        if not (is_reset or reset_mig or keeps_layout(node)):
            # No MIG manager would apply the former configuration.
            restored.pop(MIG_CONFIG_LABEL, None)
        return NodeRestoration(removal_edit(node, managed, labels=restored))
    failed = frozenset(format_taint(taint) for taint in node.taints if taint.get("key") == FAILED_KEY)
    changed: _Entries = {}
    if node.labels[MIG_CONFIG_LABEL] != target:
        # The old state is removed in the same patch, so that any later state belongs to this change.
        changed = {MIG_CONFIG_LABEL: target, MIG_STATE_LABEL: None}
    return NodeRestoration(removal_edit(node, Residue(taints=failed), labels=changed), True, target)


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


def former_parts(node: Node, entries: AgentEntries) -> t.Iterator[str]:
    """Descriptions of what becomes of a former device plugin configuration, and of MIG devices that stay because they were there before."""
    former, restored = former_labels(node).labels, restored_labels(node, entries)
    live = node.labels.get(CONFIG_LABEL)
    if live and CONFIG_LABEL in former and CONFIG_LABEL in recorded(node, POOL_OWNER).labels:
        yield (
            f"label {CONFIG_LABEL} is set back from {live} to {restored[CONFIG_LABEL]}"
            if CONFIG_LABEL in restored
            else f"label {CONFIG_LABEL}={live} is removed, and not set back to {former[CONFIG_LABEL]}, because {entries.plugin_reason}"
        )
    if keeps_layout(node):
        devices = ", ".join(f"{count} x {name}" for name, count in sorted(node.mig_devices.items()))
        yield (
            f"MIG devices ({devices or 'as before'}): label {MIG_CONFIG_LABEL} is set back from {node.mig_config} to "
            f"{former[MIG_CONFIG_LABEL]}, which has the same layout"
        )


def mig_action(node: Node, target: str) -> str:
    """What becomes of the MIG devices of a node when its layout is reset to the configuration `target`."""
    former = former_labels(node).labels.get(MIG_CONFIG_LABEL)
    if target != mig_parted.DISABLED:
        return f"replaced by the MIG manager with those of the former configuration {target}"
    if former:
        return f"removed by the MIG manager, whose ConfigMap has no entry for the former configuration {former}"
    return "removed by the MIG manager; no former layout is recorded"


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


# Waits until MIG managers have reset MIG layouts; failed MIG managers are restarted once, because they do not retry.

KEEP_PARTITIONED = "reset_mig: false, gpu_uninstall_reset_mig=false"
_ADVICE = (
    "These nodes keep the labels and taints of their pools until then. Delete these pods, or drain the nodes, and run the playbook again; "
    f"or keep the GPUs partitioned ({KEEP_PARTITIONED})."
)

_Nodes = dict[str, Node]


@dataclass
class MigReset:
    """The reset of the collection's layouts on the `partitioned` nodes by the MIG managers in a namespace.

    `restart` restarts the MIG managers of the given nodes, and returns once each of them has read its node's label again.
    """

    client: Client
    partitioned: t.Sequence[str]
    namespace: str
    restart: t.Callable[[t.Sequence[Node]], None]
    waiting: WaitOptions
    entries: AgentEntries = NO_ENTRIES
    restarted: set[str] = field(default_factory=set)
    timer: StateTimer = field(default_factory=StateTimer)

    def wait(self) -> list[Node]:
        """Wait until the layouts are reset; returns the new state of all nodes.

        Raises WaitTimeout, and PartialFailure as soon as a MIG manager has failed again after its restart.
        """
        nodes = self.waiting.until(
            self.read,
            lambda nodes: not self.states(nodes),
            describe=self.timeout_message,
            progress_text=self.progress_text,
        )
        return list(nodes.values())

    def read(self) -> _Nodes:
        """Read all nodes, and restart the MIG managers that failed for the first time."""
        nodes = self._nodes()
        failed = self._failed(nodes)
        to_restart = [name for name in failed if name not in self.restarted]
        if to_restart:
            self.waiting.progress.report(
                f"restarting the MIG manager of {abbreviate_nodes(to_restart)}, which has failed"
            )
            self.restart([nodes[name] for name in to_restart])
            self.restarted.update(to_restart)
            nodes = self._nodes()
            failed = self._failed(nodes)
        final = [name for name in failed if name in self.restarted]
        if final:
            raise PartialFailure(
                f"The MIG manager has failed to reset the layout of {abbreviate_nodes(final)}, even after a restart. "
                f"{self._reasons(final)}. {_ADVICE}"
            )
        return nodes

    def states(self, nodes: t.Mapping[str, Node]) -> dict[str, str]:
        """The state that the MIG manager reports for each node whose layout is not reset yet."""
        waiting = [
            nodes[name]
            for name in self.partitioned
            if name in nodes and restore_node(nodes[name], reset_mig=True, entries=self.entries).partitioned
        ]
        return {node.name: node.labels.get(MIG_STATE_LABEL) or "no state yet" for node in waiting}

    def progress_text(self, nodes: t.Mapping[str, Node]) -> str:
        """The progress of the reset, as text."""
        states = self.states(nodes)
        for name, state in states.items():
            self.timer.seconds(name, state)
        return f"{len(self.partitioned) - len(states)}/{len(self.partitioned)} MIG layouts are reset"

    def timeout_message(self, nodes: t.Mapping[str, Node]) -> str:
        """The message about the remaining nodes, with their states, the duration of these states, and the reasons."""
        states = self.states(nodes)
        lines = [f"{name}: {state} for {self.timer.seconds(name, state):.0f} s" for name, state in states.items()]
        return (
            f"The MIG manager has not reset the layouts of {len(states)} node(s): {abbreviate(lines)}. "
            f"{self._reasons(list(states))}. {_ADVICE}"
        )

    def _nodes(self) -> _Nodes:
        return {node.name: node for node in read_nodes(self.client)}

    def _failed(self, nodes: t.Mapping[str, Node]) -> list[str]:
        return [name for name, state in self.states(nodes).items() if state == FAILED]

    def _reasons(self, names: t.Sequence[str]) -> str:
        """The pods that hold GPUs and the end of the MIG manager's log, for the first few nodes."""
        return ". ".join(f"On node {name}: {self._reason(name)}" for name in names[:MAX_NAMED])

    def _reason(self, name: str) -> str:
        try:
            log = self._log(name)
            held = _holders_on(self.client, self.namespace, name)
        except ApiError as error:
            # This error must not hide the original failure.
            return f"the pods that hold its GPUs cannot be read ({error})"
        return f"{held}; the MIG manager's log ends: {log}" if log else held

    def _log(self, name: str) -> str:
        pods = read_operand_pods(self.client, self.namespace, [name])
        pod = pod_of(pods, operands.MIG_MANAGER, name)
        if pod is None:
            return "(no MIG manager runs there)"
        return log_end(self.client, self.namespace, pod, operands.MIG_MANAGER, previous=False)


def blocked_message(client: Client, operator_namespace: str, names: t.Iterable[str]) -> str:
    """The message about pods that have requested GPUs of these nodes, on which the MIG manager would fail to reset the layout; empty if there are none."""
    pods = pods_by_node(client, pods_on(client), operator_namespace).gpu_pods
    held = {
        name: [pod.full_name for pod in pods.get(name, ()) if any(key.startswith(PREFIX) for key in pod.resources)]
        for name in sorted(names)
    }
    lines = [f"{name}: {abbreviate(holders)}" for name, holders in held.items() if holders]
    if not lines:
        return ""
    return (
        f"Pods use the GPUs of {len(lines)} node(s) whose MIG layout must be reset: {abbreviate(lines, separator='; ')}. Delete these pods, drain the "
        f"nodes, or keep the GPUs partitioned ({KEEP_PARTITIONED})."
    )


def _holders_on(client: Client, operator_namespace: str, node: str) -> str:
    """A description of the pods that prevent, or may prevent, the reset of a node's MIG layout."""
    pods_on_node = pods_by_node(client, pods_on(client, node), operator_namespace)
    using = [f"{pod.full_name} ({', '.join(pod.access)})" for pod in pods_on_node.gpu_pods.get(node, ())]
    possible = [
        f"{pod.full_name} ({', '.join(pod.possible_access)})" for pod in pods_on_node.possible_holders.get(node, ())
    ]
    titles = {
        "pods that use its GPUs": using,
        "pods that may hold one, since they are privileged": possible,
    }
    parts = [f"{title}: {abbreviate(pods)}" for title, pods in titles.items() if pods]
    return "; ".join(parts) or "no pod is known to use its GPUs, so a host process may hold one"
