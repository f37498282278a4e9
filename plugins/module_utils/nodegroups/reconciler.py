# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validates all node groups, and then reconciles them in parallel."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, field

from ..common.errors import InvalidOptions, PartialFailure, ServiceError
from ..common.parallel import Outcome, is_fatal, run_bounded
from ..common.progress import Progress
from ..common.results import diff_of
from ..common.wait import WaitTimeout
from ..drain.drainer import NodeDrainer
from ..pools.nodegroup_names import may_be_replacement
from ..schema.messages import abbreviate
from .group_changes import CREATE, DELETE, DELETES, NOTHING, REPLACE, GroupChange, plan_group_changes, range_problems
from .group_drain import GroupFailed
from .group_reconciler import GroupReconciler, ReconcileOptions
from .list_cache import GroupListCache
from .provider import NodeGroupProvider
from .spec import NodeGroupSpec, NodeGroupState

INVALID_GROUPS = "Invalid node groups:"


@dataclass
class ReconcileResult:
    """The changes that were made or, in check mode, would be made. `states` contains the groups' latest states by the names of their specs."""

    changes: list[GroupChange]
    states: dict[str, NodeGroupState] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        """Whether any group differed from its spec."""
        return any(change.action != NOTHING for change in self.changes)

    @property
    def warnings(self) -> list[str]:
        """A warning for each group that an interrupted replacement left behind, and for each group with outdated machines."""
        orphans = [
            f"Node group {orphan.name} exists in addition to {change.name}: a replacement was interrupted. Run with recreate: true, which moves "
            "its pods and deletes it, or delete it yourself."
            for change in self.changes
            for orphan in change.orphans
        ]
        states = [(change, self.states.get(change.spec.name)) for change in self.changes]
        outdated = {change.name: state.outdated if state else change.outdated for change, state in states}
        lookalikes = [
            f"Node group {name} has a name like a replacement of {change.spec.name}, but it does not carry the mark of one, so it belongs to others "
            "and is left alone."
            for change in self.changes
            if change.action in (CREATE, REPLACE, DELETE)
            for name in change.lookalikes
        ]
        lookalikes += [
            f"Node group {change.spec.name} does not exist, but {name} has the {evidence}. No mark proves that it is this node group, so it is not deleted. "
            f"If it is, declare its name, {name}, and delete it by this name."
            for change in self.changes
            for name, evidence in change.unproven.items()
        ]
        return (
            orphans
            + lookalikes
            + [
                f"Node group {name}: a change only affects new machines, so these keep other settings: {abbreviate(machines)}. Run with recreate: true, "
                "which moves their pods to new machines, or delete them yourself."
                for name, machines in outdated.items()
                if machines
            ]
        )

    def result(self) -> dict[str, t.Any]:
        """The result with `changed`, `diff`, and the `nodegroups` by their declared names."""
        changed = [change for change in self.changes if change.action != NOTHING]
        return {
            "changed": self.changed,
            "nodegroups": {change.spec.name: self._group_result(change) for change in self.changes},
            "diff": diff_of(
                {change.spec.name: change.before() for change in changed},
                {change.spec.name: change.after() for change in changed},
                "node groups",
            ),
        }

    def _group_result(self, change: GroupChange) -> dict[str, t.Any]:
        name = change.spec.name
        state = self.states.get(name)
        result: dict[str, t.Any] = {"action": change.action, "name": change.name}
        result |= state.to_result() if state else change.after()
        if state:
            result.update(id=state.id, status=state.status)
        known = state or change.current
        if known and known.adopted:
            result["adopted_nodes"] = list(known.adopted)
        if change.deletes:
            result[DELETES] = change.deletes
        if name in self.failures:
            result["failure"] = self.failures[name]
        return result


def reconcile(
    provider: NodeGroupProvider,
    specs: t.Sequence[NodeGroupSpec],
    *,
    check_mode: bool,
    options: ReconcileOptions,
    drainer: NodeDrainer | None,
    progress: Progress,
    confirm_deletion: t.Callable[[t.Sequence[NodeGroupState]], None] = lambda dummy: None,
) -> ReconcileResult:
    """Reconcile the groups with their specs.

    Reads everything first, and raises InvalidOptions with all problems before any request is sent. In check mode, no request is sent.
    confirm_deletion: called with the groups that specs declare as absent, or that are replaced without a mark of the collection, if any exist; raises an
    error if they must not be deleted.
    Raises PartialFailure with the result so far if a group fails; the other groups are still reconciled.
    """
    changes = _validated_changes(provider, specs, drainer)
    deleted = [
        group for change in changes for group in (change.superseded if change.action == DELETE else change.unmarked)
    ]
    if deleted:
        confirm_deletion(deleted)
    # In check mode, a changing group is reported with its future state.
    shown = [change for change in changes if not (check_mode and change.action != NOTHING)]
    result = ReconcileResult(changes, {change.spec.name: change.current for change in shown if change.current})
    if check_mode:
        return result
    say = progress.report
    cache = GroupListCache(provider)
    changes_cluster = any(
        change.removes_nodes or (provider.in_cluster and change.action != NOTHING) for change in changes
    )
    with drainer if drainer is not None and changes_cluster else contextlib.nullcontext():
        tasks = []
        for change in changes:
            reconciler = GroupReconciler(cache, change, drainer, options, say)
            if task := _task(change, reconciler, options.wait):
                tasks.append((change.spec.name, task))

        def report(outcome: Outcome[NodeGroupState | None], finished: int) -> None:
            say(f"node group {outcome.name} {'is done' if outcome.ok else 'has failed'}", finished, len(tasks))

        outcomes = run_bounded(tasks, options.parallel, report, fatal=_is_fatal)
    _record(result, outcomes)
    return result


def _validated_changes(
    provider: NodeGroupProvider, specs: t.Sequence[NodeGroupSpec], drainer: NodeDrainer | None
) -> list[GroupChange]:
    names = [spec.name for spec in specs]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise InvalidOptions([f"Node group {name} is declared more than once; declare it once." for name in duplicates])
    longest = provider.max_name_length
    states = provider.read(lambda group: any(may_be_replacement(group, name, longest) for name in names))
    changes, problems = plan_group_changes(specs, states, provider.immutable_fields, longest, provider.machine_fields)
    for change in changes:
        problems += range_problems(change)
        if change.action == REPLACE and change.spec.recreate and drainer is None:
            problems.append(
                f"Node group {change.spec.name}: recreate moves pods from the old nodes to the new ones, which needs access to the "
                "cluster. Set kubernetes.kubeconfig."
            )
    checked = [(change.spec, change.current) for change in changes if change.action not in (NOTHING, DELETE)]
    problems += provider.check(checked) if checked else []
    if problems:
        raise InvalidOptions(problems, INVALID_GROUPS)
    return changes


def _task(change: GroupChange, reconciler: GroupReconciler, wait: bool) -> t.Callable[[], NodeGroupState | None] | None:
    if change.action == NOTHING:
        in_progress = change.deleting or (change.current is not None and not change.current.settled)
        # The run also waits for an operation that a killed run began.
        return reconciler.settle if wait and in_progress else None
    return reconciler.reconcile if wait or change.action == REPLACE else reconciler.request


def _is_fatal(error: Exception) -> bool:
    return not isinstance(error, (GroupFailed, WaitTimeout)) and is_fatal(error)


def _record(result: ReconcileResult, outcomes: t.Sequence[Outcome[NodeGroupState | None]]) -> None:
    """Add the outcomes to the result. If a group has failed, raise an error that contains the result."""
    actions = {change.spec.name: change.action for change in result.changes}
    errors: list[Exception] = []
    for outcome in outcomes:
        if outcome.error is not None:
            if not isinstance(outcome.error, (GroupFailed, WaitTimeout, ServiceError)):
                raise outcome.error
            result.failures[outcome.name] = str(outcome.error)
            errors.append(outcome.error)
        elif not outcome.made:
            result.failures[outcome.name] = (
                "not started, because another group failed with an error that affects all groups."
            )
        elif outcome.value is not None:
            result.states[outcome.name] = outcome.value
        elif actions[outcome.name] == DELETE:
            result.states.pop(outcome.name, None)
    if not errors:
        return
    partial = result.result()
    worst = next((error for error in errors if _is_fatal(error)), errors[0] if len(errors) == 1 else None)
    if isinstance(worst, (WaitTimeout, ServiceError)):
        worst.partial = {**worst.partial, **partial}
        raise worst
    first = next(iter(result.failures.values()))
    title = f"{len(errors)} of {len(result.changes)} node groups failed. " if len(errors) > 1 else ""
    raise PartialFailure(f"{title}{first}", partial)
