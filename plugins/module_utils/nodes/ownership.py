# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the collection has recorded on nodes and other objects, what it therefore owns, and which pool a node belongs to (pure)."""

from __future__ import annotations

import dataclasses
import functools
import json
import typing as t
from dataclasses import dataclass, field, fields, replace

from ..catalog.names import (
    CONFIG_LABEL,
    FAILED_KEY,
    FIELD_MANAGER,
    FORMER_LABELS_ANNOTATION,
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    NODEGROUP_LABEL,
    NODEGROUP_MARK,
    OWN_PREFIX,
    POOL_LABEL,
)
from ..catalog.openshift import MACHINE_ANNOTATION
from ..catalog.taints import STARTUP_TAINT_KEY, format_taint, is_temporary, merge_taints, taint_identity
from ..core.messages import abbreviate_nodes, is_whole
from ..core.values import get_nested, parse_json
from ..kube.fields import tool_of_entry, tool_of_taints
from ..pools.plan import DISCOVERED_PREFIXES, Entries, Membership, NodeMetadata, membership_by_labels
from ..schema.providers import group_mark
from ..schema.validators import label_value, reason_without_discovery
from ..sharing_modes import mig_parted
from ..sharing_modes.modes import mode_of

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan
    from .node import Node

# Writes annotations that record, as JSON, which values the collection has set in another owner's object (pure).


def set_record(desired: dict[str, t.Any], key: str, record: t.Mapping[str, t.Any]) -> None:
    """Write a record as JSON into an annotation of the object; an empty record removes the annotation."""
    annotations = dict(desired["metadata"].get("annotations") or {})
    annotations.pop(key, None)
    if record:
        annotations[key] = json.dumps(record, sort_keys=True, separators=(",", ":"))
    if annotations:
        desired["metadata"]["annotations"] = annotations
    else:
        desired["metadata"].pop("annotations", None)


# Recognizes objects that this collection has created, and builds edits that set, keep or remove the node metadata that it owns (pure).
#
# Metadata that already existed is not recorded as owned, so it stays when the node is released. The patch that sets a label, an annotation or a
# taint also records it in an annotation, so the record is complete even if a run is killed.


def machine_set_place(item: t.Mapping[str, t.Any]) -> str:
    """The place in the mark of a MachineSet: its UID, which no copy has, or its namespace until the API server has assigned a UID."""
    metadata = item["metadata"]
    return str(metadata.get("uid") or f"new in {metadata.get('namespace')}")


def machine_set_mark(item: t.Mapping[str, t.Any], group: str) -> str:
    """The mark of a MachineSet that belongs to the node group."""
    return group_mark(machine_set_place(item), group, item["metadata"]["name"])


def machine_set_owner(item: t.Mapping[str, t.Any], *, new: bool = False) -> str | None:
    """The declared name of the node group that a MachineSet belongs to, or None if this collection has neither created nor adopted it.

    The label with the name counts only together with a mark that fits the MachineSet's own UID. new: whether the mark of a MachineSet counts that a run
    has created, but not finished because it was killed. This mark contains no UID, so it counts only if the server recorded that the collection wrote it.
    """
    metadata = item["metadata"]
    group = (metadata.get("labels") or {}).get(NODEGROUP_LABEL)
    mark = (metadata.get("annotations") or {}).get(NODEGROUP_MARK)
    if not group or not mark:
        return None
    marks = [machine_set_mark(item, group)]
    if new and _wrote_mark(metadata):
        marks.append(machine_set_mark({"metadata": {**metadata, "uid": None}}, group))
    return str(group) if mark in marks else None


def _wrote_mark(metadata: t.Mapping[str, t.Any]) -> bool:
    return any(
        entry.get("manager") == FIELD_MANAGER
        and f"f:{NODEGROUP_MARK}" in (get_nested(entry, "fieldsV1", "f:metadata", "f:annotations") or {})
        for entry in metadata.get("managedFields") or ()
    )


@dataclass(frozen=True)
class Owner:
    """The annotations in which one owner records what it has set on a node, by kind of metadata."""

    labels: str
    annotations: str
    taints: str


# There are two owners, so that pools and the module node_metadata do not remove each other's metadata.
NODE_METADATA_OWNER = Owner("accel.gpu/labels", "accel.gpu/annotations", "accel.gpu/taints")
POOL_OWNER = Owner("accel.gpu/pool-labels", "accel.gpu/pool-annotations", "accel.gpu/pool-taints")


@dataclass(frozen=True)
class RecordedMetadata:
    """The metadata that owners have recorded on a node: keys of labels and annotations, and taints in the format of format_taint()."""

    labels: frozenset[str]
    annotations: frozenset[str]
    taints: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations or self.taints)


def recorded(node: Node, *owners: Owner) -> RecordedMetadata:
    """The metadata that any of the owners has set on the node; a record that cannot be parsed counts as empty.

    The collection's own annotations are never recorded, so a record with their keys was not written by the collection.
    """
    labels, annotations, taints = (
        frozenset().union(*(_entries(node.annotations.get(getattr(owner, kind.name), "")) for owner in owners))
        for kind in fields(RecordedMetadata)
    )
    own = {key for key in annotations if key.startswith(OWN_PREFIX)}
    return RecordedMetadata(labels, annotations - own, taints)


# The labels for NVIDIA's agents whose former values are recorded.
_AGENT_LABELS = (CONFIG_LABEL, MIG_CONFIG_LABEL)


@dataclass(frozen=True)
class FormerLabels:
    """What a node had before a pool first overwrote it: labels for NVIDIA's agents, and MIG devices by profile (empty if unknown).

    A label that was absent, or that selected an entry of the collection or whole GPUs, is not recorded.
    """

    labels: t.Mapping[str, str] = field(default_factory=dict)
    mig_devices: t.Mapping[str, int] = field(default_factory=dict)


def former_labels(node: Node) -> FormerLabels:
    """The record on the node; its content is not trusted, so values that no label or count can have are ignored."""
    text = node.annotations.get(FORMER_LABELS_ANNOTATION)
    record: dict[str, t.Any] = (parse_json(text, dict) or {}) if text else {}
    labels, devices = record.get("labels"), record.get("mig_devices")
    labels = labels if isinstance(labels, dict) else {}
    devices = devices if isinstance(devices, dict) else {}
    return FormerLabels(
        {
            key: value
            for key in _AGENT_LABELS
            if (value := labels.get(key)) and isinstance(value, str) and label_value(value) is None
        },
        {name: count for name, count in devices.items() if is_whole(count) and count > 0},
    )


def keeps_layout(node: Node) -> bool:
    """Whether the node's GPUs have the layout of the MIG configuration that a pool has overwritten, so that restoring its label repartitions nothing."""
    former = former_labels(node)
    config = former.labels.get(MIG_CONFIG_LABEL)
    if not config or MIG_CONFIG_LABEL not in recorded(node, POOL_OWNER).labels or not node.mig_config:
        return False
    return (bool(former.mig_devices) and dict(former.mig_devices) == node.mig_devices) or (
        node.mig_config == config and node.mig_state == "success"
    )


def _former_record(node: Node, owned: t.Collection[str], patch: Entries) -> dict[str, str | None]:
    """The annotation that records the labels for NVIDIA's agents that a patch overwrites for the first time; empty if there are none."""
    overwritten = {
        key: node.labels[key]
        for key in _AGENT_LABELS
        if patch.get(key) is not None and key not in owned and node.labels.get(key)
    }
    config, layout = overwritten.get(CONFIG_LABEL, ""), overwritten.get(MIG_CONFIG_LABEL, "")
    if mode_of(config) is not None:
        del overwritten[CONFIG_LABEL]
    if layout == mig_parted.DISABLED or mig_parted.is_managed(layout):
        del overwritten[MIG_CONFIG_LABEL]
    if not overwritten:
        return {}
    former = former_labels(node)
    record: dict[str, t.Any] = {"labels": {**overwritten, **former.labels}}
    devices = former.mig_devices
    if MIG_CONFIG_LABEL in overwritten and MIG_CONFIG_LABEL not in former.labels and node.mig_state in ("", "success"):
        devices = node.mig_devices
    if devices:
        record["mig_devices"] = dict(devices)
    return {FORMER_LABELS_ANNOTATION: json.dumps(record, sort_keys=True)}


@dataclass(frozen=True)
class MachineRemoval:
    """The entries that an edit removes from a node, or changes, and what the node's Machine (`namespace/name`) must lose first, if it has it."""

    machine: str
    labels: frozenset[str] = frozenset()
    annotations: frozenset[str] = frozenset()
    taints: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class NodeEdit:
    """A merge patch for one node; `before` and `after` contain only the differences. `removal` is None for a node without a Machine."""

    name: str
    patch: dict[str, t.Any]
    before: dict[str, t.Any] = field(default_factory=dict)
    after: dict[str, t.Any] = field(default_factory=dict)
    removal: MachineRemoval | None = None

    @property
    def labels(self) -> dict[str, str | None]:
        """The labels that the patch sets; None removes a label."""
        return dict(self.patch["metadata"].get("labels") or {})

    @property
    def declared_annotations(self) -> dict[str, str | None]:
        """The annotations that the patch sets (None removes an annotation), without the collection's own."""
        annotations = self.patch["metadata"].get("annotations") or {}
        return {key: value for key, value in annotations.items() if not key.startswith(OWN_PREFIX)}


def undeclared_taints(node: Node, pool: PoolPlan) -> list[t.Mapping[str, t.Any]]:
    """The taints that neither the pool declares, nor the pool's record on the node contains, nor Kubernetes or this collection sets and removes."""
    owned = recorded(node, POOL_OWNER, NODE_METADATA_OWNER).taints
    declared = {taint_identity(taint) for taint in pool.taints}
    return [
        taint
        for taint in node.taints
        if taint_identity(taint) not in declared
        and format_taint(taint) not in owned
        and taint.get("key") not in (FAILED_KEY, STARTUP_TAINT_KEY)
        and not is_temporary(taint)
    ]


def with_recorded_taints(node: Node, taints: t.Iterable[t.Mapping[str, t.Any]]) -> Node:
    """The node, as if its pool had recorded these taints as its own."""
    entries = sorted({*recorded(node, POOL_OWNER).taints, *map(format_taint, taints)})
    return replace(node, annotations={**node.annotations, POOL_OWNER.taints: json.dumps(entries)})


def metadata_edit(
    node: Node,
    owner: Owner,
    desired: NodeMetadata,
    *,
    remove_others: bool = False,
    own_annotations: Entries | None = None,
    handed_over: t.Mapping[str, str] | None = None,
    registered: bool = False,
) -> NodeEdit | None:
    """The edit that brings the node's metadata to the desired state and records the metadata that the owner sets; None if nothing changes.

    With remove_others, owned metadata that is not desired is removed. `own_annotations` contains the collection's own annotations, which need no
    record. `handed_over` contains labels that the patch sets without recording them as owned. registered: whether desired entries that the node already
    has count as owned, because the node has registered with them.
    """
    owned = recorded(node, owner)
    records: dict[str, t.Sequence[str]] = {}
    patches: list[dict[str, str | None]] = []
    for record, live, owned_keys, entries in (
        (owner.labels, node.labels, owned.labels, desired.labels),
        (owner.annotations, node.annotations, owned.annotations, desired.annotations),
    ):
        if registered:
            owned_keys = owned_keys | {
                key for key, value in entries.items() if value is not None and live.get(key) == value
            }
        patch, records[record] = _merge_entries(live, owned_keys, entries, remove_others=remove_others)
        patches.append(patch)
    labels, annotations = patches
    for key, value in (handed_over or {}).items():
        labels.pop(key, None)
        if node.labels.get(key) != value:
            labels[key] = value
        records[owner.labels] = [name for name in records[owner.labels] if name != key]
    if owner == POOL_OWNER:
        own_annotations = {
            **_former_record(node, owned.labels, _without(labels, handed_over)),
            **(own_annotations or {}),
        }
    if owner == POOL_OWNER and MIG_CONFIG_LABEL in labels:
        # This state belongs to the previous configuration, and may have been set since the node was read.
        labels[MIG_STATE_LABEL] = None
    taints, records[owner.taints] = merge_taints(
        node.taints,
        owned.taints,
        [taint for taint in desired.taints.values() if taint is not None],
        lambda identity: remove_others or ":".join(identity) in desired.taints,
    )
    if registered:
        records[owner.taints] = sorted(
            {*records[owner.taints], *(format_taint(taint) for taint in desired.taints.values() if taint)}
        )
    return build_edit(node, labels, {**annotations, **(own_annotations or {})}, taints, records)


def _without(entries: Entries, keys: t.Collection[str] | None) -> dict[str, str | None]:
    return {key: value for key, value in entries.items() if key not in (keys or ())}


def _merge_entries(
    live: t.Mapping[str, str], recorded_keys: t.Collection[str], desired: Entries, *, remove_others: bool
) -> tuple[dict[str, str | None], list[str]]:
    """The patch of labels or annotations, and the keys that are owned once it is applied.

    A desired entry of None is removed if it is recorded as owned. With remove_others, every owned entry that is not desired is also removed.
    """
    patch = {key: value for key, value in desired.items() if value is not None and live.get(key) != value}
    removed = {key for key in recorded_keys if desired.get(key) is None and (remove_others or key in desired)}
    owned = sorted((set(recorded_keys) - removed) | set(patch))
    return patch | {key: None for key in removed if key in live}, owned


def build_edit(
    node: Node,
    labels: Entries,
    annotations: Entries,
    taints: list[dict[str, t.Any]] | None,
    records: t.Mapping[str, t.Sequence[str]],
    *,
    uncordon: bool = False,
) -> NodeEdit | None:
    """Build an edit from patches for labels and annotations, and from a list of taints (None: unchanged). Returns None if nothing changes.

    `records` contains the annotations that record owned metadata, each with its entries.
    """
    texts = {key: json.dumps(entries) if entries else None for key, entries in records.items()}
    annotations = {key: value for key, value in {**annotations, **texts}.items() if value != node.annotations.get(key)}
    metadata: dict[str, t.Any] = {}
    spec: dict[str, t.Any] = {}
    before: dict[str, t.Any] = {}
    after: dict[str, t.Any] = {}
    for part, live, patch in (("labels", node.labels, labels), ("annotations", node.annotations, annotations)):
        if patch:
            metadata[part] = dict(patch)
            before[part] = {key: live[key] for key in sorted(patch) if key in live}
            after[part] = {key: value for key, value in sorted(patch.items()) if value is not None}
    if taints is not None:
        spec["taints"] = taints
        # Controllers add and remove taints at any time, so only the changes made by this patch are shown.
        old, new = ({format_taint(taint) for taint in each} for each in (node.taints, taints))
        before["taints"], after["taints"] = sorted(old - new), sorted(new - old)
    if uncordon:
        spec["unschedulable"] = None
        before["unschedulable"], after["unschedulable"] = True, False
    if spec:
        # The list of taints is atomic, and another user may have cordoned the node, so the patch must apply only to the
        # version that was read.
        metadata["resourceVersion"] = node.resource_version
    body = {"metadata": metadata, **({"spec": spec} if spec else {})}
    return edit_of(node, body, before, after) if metadata else None


def edit_of(
    node: Node, patch: dict[str, t.Any], before: dict[str, t.Any] | None = None, after: dict[str, t.Any] | None = None
) -> NodeEdit:
    """The edit that sends this patch to the node."""
    return NodeEdit(node.name, patch, before or {}, after or {}, _machine_removal(node, patch))


def _machine_removal(node: Node, patch: t.Mapping[str, t.Any]) -> MachineRemoval | None:
    """The entries that the node's Machine must lose before the node is patched; None if there is nothing, or no Machine.

    Metadata that only the collection and NVIDIA's operands set on nodes, never a template, is left out, so that it costs no request.
    """
    machine = node.annotations.get(MACHINE_ANNOTATION)
    if not machine:
        return None
    metadata = patch.get("metadata") or {}
    labels, annotations = (
        frozenset(key for key, value in (metadata.get(part) or {}).items() if key in live and live[key] != value)
        for part, live in (("labels", node.labels), ("annotations", node.annotations))
    )
    taints: frozenset[tuple[str, str]] = frozenset()
    if "taints" in (patch.get("spec") or {}):
        kept = {taint_identity(taint) for taint in patch["spec"]["taints"] or ()}
        taints = frozenset(taint_identity(taint) for taint in node.taints if taint.get("key") != FAILED_KEY) - kept
    removal = MachineRemoval(
        machine,
        labels - {MIG_STATE_LABEL},
        frozenset(key for key in annotations if not key.startswith(OWN_PREFIX)),
        taints,
    )
    return removal if removal.labels or removal.annotations or removal.taints else None


# Finds the entries of nodes that another tool sets from its own source (pure).

_TAINTS = ("taints", "")
_ENTRY_WORDS = {"labels": "label ", "annotations": "annotation ", "taints": "the list of taints"}


def replaced_entries(edit: NodeEdit) -> list[tuple[str, str]]:
    """The entries that a node has and that the edit changes or removes: `labels` or `annotations` with the key, and `taints` for the list of taints.

    The state of the MIG configuration and the collection's own annotations are left out, because no tool sets them from a source.
    """
    entries = [
        (part, key)
        for part in ("labels", "annotations")
        for key in edit.before.get(part) or ()
        if key != MIG_STATE_LABEL and not (part == "annotations" and key.startswith(OWN_PREFIX))
    ]
    taints = (edit.patch.get("spec") or {}).get("taints")
    if taints is not None:
        added = edit.after.get("taints") or ()
        others = [
            *(edit.before.get("taints") or ()),
            *(text for text in map(format_taint, taints) if text not in added),
        ]
        if any(not text.startswith(STARTUP_TAINT_KEY) for text in others):
            entries.append(_TAINTS)
    return entries


def reverted_entries(
    replaced: t.Mapping[str, t.Collection[tuple[str, str]]], nodes: t.Iterable[t.Mapping[str, t.Any]]
) -> list[str]:
    """A sentence about each replaced entry that another tool has set, with the nodes; `nodes` contains objects with managedFields."""
    nodes_by_entry: dict[tuple[str, str, str], list[str]] = {}
    for item in nodes:
        name = item["metadata"]["name"]
        for part, key in replaced.get(name, ()):
            tool = tool_of_taints(item) if part == _TAINTS[0] else tool_of_entry(item, part, key)
            if tool:
                nodes_by_entry.setdefault((tool, part, key), []).append(name)
    return [
        f"{tool} sets {_ENTRY_WORDS[part]}{key} of {abbreviate_nodes(names)}, and may revert the changes of this run. Make the same change where {tool} gets "
        "its settings, or remove the entry there."
        for (tool, part, key), names in sorted(nodes_by_entry.items())
    ]


@functools.lru_cache(maxsize=1024)
def _entries(text: str) -> frozenset[str]:
    """The entries of a record; cached because many nodes have the same record."""
    return frozenset(str(entry) for entry in parse_json(text, list) or ())


# Assigns the nodes to pools for a run, and finds the GPU nodes whose pool is not known yet (pure).
#
# The pool is derived from the node's labels (pools/plan.py); outdated labels set by earlier runs are ignored.


def assign_pools(pools: t.Sequence[PoolPlan], nodes: t.Sequence[Node]) -> Membership:
    """The pool membership according to the nodes' labels. A label accel.gpu/pool that the user has set always counts.

    If a run has set the label, it counts unless the labels of the node's GPU contradict the pool's match. If these labels are gone, for example because
    NFD does not run any longer, the node keeps its pool.
    """
    membership = membership_by_labels(pools, nodes)
    by_name = {node.name: node for node in nodes}
    mismatched = [name for names in membership.mismatched.values() for name in names]
    owned = [name for name in mismatched if POOL_LABEL in recorded(by_name[name], POOL_OWNER).labels]
    if not owned:
        return membership
    for name in owned:
        labels = {key: value for key, value in by_name[name].labels.items() if key != POOL_LABEL}
        by_name[name] = dataclasses.replace(by_name[name], labels=labels)
    return membership_by_labels(pools, by_name.values())


def pool_members(membership: Membership) -> set[str]:
    """The names of the nodes of all pools."""
    return {name for names in membership.by_pool.values() for name in names}


def may_match(pool: PoolPlan, node: Node) -> bool:
    """Whether the pool's match may fit a node of unknown model once it is discovered, if its existing labels stay as they are."""
    if pool.match.pins_only:
        return False
    return all(
        node.labels[key] == value if key in node.labels else key.startswith(DISCOVERED_PREFIXES)
        for key, value in pool.match.labels.items()
    )


def undiscovered_candidates(pools: t.Sequence[PoolPlan], nodes: t.Iterable[Node], membership: Membership) -> list[str]:
    """The nodes without a pool that a pool may match as soon as gpu-feature-discovery labels them."""
    undiscovered = set(membership.undiscovered) - pool_members(membership)
    return [
        node.name
        for node in nodes
        if node.name in undiscovered
        and not reason_without_discovery(node.labels)
        and any(may_match(pool, node) for pool in pools)
    ]


def awaited_nodes(pools: t.Sequence[PoolPlan], nodes: t.Iterable[Node], membership: Membership) -> list[str]:
    """The ready nodes whose pool is not known until gpu-feature-discovery has labeled them."""
    return undiscovered_candidates(pools, [node for node in nodes if node.ready], membership)


def is_undiscovered(nodes: t.Iterable[Node]) -> bool:
    """Whether no node has NFD labels yet, so the hardware of all nodes is unknown."""
    return not any(node.has_nfd_labels for node in nodes)


def ignorable_nodes(pools: t.Sequence[PoolPlan], nodes: t.Sequence[Node]) -> set[str]:
    """The GPU nodes that are in no pool, or that gpu-feature-discovery has not labeled.

    A run never waits for operands that fail on these nodes. If one of the nodes belongs to a pool, the pool's sharing fails later.
    """
    members = pool_members(assign_pools(pools, nodes))
    return {node.name for node in nodes if node.has_gpu and (node.name not in members or not node.discovered)}


def can_continue_without(failing: t.Collection[str], pools: t.Sequence[PoolPlan], nodes: t.Sequence[Node]) -> bool:
    """Whether a run can continue without the failing nodes: another GPU node is discovered, or no failing node belongs or may belong to a pool."""
    membership = assign_pools(pools, nodes)
    candidates = {*pool_members(membership), *undiscovered_candidates(pools, nodes, membership)}
    others_discovered = any(node.discovered and node.name not in failing for node in nodes)
    return others_discovered or candidates.isdisjoint(failing)
