# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reconciles one node group. A request counts as done once its effect is observed; a lost request is sent again."""

from __future__ import annotations

import contextlib
import functools
import time
import typing as t
from dataclasses import dataclass

from ..cluster_state.node import Node
from ..common.errors import ServiceError
from ..common.wait import wait_until
from ..drain.drainer import NodeDrainer
from ..schema.messages import as_sentence
from .group_changes import REPLACE, GroupChange
from .group_drain import GroupDrain, GroupFailed, GroupVanished
from .list_cache import GroupListCache, GroupView
from .provider import CloudRequest
from .spec import NodeGroupState

T = t.TypeVar("T")
_FIRST_PAUSE = 0.1


@dataclass(frozen=True)
class ReconcileOptions:
    """The options for the reconciler: whether it waits, the timeout for a group, the interval between two reads, and the number of parallel groups.

    The timeout and the interval are given in seconds.
    """

    wait: bool = True
    timeout: float = 3600.0
    interval: float = 10.0
    parallel: int = 32


class GroupReconciler:
    """Reconciles one group. All waits for the group share one timeout."""

    def __init__(
        self,
        cache: GroupListCache,
        change: GroupChange,
        drainer: NodeDrainer | None,
        options: ReconcileOptions,
        say: t.Callable[[str], None],
        clock: t.Callable[[], float] = time.monotonic,
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:
        """Store the arguments; no request is sent yet. The timeout for the whole change starts now."""
        self._provider, self._change = cache.provider, change
        self._drain = GroupDrain(cache.provider, drainer, say)
        self._view = GroupView(cache)
        self._spec, self._name = change.spec, change.name
        self._options, self._say = options, say
        self._clock, self._sleep = clock, sleep
        self._started = clock()

    def reconcile(self) -> NodeGroupState | None:
        """Apply the change and return the group's final state, or None if the group was deleted.

        Raises GroupFailed, WaitTimeout and ServiceError.
        """
        state = self._reconciled() if self._spec.present else None
        if state is not None and self._change.action == REPLACE:
            self._await_nodes(state)
        for old in self._change.superseded:
            self._delete(old)
        self._await_deletions()
        return state

    def settle(self) -> NodeGroupState | None:
        """Wait until no operation is in progress on a group that already matches its spec, and until groups being deleted are gone."""
        state = self._change.current
        if state is not None:
            state = self._settled(state)
        self._await_deletions()
        return state

    def request(self) -> None:
        """Drain the nodes to be removed, and send only the first request, without waiting for the cloud."""
        current = self._change.current
        if not self._spec.present:
            for old in self._change.superseded:
                self._provider.stop_autoscaling(old)
                with self._drain.uncordon_if_refused(self._drain.drain_all(old)):
                    self._provider.delete(old)
        elif current is None:
            self._find_or_request()
        else:
            leaving = self._drain.drain_surplus(current, self._spec.desired_count(current.count))
            for request in self._provider.requests(current, self._spec, leaving)[:1]:
                with self._drain.uncordon_if_refused(leaving):
                    request.send()

    def _reconciled(self) -> NodeGroupState:
        """Create or update the group. If the group vanishes during the update because its deletion was already accepted, create it again."""
        try:
            return self._update(self._change.current or self._created())
        except GroupVanished:
            return self._update(self._created())

    def _update(self, state: NodeGroupState) -> NodeGroupState:
        """Send one request after another until none remains."""
        anytime = self._provider.takes_requests_anytime and state is self._change.current
        while True:
            if not anytime:
                state = self._settled(state)
            leaving = self._drain.drain_surplus(state, self._spec.desired_count(state.count))
            requests = self._provider.requests(state, self._spec, leaving)
            if not requests and anytime:
                anytime = False
                continue
            if not requests:
                if state.failed:
                    raise self._failure(state)
                return state
            state = self._apply(requests[0], state, leaving)
            anytime = False

    def _apply(self, request: CloudRequest, state: NodeGroupState, leaving: t.Sequence[Node]) -> NodeGroupState:
        self._say(f"{state.name}: {request.description}")
        try:
            self._send(request.send, leaving)
        except ServiceError as error:
            # If the group was deleted, a specific message is reported; any other 404 is reported unchanged.
            if error.not_found:
                self._read(lambda: self._existing(state))
            raise
        sent_at = self._clock()

        def done(now: NodeGroupState) -> bool:
            """Whether the effect is visible and the group is settled, or the request seems to be lost."""
            if not now.settled:
                return False
            late = self._clock() - sent_at > self._provider.patience
            if now.failed and (late or not state.failed):
                raise self._failure(now)
            return request.took_effect(now) or late

        return self._wait_existing(state, done, request.description)

    def _created(self) -> NodeGroupState:
        # The cloud may not show the group for a moment after it has accepted the creation.
        group = self._find_or_request() or self._wait(
            lambda: self._view.find(self._name),
            lambda now: now is not None,
            lambda dummy: f"Node group {self._name} was requested but does not appear.",
        )
        return self._own(t.cast("NodeGroupState", group))

    def _own(self, group: NodeGroupState) -> NodeGroupState:
        """The group, unless another client has created a group of its own with the name of this replacement."""
        if group.name != self._spec.name:
            details = self._read(lambda: self._provider.get(group.id)) if not group.owner else group
            if details is not None and details.owner != self._spec.name:
                raise GroupFailed(
                    f"Node group {group.name} does not carry the mark of a replacement of {self._spec.name}, so it belongs to others and is left alone. "
                    "Run the playbook again to create the replacement under another name."
                )
        return group

    def _find_or_request(self) -> NodeGroupState | None:
        """Return the group if it already exists; otherwise, request it and return None."""
        group = self._find()
        count = self._spec.desired_count(self._change.superseded[0].count if self._change.superseded else None)
        while group is None:
            self._say(f"{self._name}: creating")
            try:
                self._send_when_idle(lambda: self._provider.create(self._spec, self._name, count))
                break
            except ServiceError as error:
                # The group was created by the request whose response was lost, or by another client.
                if error.conflict and (group := self._find()) is not None:
                    break
                if not error.outcome_unknown or self._seconds_left() <= 0:
                    raise
            if self._appears():
                break
        return group

    def _find(self) -> NodeGroupState | None:
        """The group with the desired name. If that group is being deleted, wait until it is gone, because names are unique."""
        group = self._read(lambda: self._view.find(self._name))
        return self._await_deletion(group) if group is not None and group.deleting else group

    def _appears(self) -> bool:
        """Whether a creation request was carried out even though its response was lost. If so, a second request could create a second group."""
        until = self._clock() + self._provider.patience
        while self._clock() < until:
            if self._read(lambda: self._view.find(self._name)) is not None:
                return True
            self._sleep(min(self._options.interval, 1.0))
        return False

    def _delete(self, old: NodeGroupState) -> None:
        """Drain a group's nodes, where possible, and delete the group."""
        state = self._read(lambda: self._view.get(old))
        if state is not None:
            self._drain.check()
            self._provider.stop_autoscaling(state)
        leaving = self._drain.drain_all(state) if state is not None else []
        self._say(f"{old.name}: deleting")
        sent_at: float | None = None
        while state is not None:
            if sent_at is None or self._clock() - sent_at > self._provider.patience:
                self._send(functools.partial(self._provider.delete, state), leaving)
                sent_at = self._clock()

            def done(now: NodeGroupState | None, since: float = sent_at) -> bool:
                if now is None:
                    return True
                late = self._clock() - since > self._provider.patience
                if now.failed and late:
                    raise self._failure(now)
                return late and now.settled

            state = self._wait(
                lambda: self._view.get(old), done, lambda now: self._timeout_message(now or old, "be deleted")
            )

    def _await_deletions(self) -> None:
        for group in self._change.deleting:
            remaining = self._await_deletion(group)
            if remaining is not None:
                raise self._failure(remaining)

    def _await_deletion(self, group: NodeGroupState) -> NodeGroupState | None:
        """Wait until the cloud has deleted the group; returns the group if the deletion failed."""
        return self._wait(
            lambda: self._view.get(group),
            lambda now: now is None or now.settled,
            lambda now: self._timeout_message(now or group, "be deleted"),
        )

    def _await_nodes(self, state: NodeGroupState) -> None:
        """Wait until the new group's nodes are ready for pods, before the old group's nodes are drained."""
        if not self._drain.enabled:
            return

        def ready(nodes: t.Sequence[Node]) -> int:
            return sum(node.ready for node in nodes)

        nodes = self._wait(
            lambda: self._drain.nodes(state),
            lambda nodes: ready(nodes) >= state.count,
            lambda nodes: f"Of {state.count} nodes of {state.name}, {ready(nodes)} are ready in the cluster.",
        )
        self._drain.uncordon(state, nodes)

    def _send(self, send: t.Callable[[], object], leaving: t.Sequence[Node] = ()) -> None:
        """Send a repeatable request. If the response is lost, the caller still waits for the effect of the request."""
        try:
            with self._drain.uncordon_if_refused(leaving):
                self._send_when_idle(send)
        except ServiceError as error:
            if not error.outcome_unknown:
                raise

    def _send_when_idle(self, send: t.Callable[[], object]) -> None:
        """Send the request, and repeat it while the cloud is busy with another operation."""
        pause = _FIRST_PAUSE
        while True:
            self._drain.check()
            try:
                send()
                return
            except ServiceError as error:
                if not self._provider.is_busy(error) or self._seconds_left() <= 0:
                    raise
                self._say(f"{self._name}: the cloud is busy ({error.message})")
            finally:
                self._view.invalidate()
            self._sleep(min(pause, self._options.interval))
            pause *= 2

    def _settled(self, state: NodeGroupState) -> NodeGroupState:
        return state if state.settled else self._wait_existing(state, lambda now: now.settled, "settle")

    def _existing(self, state: NodeGroupState) -> NodeGroupState:
        now = self._view.get(state)
        if now is None:
            raise GroupVanished(
                f"Node group {state.name} was deleted by another client during this run. Run the playbook again."
            )
        return now

    def _wait_existing(
        self, state: NodeGroupState, done: t.Callable[[NodeGroupState], bool], goal: str
    ) -> NodeGroupState:
        return self._wait(lambda: self._existing(state), done, lambda now: self._timeout_message(now, goal))

    def _read(self, read: t.Callable[[], T]) -> T:
        """Read until one read is successful; transient errors are retried."""
        return self._wait(read, lambda dummy: True, lambda dummy: "")

    def _wait(self, read: t.Callable[[], T], done: t.Callable[[T], bool], describe: t.Callable[[T], str]) -> T:
        def read_with_lease() -> T:
            self._drain.check()
            return read()

        return wait_until(
            read_with_lease,
            done,
            timeout=self._options.timeout,
            started=self._started,
            interval=self._options.interval,
            first_interval=_FIRST_PAUSE,
            describe=describe,
            clock=self._clock,
            sleep=self._sleep,
        )

    def _seconds_left(self) -> float:
        return self._started + self._options.timeout - self._clock()

    def _failure(self, state: NodeGroupState) -> GroupFailed:
        return GroupFailed(" ".join([f"Node group {state.name} is {state.status}.", *self._reasons(state)]))

    def _timeout_message(self, state: NodeGroupState, goal: str) -> str:
        status = f"Node group {state.name} is still {state.status} with {state.count} nodes; the run has waited for it to {goal}."
        return " ".join([status, *self._reasons(state)])

    def _reasons(self, state: NodeGroupState) -> list[str]:
        reason, events = state.reason, []
        with contextlib.suppress(ServiceError):
            # The list contains only the status, so the reason must be read from the group.
            reason = (self._provider.get(state.id) or state).reason
            events = self._provider.events(state)
        return [as_sentence(text) for text in (reason, *events) if text]
