# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates, changes, replaces and deletes node groups. A cloud implements NodeGroupProvider."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import time
import typing as t
from dataclasses import dataclass, field

from ..catalog.names import POOL_LABEL
from ..core.errors import InvalidOptions, PartialFailure, ServiceError
from ..core.messages import abbreviate, as_sentence, diff_of
from ..core.waits import Outcome, Progress, WaitTimeout, is_fatal, run_bounded, wait_until
from ..schema.providers import NODE_LABELS, may_be_replacement
from .spec import (
    CREATE,
    DELETE,
    DELETES,
    NOTHING,
    RECREATE,
    REPLACE,
    GroupChange,
    NodeGroupSpec,
    NodeGroupState,
    plan_group_changes,
    range_problems,
)

if t.TYPE_CHECKING:
    from ..nodes.drain import NodeDrainer
    from ..nodes.node import Node

# Defines the interface between the reconciler and a cloud, which provides the node groups of one cluster.


@dataclass(frozen=True)
class CloudRequest:
    """One request of an update. `took_effect` returns whether a later state shows the effect of the request."""

    description: str
    send: t.Callable[[], object]
    took_effect: t.Callable[[NodeGroupState], bool]


@dataclass(frozen=True)
class ListedGroup:
    """A row of the cloud's list. settled: no operation is in progress, as far as the row shows."""

    id: str
    name: str
    status: str
    settled: bool


class NodeGroupProvider(t.Protocol):
    """The node groups of one cluster. Every method may raise ServiceError."""

    # Fields that no request can change.
    immutable_fields: frozenset[str]
    # Fields that a request changes only for new machines. With `recreate`, a group that has machines is replaced instead.
    machine_fields: frozenset[str]
    # The maximum length of a group's name, in characters.
    max_name_length: int
    # The number of seconds after which an accepted request without a visible effect counts as lost.
    patience: float
    # Whether a group accepts a request while an operation is in progress, so that a stuck operation can be corrected.
    takes_requests_anytime: bool
    # Whether the groups are objects in the cluster, so that every change to a group needs the cluster's Lease.
    in_cluster: bool

    @property
    def can_choose_nodes(self) -> bool:
        """Whether the request for a scale-down can specify the nodes to remove."""

    def read(self, selects: t.Callable[[str], bool]) -> list[NodeGroupState]:
        """All groups whose names `selects` accepts, with all fields."""

    def check(self, specs: t.Sequence[tuple[NodeGroupSpec, NodeGroupState | None]]) -> list[str]:
        """An error message with a remedy for each part of these specs that the cloud cannot provide; the state is None for a new group."""

    def list_groups(self) -> list[ListedGroup]:
        """All groups of the cluster, with as few requests as possible."""

    def get(self, group: str) -> NodeGroupState | None:
        """The group with this id, with all fields; None if it no longer exists."""

    def create(self, spec: NodeGroupSpec, name: str, count: int | None) -> None:
        """Request a group with this name and `count` nodes; None selects the cloud's default.

        The group carries the mark that makes the spec the owner of the group (NodeGroupState.owner and `marked`).
        """

    def requests(self, state: NodeGroupState, spec: NodeGroupSpec, leaving: t.Sequence[Node]) -> list[CloudRequest]:
        """The remaining requests, in an order that the cloud accepts; this method sends nothing. leaving: the nodes that a scale-down removes."""

    def stop_autoscaling(self, state: NodeGroupState) -> None:
        """Prevent autoscalers from adding nodes to a group that will be deleted. This is called before the group's nodes are drained."""

    def delete(self, state: NodeGroupState) -> None:
        """Request the deletion of a group; a group that no longer exists is not an error."""

    def members(self, state: NodeGroupState, nodes: t.Sequence[Node]) -> list[Node]:
        """The group's nodes among the cluster's nodes."""

    def is_busy(self, error: ServiceError) -> bool:
        """Whether the cloud refuses the request only because another operation is in progress."""

    def events(self, state: NodeGroupState) -> list[str]:
        """The cloud's latest events about the group, with the newest last; may be empty."""


# Shares one list of a cluster's node groups between all waits. A group is read in full once the list shows that the group is settled.


class GroupListCache:
    """The cloud's list of groups. If several callers need the list at the same time, one of them sends the request, and all share the result."""

    def __init__(self, provider: NodeGroupProvider) -> None:
        """Store the arguments; no request is sent yet."""
        self.provider = provider
        # The number of the latest list that was requested. A caller compares this number with the number at the time of its own last change.
        self.requested = 0
        self._lock = threading.Lock()
        self._received = 0
        self._rows: list[ListedGroup] = []

    def newer_than(self, number: int) -> tuple[int, list[ListedGroup]]:
        """The number and the content of a list that was requested after the list with the given number."""
        with self._lock:
            if self._received <= number:
                self.requested += 1
                self._rows = self.provider.list_groups()
                self._received = self.requested
            return self._received, self._rows


class GroupView:
    """One group's view of the shared list. It never uses the same list twice, or a list that is older than the group's last change."""

    def __init__(self, cache: GroupListCache) -> None:
        """Accept any list at first."""
        self._cache = cache
        self._last = 0

    def invalidate(self) -> None:
        """Require a list that has not been requested yet, because older lists cannot show the change that was just sent."""
        self._last = self._cache.requested

    def get(self, group: NodeGroupState) -> NodeGroupState | None:
        """The group's current state; None if it is gone. While an operation is in progress, only the status is current."""
        row = next((row for row in self._rows() if row.id == group.id), None)
        if row is None or row.settled:
            # The list may lag behind, so a group only counts as gone if the cloud returns no group for its id.
            return self._cache.provider.get(group.id)
        return dataclasses.replace(group, status=row.status, settled=False, failed=False)

    def find(self, name: str) -> NodeGroupState | None:
        """The group with exactly this name; None if there is none (yet). While an operation is in progress, only the status is known."""
        row = next((row for row in self._rows() if row.name == name), None)
        if row is None:
            return None
        if row.settled:
            return self._cache.provider.get(row.id)
        return NodeGroupState(row.id, row.name, row.status, settled=False, failed=False, count=0)

    def _rows(self) -> list[ListedGroup]:
        self._last, rows = self._cache.newer_than(self._last)
        return rows


# Drains the nodes that a change to a group removes, and uncordons them if the cloud refuses the change.


class GroupFailed(Exception):
    """A change to a group failed, or is impossible."""


class GroupVanished(GroupFailed):
    """The group was deleted during the change."""


class GroupDrain:
    """Chooses and drains nodes. Without a drainer, no nodes are chosen and the cloud decides which nodes it removes."""

    def __init__(self, provider: NodeGroupProvider, drainer: NodeDrainer | None, say: t.Callable[[str], None]) -> None:
        """Store the arguments; no request is sent yet."""
        self._provider, self._drainer, self._say = provider, drainer, say

    @property
    def enabled(self) -> bool:
        """Whether nodes are drained at all."""
        return self._drainer is not None

    def check(self) -> None:
        """Raise an error if the run has lost the lease of the cluster whose nodes are drained."""
        if self._drainer is not None:
            self._drainer.check()

    def drain_surplus(self, group: NodeGroupState, count: int | None) -> list[Node]:
        """Drain the nodes that a scale-down to `count` removes, and return them; empty if the cloud chooses the nodes."""
        if self._drainer is None or not self._provider.can_choose_nodes or count is None or count >= group.count:
            return []
        nodes = {node.name: node for node in self._required_nodes(group)}
        surplus = max(0, group.count - count - group.without_node)
        names = self._drainer.scale_down_candidates(sorted(nodes), min(surplus, len(nodes)))
        return self._drain(group, self._drainer, [nodes[name] for name in names])

    def drain_all(self, group: NodeGroupState) -> list[Node]:
        """Drain all nodes of a group that will be deleted, and return them; empty if the deletion was already requested."""
        if self._drainer is None or group.status.startswith("DELET"):
            return []
        return self._drain(group, self._drainer, self._required_nodes(group))

    def nodes(self, group: NodeGroupState) -> list[Node]:
        """The group's nodes in the cluster; empty if there is no drainer."""
        return self._provider.members(group, self._drainer.cluster_nodes()) if self._drainer is not None else []

    def uncordon(self, group: NodeGroupState, nodes: t.Sequence[Node]) -> None:
        """Uncordon nodes that a killed run may have cordoned in a group that is kept. Does nothing while the group has surplus nodes."""
        if self._drainer is not None and len(nodes) <= group.count:
            self._drainer.uncordon([node.name for node in nodes])

    @contextlib.contextmanager
    def uncordon_if_refused(self, leaving: t.Sequence[Node]) -> t.Iterator[None]:
        """Uncordon the drained nodes if the cloud refuses the request that the body of the `with` statement sends."""
        self.check()
        try:
            yield
        except ServiceError as error:
            if leaving and self._drainer is not None and not error.outcome_unknown:
                # The cloud's refusal is reported; the next run uncordons nodes that are still cordoned.
                with contextlib.suppress(Exception):
                    self._drainer.uncordon([node.name for node in leaving])
            raise

    def _required_nodes(self, group: NodeGroupState) -> list[Node]:
        """The group's nodes; raises GroupFailed if the machines joined a different cluster than the one in `kubernetes`."""
        nodes = self.nodes(group)
        machines = [*group.machines, *group.addresses]
        if machines and not nodes:
            raise GroupFailed(
                f"No machine of node group {group.name} ({abbreviate(machines)}) is a node of the cluster in `kubernetes`, so "
                "it cannot be drained. Use the kubeconfig of the group's cluster, or omit `kubernetes` if the machines never joined it."
            )
        return nodes

    def _drain(self, group: NodeGroupState, drainer: NodeDrainer, leaving: list[Node]) -> list[Node]:
        if leaving:
            self._say(f"{group.name}: draining {len(leaving)} nodes")
            drainer.drain([node.name for node in leaving])
        return leaving


# Reconciles one node group. A request counts as done once its effect is observed; a lost request is sent again.

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
        """Wait until no operation is in progress on a group that already matches its spec, and until groups being deleted are gone.

        Raises GroupFailed if the operation fails.
        """
        state = self._change.current
        if state is not None:
            state = self._settled(state)
            if state.failed:
                raise self._failure(state)
        self._await_deletions()
        return state

    def await_machines(self, offers_gpus: bool) -> None:
        """Wait until the current group has all its machines, and the nodes of those that are not outdated are ready and, if `offers_gpus`, offer GPUs.

        Raises GroupFailed if a machine does not start.
        """
        current = t.cast("NodeGroupState", self._change.current)
        self._view.invalidate()
        state = self._wait_existing(current, lambda now: now.settled, "get new machines")
        if state.failed:
            raise self._failure(state)
        new = {*state.machines} - {*state.outdated}

        def not_ready(nodes: t.Sequence[Node]) -> list[str]:
            ready = {node.name for node in nodes if node.ready and (any(node.allocatable.values()) or not offers_gpus)}
            return sorted(new - ready)

        self._wait(
            lambda: self._drain.nodes(state),
            lambda nodes: not not_ready(nodes),
            lambda nodes: (
                f"Node group {state.name}: these new nodes are not ready{' or offer no GPU' if offers_gpus else ''}: "
                f"{abbreviate(not_ready(nodes))}."
            ),
        )

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


# Validates all node groups, and then reconciles them in parallel.

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
            f"Node group {orphan.name} exists in addition to {change.name}: a replacement was interrupted. Set {RECREATE}, which moves its "
            "pods and deletes it, or delete it yourself."
            for change in self.changes
            for orphan in change.orphans
        ]
        states = [
            (change, self.states.get(change.spec.name)) for change in self.changes if not change.spec.replaces_outdated
        ]
        outdated = [(change, state.outdated if state else change.outdated) for change, state in states]
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
                f"Node group {change.name}: a change only affects new machines, so these keep other settings: {abbreviate(machines)}. "
                f"{_replacement_advice(change.spec)}"
                for change, machines in outdated
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


def _replacement_advice(spec: NodeGroupSpec) -> str:
    """How the outdated machines of a group are replaced, the cheapest way first."""
    recreate = f"et {RECREATE}, which creates as many new machines before it moves the pods, or delete them yourself."
    if not spec.can_replace_machines:
        return f"S{recreate}"
    playbook = "run the playbook nodegroups with -e gpu_nodegroups_replace_outdated=true -e gpu_confirm=CLUSTER"
    if (pool := (spec.fields.get(NODE_LABELS) or {}).get(POOL_LABEL)) and spec.fields.get("template"):
        playbook = f"run the playbook templates_refresh with -e gpu_pool={pool} -e gpu_confirm=CLUSTER; if the pool has no vgpu, {playbook}"
    return f"To replace them some at a time, {playbook}. Or s{recreate}"


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
