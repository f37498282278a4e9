# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derives the change that each declared group needs from its spec and the existing groups (pure)."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t
from dataclasses import dataclass

from ..catalog.names import POOL_LABEL
from ..pools.nodegroup_names import (
    MAX_NODE_COUNT,
    MIN_NODE_COUNT,
    NODE_COUNT,
    NODE_LABELS,
    may_be_replacement,
    replacement_name,
)
from ..schema.messages import join_words
from .spec import NodeGroupSpec, NodeGroupState, as_options

NOTHING, CREATE, UPDATE, REPLACE, DELETE = "none", "create", "update", "recreate", "delete"

# The field that lists the machines whose settings differ from those of new machines in the group. It counts as a difference if the group is replaced
# because of these machines.
OUTDATED = "outdated"

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
        "recreate: true to replace the group: a new group is created, the pods move to it, and this one is deleted."
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
