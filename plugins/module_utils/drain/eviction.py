# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evicts pods of one node and waits until they are gone; reports why pods remain, both during and after the wait.

`drain_timeout` limits waits of unknown length, especially waits for disruption budgets. An evicted pod may use its whole grace period, plus
30 seconds for its node to report the termination, even beyond the timeout, because an eviction cannot be undone and the grace period was set
on purpose. The option `grace_period` can shorten this time.
"""

from __future__ import annotations

import datetime
import re
import time
import typing as t
from dataclasses import dataclass

from ..catalog.names import LIVE_PODS
from ..cluster_state.eviction_rules import OptionNames, join_remedies
from ..cluster_state.node import ready_condition
from ..cluster_state.node_check import NOT_READY
from ..common.wait import WaitTimeout, wait_until
from ..kube.access_review import MissingPermission, Permission
from ..kube.errors import BUDGET_CAUSE, ApiError
from ..kube.paths import NODES, PODS, object_path
from ..schema.messages import abbreviate

if t.TYPE_CHECKING:
    from ..cluster_state.gpu_pods import PodOnNode
    from ..kube.client import Client
    from ..pools.drain_options import DrainOptions

POLL_INTERVAL = 2.0
# The maximum number of nodes, or of pods of a node, in a progress line.
MAX_PROGRESS = 3
# The same interval as in kubectl drain.
RETRY_INTERVAL = 5.0
# The seconds after the grace period within which the kubelet and the API server should have removed a pod.
_TERMINATION_MARGIN = 30.0
_BUDGET = re.compile(r"The disruption budget (\S+) (.+)", re.DOTALL)

Object = t.Mapping[str, t.Any]


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
    """Evict the pods in `to_evict` with evict_pods(), and wait until the pods in `to_await` (eviction_rules.pods_to_await) are no longer listed.

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
    `report` is called with a progress line at each poll. The pods whose eviction was accepted are added to `evicted`, even if an error is raised.
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
    start = time.monotonic()
    while True:
        try:
            eviction.refresh()
            if not eviction.remaining:
                return
            eviction.evict_remaining()
            report(eviction.progress())
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
        self.remaining: dict[str, Object] = {uid: {} for uid in self.pods}
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
            f"{self.pods[uid].full_name} refused for {self._refused_seconds(uid):.0f} s: {reason}"
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

    def _needs_request(self, uid: str, metadata: Object) -> bool:
        if uid in self._requested and time.monotonic() - self._requested[uid] < RETRY_INTERVAL:
            return False
        if not metadata.get("deletionTimestamp"):
            return True
        given = metadata.get("deletionGracePeriodSeconds") or 0
        return self.grace_period is not None and given > self.grace_period

    def _refused_seconds(self, uid: str) -> float:
        now = time.monotonic()
        return now - self._refused_since.setdefault(uid, now)

    def _problem(self, uid: str, metadata: Object, not_ready_advice: str) -> str:
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


def _termination_time(metadata: Object) -> datetime.datetime | None:
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
