# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evicts pods of one node and waits until they are gone; what stands in the way is told while it does, and at the end.

How long: `timeout` seconds are for what nobody knows beforehand, the permission of disruption budgets above all. A pod that has been
evicted may use its grace period to the end, and half a minute more for its node to say so, also where that is later: its
eviction cannot be taken back, and whoever gave it an hour to save its work meant it. A shorter `grace_period` is the way to shorten that.
"""

from __future__ import annotations

import datetime
import re
import time
import typing as t

from ..catalog.names import LIVE_PODS
from ..common.wait import Since, WaitTimeout
from ..kube.errors import BUDGET_CAUSE, ApiError
from ..kube.paths import NODES, PODS, object_path

if t.TYPE_CHECKING:
    from ..kube.client import Client

LOOK_EVERY = 2.0
# As often as kubectl drain asks again.
ASK_AGAIN = 5.0
# What a kubelet and the API server need beside the grace period until a pod is gone.
_BESIDE_GRACE = 30.0
_TOLD = 3
_BUDGET = re.compile(r"The disruption budget (\S+) (.+)", re.DOTALL)

Object = t.Mapping[str, t.Any]


class Target(t.NamedTuple):
    """The very pod that is meant; another one of the same name is somebody else."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class LeaseCheck(t.Protocol):
    """The part of a lease that is asked before each change."""

    def check(self) -> None:
        """Raise unless the lease is ours."""


class EvictionRefused(WaitTimeout):
    """A pod may not be evicted at all: no waiting mends that. All others that could be were evicted."""


def evict(
    client: Client,
    pods: t.Sequence[Target],
    *,
    node: str,
    grace_period: int | None,
    timeout: float,
    lease: LeaseCheck,
    say: t.Callable[[str], None],
    clock: t.Callable[[], float] = time.monotonic,
    sleep: t.Callable[[float], None] = time.sleep,
    now: t.Callable[[], float] = time.time,
) -> None:
    """Evict these pods of a node, and return when each is gone, has ended or was replaced.

    grace_period: seconds for every pod; None leaves each its own. A pod that is being deleted already is evicted again only to shorten
    its grace period. Nothing is sent for a pod that is gone.
    say: gets one line for each look at the node.
    Raises TimeoutStory when the time is over, EvictionRefused (one of those) where waiting is in vain, what lease.check() raises,
    and ApiError when the right to evict is missing or the request is wrong. The failure's `partial` has `pods_left`.
    """
    drain = _Eviction(client, pods, node, grace_period, lease, clock, now)
    start = clock()
    while True:
        try:
            left = drain.look()
            if not left:
                return
            drain.ask(left)
            say(drain.progress(left))
        except ApiError as error:
            if not error.passing:
                raise
            drain.trouble = error
        waited = clock() - start
        if waited >= timeout and not drain.all_use_their_grace():
            raise drain.story(f"Node {node} has not become empty within {waited:.0f} s (drain_timeout).")
        sleep(min(LOOK_EVERY, max(0.1, start + timeout - clock())) if waited < timeout else LOOK_EVERY)


class _Eviction:
    """What is known of the pods that are to go."""

    trouble: ApiError | None

    def __init__(
        self,
        client: Client,
        pods: t.Sequence[Target],
        node: str,
        grace_period: int | None,
        lease: LeaseCheck,
        clock: t.Callable[[], float],
        now: t.Callable[[], float],
    ) -> None:
        self._client, self._node, self._lease, self._clock, self._now = client, node, lease, clock, now
        self._targets = {pod.uid: pod for pod in pods}
        self._grace_period = grace_period
        self._left: dict[str, Object] = {uid: {} for uid in self._targets}
        self._refused: dict[str, str] = {}
        self._asked: dict[str, float] = {}
        self._since = Since(clock)
        self.trouble = None

    def look(self) -> dict[str, Object]:
        """The metadata of those that are still there, by uid."""
        selector = f"spec.nodeName={self._node},{LIVE_PODS}"
        listed = self._client.list(PODS, field_selector=selector, metadata_only=True) if self._targets else ()
        found = {pod["metadata"]["uid"]: pod["metadata"] for pod in listed}
        self._left = {uid: found[uid] for uid in self._targets if uid in found}
        self._refused = {uid: why for uid, why in self._refused.items() if uid in self._left}
        self.trouble = None
        return dict(self._left)

    def ask(self, left: t.Mapping[str, Object]) -> None:
        """Evict whoever is not being deleted as it should; raises EvictionRefused for those that never will be."""
        never: dict[str, str] = {}
        for uid, metadata in left.items():
            asked = self._asked.get(uid)
            if not self._is_to_be_asked(metadata) or (asked is not None and self._clock() - asked < ASK_AGAIN):
                continue
            self._lease.check()
            self._asked[uid] = self._clock()
            try:
                self._evict(self._targets[uid])
                self._refused.pop(uid, None)
            except ApiError as error:
                why, passes = _why_not(error, self._targets[uid])
                if why:
                    self._refused[uid] = why
                if not passes:
                    never[uid] = why
        if never:
            raise self.story(f"Node {self._node} cannot be made empty.", EvictionRefused)

    def progress(self, left: t.Mapping[str, Object]) -> str:
        """One line for whoever waits."""
        lines = [
            f"{self._targets[uid]} waits {self._seconds(uid):.0f} s: {self._refused[uid]}" for uid in self._refused
        ]
        for uid, metadata in left.items():
            grace = metadata.get("deletionGracePeriodSeconds") or 0
            if uid not in self._refused and grace > _BESIDE_GRACE:
                lines.append(f"{self._targets[uid]} has {grace} s to end (grace_period shortens that)")
        gone = len(self._targets) - len(left)
        return "; ".join([f"node {self._node}: {gone}/{len(self._targets)} pods gone", *lines[:_TOLD]])

    def all_use_their_grace(self) -> bool:
        """Whether every pod that is left is being deleted, and its grace period is not over."""
        now = datetime.datetime.fromtimestamp(self._now(), datetime.UTC)
        allowance = datetime.timedelta(seconds=_BESIDE_GRACE)
        return all(
            uid not in self._refused and (until := _deleted_by(metadata)) is not None and now < until + allowance
            for uid, metadata in self._left.items()
        )

    def story(self, title: str, kind: type[WaitTimeout] = WaitTimeout) -> WaitTimeout:
        """Each pod that is left, why, and what to do about it."""
        away = self._kubelet_is_away()
        lines = [f"{self._targets[uid]}: {self._of(uid, metadata, away)}" for uid, metadata in self._left.items()]
        if self.trouble is not None:
            lines.append(f"The API server did not answer at the end: {self.trouble.message}")
        return kind(" ".join([title, *lines]), {"pods_left": [str(self._targets[uid]) for uid in self._left]})

    def _evict(self, pod: Target) -> None:
        options: dict[str, t.Any] = {"preconditions": {"uid": pod.uid}}
        if self._grace_period is not None:
            options["gracePeriodSeconds"] = self._grace_period
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        self._client.evict(f"{object_path('v1', 'Pod', pod.name, pod.namespace)}/eviction", body)

    def _is_to_be_asked(self, metadata: Object) -> bool:
        if not metadata.get("deletionTimestamp"):
            return True
        given = metadata.get("deletionGracePeriodSeconds") or 0
        return self._grace_period is not None and given > self._grace_period

    def _seconds(self, uid: str) -> float:
        return self._since.note(uid, "refused")

    def _of(self, uid: str, metadata: Object, away: str) -> str:
        if uid in self._refused:
            return f"not evicted for {self._seconds(uid):.0f} s: {self._refused[uid]}"
        until = _deleted_by(metadata)
        if until is None:
            return "not evicted yet; run again."
        ended = f"being deleted, with a grace period up to {until:%H:%M:%S} UTC. "
        if metadata.get("finalizers"):
            names = ", ".join(metadata["finalizers"])
            return f"{ended}It is kept by the finalizer {names}: whoever has set that must take it off."
        return ended + (away or "Its containers have not ended: see the kubelet's log, and what they wait for.")

    def _kubelet_is_away(self) -> str:
        """What to do where the node does not report; empty where it does, or the API server does not say."""
        try:
            conditions = ((self._client.get(f"{NODES}/{self._node}") or {}).get("status") or {}).get("conditions") or ()
        except ApiError:
            return ""
        ready = next((entry for entry in conditions if entry.get("type") == "Ready"), None)
        if ready is None or ready.get("status") == "True":
            return ""
        return (
            f"Node {self._node} is not ready since {ready.get('lastTransitionTime')}, so that nobody says when its containers "
            "have ended: bring it back; if it is off for certain, taint it "
            "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, and its pods are taken away."
        )


def _deleted_by(metadata: Object) -> datetime.datetime | None:
    """When the grace period of a pod ends that is being deleted."""
    at = metadata.get("deletionTimestamp")
    return datetime.datetime.fromisoformat(at.replace("Z", "+00:00")) if at else None


def _why_not(error: ApiError, pod: Target) -> tuple[str, bool]:
    """Why a pod was not evicted and what to do, and whether that may pass; no words where the pod is gone. Raises what is no answer."""
    if error.not_found or error.conflict:
        # Gone, or replaced by another one of its name; the next look tells.
        return "", True
    causes = {cause.get("reason"): cause.get("message") or "" for cause in error.details.get("causes") or ()}
    if error.refuses_eviction and error.status == 429:
        return _of_budget(causes.get(BUDGET_CAUSE, ""), pod) or f"{error.message}.", True
    if error.refuses_eviction:
        return (
            "it has more than one PodDisruptionBudget, with which the API server evicts nothing: leave one of those whose selector "
            f"matches it (kubectl get pdb -n {pod.namespace}), or delete the pod.",
            False,
        )
    if error.forbidden and "NamespaceTerminating" in causes:
        return f"namespace {pod.namespace} is being deleted, and the pod with it.", True
    if error.forbidden and error.details.get("kind") == "poddisruptionbudget":
        # Its controller has to catch up with many disruptions.
        return f"{error.message}.", True
    if error.forbidden and 'resource "pods/eviction"' not in error.message:
        return f"{error.message}. Whoever refuses that has to allow it, or delete the pod.", False
    raise error


def _of_budget(message: str, pod: Target) -> str:
    found = _BUDGET.fullmatch(message)
    if not found:
        return ""
    return (
        f"PodDisruptionBudget {pod.namespace}/{found[1]} {found[2].rstrip('.')}: run more pods elsewhere that it counts, or raise its "
        "maxUnavailable until this is over."
    )
