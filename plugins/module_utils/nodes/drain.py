# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drains nodes: evictions under the rules of the pool, budgets, removal of nodes."""

from __future__ import annotations

import contextlib
import datetime
import functools
import re
import threading
import time
import typing as t
from dataclasses import dataclass, field, replace

from ..catalog.names import CLIENT_LABEL, LIVE_PODS, PAUSED_FOR_MIG
from ..core.messages import abbreviate
from ..core.values import Document
from ..core.waits import DEFAULT_LIMIT, WaitTimeout, run_bounded, wait_until
from ..kube.errors import BUDGET_CAUSE, ApiError
from ..kube.objects import MissingPermission, Permission
from ..kube.paths import NODES, PODS, object_path
from .impact import (
    ROLLOUT_OPTIONS,
    Keep,
    OptionNames,
    blocking_pods,
    eviction_of,
    join_remedies,
    option_names,
    pods_to_await,
    pods_to_evict,
)
from .node import Node, parse_node, ready_condition
from .node_check import NOT_READY, Patch, cancel_removal, cordon_for_removal, is_cordoned_for_removal
from .node_metadata import patch_node
from .ownership import NodeEdit
from .pods import claims_of, parse_pods, pods_on

if t.TYPE_CHECKING:
    from ..core.waits import Progress
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..schema.validators import DrainOptions
    from .pods import PodOnNode

# Interface for additional work on drained nodes before their machines are removed.


class NodeRemoval:
    """Does nothing; modules may pass a subclass that does additional work."""

    def prepare(self, nodes: t.Sequence[Node]) -> None:
        """Called with nodes that were drained, before their machines are removed."""

    def cancel(self, nodes: t.Sequence[Node]) -> None:
        """Called with drained nodes that stay in the cluster, before they are uncordoned."""


# Evicts pods of one node and waits until they are gone; reports why pods remain, both during and after the wait.
#
# `drain_timeout` limits waits of unknown length, especially waits for disruption budgets. An evicted pod may use its whole grace period, plus
# 30 seconds for its node to report the termination, even beyond the timeout, because an eviction cannot be undone and the grace period was set
# on purpose. The option `grace_period` can shorten this time.

POLL_INTERVAL = 2.0
# The maximum number of nodes, or of pods of a node, in a progress line.
MAX_PROGRESS = 3
# The same interval as in kubectl drain.
RETRY_INTERVAL = 5.0
# The seconds after the grace period within which the kubelet and the API server should have removed a pod.
_TERMINATION_MARGIN = 30.0
# The seconds of a refusal after which a progress line shows its duration, and then in whole minutes; an unchanged line is reported again after the last one.
_SHOWN_SECONDS = (10, 20, 40, 60)
_BUDGET = re.compile(r"The disruption budget (\S+) (.+)", re.DOTALL)


class EvictionRefused(WaitTimeout):
    """Raised if a pod cannot be evicted and waiting does not help. All other pods were evicted if possible."""


def require_permission_to_evict(client: Client, pods_by_node: t.Mapping[str, t.Sequence[PodOnNode]]) -> None:
    """Raise MissingPermission if this user may not evict these pods; a single request is sent if the user may evict pods in all namespaces."""
    eviction = Permission("create", "pods/eviction")
    if eviction.is_granted(client):
        return
    for namespace in sorted({pod.namespace for pods in pods_by_node.values() for pod in pods}):
        if not eviction.is_granted(client, namespace):
            nodes = sorted(
                node for node, pods in pods_by_node.items() if any(pod.namespace == namespace for pod in pods)
            )
            raise MissingPermission(eviction, namespace, f"which the drain of {abbreviate(nodes)} needs")


def evict_and_await(
    client: Client,
    node: str,
    to_evict: t.Sequence[PodOnNode],
    to_await: t.Mapping[str, str],
    options: DrainOptions,
    names: OptionNames,
    check_lease: t.Callable[[], None],
    report: t.Callable[[str], None],
    *,
    list_pods: t.Callable[[], t.Iterable[PodOnNode]],
    evicted: list[str] | None = None,
) -> None:
    """Evict the pods in `to_evict` with evict_pods(), and wait until the pods in `to_await` (impact.pods_to_await) are no longer listed.

    `drain_timeout` limits the total time of both. Raises the errors of evict_pods() and await_termination().
    """
    deadline = time.monotonic() + options.drain_timeout
    if to_evict:
        evict_pods(client, node, to_evict, options, check_lease, report, evicted=evicted)
    if to_await:
        report(f"waiting until {len(to_await)} pod(s) terminate")
        seconds_left, remedy = max(0.0, deadline - time.monotonic()), join_remedies(to_await.values(), names)
        await_termination(list_pods, to_await, seconds_left, check_lease, remedy, option=names["drain_timeout"])


def evict_pods(
    client: Client,
    node: str,
    pods: t.Iterable[PodOnNode],
    options: DrainOptions,
    check_lease: t.Callable[[], None],
    report: t.Callable[[str], None],
    *,
    evicted: list[str] | None = None,
    now: t.Callable[[], float] = time.time,
) -> None:
    """Evict these pods of a node, and return once each pod is gone, has terminated or has been replaced.

    A pod that is being deleted is evicted again only to shorten its grace period; no request is sent for a pod that is gone.
    `report` is called with a progress line when it changes, and then once a minute.
    The pods whose eviction was accepted are added to `evicted`, even if an error is raised.
    Raises WaitTimeout after `drain_timeout`, EvictionRefused if waiting cannot help, the errors of check_lease(), and ApiError if
    the permission to evict is missing or the request is invalid. The `partial` result of the first two errors contains `pods_left`.
    """
    eviction = _Eviction(client, node, {pod.uid: pod for pod in pods}, options.grace_period, check_lease, now)
    try:
        _evict_all(eviction, options.drain_timeout, report)
    finally:
        if evicted is not None:
            evicted += [pod.full_name for uid, pod in eviction.pods.items() if uid in eviction.accepted]


def _evict_all(eviction: _Eviction, drain_timeout: float, report: t.Callable[[str], None]) -> None:
    start = reported_at = time.monotonic()
    reported = ""
    while True:
        try:
            eviction.refresh()
            if not eviction.remaining:
                return
            eviction.evict_remaining()
            line, now = eviction.progress(), time.monotonic()
            if line != reported or now - reported_at >= _SHOWN_SECONDS[-1]:
                report(line)
                reported, reported_at = line, now
        except ApiError as error:
            if not error.transient:
                raise
            eviction.last_error = error
        seconds_left = start + drain_timeout - time.monotonic()
        if seconds_left <= 0 and not eviction.all_terminating():
            raise eviction.failure(
                f"Node {eviction.node} was not drained within {drain_timeout - seconds_left:.0f} s (drain_timeout)."
            )
        time.sleep(min(POLL_INTERVAL, max(0.1, seconds_left)) if seconds_left > 0 else POLL_INTERVAL)


def await_termination(
    list_pods: t.Callable[[], t.Iterable[PodOnNode]],
    uids: t.Collection[str],
    timeout: float,
    check_lease: t.Callable[[], None],
    advice: str,
    *,
    option: str = "",
) -> None:
    """Wait until none of these pods (by uid) is listed any longer; raises WaitTimeout, whose message ends with `advice`.

    `option` is the option with the timeout; empty for a fixed timeout.
    """

    def remaining() -> list[str]:
        check_lease()
        return [pod.full_name for pod in list_pods() if pod.uid in uids]

    wait_until(
        remaining,
        lambda names: not names,
        timeout=timeout,
        describe=lambda names: f"{abbreviate(names)} {'has' if len(names) == 1 else 'have'} not terminated. {advice}",
        option=option,
    )


@dataclass(eq=False)
class _Eviction:
    """The pods to evict from one node, and the state of each."""

    client: Client
    node: str
    # By uid.
    pods: dict[str, PodOnNode]
    grace_period: int | None
    check_lease: t.Callable[[], None]
    now: t.Callable[[], float]

    def __post_init__(self) -> None:
        # By uid: the metadata of each remaining pod, the reason why its eviction was refused, the time of the first
        # refusal, and the time of the last request.
        self.remaining: dict[str, Document] = {uid: {} for uid in self.pods}
        self._refused: dict[str, str] = {}
        self._refused_since: dict[str, float] = {}
        self._requested: dict[str, float] = {}
        # The uids of the pods whose eviction was accepted. If a response was lost, the pod counts as accepted until a later response is a refusal.
        self.accepted: set[str] = set()
        self.last_error: ApiError | None = None

    def refresh(self) -> None:
        """Read the remaining pods."""
        selector = f"spec.nodeName={self.node},{LIVE_PODS}"
        listed = self.client.list(PODS, field_selector=selector, metadata_only=True) if self.pods else ()
        by_uid = {pod["metadata"]["uid"]: pod["metadata"] for pod in listed}
        self.remaining = {uid: by_uid[uid] for uid in self.pods if uid in by_uid}
        self._refused = {uid: reason for uid, reason in self._refused.items() if uid in self.remaining}
        self.last_error = None

    def evict_remaining(self) -> None:
        """Send a request for each pod that is not terminating as required; raises EvictionRefused if a pod cannot be evicted."""
        permanent = False
        for uid, metadata in self.remaining.items():
            if not self._needs_request(uid, metadata):
                continue
            self.check_lease()
            self._requested[uid] = time.monotonic()
            try:
                self._evict(self.pods[uid])
                self._refused.pop(uid, None)
                self.accepted.add(uid)
            except ApiError as error:
                if error.outcome_unknown:
                    self.accepted.add(uid)
                reason, can_pass = _refusal(error, self.pods[uid])
                if reason:
                    self._refused[uid] = reason
                    self.accepted.discard(uid)
                permanent = permanent or not can_pass
        if permanent:
            raise self.failure(f"Node {self.node} cannot be drained.", EvictionRefused)

    def progress(self) -> str:
        """One line of progress."""
        lines = [
            f"{self.pods[uid].full_name} refused{_shown_duration(self._refused_seconds(uid))}: {reason}"
            for uid, reason in self._refused.items()
        ]
        for uid, metadata in self.remaining.items():
            grace = metadata.get("deletionGracePeriodSeconds") or 0
            if uid not in self._refused and grace > _TERMINATION_MARGIN:
                lines.append(f"{self.pods[uid].full_name} has a grace period of {grace} s (grace_period shortens it)")
        gone = len(self.pods) - len(self.remaining)
        shown = f"; {abbreviate(lines, MAX_PROGRESS, '; ')}" if lines else ""
        return f"node {self.node}: {gone}/{len(self.pods)} pods gone{shown}"

    def all_terminating(self) -> bool:
        """Whether every remaining pod is being deleted within its grace period."""
        now = datetime.datetime.fromtimestamp(self.now(), datetime.UTC)
        margin = datetime.timedelta(seconds=_TERMINATION_MARGIN)
        return all(
            uid not in self._refused and (end := _termination_time(metadata)) is not None and now < end + margin
            for uid, metadata in self.remaining.items()
        )

    def failure(self, title: str, kind: type[WaitTimeout] = WaitTimeout) -> WaitTimeout:
        """The exception about the remaining pods, with the reason and the remedy for each."""
        advice = self._not_ready_advice()
        lines = [
            f"{self.pods[uid].full_name}: {self._problem(uid, data, advice)}" for uid, data in self.remaining.items()
        ]
        if self.last_error is not None:
            lines.append(f"The API server did not respond at the end: {self.last_error.message}")
        return kind(" ".join([title, *lines]), {"pods_left": [self.pods[uid].full_name for uid in self.remaining]})

    def _evict(self, pod: PodOnNode) -> None:
        options: dict[str, t.Any] = {"preconditions": {"uid": pod.uid}}
        if self.grace_period is not None:
            options["gracePeriodSeconds"] = self.grace_period
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        self.client.evict(f"{object_path('v1', 'Pod', pod.name, pod.namespace)}/eviction", body)

    def _needs_request(self, uid: str, metadata: Document) -> bool:
        if uid in self._requested and time.monotonic() - self._requested[uid] < RETRY_INTERVAL:
            return False
        if not metadata.get("deletionTimestamp"):
            return True
        given = metadata.get("deletionGracePeriodSeconds") or 0
        return self.grace_period is not None and given > self.grace_period

    def _refused_seconds(self, uid: str) -> float:
        now = time.monotonic()
        return now - self._refused_since.setdefault(uid, now)

    def _problem(self, uid: str, metadata: Document, not_ready_advice: str) -> str:
        if uid in self._refused:
            return f"not evicted for {self._refused_seconds(uid):.0f} s: {self._refused[uid]}"
        end = _termination_time(metadata)
        if end is None:
            return "not evicted yet; run the playbook again."
        deleted = f"being deleted, with a grace period up to {end:%H:%M:%S} UTC."
        if metadata.get("finalizers"):
            return f"{deleted} It remains until a controller removes its finalizer {', '.join(metadata['finalizers'])}."
        return f"{deleted} {not_ready_advice or 'Its containers have not exited: check the kubelet log, and what the containers are waiting for.'}"

    def _not_ready_advice(self) -> str:
        """The advice for a node that is not ready; empty if it is ready, or if the API server does not respond."""
        try:
            ready = ready_condition(self.client.get(f"{NODES}/{self.node}") or {})
        except ApiError:
            return ""
        if ready.get("status", "True") == "True":
            return ""
        return (
            f"Node {self.node} {NOT_READY} since {ready.get('lastTransitionTime')}, so the termination of its containers is not reported. "
            "Repair the node; if it is definitely powered off, taint it with node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, "
            "and its pods are removed."
        )


def _shown_duration(seconds: float) -> str:
    """A duration for a progress line, which changes less and less often, so that the line does not fill the log."""
    minutes = int(seconds // 60)
    shown = 60 * minutes if minutes else max((each for each in _SHOWN_SECONDS if each <= seconds), default=0)
    return f" for {shown} s" if shown else ""


def _termination_time(metadata: Document) -> datetime.datetime | None:
    """The end of a pod's grace period; None if the pod is not being deleted."""
    timestamp = metadata.get("deletionTimestamp")
    return datetime.datetime.fromisoformat(timestamp) if timestamp else None


def _refusal(error: ApiError, pod: PodOnNode) -> tuple[str, bool]:
    """The reason why a pod was not evicted, with the remedy, and whether waiting may help. The reason is empty if the pod is gone. Re-raises other errors."""
    if error.not_found or error.conflict:
        # The pod is gone, or replaced by another pod with the same name.
        return "", True
    causes = {cause.get("reason"): cause.get("message") or "" for cause in error.details.get("causes") or ()}
    if error.refuses_eviction and error.status == 429:
        return _budget_refusal(causes.get(BUDGET_CAUSE, ""), pod) or f"{error.message}.", True
    if error.refuses_eviction:
        return (
            "more than one PodDisruptionBudget selects it, so the API server does not evict it: keep only one of them "
            f"(kubectl get pdb -n {pod.namespace}), or delete the pod.",
            False,
        )
    if error.forbidden and "NamespaceTerminating" in causes:
        return f"namespace {pod.namespace} is being deleted, and the pod with it.", True
    if error.forbidden and error.details.get("kind") == "poddisruptionbudget":
        # The budget's controller has not caught up after many disruptions.
        return f"{error.message}.", True
    if error.forbidden and 'resource "pods/eviction"' not in error.message:
        return (
            f"{error.message}. Allow the eviction in the policy or webhook that rejects it, or delete the pod.",
            False,
        )
    raise error


def _budget_refusal(message: str, pod: PodOnNode) -> str:
    match = _BUDGET.fullmatch(message)
    if not match:
        return ""
    state = match[2].rstrip(".").replace("needs 1 healthy pods", "needs 1 healthy pod")
    return (
        f"PodDisruptionBudget {pod.namespace}/{match[1]} {state}: run more of its pods on other nodes, or, for the duration of the drain, "
        "lower its minAvailable or raise its maxUnavailable, whichever it sets."
    )


# Drains the GPUs of a cordoned node: evicts the pods that use them, or waits until they terminate, and stops DaemonSets that are GPU clients.

# The MIG manager waits equally long for the pods of these DaemonSets (mig-parted v0.15 pkg/mig/reconfigure).
_CLIENTS_TIMEOUT = 300.0


class PodsToDrain(t.Protocol):
    """The pods of one node that are affected by a drain of its GPUs; none of them blocks the drain."""

    @property
    def displaced(self) -> tuple[PodOnNode, ...]:
        """The pods that cannot keep their GPUs."""

    @property
    def pods_to_evict(self) -> tuple[PodOnNode, ...]:
        """The pods that are evicted."""

    @property
    def pods_to_pause(self) -> tuple[PodOnNode, ...]:
        """The DaemonSet pods that terminate when the node's label nvidia.com/gpu.deploy.client is changed."""


def drain_gpu_pods(
    client: Client,
    node: str,
    pods: PodsToDrain,
    options: DrainOptions,
    check_lease: t.Callable[[], None],
    report: t.Callable[[str], None],
    *,
    list_pods: t.Callable[[], t.Iterable[PodOnNode]],
    pause_clients: t.Callable[[], bool],
    evicted: list[str] | None = None,
) -> None:
    """Evict, await or pause the pods, and return once none of them uses the GPUs; raises the errors of evict_pods() and await_termination().

    `list_pods` lists the pods that use the node's GPUs; `pause_clients` changes the label of the node, and returns whether the node exists.
    The pods whose eviction was accepted are added to `evicted`.
    """
    evict_and_await(
        client,
        node,
        pods.pods_to_evict,
        pods_to_await(pods.displaced, options),
        options,
        ROLLOUT_OPTIONS,
        check_lease,
        report,
        list_pods=list_pods,
        evicted=evicted,
    )
    if pods.pods_to_pause and pause_clients():
        await_termination(
            list_pods,
            {pod.uid for pod in pods.pods_to_pause},
            _CLIENTS_TIMEOUT,
            check_lease,
            f"The node's label {CLIENT_LABEL} is {PAUSED_FOR_MIG}, which should terminate them: check their DaemonSet.",
        )


# Selects the nodes that a scale-down removes first (pure).


def candidates_for_scale_down(
    nodes: t.Iterable[Node], pods_by_node: t.Mapping[str, t.Sequence[PodOnNode]], count: int, options: DrainOptions
) -> list[Node]:
    """Select up to `count` nodes whose removal has the smallest impact, the best candidate first. `pods_by_node` contains all pods (pods.parse_pods).

    Nodes with a pod that may not be evicted come last. The other nodes are preferred in this order: nodes that an earlier run has begun to drain, nodes
    without GPU pods, nodes whose GPU pods have a lower maximum priority, nodes with fewer GPU pods, nodes with fewer pods, and newer nodes.
    """

    # If evictions are disabled, no pod blocks a drain. Even then, nodes without pods that would otherwise block it are preferred.
    evicting = replace(options, evict=True)

    def impact(node: Node) -> tuple[t.Any, ...]:
        pods = [pod for pod in pods_by_node.get(node.name, ()) if not isinstance(eviction_of(pod, evicting), Keep)]
        gpu_pods = [pod for pod in pods if pod.access]
        return (
            bool(blocking_pods(pods, evicting)),
            not is_cordoned_for_removal(node),
            bool(gpu_pods),
            max((pod.priority for pod in gpu_pods), default=0),
            len(gpu_pods),
            len(pods),
        )

    youngest_first = sorted(nodes, key=lambda node: (node.created, node.name), reverse=True)
    return sorted(youngest_first, key=impact)[: max(0, count)]


# Drains nodes before their machines are removed from the cluster, and uncordons them if the drain fails.
#
# All nodes are cordoned before the first pod is evicted, so no pod moves from one of these nodes to another. An annotation on each node
# (cordon_edit() in node_check.py) records the cordon, so that after a killed run, the next run drains or uncordons the same nodes.

T = t.TypeVar("T")
# The number of nodes that are drained at the same time; disruption budgets limit the evictions.
PARALLEL = 4

# Messages mention both the pool's variable and the module's option.
_OPTION_NAMES = option_names(
    "rollout.{key} of the pool, or drain.{option} of the module",
    "rollout.drain: gpu-pods of the pool, or drain.evict: true of the module",
)


class SharedLease:
    """A Lease that several users share: the first user acquires it, and the last one releases it."""

    def __init__(self, make: t.Callable[[], Lease]) -> None:
        """Store `make`, which returns a Lease that has not been entered; nothing is acquired yet."""
        self._make = make
        self._lock = threading.Lock()
        self._users = 0
        self._lease: Lease | None = None

    def check(self) -> None:
        """Raise LeaseLost if the Lease was acquired and then lost."""
        lease = self._lease
        if lease is not None:
            lease.check()

    @contextlib.contextmanager
    def held(self) -> t.Iterator[Lease]:
        """Hold the Lease inside the block; raises LeaseHeld if another run holds it, and LeaseLost at the end of the last block if it was lost."""
        with self._lock:
            if self._lease is None:
                lease = self._make()
                lease.__enter__()
                self._lease = lease
            lease = self._lease
            self._users += 1
        try:
            yield lease
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._lease = None
                    lease.__exit__(None, None, None)


@dataclass(eq=False)
class NodeDrainer:
    """Drains nodes of one cluster; safe for use by several threads. `report` takes a node's name and a line of progress."""

    client: Client
    options: DrainOptions
    lease: SharedLease
    report: t.Callable[[str, str], None]
    parallel: int = PARALLEL
    removal: NodeRemoval = field(default_factory=NodeRemoval)
    _held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, init=False)

    def __enter__(self) -> NodeDrainer:
        """Hold the cluster's Lease until the end of the block."""
        self._held.enter_context(self.lease.held())
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Release the Lease."""
        self._held.close()

    def check(self) -> None:
        """Raise LeaseLost if the Lease was lost."""
        self.lease.check()

    def cluster_nodes(self) -> list[Node]:
        """Return all nodes of the cluster."""
        return [parse_node(item) for item in self.client.list(NODES)]

    def scale_down_candidates(self, names: t.Collection[str], count: int) -> list[str]:
        """Return the `count` nodes among these whose removal has the smallest impact (impact.impact)."""
        nodes = [node for node in self.cluster_nodes() if node.name in names]
        pods = pods_on(self.client)
        by_node = parse_pods(pods, claims_of(self.client, pods))
        return [node.name for node in candidates_for_scale_down(nodes, by_node, count, self.options)]

    def drain(self, names: t.Collection[str]) -> list[str]:
        """Cordon the nodes and evict all pods that would be lost with them; returns the evicted pods.

        Nothing is changed while a blocking pod is on one of the nodes. If one of the nodes cannot be drained, all nodes are uncordoned again.
        Unknown names are ignored. Raises WaitTimeout (or EvictionRefused if waiting cannot help) with `pods_left`.
        """
        if not names:
            return []
        with self.lease.held() as lease:
            nodes = {node.name: node for node in self.cluster_nodes() if node.name in names}
            by_node = parse_pods(pods_on(self.client))
            self._require_no_blocking_pods({name: by_node.get(name, ()) for name in nodes})
            try:
                self._patch_all(nodes, cordon_for_removal, lease)
                evicted = _for_each(nodes, lambda name: self._drain_and_report(name, lease), self.parallel)
                self.removal.prepare(list(nodes.values()))
            except Exception as error:
                self._uncordon_after(error, nodes, lease)
                raise
        return sorted(pod for pods in evicted for pod in pods)

    def uncordon(self, names: t.Collection[str]) -> list[str]:
        """Remove the cordons that drain() has set, and return the names of the affected nodes. Foreign cordons remain."""
        nodes = {node.name: node for node in self.cluster_nodes() if node.name in names}
        cordoned = {name: node for name, node in nodes.items() if is_cordoned_for_removal(node)}
        if cordoned:
            with self.lease.held() as lease:
                # If a run is killed here, the cordons remain, and the next run finds the nodes by these cordons.
                self.removal.cancel(list(cordoned.values()))
                self._patch_all(cordoned, cancel_removal, lease)
        return sorted(cordoned)

    def _patch_all(self, nodes: dict[str, Node], make_patch: t.Callable[[Node], Patch | None], lease: Lease) -> None:
        """Patch the nodes in parallel, and store their new versions in `nodes`."""

        def make_edit(node: Node) -> NodeEdit | None:
            nodes[node.name] = node
            patch = make_patch(node)
            return NodeEdit(node.name, patch) if patch is not None else None

        def send(name: str) -> None:
            edit = make_edit(nodes[name])
            if edit is not None:
                result = patch_node(self.client, edit, lambda raw: make_edit(parse_node(raw)), lease.check, answer=True)
                if result.node is not None:
                    nodes[name] = parse_node(result.node)

        _for_each(nodes, send)

    def _uncordon_after(self, error: Exception, nodes: dict[str, Node], lease: Lease) -> None:
        """Uncordon the nodes after a failure; nodes that cannot be uncordoned are added to the error's partial result."""
        try:
            self._patch_all(nodes, cancel_removal, lease)
        except Exception:
            partial = getattr(error, "partial", None)
            if partial is not None:
                partial["left_cordoned"] = sorted(name for name, node in nodes.items() if is_cordoned_for_removal(node))

    def _require_no_blocking_pods(self, by_node: t.Mapping[str, t.Sequence[PodOnNode]]) -> None:
        blocking = {name: pods for name in by_node if (pods := blocking_pods(by_node[name], self.options))}
        if blocking:
            all_blocking = [pod for pods in blocking.values() for pod in pods]
            remedy = join_remedies((pod.remedy for pod in all_blocking), _OPTION_NAMES)
            listed = [f"node {name}: {abbreviate(list(map(str, pods)))}" for name, pods in sorted(blocking.items())]
            raise EvictionRefused(
                f"Pods block the drain: {abbreviate(listed, separator='; ')}. {remedy}",
                {"pods_left": [pod.name for pod in all_blocking]},
            )

    def _drain_and_report(self, name: str, lease: Lease) -> list[str]:
        try:
            return self._drain_node(name, lease)
        finally:
            self.report(name, "")

    def _drain_node(self, name: str, lease: Lease) -> list[str]:
        """Evict the node's pods or wait for them, including those that were scheduled to it before the cordon; returns the evicted pods."""
        report = functools.partial(self.report, name)
        deadline = time.monotonic() + self.options.drain_timeout
        evicted: list[str] = []
        while pods := self._pods_to_drain(name):
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0:
                shown = [pod.full_name for pod in pods]
                raise WaitTimeout(
                    f"Node {name} was not drained within {self.options.drain_timeout:.0f} s ({_OPTION_NAMES['drain_timeout']}): pods are "
                    f"scheduled to it even though it is cordoned, currently {abbreviate(shown)}. Remove their toleration for "
                    "node.kubernetes.io/unschedulable, or scale down their controller.",
                    {"pods_left": shown},
                )
            to_evict = pods_to_evict(pods, self.options)
            evict_and_await(
                self.client,
                name,
                to_evict,
                pods_to_await(pods, self.options),
                replace(self.options, drain_timeout=seconds_left),
                _OPTION_NAMES,
                lease.check,
                report,
                list_pods=functools.partial(self._pods_to_drain, name),
            )
            evicted += [pod.full_name for pod in to_evict]
        return evicted

    def _pods_to_drain(self, name: str) -> list[PodOnNode]:
        """The node's pods that the drain evicts or awaits; raises EvictionRefused if a pod blocks the drain."""
        pods = parse_pods(pods_on(self.client, name)).get(name, ())
        self._require_no_blocking_pods({name: pods})
        return [pod for pod in pods if not isinstance(eviction_of(pod, self.options), Keep)]


def _for_each(names: t.Iterable[str], work: t.Callable[[str], T], limit: int = DEFAULT_LIMIT) -> list[T]:
    """Call `work` for each node in parallel; if there are errors, one exception is raised for all of them."""
    outcomes = run_bounded([(name, functools.partial(work, name)) for name in sorted(names)], limit)
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if errors:
        raise _merge_errors(errors)
    return [t.cast("T", outcome.value) for outcome in outcomes]


def _merge_errors(errors: t.Sequence[Exception]) -> Exception:
    """The error to raise for these errors: the first one that is not a timeout, or else all timeouts joined into one."""
    timeouts = [error for error in errors if isinstance(error, WaitTimeout)]
    if len(timeouts) < len(errors):
        return next(error for error in errors if not isinstance(error, WaitTimeout))
    kind = EvictionRefused if all(isinstance(error, EvictionRefused) for error in timeouts) else WaitTimeout
    pods_left = [pod for error in timeouts for pod in error.partial.get("pods_left", ())]
    return kind(" ".join(map(str, timeouts)), {"pods_left": pods_left})


def progress_by_node(progress: Progress) -> t.Callable[[str, str], None]:
    """Return a function that reports the progress of one node; the progress line shows the nodes reported most recently. An empty text means that the
    work on the node has ended.
    """
    texts: dict[str, str] = {}
    lock = threading.Lock()

    def report(name: str, text: str) -> None:
        with lock:
            texts.pop(name, None)
            if text:
                texts[name] = text
            latest = list(texts.items())[-MAX_PROGRESS:]
        if latest:
            progress.report("; ".join(f"{node}: {shown}" for node, shown in latest))

    return report
