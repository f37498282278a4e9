# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One group on its way to what is wished: each request is believed when its effect is seen, and sent again when it was lost."""

from __future__ import annotations

import contextlib
import functools
import time
import typing as t

from ..running.errors import ServiceError
from ..running.wait import wait_until
from .changes import RECREATE, Change
from .cloud import Cloud, Emptier, Machine
from .wish import Live

_FIRST_LOOK = 0.1
_TOLD = 5


class GroupFailed(Exception):
    """The cloud says that what was asked of a group has failed."""


class Following:
    """Brings one group there; every wait of it ends with the group's own time limit."""

    def __init__(
        self,
        cloud: Cloud,
        change: Change,
        emptier: Emptier | None,
        *,
        timeout: float,
        interval: float,
        say: t.Callable[[str], None],
        clock: t.Callable[[], float] = time.monotonic,
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:
        """Send nothing yet. timeout: seconds for all of it; interval: the longest time between two looks, in seconds."""
        self._cloud, self._change, self._emptier = cloud, change, emptier
        self._wish, self._name = change.wish, change.name
        self._timeout, self._interval, self._say = timeout, interval, say
        self._clock, self._sleep = clock, sleep
        self._end = clock() + timeout

    def go(self) -> Live | None:
        """Do it, and hand back the group as it is then; None when there is none any more.

        Raises GroupFailed, TimeoutStory and ServiceError.
        """
        wish = self._wish
        if not wish.present:
            for old in self._change.leftovers:
                self._remove(old)
            return None
        live = self._change.live or self._look(lambda: self._cloud.find(self._name)) or self._make()
        live = self._bring(live)
        if self._change.action == RECREATE:
            self._await_nodes(live)
            for old in self._change.leftovers:
                self._remove(old)
        return live

    def settle(self, live: Live) -> Live:
        """Wait until nothing is under way in a group that is as declared."""
        return live if live.settled else self._until(live, lambda now: now.settled, "settle")

    def request(self) -> None:
        """Send what is to be sent first, and wait for nothing: what comes after another request is left for the next run."""
        if not self._wish.present:
            for old in self._change.leftovers:
                self._cloud.delete(old)
        elif self._change.live is None:
            self._send_create()
        else:
            for step in self._cloud.steps(self._change.live, self._wish, ())[:1]:
                step.send()

    def _make(self) -> Live:
        self._send_create()
        # The row may come late: there is no group for a moment after its creation was accepted.
        there = self._wait(
            lambda: self._cloud.find(self._name),
            lambda now: now is not None,
            lambda dummy: f"Node group {self._name} was asked for and does not appear.",
        )
        return t.cast("Live", there)

    def _send_create(self) -> None:
        count = self._wish.count_of(self._change.leftovers[0].count if self._change.leftovers else None)
        while True:
            self._say(f"{self._name}: creating")
            try:
                self._patiently(lambda: self._cloud.create(self._wish, self._name, count))
                return
            except ServiceError as error:
                # Asked for by the request whose answer was lost, or by somebody else meanwhile.
                if error.conflict and self._look(lambda: self._cloud.find(self._name)) is not None:
                    return
                if not error.ambiguous or self._left() <= 0:
                    raise
            if self._appears():
                return

    def _appears(self) -> bool:
        """Whether a creation that was not answered has been carried out; a second one might make a second group."""
        until = self._clock() + self._cloud.patience
        while self._clock() < until:
            if self._look(lambda: self._cloud.find(self._name)) is not None:
                return True
            self._sleep(min(self._interval, 1.0))
        return False

    def _bring(self, live: Live) -> Live:
        """Send what remains, one request after the other, until nothing does."""
        while True:
            live = self.settle(live)
            leaving = self._leaving(live)
            steps = self._cloud.steps(live, self._wish, leaving)
            if not steps:
                if live.failed:
                    raise self._failure(live)
                return live
            step = steps[0]
            self._say(f"{live.name}: {step.what}")
            before = live
            self._ask(step.send, leaving)
            live = self._seen(before, step.seen, step.what)

    def _seen(self, before: Live, seen: t.Callable[[Live], bool], what: str) -> Live:
        """Wait for the effect and a settled status; hand back what there is when the request seems to be lost."""
        asked = self._clock()

        def over(now: Live) -> bool:
            if not now.settled:
                return False
            late = self._clock() - asked > self._cloud.patience
            if now.failed and (late or not before.failed):
                raise self._failure(now)
            return seen(now) or late

        return self._until(before, over, what)

    def _remove(self, old: Live) -> None:
        """Empty a group's nodes, where somebody can, and delete it."""
        live = self._look(lambda: self._cloud.get(old))
        leaving: list[Machine] = []
        if live is not None and self._emptier is not None and not live.status.startswith("DELET"):
            leaving = self._members(live, self._emptier)
            self._empty(live, self._emptier, leaving)
        self._say(f"{old.name}: deleting")
        asked: float | None = None
        while live is not None:
            if asked is None or self._clock() - asked > self._cloud.patience:
                gone = live
                self._ask(functools.partial(self._cloud.delete, gone), leaving)
                asked = self._clock()

            def over(now: Live | None, since: float = asked) -> bool:
                if now is None:
                    return True
                late = self._clock() - since > self._cloud.patience
                if now.failed and late:
                    raise self._failure(now)
                return late and now.settled

            live = self._wait(lambda: self._cloud.get(old), over, lambda now: self._story(now or old, "be deleted"))

    def _await_nodes(self, live: Live) -> None:
        """Where pods are to move to: the new group's nodes are ready in the cluster before the old ones are emptied."""
        if self._emptier is None:
            return
        emptier = self._emptier

        def ready(machines: t.Sequence[Machine]) -> int:
            return sum(machine.ready for machine in self._cloud.members(live, machines))

        self._wait(
            emptier.machines,
            lambda machines: ready(machines) >= live.count,
            lambda machines: f"Of {live.count} nodes of {live.name}, {ready(machines)} are ready in the cluster.",
        )

    def _leaving(self, live: Live) -> list[Machine]:
        """The nodes that a shrink costs least, emptied; none where the cloud does not ask which are to go."""
        count = self._wish.count_of(live.count)
        if self._emptier is None or not self._cloud.removes_chosen or count is None or count >= live.count:
            return []
        its = {machine.name: machine for machine in self._members(live, self._emptier)}
        names = self._emptier.victims(sorted(its), min(live.count - count, len(its)))
        leaving = [its[name] for name in names]
        self._empty(live, self._emptier, leaving)
        return leaving

    def _members(self, live: Live, emptier: Emptier) -> list[Machine]:
        """The group's nodes in the cluster, which has to be the one that the cloud's machines have joined."""
        its = self._cloud.members(live, emptier.machines())
        told = [*live.machines, *live.addresses]
        if told and not its:
            raise GroupFailed(
                f"None of the machines {', '.join(told[:_TOLD])} of node group {live.name} is a node of the cluster that kubernetes "
                "names, so that they cannot be emptied: give that cluster's own kubeconfig. If they never joined it, leave kubernetes out."
            )
        return its

    def _empty(self, live: Live, emptier: Emptier, leaving: t.Sequence[Machine]) -> None:
        if leaving:
            self._say(f"{live.name}: emptying {len(leaving)} nodes")
            emptier.empty([machine.name for machine in leaving])

    def _ask(self, send: t.Callable[[], object], leaving: t.Sequence[Machine] = ()) -> None:
        """Send what may be sent twice; when the answer is lost, its effect is looked for all the same.

        When the cloud refuses, the nodes that were emptied for it are to stay.
        """
        try:
            self._patiently(send)
        except ServiceError as error:
            if error.ambiguous:
                return
            if leaving and self._emptier is not None:
                # It is the cloud's refusal that is told; nodes that stay closed are opened by the next run.
                with contextlib.suppress(Exception):
                    self._emptier.reopen([machine.name for machine in leaving])
            raise

    def _patiently(self, send: t.Callable[[], object]) -> None:
        """Send; while the cloud is busy with something else, send again."""
        pause = _FIRST_LOOK
        while True:
            try:
                send()
                return
            except ServiceError as error:
                if not self._cloud.busy(error) or self._left() <= 0:
                    raise
                self._say(f"{self._name}: the cloud is busy ({error.message})")
            self._sleep(min(pause, self._interval))
            pause *= 2

    def _until(self, live: Live, done: t.Callable[[Live], bool], what: str) -> Live:
        def read() -> Live:
            now = self._cloud.get(live)
            if now is None:
                raise GroupFailed(
                    f"Node group {live.name} has vanished meanwhile: somebody else deletes it. Run again."
                )
            return now

        return t.cast("Live", self._wait(read, done, lambda now: self._story(now, what)))

    def _look(self, read: t.Callable[[], Live | None]) -> Live | None:
        """What there is, as soon as the cloud answers."""
        found = self._wait(read, lambda dummy: True, lambda dummy: "")
        return t.cast("Live | None", found)

    def _wait(
        self, read: t.Callable[[], t.Any], done: t.Callable[[t.Any], bool], story: t.Callable[[t.Any], str]
    ) -> t.Any:
        return wait_until(
            read,
            done,
            timeout=self._timeout,
            since=self._end - self._timeout,
            interval=self._interval,
            first=_FIRST_LOOK,
            story=story,
            clock=self._clock,
            sleep=self._sleep,
        )

    def _left(self) -> float:
        return self._end - self._clock()

    def _failure(self, live: Live) -> GroupFailed:
        return GroupFailed(" ".join([f"Node group {live.name} is {live.status}.", *self._reasons(live)]))

    def _story(self, live: Live, what: str) -> str:
        return " ".join(
            [
                f"Node group {live.name} was to {what} and is {live.status} with {live.count} nodes.",
                *self._reasons(live),
            ]
        )

    def _reasons(self, live: Live) -> list[str]:
        try:
            events = self._cloud.events(live)
        except ServiceError:
            events = []
        return [text if text.endswith(".") else f"{text}." for text in (live.reason, *events) if text]
