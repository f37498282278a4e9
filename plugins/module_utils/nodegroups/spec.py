# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node group as it is declared and as it exists, the difference, and the template of its nodes (pure)."""

from __future__ import annotations

import dataclasses
import itertools
import re
import typing as t
from dataclasses import dataclass

from ..catalog.names import GPU_RESOURCE, POOL_LABEL
from ..catalog.openshift import (
    CAPACITY_LABELS,
    CAPACITY_TAINTS,
    GPU_TYPE,
    MEMORY_MB,
    AutoscalerRules,
    group_id,
    is_managed_label,
    platform_of,
    provider_zone_labels,
)
from ..catalog.taints import STARTUP_TAINT_PREFIX, Taint
from ..core.messages import join_words, option_of_role
from ..core.values import Document, get_nested
from ..nodes.ownership import machine_set_owner
from ..schema.providers import (
    MAX_NODE_COUNT,
    MIN_NODE_COUNT,
    NODE_COUNT,
    NODE_LABELS,
    NODE_TAINTS,
    may_be_replacement,
    replacement_name,
)

# Defines the desired spec and the actual state of a node group. Both use the names of the options, so that they can be compared (pure).
#
# `fields` contains the options that only one provider has; names in these options are resolved to the values that the cloud stores. Maps are compared and
# changed key by key: keys that the spec does not contain stay unchanged, and a key with the value None is removed. Taints are also a map, from
# "key:Effect" to the value. Every other field is compared as a whole.


@dataclass(frozen=True)
class NodeGroupSpec:
    """The desired node group. An attribute that is None and a field that is missing are not declared.

    autoscaled: an autoscaler chooses the number of nodes between min_count and max_count. no_range: the group's range is removed.
    external_range: another object contains the range, so the range is not compared. recreate: the group may be replaced to change an immutable field.
    replaces_outdated: the run replaces machines with other settings afterwards, in the same group. can_replace_machines: whether the
    provider can do so.
    """

    name: str
    present: bool = True
    count: int | None = None
    min_count: int | None = None
    max_count: int | None = None
    autoscaled: bool = False
    no_range: bool = False
    external_range: bool = False
    recreate: bool = False
    replaces_outdated: bool = False
    can_replace_machines: bool = False
    fields: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)

    def desired_count(self, current: int | None) -> int | None:
        """The desired number of nodes for a group that has `current` nodes (None if the group does not exist); None if the spec declares no number."""
        if not self.autoscaled:
            return self.count
        start = current if current is not None else (self.count if self.count is not None else self.min_count or 0)
        at_least = max(start, self.min_count or 0)
        return min(at_least, self.max_count) if self.max_count is not None else at_least


@dataclass(frozen=True)
class NodeGroupState:
    """The actual node group.

    settled: no operation is in progress. failed: the last operation failed for the given `reason`. max_count: None without a limit.
    owner: the declared name of the node group that this group belongs to according to a valid mark, or empty.
    marked: whether a valid mark shows that the collection has created or adopted the group.
    claims: evidence of an owner that a copy also carries: for each label or annotation, the declared name that it contains.
    adopted: the nodes that do not register with the label of their pool, because they are older than the group's declaration.
    addresses and machines: the addresses and the cloud's names of its nodes, as far as the cloud returns them. without_node: the number of machines
    without a node, which a scale-down removes first. outdated: the machines whose settings differ from those of new machines of the group.
    """

    id: str
    name: str
    status: str
    settled: bool
    failed: bool
    count: int
    reason: str = ""
    min_count: int = 0
    max_count: int | None = None
    fields: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    addresses: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    without_node: int = 0
    outdated: tuple[str, ...] = ()
    owner: str = ""
    marked: bool = False
    claims: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    adopted: tuple[str, ...] = ()

    @property
    def deleting(self) -> bool:
        """Whether the cloud is deleting the group."""
        return not self.settled and self.status.startswith("DELET")

    @property
    def values(self) -> dict[str, t.Any]:
        """All values that can be compared, by option."""
        return {
            NODE_COUNT: self.count,
            MIN_NODE_COUNT: self.min_count,
            MAX_NODE_COUNT: self.max_count,
            **{key: self.fields[key] for key in sorted(self.fields)},
        }

    def to_result(self) -> dict[str, t.Any]:
        """The group in the format that modules return."""
        outdated = {"outdated": list(self.outdated)} if self.outdated else {}
        return as_options({"name": self.name, **self.values, **outdated})


def as_options(values: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The values in the format of the options, in which taints are a list."""
    taints = values.get(NODE_TAINTS)
    return {**values, NODE_TAINTS: taint_list(taints)} if isinstance(taints, t.Mapping) else dict(values)


def label_text(value: t.Any) -> str:
    """A label's value as a string; a boolean has the form that YAML uses."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def label_map(labels: t.Mapping[str, t.Any]) -> dict[str, str | None]:
    """Labels with their values as strings; None removes a label."""
    return {str(key): None if value is None else label_text(value) for key, value in labels.items()}


def taint_map(taints: t.Iterable[t.Mapping[str, t.Any]] | None) -> dict[str, str | None]:
    """Taints as a map from `key:Effect` to the value; None for a taint with the state absent."""
    return {
        f"{taint['key']}:{taint['effect']}": None if taint.get("state") == "absent" else str(taint.get("value") or "")
        for taint in taints or ()
    }


def taint_list(taints: t.Mapping[str, t.Any]) -> list[dict[str, str]]:
    """Taints as the list that Kubernetes and the clouds' APIs use; empty values are omitted."""
    split = [(key.rpartition(":"), value) for key, value in sorted(taints.items()) if value is not None]
    return [
        {"key": key, **({"value": value} if value else {}), "effect": effect} for (key, dummy, effect), value in split
    ]


# Derives the change that each declared group needs from its spec and the existing groups (pure).

NOTHING, CREATE, UPDATE, REPLACE, DELETE = "none", "create", "update", "recreate", "delete"

# The field that lists the machines whose settings differ from those of new machines in the group. It counts as a difference if the group is replaced
# because of these machines.
OUTDATED = "outdated"

# The setting that allows the replacement of a group, in messages.
RECREATE = option_of_role("nodes.recreate: true", "recreate")

# The key for the groups that a change deletes, in results and diffs.
DELETES = "deletes"

# The actual and the desired value of each field that differs.
Differences = t.Mapping[str, tuple[t.Any, t.Any]]


@dataclass(frozen=True)
class GroupChange:
    """The change for one spec.

    name: the name of the group that matches, or will match, the spec. current: this group; None if the group must be created.
    superseded: other groups of this spec that will be deleted. orphans: other groups of this spec that are kept because no replacement was requested.
    deleting: other groups of this spec that the cloud is already deleting. differences: the fields that differ.
    lookalikes: groups that have the name of a replacement, but belong to others; they are never changed.
    unproven: those of them that may nevertheless be replacements, each with the evidence: a mark that is not valid, or the label of the pool.
    outdated: the machines of `current` whose settings still differ from the spec, because the change only affects new machines.
    """

    spec: NodeGroupSpec
    action: str
    name: str
    current: NodeGroupState | None = None
    superseded: tuple[NodeGroupState, ...] = ()
    orphans: tuple[NodeGroupState, ...] = ()
    deleting: tuple[NodeGroupState, ...] = ()
    differences: Differences = dataclasses.field(default_factory=dict)
    outdated: tuple[str, ...] = ()
    lookalikes: tuple[str, ...] = ()
    unproven: t.Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def removes_nodes(self) -> bool:
        """Whether the change removes some or all nodes of a group."""
        count = self.spec.desired_count(self.current.count) if self.current else None
        return bool(self.superseded) or (count is not None and self.current is not None and count < self.current.count)

    @property
    def unmarked(self) -> tuple[NodeGroupState, ...]:
        """The groups that a replacement deletes although no mark shows that the collection has created or adopted them."""
        return tuple(group for group in self.superseded if self.action == REPLACE and not group.marked)

    @property
    def deletes(self) -> list[str]:
        """The groups that the change deletes, each with its number of nodes."""
        return [f"{group.name} ({group.count} node{'' if group.count == 1 else 's'})" for group in self.superseded]

    @property
    def _existing(self) -> NodeGroupState | None:
        return self.current or next(iter(self.superseded), None)

    def before(self) -> dict[str, t.Any]:
        """The group before the change; empty if there is none. If the change deletes several groups, all of them are listed."""
        if not self._existing:
            return {}
        several = {DELETES: self.deletes} if self.action == DELETE and len(self.superseded) > 1 else {}
        return {**self._existing.to_result(), **several}

    def after(self) -> dict[str, t.Any]:
        """The group after the change, as far as it is known; empty if it will be deleted."""
        if self.action == DELETE:
            return {}
        before = self._existing.values if self._existing and self.action != CREATE else _declared(self.spec)
        if self.outdated:
            before = {**before, OUTDATED: list(self.outdated)}
        changed = {field: desired for field, (dummy, desired) in self.differences.items()}
        deleted = {DELETES: self.deletes} if self.superseded else {}
        return as_options({**before, **changed, **deleted, "name": self.name})


def field_differences(spec: NodeGroupSpec, state: NodeGroupState) -> Differences:
    """The declared fields that differ from the group's state."""
    values = state.values
    differences: dict[str, tuple[t.Any, t.Any]] = {
        field: (values[field], number)
        for field, number in _declared_numbers(spec, state.count).items()
        if number != values[field]
    }
    if spec.no_range and (state.min_count, state.max_count) != (0, None):
        differences.update({MIN_NODE_COUNT: (state.min_count, 0), MAX_NODE_COUNT: (state.max_count, None)})
    for field, declared in spec.fields.items():
        actual = state.fields.get(field)
        if isinstance(declared, t.Mapping):
            desired: t.Any = merge_field(actual or {}, declared)
            differs = desired != (actual or {})
        else:
            desired, differs = declared, declared != actual
        if differs:
            differences[field] = (actual, desired)
    return differences


def merge_field(actual: t.Mapping[str, t.Any], declared: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The actual map, updated with the declared entries. Entries that are declared as None are removed."""
    return {key: value for key, value in {**actual, **declared}.items() if value is not None}


def groups_of_spec(
    name: str, states: t.Iterable[NodeGroupState], other_names: t.Collection[str] = ()
) -> list[NodeGroupState]:
    """The groups that belong to the spec with this name: first the group with exactly this name, and then its replacements in a fixed order.

    A replacement is recognized by its mark, never by its name.
    """
    matches = [
        state for state in states if state.name == name or (state.name not in other_names and state.owner == name)
    ]
    return sorted(matches, key=lambda state: (state.name != name, state.name))


def plan_group_changes(
    specs: t.Sequence[NodeGroupSpec],
    states: t.Sequence[NodeGroupState],
    immutable_fields: t.Collection[str],
    max_name_length: int,
    machine_fields: t.Collection[str] = (),
) -> tuple[list[GroupChange], list[str]]:
    """A change for each spec, in the order of the specs, and an error message for each impossible change.

    NodeGroupProvider describes `machine_fields`.
    """
    changes: list[GroupChange] = []
    problems: list[str] = []
    names = {spec.name for spec in specs}
    for spec in specs:
        groups = groups_of_spec(spec.name, states, names)
        current = [group for group in groups if not group.deleting]
        others = [state for state in states if state not in groups]
        change = _change(
            spec, current, immutable_fields, max_name_length, machine_fields, {group.name for group in others}
        )
        lookalikes = [
            group
            for group in others
            if group.name not in names
            and not group.owner
            and may_be_replacement(group.name, spec.name, max_name_length)
        ]
        unproven = {} if groups else {group.name: _evidence(spec, group) for group in lookalikes if not group.deleting}
        change = dataclasses.replace(
            change,
            deleting=tuple(group for group in groups if group.deleting),
            lookalikes=tuple(group.name for group in lookalikes),
            unproven={group: evidence for group, evidence in unproven.items() if evidence},
        )
        changes.append(change)
        if spec.present and change.unproven:
            problems.append(_unproven_problem(change))
        exact = next(
            (group for group in groups if group.name == spec.name and group.owner not in ("", spec.name)), None
        )
        if exact is not None:
            problems.append(
                f"Node group {spec.name}: the existing group with this name replaces node group {exact.owner}, and a run for "
                f"{exact.owner} may delete it. Choose another name."
            )
        if change.action == REPLACE and not spec.recreate:
            problems.append(_immutable_problem(change, immutable_fields))
    return changes, problems


def _evidence(spec: NodeGroupSpec, group: NodeGroupState) -> str:
    """What indicates that a group without a valid mark replaces the group of the spec; empty if nothing does."""
    claims = [claim for claim, name in group.claims.items() if name == spec.name]
    if claims:
        return f"{' and '.join(claims)} with the name {spec.name}"
    declared, actual = ((fields.get(NODE_LABELS) or {}).get(POOL_LABEL) for fields in (spec.fields, group.fields))
    return f"node label {POOL_LABEL}={actual}" if actual and actual == declared else ""


def _unproven_problem(change: GroupChange) -> str:
    name = change.spec.name
    evidence = join_words([f"{group} has the {text}" for group, text in change.unproven.items()])
    first = next(iter(change.unproven))
    return (
        f"Node group {name}: it does not exist, but {evidence}, and no mark proves whose group this is. A mark becomes invalid in a copy and after a "
        f"restore from a backup. A new group {name} might be a second one that costs money, so nothing was changed. If {first} is the group, declare its name: "
        f"nodes.name of the pool, or the option name of the module, is {first}. If it is not, remove what is named here from it, or delete it."
    )


def _change(
    spec: NodeGroupSpec,
    groups: t.Sequence[NodeGroupState],
    immutable_fields: t.Collection[str],
    max_name_length: int,
    machine_fields: t.Collection[str],
    taken: t.Collection[str],
) -> GroupChange:
    if not spec.present:
        return GroupChange(spec, DELETE if groups else NOTHING, spec.name, superseded=tuple(groups))
    if not groups:
        created = {field: (None, value) for field, value in _declared(spec).items()}
        return GroupChange(spec, CREATE, spec.name, differences=created)
    compared = [(group, _differences(spec, group)) for group in groups]
    replacing = {*immutable_fields, OUTDATED}
    usable = [
        (group, differences)
        for group, differences in compared
        if not differences.keys() & (replacing | {*machine_fields} if spec.recreate and group.count else replacing)
    ]
    if not usable:
        fixed = {field: spec.fields[field] for field in immutable_fields if field in spec.fields}
        name = _free_name(spec, fixed or spec.fields, max_name_length, {*taken, *(group.name for group in groups)})
        return GroupChange(spec, REPLACE, name, superseded=tuple(groups), differences=compared[0][1])
    current, differences = usable[0]
    # An interrupted replacement leaves two groups; the surplus group is deleted only if the spec allows a replacement.
    others = tuple(group for group in groups if group is not current)
    if others and spec.recreate:
        return GroupChange(spec, REPLACE, current.name, current, superseded=others, differences=differences)
    action = UPDATE if differences or current.failed else NOTHING
    outdated = current.machines if differences.keys() & set(machine_fields) else current.outdated
    if spec.replaces_outdated:
        outdated = ()
    return GroupChange(spec, action, current.name, current, orphans=others, differences=differences, outdated=outdated)


def _free_name(spec: NodeGroupSpec, fields: t.Mapping[str, t.Any], max_length: int, taken: t.Collection[str]) -> str:
    """A name for a replacement that no group has.

    If the spec has no immutable fields, the group is replaced because of its outdated machines, and may already have the name for the current fields.
    """
    first = replacement_name(spec.name, fields, max_length)
    others = (replacement_name(spec.name, {**fields, "": number}, max_length) for number in itertools.count())
    return next(name for name in itertools.chain((first, spec.name), others) if name not in taken)


def _differences(spec: NodeGroupSpec, group: NodeGroupState) -> Differences:
    """The differences between a group and its spec. Outdated machines count as a difference if the spec allows their replacement."""
    outdated: Differences = {OUTDATED: (list(group.outdated), [])} if spec.recreate and group.outdated else {}
    return {**field_differences(spec, group), **outdated}


def range_problems(change: GroupChange) -> t.Iterator[str]:
    """Yield the problems with the number of nodes and its range. Values that are not declared are taken from the existing group."""
    spec, current = change.spec, change.current
    ranged = None if spec.no_range else current
    low = spec.min_count if spec.min_count is not None else (ranged.min_count if ranged else 0)
    high = spec.max_count if spec.max_count is not None else (ranged.max_count if ranged else None)
    name = f"Node group {spec.name}"
    if high is not None and low > high:
        yield f"{name}: {MIN_NODE_COUNT} ({low}) must not exceed {MAX_NODE_COUNT} ({high})."
        return
    count = spec.desired_count(current.count if current else None)
    if count is None or spec.autoscaled or change.action == NOTHING:
        return
    if count < low:
        yield (
            f"{name}: {NODE_COUNT} ({count}) is less than {MIN_NODE_COUNT} ({low}). Declare a {MIN_NODE_COUNT} of at most {count}, "
            "or more nodes."
        )
    elif high is not None and count > high:
        yield (
            f"{name}: {NODE_COUNT} ({count}) is more than {MAX_NODE_COUNT} ({high}). Declare a {MAX_NODE_COUNT} of at least {count}, "
            "or fewer nodes."
        )


def _immutable_problem(change: GroupChange, immutable_fields: t.Collection[str]) -> str:
    fields = sorted(change.differences.keys() & set(immutable_fields))
    values = " and ".join(
        f"{field} is {change.differences[field][0]!r}, not {change.differences[field][1]!r}" for field in fields
    )
    return (
        f"Node group {change.superseded[0].name}: {values}, and the cloud cannot change that. Restore the old value, or set "
        f"{RECREATE} to replace the group: a new group is created, the pods move to it, and this one is deleted."
    )


def _declared(spec: NodeGroupSpec) -> dict[str, t.Any]:
    fields = {
        key: merge_field({}, value) if isinstance(value, t.Mapping) else value for key, value in spec.fields.items()
    }
    return {**_declared_numbers(spec, None), **dict(sorted(fields.items()))}


def _declared_numbers(spec: NodeGroupSpec, current: int | None) -> dict[str, int]:
    """The declared numbers by option, for a group that has `current` nodes."""
    numbers = {NODE_COUNT: spec.desired_count(current)}
    if not spec.external_range:
        numbers.update({MIN_NODE_COUNT: spec.min_count, MAX_NODE_COUNT: spec.max_count})
    return {option: number for option, number in numbers.items() if number is not None}


# Predicts the node that the cluster autoscaler expects from a MachineSet without nodes (pure).


# The notation of quantities (apimachinery, pkg/api/resource). All counts, and the values of the old memory key, are whole numbers.
_QUANTITY = re.compile(r"\+?(\d+\.?\d*|\.\d+)([eE][+-]?\d+|[KMGTPE]i|[numkMGTPE])?")
_WHOLE = re.compile(r"\+?\d+")
# The second entry is the older prefix of startup taints (kubernetes/autoscaler, utils/taints).
_IGNORED_TAINTS = (STARTUP_TAINT_PREFIX, "ignore-taint.cluster-autoscaler.kubernetes.io/")
# The notation of a taint in an annotation; other effects are not accepted.
_TAINT = re.compile(r"(?P<key>[^=:]+)(=(?P<value>[^:]*))?:(?P<effect>NoSchedule|NoExecute|PreferNoSchedule)")


@dataclass(frozen=True)
class MachineSet:
    """The data that the autoscaler reads from a MachineSet."""

    name: str
    namespace: str
    replicas: int
    annotations: t.Mapping[str, str]
    labels: t.Mapping[str, str]
    taints: tuple[Taint, ...]
    # The labels of the zone in which its machines are created; empty if the MachineSet sets no zone.
    zone_labels: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    # The annotations that the platform's controller sets repeatedly.
    controller_annotations: frozenset[str] = frozenset()
    # The declared node group that it belongs to according to its mark, or empty.
    owner: str = ""

    @property
    def group_id(self) -> str:
        """The name of the MachineSet's node group."""
        return group_id(self.namespace, self.name)


@dataclass(frozen=True)
class NodeTemplate:
    """The expected node. `missing` contains required annotations that are absent, and `unreadable` contains annotations with an invalid value.

    In both cases, the autoscaler ignores the MachineSet while it has no nodes.
    """

    missing: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    resources: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    labels: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


def parse_machine_set(raw: Document) -> MachineSet:
    """Parse a MachineSet object; missing fields are empty."""
    metadata = raw.get("metadata") or {}
    template = get_nested(raw, "spec", "template", "spec") or {}
    provider_spec = get_nested(template, "providerSpec", "value") or {}
    platform = platform_of(provider_spec)
    return MachineSet(
        name=metadata.get("name", ""),
        namespace=metadata.get("namespace", ""),
        replicas=_replicas(raw),
        annotations=dict(metadata.get("annotations") or {}),
        labels=dict(get_nested(template, "metadata", "labels") or {}),
        taints=tuple(template.get("taints") or ()),
        zone_labels=provider_zone_labels(provider_spec),
        controller_annotations=platform.controller_annotations if platform else frozenset(),
        owner=(machine_set_owner(raw, new=True) or "") if metadata.get("name") else "",
    )


def node_template(machine_set: MachineSet, rules: AutoscalerRules) -> NodeTemplate:
    """The node that an autoscaler with these rules expects."""
    unreadable: list[str] = []
    amounts = {
        name: _amount(machine_set.annotations, keys, name == "gpu", unreadable)
        for name, keys in (("cpu", rules.cpu), ("memory", rules.memory), ("gpu", rules.gpu_count))
    }
    resource = machine_set.annotations.get(GPU_TYPE, "")
    resource = resource if rules.counts_gpu_type else GPU_RESOURCE
    return NodeTemplate(
        missing=tuple(
            keys[0]
            for name, keys in (("cpu", rules.cpu), ("memory", rules.memory))
            if not amounts[name] and not set(keys) & set(unreadable)
        ),
        unreadable=tuple(unreadable),
        resources={resource: int(amounts["gpu"])} if resource and amounts["gpu"] else {},
        labels=_labels(machine_set, rules),
        taints=tuple(_taints(machine_set)),
    )


def _replicas(raw: Document) -> int:
    """The desired number of replicas; the default is 1 (openshift/api, machine/v1beta1)."""
    replicas = get_nested(raw, "spec", "replicas")
    return 1 if replicas is None else int(replicas)


def _amount(annotations: t.Mapping[str, str], keys: t.Iterable[str], is_whole: bool, unreadable: list[str]) -> float:
    """The amount in the first annotation that is set; 0 if its value is invalid.

    As in the autoscaler, an annotation with the value 0 is skipped for CPU and memory, but not for GPUs.
    """
    for key in keys:
        text = annotations.get(key, "")
        if not text or (text == "0" and not is_whole):
            continue
        pattern = _WHOLE if is_whole or key == MEMORY_MB else _QUANTITY
        match = pattern.fullmatch(text)
        if match is None:
            unreadable.append(key)
            return 0
        return float(match[0]) if pattern is _WHOLE else float(match[1])
    return 0


def _labels(machine_set: MachineSet, rules: AutoscalerRules) -> dict[str, str]:
    """The labels of the template that this release of the autoscaler reads, and the labels in the annotation, which take precedence."""
    labels = {key: value for key, value in machine_set.labels.items() if rules.all_labels or is_managed_label(key)}
    for text in machine_set.annotations.get(CAPACITY_LABELS, "").split(","):
        key, equals, value = text.partition("=")
        if equals:
            labels[key] = value
    return labels


def _taints(machine_set: MachineSet) -> t.Iterator[Taint]:
    """The taints of the template and of the annotation, except startup taints, which the autoscaler removes."""
    annotated = machine_set.annotations.get(CAPACITY_TAINTS, "").split(",")
    matches = [match for text in annotated if (match := _TAINT.fullmatch(text))]
    taints = [*machine_set.taints, *({k: v for k, v in match.groupdict().items() if v} for match in matches)]
    yield from (taint for taint in taints if not str(taint.get("key") or "").startswith(_IGNORED_TAINTS))
