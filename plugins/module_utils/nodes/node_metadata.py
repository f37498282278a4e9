# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes nodes, and the Machines that would restore what was removed; labels, taints and annotations of sets of nodes."""

from __future__ import annotations

import collections
import functools
import json
import typing as t
from dataclasses import dataclass, field

from ..catalog import models
from ..catalog.names import FORMER_TAINTS, OWN_PREFIX, POOL_LABEL, REGISTRATION_ANNOTATION
from ..catalog.openshift import machine_sets_path, machines_path
from ..catalog.taints import TAINT_EFFECTS, Taint, format_taint, plain_taint, taint_identity
from ..core.errors import ConnectionProblem, InvalidOptions, PartialFailure
from ..core.files import write_private_file
from ..core.messages import MAX_LISTED, diff_of
from ..core.types import Boolean, Choice, ListOf, MapOf, Section, Text, is_blank, to_names
from ..core.values import Object, get_nested, parse_json
from ..core.waits import DEFAULT_LIMIT, Outcome, Progress, is_fatal, run_bounded
from ..kube.errors import ApiError, Patcher, patch_object, retry_conflicts
from ..kube.fields import controller_of
from ..kube.lease import Lease, LeaseLost
from ..kube.objects import NOT_CHECKED
from ..kube.paths import NODES
from ..pools.plan import Entries, NodeMetadata
from ..schema import validators
from .node import Node, Requirement, parse_node, parse_selector
from .ownership import (
    NODE_METADATA_OWNER,
    POOL_OWNER,
    NodeEdit,
    metadata_edit,
    recorded,
    replaced_entries,
    reverted_entries,
)

if t.TYPE_CHECKING:
    from ..kube.client import Client

# Removes labels, annotations and taints from the Machine of an OpenShift node before they are removed from the node.
#
# The Machine API copies them from the Machine to its node again and again (openshift/machine-api-operator, pkg/controller/nodelink), so it reverts a
# change that is made only to the node. New Machines get the entries of their MachineSet's template.


class Reader(t.Protocol):
    """The request that `obsolete_taints` sends."""

    def get(self, path: str) -> Object | None:
        """The object; None if it does not exist."""


class RemovedEntries(t.Protocol):
    """The entries of a node that an edit removes or changes, and the node's Machine as `namespace/name`."""

    @property
    def machine(self) -> str:
        """The value of the node's annotation for its Machine."""

    @property
    def labels(self) -> t.Collection[str]:
        """The keys of the labels."""

    @property
    def annotations(self) -> t.Collection[str]:
        """The keys of the annotations."""

    @property
    def taints(self) -> t.Collection[tuple[str, str]]:
        """The keys and effects of the taints."""


def remove_from_machine(client: Patcher, node: str, removal: RemovedEntries, check_lease: t.Callable[[], None]) -> None:
    """Remove the entries from the node's Machine. Call this before changing the node, because otherwise the Machine API would restore them.

    Entries are removed even if the node's are only changed: the Machine API leaves entries alone that the Machine does not have. `check_lease` is called
    before each patch.
    """
    path = _machine_path(removal.machine)
    if not path:
        return

    def compute(machine: Object) -> Object | None:
        if get_nested(machine, "status", "nodeRef", "name") not in (None, node):
            # The annotation refers to the Machine of another node.
            return None
        spec: Object = {}
        taints = get_nested(machine, "spec", "taints") or []
        kept = [taint for taint in taints if taint_identity(taint) not in removal.taints]
        if len(kept) != len(taints):
            spec["taints"] = kept or None
        for part, keys in (("labels", removal.labels), ("annotations", removal.annotations)):
            existing = [key for key in get_nested(machine, "spec", "metadata", part) or () if key in keys]
            if existing:
                spec.setdefault("metadata", {})[part] = dict.fromkeys(sorted(existing))
        if not spec:
            return None
        check_lease()
        return {"spec": spec}

    try:
        patch_object(client, path, client.get(path), compute)
    except ApiError as error:
        # The Machine was deleted after it was read; its node will also be deleted.
        if not error.not_found:
            raise


def obsolete_taints(
    client: Reader,
    machine: str,
    taints: t.Collection[tuple[str, str]],
    read: dict[str, Object | None],
    is_managed: t.Callable[[Object], bool],
) -> set[tuple[str, str]]:
    """The taints of a node that its MachineSet once gave it, and that the collection removes or has removed from the MachineSet.

    A node that joins between two runs has no record of what belongs to its pool. `read` contains the objects that were already read, by path.
    is_managed: whether the collection manages a MachineSet; a copy of a managed one has the same record. Without the permission to read the Machine or its
    MachineSet, the result is empty.
    """

    def get(path: str) -> Object | None:
        if path not in read:
            try:
                read[path] = client.get(path)
            except ApiError as error:
                if not error.lacks_right:
                    raise
                read[path] = None
        return read[path]

    path = _machine_path(machine)
    item = get(path) if path else None
    owner = controller_of(item) if item else None
    if owner is None or owner.get("kind") != "MachineSet":
        return set()
    machine_set = get(f"{machine_sets_path(machine.partition('/')[0])}/{owner['name']}")
    if machine_set is None or machine_set["metadata"].get("uid") != owner.get("uid") or not is_managed(machine_set):
        return set()
    annotations = get_nested(machine_set, "metadata", "annotations") or {}
    record = parse_json(annotations.get(REGISTRATION_ANNOTATION), dict) or {}
    given = {taint_identity(taint) for taint in get_nested(item, "spec", "taints") or ()}
    kept = {taint_identity(taint) for taint in get_nested(machine_set, "spec", "template", "spec", "taints") or ()}

    def is_own(identity: tuple[str, str]) -> bool:
        entries = record.get("taints" if identity in kept else FORMER_TAINTS)
        return isinstance(entries, list) and ":".join(identity) in entries

    return {identity for identity in taints if identity in given and is_own(identity)}


def _machine_path(machine: str) -> str:
    """The path of a Machine; empty if the annotation's value is not a valid name and could yield the path of another object."""
    namespace, dummy, name = machine.partition("/")
    valid = validators.dns_label(namespace) is None and validators.object_name(name) is None
    return f"{machines_path(namespace)}/{name}" if valid else ""


# Patches a node; after a conflict, reads the node and computes the patch again.
#
# Every change to a node's metadata is sent here, so this is where a node's Machine is changed first (see MachineMetadata above).

PatchStatus = t.Literal["changed", "unchanged", "gone", "unchecked"]


class Edit(t.Protocol):
    """A merge patch for one node; it contains the resourceVersion if it depends on the node that was read."""

    @property
    def name(self) -> str:
        """The name of the node."""

    @property
    def patch(self) -> Object:
        """The body of the request."""

    @property
    def removal(self) -> RemovedEntries | None:
        """The entries that must be removed from the node's Machine first; None if there are none."""


E = t.TypeVar("E", bound=Edit)


@dataclass(frozen=True)
class PatchResult(t.Generic[E]):
    """The last edit that was sent, with its effect; `node` is the changed node if the caller requested it.

    `status` is `unchanged` if nothing was left to change after a conflict, `gone` if the node does not exist, and `unchecked` if this user is not
    allowed to send a dry run.
    """

    status: PatchStatus
    edit: E
    node: Object | None = None


def patch_node(
    client: Client,
    edit: E,
    compute: t.Callable[[Object], E | None],
    check_lease: t.Callable[[], None],
    *,
    dry_run: bool = False,
    answer: bool = False,
) -> PatchResult[E]:
    """Send the edit; after a conflict, `compute` gets the current node and returns a new edit, or None.

    If the response to a patch is lost and `compute` then finds nothing to change, the patch was applied, so the status is `changed`.
    What the edit removes from the node is first removed from the node's Machine; a dry run does not read the Machine.
    `check_lease` is called before each patch and raises when the lease is lost. Without `answer`, the server does not return the node.
    """
    path = f"{NODES}/{edit.name}"
    sent, maybe_applied = edit, False
    node: Object | None = None

    def send(current: E) -> PatchResult[E]:
        nonlocal sent, maybe_applied
        sent = current
        if current.removal is not None and not dry_run:
            remove_from_machine(client, current.name, current.removal, check_lease)
        check_lease()
        try:
            if answer:
                return PatchResult("changed", current, client.patch(path, current.patch, dry_run=dry_run))
            client.strategic_merge(path, current.patch, dry_run=dry_run)
            return PatchResult("changed", current)
        except ApiError as error:
            if error.not_found:
                return PatchResult("gone", current)
            if dry_run and error.lacks_right:
                return PatchResult("unchecked", current)
            maybe_applied = maybe_applied or (error.maybe_applied and not dry_run)
            error.earlier_outcome_unknown = maybe_applied
            raise

    def recompute() -> E | None:
        nonlocal node
        node = client.get(path)
        return compute(node) if node is not None else None

    try:
        result = retry_conflicts(send, edit, recompute)
    except ApiError as error:
        if not maybe_applied or error.fails_every_request or recompute() is not None:
            raise
        result = None
    if result is not None:
        return result
    if node is None:
        return PatchResult("gone", sent)
    return PatchResult("changed", sent, node if answer else None) if maybe_applied else PatchResult("unchanged", sent)


def read_reverted(client: Client, edits: t.Iterable[NodeEdit]) -> list[str]:
    """Sentences about the tools that may revert these edits; the field managers are listed only if the edits replace entries that nodes have."""
    replaced = {edit.name: entries for edit in edits if (entries := replaced_entries(edit))}
    if not replaced:
        return []
    return reverted_entries(replaced, client.list(NODES, metadata_only=True, managed_fields=True))


# Defines the schema of the option `sets` of the module node_metadata, and assigns nodes to sets (pure).

V = t.TypeVar("V")


def _invalid_selector(value: str) -> str | None:
    try:
        parse_selector(value)
    except ValueError as error:
        return str(error)
    return None


def _reserved_key(value: str) -> str | None:
    if value.startswith(OWN_PREFIX) and value != POOL_LABEL:
        return "is reserved for this collection's own records"
    return None


class _TextOrNull(Text):
    """Accepts text, or null to remove the entry."""

    def problems(self, value: t.Any, path: str) -> t.Iterator[str]:
        return iter(()) if value is None else super().problems(value, path)


_SETS = ListOf(
    item=Section(
        fields={
            "name": Text(),
            "state": Choice(known=("present", "absent"), default="present"),
            "label_selectors": ListOf(item=Text((_invalid_selector,))),
            "names": ListOf(item=Text()),
            "match": Section(
                fields={
                    "model": Text((validators.known_model,)),
                    "pool": Text((validators.dns_label,)),
                    "labels": MapOf(keys=(validators.label_key,), item=Text((validators.label_value,), empty=True)),
                }
            ),
            "labels": MapOf(
                keys=(validators.label_key, _reserved_key), item=_TextOrNull((validators.label_value,), empty=True)
            ),
            "annotations": MapOf(keys=(validators.label_key, _reserved_key), item=_TextOrNull(empty=True)),
            "taints": ListOf(
                item=Section(
                    fields={
                        "key": Text((validators.label_key,), required=True, missing="a taint has a key and an effect"),
                        "value": Text((validators.label_value,), empty=True),
                        "effect": Choice(
                            known=TAINT_EFFECTS, required=True, missing=f"choose one of {', '.join(TAINT_EFFECTS)}"
                        ),
                    }
                )
            ),
            "purge": Boolean(default=False),
        }
    )
)


@dataclass(frozen=True)
class NodeSet:
    """A selection of nodes and their desired metadata (taints by key and effect); None as a value removes a managed entry.

    `products` contains the normalized product names of a GPU model; if it is empty, nodes of any model and nodes without GPUs are included.
    """

    name: str
    requirements: tuple[Requirement, ...]
    names: frozenset[str] | None = None
    products: frozenset[str] = frozenset()
    labels: Entries = field(default_factory=dict)
    annotations: Entries = field(default_factory=dict)
    taints: t.Mapping[str, Taint | None] = field(default_factory=dict)
    purge: bool = False

    def contains(self, node: Node) -> bool:
        """Whether the node is in the set."""
        if self.names is not None and node.name not in self.names:
            return False
        if not all(requirement.is_met(node.labels) for requirement in self.requirements):
            return False
        return not self.products or models.normalized(models.bare_product(node.product)) in self.products

    @property
    def needs_taints(self) -> bool:
        """Whether the nodes' specs, which contain the taints, must be read in addition to their metadata."""
        return bool(self.taints or self.purge)


def node_sets(entries: t.Sequence[t.Any]) -> list[NodeSet]:
    """Parse the option `sets`; raises InvalidOptions with all problems."""
    problems: list[str] = []
    normalized = [_normalize(entry, f"sets[{index}]", problems) for index, entry in enumerate(entries)]
    problems += _SETS.problems(normalized, "sets")
    if not problems:
        problems = [problem for index, entry in enumerate(normalized) for problem in _problems(entry, f"sets[{index}]")]
    if problems:
        raise InvalidOptions(problems, "The option sets is invalid:")
    return [_node_set(entry, f"sets[{index}]") for index, entry in enumerate(normalized)]


def _node_set(entry: t.Mapping[str, t.Any], path: str) -> NodeSet:
    absent = entry.get("state") == "absent"
    match = entry.get("match") or {}
    names = entry.get("names")
    model = models.find(match["model"]) if match.get("model") else None
    exact = {**(match.get("labels") or {}), **({POOL_LABEL: match["pool"]} if match.get("pool") else {})}
    requirements = [Requirement(key, False, (value,)) for key, value in exact.items()]
    for text in entry.get("label_selectors") or ():
        requirements += parse_selector(text)
    taints: dict[str, Taint] = {
        ":".join(taint_identity(taint)): plain_taint(taint) for taint in entry.get("taints") or ()
    }

    def unless_absent(entries: t.Mapping[str, V]) -> dict[str, V | None]:
        return {key: None if absent else value for key, value in entries.items()}

    return NodeSet(
        name=entry.get("name") or path,
        requirements=tuple(requirements),
        names=None if names is None else frozenset(names),
        products=frozenset(map(models.normalized, (model.key, *model.products))) if model else frozenset(),
        labels=unless_absent(entry.get("labels") or {}),
        annotations=unless_absent(entry.get("annotations") or {}),
        taints=unless_absent(taints),
        purge=bool(entry.get("purge")),
    )


def _problems(entry: t.Mapping[str, t.Any], path: str) -> t.Iterator[str]:
    """Yield the problems that concern several fields of a set."""
    if all(entry.get(name) is None for name in ("label_selectors", "names", "match")):
        yield f"{path}: selects no nodes; set label_selectors, names or match (label_selectors: [] for all nodes)"
    elif entry.get("match") is not None and not any((entry["match"] or {}).values()):
        yield f"{path}.match: is empty; set model, pool or labels (or label_selectors: [] for all nodes)"
    if not (entry.get("purge") or any(entry.get(name) for name in ("labels", "annotations", "taints"))):
        yield f"{path}: changes nothing; set labels, annotations, taints or purge"
    if entry.get("purge") and entry.get("state") == "absent":
        yield f"{path}.purge: cannot be combined with state: absent; purge: true alone removes everything"
    identities = [(taint["key"], taint["effect"]) for taint in entry.get("taints") or ()]
    for key, effect in sorted({identity for identity in identities if identities.count(identity) > 1}):
        yield f"{path}.taints: {key}:{effect} is listed more than once; a node can have only one taint with this key and effect"


def _normalize(entry: t.Any, path: str, problems: list[str]) -> t.Any:
    """Parse label_selectors in the same way as list options of other modules: a string is split at commas outside brackets."""
    if not isinstance(entry, dict) or entry.get("label_selectors") is None:
        return entry
    given = entry["label_selectors"]
    try:
        selectors = to_names(given)
    except ValueError as error:
        problems.append(f"{path}.label_selectors: {error}")
        return {**entry, "label_selectors": None}
    # Only an explicit empty list selects all nodes: a template that renders to an empty value must not select the whole
    # cluster.
    blank = isinstance(given, list) and any(is_blank(item) or item is None for item in given)
    if given != [] and (blank or not selectors):
        problems.append(f"{path}.label_selectors: contains an empty selector; write [] to select all nodes")
    return {**entry, "label_selectors": selectors}


# Combines the desired metadata of one node from all its sets, and builds the patch (pure).


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


# Applies the metadata of node sets, with one list request and a bounded number of parallel patches.


@dataclass
class SetMatches:
    """The result of comparing the sets with one list of the nodes; `by_set` counts the nodes of each set."""

    edits: dict[str, NodeEdit] = field(default_factory=dict)
    by_set: collections.Counter[str] = field(default_factory=collections.Counter)
    matched: int = 0
    undiscovered: list[str] = field(default_factory=list)


@dataclass
class NodesOutcome:
    """The result of the patches; `failures` contains the error messages by node."""

    sets: list[NodeSet]
    matches: SetMatches
    check: bool
    statuses: dict[str, PatchStatus] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    cause: ApiError | LeaseLost | PartialFailure | None = None

    @property
    def changed(self) -> list[str]:
        """The nodes that were changed, or, in check mode, would be changed."""
        return [name for name, status in self.statuses.items() if status in ("changed", "unchecked")]

    def result(self, report_path: str | None, warn: t.Callable[[str], None]) -> dict[str, t.Any]:
        """The module's result with up to MAX_LISTED names. Also writes the report with all names; if that fails, only warns, because nodes may have changed."""
        report = self._report(MAX_LISTED)
        if report_path:
            try:
                write_private_file(report_path, json.dumps(self._report(), indent=2), keep_mode=True)
                report["report_path"] = report_path
            except ConnectionProblem as error:
                warn(f"The report {error}")
        return {
            "changed": bool(self.changed) or (self.check and "after_discovery" in report),
            "node_metadata": report,
            "diff": self._diff(),
        }

    def _report(self, limit: int | None = None) -> dict[str, t.Any]:
        """The result with at most `limit` names in each list."""
        statuses = list(self.statuses.values())
        gone = statuses.count("gone")
        report: dict[str, t.Any] = {
            "matched": self.matches.matched,
            "changed": len(self.changed),
            "unchanged": self.matches.matched - len(self.changed) - len(self.failures) - gone,
            "failed": len(self.failures),
            "gone": gone,
            "names_changed": self.changed[:limit],
            "failures": dict(list(self.failures.items())[:limit]),
            "sets": {node_set.name: self.matches.by_set[node_set.name] for node_set in self.sets},
        }
        by_model = [node_set.name for node_set in self.sets if node_set.products]
        if by_model and self.matches.undiscovered:
            report["after_discovery"] = {"sets": by_model, "undiscovered": self.matches.undiscovered[:limit]}
        if "unchecked" in statuses:
            report["unchecked"] = NOT_CHECKED
        return report

    def raise_failures(self, result: dict[str, t.Any]) -> None:
        """Raise the error, with the result as its partial result, if a node could not be changed."""
        if self.cause is not None:
            self.cause.partial = result
            raise self.cause

    def _diff(self) -> dict[str, t.Any]:
        edits = [self.matches.edits[name] for name in self.changed[:MAX_LISTED]]
        header = f"nodes (the first {MAX_LISTED} of {len(self.changed)})" if len(self.changed) > MAX_LISTED else "nodes"
        return diff_of({edit.name: edit.before for edit in edits}, {edit.name: edit.after for edit in edits}, header)


def reconcile(
    client: Client,
    sets: list[NodeSet],
    *,
    check: bool,
    lease: Lease,
    progress: Progress,
    parallel: int = DEFAULT_LIMIT,
) -> NodesOutcome:
    """Read all nodes and patch those that differ. Before the first patch, the lease is acquired and the nodes are read again.

    Raises InvalidOptions before the first patch if sets conflict or contain the names of nodes that do not exist.
    """
    outcome = NodesOutcome(sets, _read(client, sets), check)
    if not outcome.matches.edits:
        return outcome
    with lease:
        if not check:
            outcome.matches = _read(client, sets)
        edits = outcome.matches.edits
        client.reverted.extend(read_reverted(client, edits.values()))

        failed = 0

        def on_done(ended: Outcome[PatchStatus], finished: int) -> None:
            nonlocal failed
            failed += ended.error is not None
            progress.report("nodes checked" if check else "nodes changed", finished - failed, len(edits), failed=failed)

        def patch(edit: NodeEdit) -> PatchStatus:
            def compute(raw: t.Mapping[str, t.Any]) -> NodeEdit | None:
                node = parse_node(raw)
                required = required_metadata(node, sets)
                return required_metadata_edit(node, required) if required is not None else None

            return patch_node(client, edit, compute, lease.check, dry_run=check).status

        calls = [(name, functools.partial(patch, edit)) for name, edit in edits.items()]
        _record(outcome, run_bounded(calls, parallel, on_done=on_done, stop=lease.lost), client)
    return outcome


def _read(client: Client, sets: list[NodeSet]) -> SetMatches:
    """List the nodes and compare them with the sets; if no set concerns taints, only the nodes' metadata is requested."""
    matches = SetMatches()
    problems: list[str] = []
    missing = {name for node_set in sets for name in node_set.names or ()}
    for raw in client.list(NODES, metadata_only=not any(node_set.needs_taints for node_set in sets)):
        node = parse_node(raw)
        missing.discard(node.name)
        if not (node.discovered if node.has_gpu else node.has_nfd_labels):
            matches.undiscovered.append(node.name)
        try:
            required = required_metadata(node, sets)
        except ConflictingSets as error:
            problems.append(str(error))
            continue
        if required is None:
            continue
        matches.matched += 1
        matches.by_set.update(required.sets)
        edit = required_metadata_edit(node, required)
        if edit is not None:
            matches.edits[node.name] = edit
    problems += [f"Node {name} does not exist, but a set contains its name." for name in sorted(missing)]
    if problems:
        raise InvalidOptions(problems[:MAX_LISTED], "The sets do not fit the nodes:")
    return matches


def _record(outcome: NodesOutcome, patches: list[Outcome[PatchStatus]], client: Client) -> None:
    # Imported here, as wherever cloud modules need this file: the import of kubernetes takes half a second.
    from ..kube.connection import explain

    for patch in patches:
        error = patch.error
        if patch.value is not None:
            outcome.statuses[patch.name] = patch.value
        elif isinstance(error, (ApiError, LeaseLost)):
            outcome.failures[patch.name] = (
                explain(error, client.connection) if isinstance(error, ApiError) else str(error)
            )
            # An error that affects every node (missing permissions, no connection, a lost lease) is raised directly.
            if is_fatal(error):
                outcome.cause = error
        elif error is not None:
            raise error
    if outcome.failures and outcome.cause is None:
        name, message = next(iter(outcome.failures.items()))
        outcome.cause = PartialFailure(f"{len(outcome.failures)} nodes could not be changed; {name}: {message}")
