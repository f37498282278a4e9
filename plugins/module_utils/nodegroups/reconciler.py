# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine: node groups brought to what is wished, side by side, after all of it was found possible."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, field

from ..common.errors import InvalidOptions, PartialFailure, ServiceError
from ..common.parallel import Outcome, is_fatal, run_bounded
from ..common.progress import Progress
from ..common.results import diff_of
from ..common.wait import WaitTimeout
from .group_drain import GroupFailed
from .group_reconciler import GroupReconciler
from .list_cache import GroupListCache
from .names import is_of
from .plan import DELETE, NOTHING, RECREATE, GroupChange, out_of_range, plan_changes
from .provider import Drainer, NodeGroupProvider
from .spec import FieldNames, NodeGroupSpec, NodeGroupState


@dataclass(frozen=True)
class ReconcileOptions:
    """How long the engine waits (seconds), and for how many groups at a time."""

    wait: bool = True
    timeout: float = 3600.0
    interval: float = 10.0
    parallel: int = 32


@dataclass
class ReconcileResult:
    """What was done, or in check mode would be; `lives` are the groups as they were seen last, by the wish's name."""

    planned: list[GroupChange]
    words: FieldNames
    lives: dict[str, NodeGroupState] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        """Whether any group differed from its wish."""
        return any(change.action != NOTHING for change in self.planned)

    @property
    def warnings(self) -> list[str]:
        """What somebody should look at."""
        return [
            f"Node group {spare.name} stands beside {change.name}, as a replacement that was broken off leaves it: run with "
            "recreate: true, which moves its pods and deletes it, or delete it yourself."
            for change in self.planned
            for spare in change.spare
        ]

    def result(self) -> dict[str, t.Any]:
        """`changed`, `diff`, and `nodegroups` by the names that were asked for."""
        shown = [change for change in self.planned if change.action != NOTHING]
        return {
            "changed": self.changed,
            "nodegroups": {change.wish.name: self._told(change) for change in self.planned},
            "diff": diff_of(
                {change.wish.name: change.before(self.words) for change in shown},
                {change.wish.name: change.after(self.words) for change in shown},
                "node groups",
            ),
        }

    def _told(self, change: GroupChange) -> dict[str, t.Any]:
        live = self.lives.get(change.wish.name)
        told: dict[str, t.Any] = {
            "action": change.action,
            **(live.told(self.words) if live else change.after(self.words)),
        }
        if live:
            told.update(id=live.id, status=live.status)
        if change.wish.name in self.failures:
            told["failure"] = self.failures[change.wish.name]
        return told


def reconcile(
    cloud: NodeGroupProvider,
    wishes: t.Sequence[NodeGroupSpec],
    *,
    check_mode: bool,
    pace: ReconcileOptions,
    emptier: Drainer | None = None,
    progress: Progress | None = None,
) -> ReconcileResult:
    """Bring groups to what is wished.

    Reads everything first, and raises InvalidOptions with all that is wrong before anything is sent. In check mode nothing is
    sent at all. Raises SomeFailed, with what was reached, when a group could not be brought there; the others are.
    """
    planned = _planned(cloud, wishes, emptier)
    # What is to change is told as it will be, where nothing is sent.
    shown = [change for change in planned if change.live and not (check_mode and change.action != NOTHING)]
    found = ReconcileResult(planned, cloud.words, {change.wish.name: change.live for change in shown if change.live})
    if check_mode:
        return found
    say = (progress or Progress(None)).report
    moves = any(change.shrinks for change in planned)
    looks = GroupListCache(cloud)
    with emptier if emptier is not None and moves else contextlib.nullcontext():
        tasks = []
        for change in planned:
            following = GroupReconciler(looks, change, emptier, timeout=pace.timeout, interval=pace.interval, say=say)
            if task := _task(change, following, pace.wait):
                tasks.append((change.wish.name, task))
        done = 0

        def count(outcome: Outcome[NodeGroupState | None]) -> None:
            nonlocal done
            done += 1
            say(f"node group {outcome.name} {'is done' if outcome.ok else 'has failed'}", done, len(tasks))

        outcomes = run_bounded(tasks, pace.parallel, count, fatal=_stops_all)
    _note(found, outcomes)
    return found


def _planned(cloud: NodeGroupProvider, wishes: t.Sequence[NodeGroupSpec], emptier: Drainer | None) -> list[GroupChange]:
    names = [wish.name for wish in wishes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidOptions([f"Node group {name} is declared more than once; declare it once." for name in twice])
    longest = cloud.longest_name
    lives = cloud.survey(lambda group: any(is_of(group, name, longest) for name in names))
    planned, problems = plan_changes(wishes, lives, cloud.words, cloud.unchangeable, longest)
    for change in planned:
        problems += out_of_range(change, cloud.words)
        if change.action == RECREATE and change.wish.recreate and emptier is None:
            problems.append(
                f"Node group {change.wish.name}: recreate moves pods from the old nodes to the new ones, and nobody has said how the "
                "cluster is reached; give kubernetes.kubeconfig."
            )
    asked = [change for change in planned if change.action not in (NOTHING, DELETE)]
    problems += cloud.check([(change.wish, change.live) for change in asked]) if asked else []
    if problems:
        raise InvalidOptions(problems, "These node groups cannot be as they are declared:")
    return planned


def _task(change: GroupChange, following: GroupReconciler, wait: bool) -> t.Callable[[], NodeGroupState | None] | None:
    if change.action == NOTHING:
        under_way = change.going or (change.live is not None and not change.live.settled)
        # What a killed run has begun is waited for as if this one had.
        return following.settle if wait and under_way else None
    return following.go if wait or change.action == RECREATE else following.request


def _stops_all(error: Exception) -> bool:
    return not isinstance(error, (GroupFailed, WaitTimeout)) and is_fatal(error)


def _note(found: ReconcileResult, outcomes: t.Sequence[Outcome[NodeGroupState | None]]) -> None:
    by_name = {change.wish.name: change for change in found.planned}
    raised: list[Exception] = []
    for outcome in outcomes:
        if outcome.error is not None:
            if not isinstance(outcome.error, (GroupFailed, WaitTimeout, ServiceError)):
                raise outcome.error
            found.failures[outcome.name] = str(outcome.error)
            raised.append(outcome.error)
        elif not outcome.made:
            found.failures[outcome.name] = "not begun, since another group has met what every one would meet."
        elif outcome.value is not None:
            found.lives[outcome.name] = outcome.value
        elif by_name[outcome.name].action == DELETE:
            found.lives.pop(outcome.name, None)
    if not raised:
        return
    partial = found.result()
    worst = next((error for error in raised if _stops_all(error)), raised[0] if len(raised) == 1 else None)
    if isinstance(worst, (WaitTimeout, ServiceError)):
        worst.partial = {**worst.partial, **partial}
        raise worst
    first = next(iter(found.failures.values()))
    title = f"{len(raised)} of {len(found.planned)} node groups are not as declared. " if len(raised) > 1 else ""
    raise PartialFailure(f"{title}{first}", partial)
