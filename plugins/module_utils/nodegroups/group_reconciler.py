# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One group on its way to what is wished: each request is believed when its effect is seen, and sent again when it was lost."""

from __future__ import annotations

import contextlib
import functools
import time
import typing as t

from ..common.errors import ServiceError
from ..common.wait import wait_until
from .group_drain import GroupDrain, GroupFailed, GroupVanished
from .list_cache import CachedGroups, GroupListCache
from .plan import RECREATE, GroupChange
from .provider import CloudRequest, ClusterNode, Drainer
from .spec import NodeGroupState

_FIRST_LOOK = 0.1


class GroupReconciler:
    """Brings one group there; every wait of it ends with the group's own time limit."""

    def __init__(
        self,
        looks: GroupListCache,
        change: GroupChange,
        emptier: Drainer | None,
        *,
        timeout: float,
        interval: float,
        say: t.Callable[[str], None],
        clock: t.Callable[[], float] = time.monotonic,
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:
        """Send nothing yet. timeout: seconds for all of it; interval: the longest time between two looks, in seconds."""
        self._cloud, self._change = looks.cloud, change
        self._going = GroupDrain(looks.cloud, emptier, say)
        self._view = CachedGroups(looks)
        self._wish, self._name = change.wish, change.name
        self._timeout, self._interval, self._say = timeout, interval, say
        self._clock, self._sleep = clock, sleep
        self._end = clock() + timeout

    def go(self) -> NodeGroupState | None:
        """Do it, and hand back the group as it is then; None when there is none any more.

        Raises GroupFailed, TimeoutStory and ServiceError.
        """
        live = None
        if self._wish.present:
            live = self._brought()
        if live is not None and self._change.action == RECREATE:
            self._open_nodes(live)
        for old in self._change.leftovers:
            self._remove(old)
        self._see_go()
        return live

    def settle(self) -> NodeGroupState | None:
        """Wait until nothing is under way in a group that is as declared, and those that go are gone."""
        live = self._change.live
        if live is not None:
            live = self._settled(live)
        self._see_go()
        return live

    def request(self) -> None:
        """Empty what is to go, send what is to be sent first, and do not wait for the cloud: what comes after it is for the next run."""
        live = self._change.live
        if not self._wish.present:
            for old in self._change.leftovers:
                with self._going.stay_if_refused(self._going.all_of(old)):
                    self._cloud.delete(old)
        elif live is None:
            self._begun()
        else:
            leaving = self._going.chosen(live, self._wish.count_of(live.count))
            for step in self._cloud.steps(live, self._wish, leaving)[:1]:
                with self._going.stay_if_refused(leaving):
                    step.send()

    def _found(self) -> NodeGroupState | None:
        """The group that somebody has made meanwhile; of one name there is no other before the one that goes is gone."""
        found = self._look(lambda: self._view.find(self._name))
        return self._gone(found) if found is not None and found.going else found

    def _see_go(self) -> None:
        for live in self._change.going:
            left = self._gone(live)
            if left is not None:
                raise self._failure(left)

    def _gone(self, live: NodeGroupState) -> NodeGroupState | None:
        """Wait for the end of a group that the cloud deletes; the group, where the cloud has not done it."""
        left = self._wait(
            lambda: self._view.get(live),
            lambda now: now is None or now.settled,
            lambda now: self._story(now or live, "be deleted"),
        )
        return t.cast("NodeGroupState | None", left)

    def _settled(self, live: NodeGroupState) -> NodeGroupState:
        return live if live.settled else self._until(live, lambda now: now.settled, "settle")

    def _made(self) -> NodeGroupState:
        # The row may come late: there is no group for a moment after its creation was accepted.
        there = self._begun() or self._wait(
            lambda: self._view.find(self._name),
            lambda now: now is not None,
            lambda dummy: f"Node group {self._name} was asked for and does not appear.",
        )
        return t.cast("NodeGroupState", there)

    def _begun(self) -> NodeGroupState | None:
        """The group that there is meanwhile; None where there was none, and one has been asked for."""
        found = self._found()
        count = self._wish.count_of(self._change.leftovers[0].count if self._change.leftovers else None)
        while found is None:
            self._say(f"{self._name}: creating")
            try:
                self._patiently(lambda: self._cloud.create(self._wish, self._name, count))
                break
            except ServiceError as error:
                # Asked for by the request whose answer was lost, or by somebody else meanwhile.
                if error.conflict and (found := self._found()) is not None:
                    break
                if not error.outcome_unknown or self._left() <= 0:
                    raise
            if self._appears():
                break
        return found

    def _appears(self) -> bool:
        """Whether a creation that was not answered has been carried out; a second one might make a second group."""
        until = self._clock() + self._cloud.patience
        while self._clock() < until:
            if self._look(lambda: self._view.find(self._name)) is not None:
                return True
            self._sleep(min(self._interval, 1.0))
        return False

    def _brought(self) -> NodeGroupState:
        """The group as it is wished; one that vanishes on the way, since its deletion was accepted and not shown yet, is made anew."""
        try:
            return self._bring(self._change.live or self._made())
        except GroupVanished:
            return self._bring(self._made())

    def _bring(self, live: NodeGroupState) -> NodeGroupState:
        """Send what remains, one request after the other, until nothing does."""
        while True:
            live = self._settled(live)
            leaving = self._going.chosen(live, self._wish.count_of(live.count))
            steps = self._cloud.steps(live, self._wish, leaving)
            if not steps:
                if live.failed:
                    raise self._failure(live)
                return live
            live = self._taken(steps[0], live, leaving)

    def _taken(self, step: CloudRequest, live: NodeGroupState, leaving: t.Sequence[ClusterNode]) -> NodeGroupState:
        self._say(f"{live.name}: {step.what}")
        try:
            self._ask(step.send, leaving)
        except ServiceError as error:
            # A group that is not there any more is told as such, and any other 404 as it is.
            if error.not_found:
                self._look(lambda: self._there(live))
            raise
        return self._seen(live, step.seen, step.what)

    def _seen(self, before: NodeGroupState, seen: t.Callable[[NodeGroupState], bool], what: str) -> NodeGroupState:
        """Wait for the effect and a settled status; hand back what there is when the request seems to be lost."""
        asked = self._clock()

        def over(now: NodeGroupState) -> bool:
            if not now.settled:
                return False
            late = self._clock() - asked > self._cloud.patience
            if now.failed and (late or not before.failed):
                raise self._failure(now)
            return seen(now) or late

        return self._until(before, over, what)

    def _remove(self, old: NodeGroupState) -> None:
        """Empty a group's nodes, where somebody can, and delete it."""
        live = self._look(lambda: self._view.get(old))
        leaving = self._going.all_of(live) if live is not None else []
        self._say(f"{old.name}: deleting")
        asked: float | None = None
        while live is not None:
            if asked is None or self._clock() - asked > self._cloud.patience:
                gone = live
                self._ask(functools.partial(self._cloud.delete, gone), leaving)
                asked = self._clock()

            def over(now: NodeGroupState | None, since: float = asked) -> bool:
                if now is None:
                    return True
                late = self._clock() - since > self._cloud.patience
                if now.failed and late:
                    raise self._failure(now)
                return late and now.settled

            live = self._wait(lambda: self._view.get(old), over, lambda now: self._story(now or old, "be deleted"))

    def _open_nodes(self, live: NodeGroupState) -> None:
        """Where pods are to move to: the group's nodes are ready in the cluster, and take pods, before those of others are emptied."""
        if not self._going.empties:
            return

        def ready(its: t.Sequence[ClusterNode]) -> int:
            return sum(machine.ready for machine in its)

        there = self._wait(
            lambda: self._going.nodes(live),
            lambda its: ready(its) >= live.count,
            lambda its: f"Of {live.count} nodes of {live.name}, {ready(its)} are ready in the cluster.",
        )
        self._going.stay(live, there)

    def _ask(self, send: t.Callable[[], object], leaving: t.Sequence[ClusterNode] = ()) -> None:
        """Send what may be sent twice; when the answer is lost, its effect is looked for all the same."""
        try:
            with self._going.stay_if_refused(leaving):
                self._patiently(send)
        except ServiceError as error:
            if not error.outcome_unknown:
                raise

    def _patiently(self, send: t.Callable[[], object]) -> None:
        """Send; while the cloud is busy with something else, send again."""
        pause = _FIRST_LOOK
        while True:
            self._going.check()
            try:
                send()
                return
            except ServiceError as error:
                if not self._cloud.busy(error) or self._left() <= 0:
                    raise
                self._say(f"{self._name}: the cloud is busy ({error.message})")
            finally:
                self._view.asked()
            self._sleep(min(pause, self._interval))
            pause *= 2

    def _until(self, live: NodeGroupState, done: t.Callable[[NodeGroupState], bool], what: str) -> NodeGroupState:
        return t.cast("NodeGroupState", self._wait(lambda: self._there(live), done, lambda now: self._story(now, what)))

    def _there(self, live: NodeGroupState) -> NodeGroupState:
        now = self._view.get(live)
        if now is None:
            raise GroupVanished(f"Node group {live.name} has vanished meanwhile: somebody else deletes it. Run again.")
        return now

    def _look(self, read: t.Callable[[], NodeGroupState | None]) -> NodeGroupState | None:
        """What there is, as soon as the cloud answers."""
        return t.cast("NodeGroupState | None", self._wait(read, lambda dummy: True, lambda dummy: ""))

    def _wait(
        self, read: t.Callable[[], t.Any], done: t.Callable[[t.Any], bool], story: t.Callable[[t.Any], str]
    ) -> t.Any:
        return wait_until(
            self._going.checked(read),
            done,
            timeout=self._timeout,
            started=self._end - self._timeout,
            interval=self._interval,
            first_interval=_FIRST_LOOK,
            describe=story,
            clock=self._clock,
            sleep=self._sleep,
        )

    def _left(self) -> float:
        return self._end - self._clock()

    def _failure(self, live: NodeGroupState) -> GroupFailed:
        return GroupFailed(" ".join([f"Node group {live.name} is {live.status}.", *self._reasons(live)]))

    def _story(self, live: NodeGroupState, what: str) -> str:
        return " ".join(
            [
                f"Node group {live.name} was to {what} and is {live.status} with {live.count} nodes.",
                *self._reasons(live),
            ]
        )

    def _reasons(self, live: NodeGroupState) -> list[str]:
        reason, events = live.reason, []
        with contextlib.suppress(ServiceError):
            # A list tells the status alone.
            reason = (self._cloud.get(live.id) or live).reason
            events = self._cloud.events(live)
        return [text if text.endswith(".") else f"{text}." for text in (reason, *events) if text]
