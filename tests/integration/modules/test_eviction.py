# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evictions by a real API server, with real disruption budgets: allowed, refused, allowed late, and pods that do not go."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.common.wait import WaitTimeout
from ansible_collections.accel.gpu.plugins.module_utils.drain.eviction import EvictionRefused, Target, evict
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.paths import NODES, object_path
from tests.faults.api_proxy import Answer, Request
from tests.helpers.kube import Kube
from tests.helpers.waiting import until

PLAYED = {"kwok.x-k8s.io/node": "fake"}
OVERLOADED = Answer(
    429, b"Too many requests, please try again later.", {"Retry-After": "1", "Content-Type": "text/plain"}
)


class Lease:
    """A lease that is lost at the given check; counts the checks."""

    def __init__(self, lost_at: int = 0) -> None:
        self.checks, self._lost_at = 0, lost_at

    def check(self) -> None:
        self.checks += 1
        if self.checks == self._lost_at:
            raise RuntimeError("lost")


@dataclass
class Ward:
    """A node of the test's own with pods on it; a kubelet is played for it by kwok unless the test does that itself."""

    kube: Kube
    node: str
    namespace: str
    said: list[str] = field(default_factory=list)
    lease: Lease = field(default_factory=Lease)

    def path(self, name: str) -> str:
        return object_path("v1", "Pod", name, self.namespace)

    def pod(self, name: str, grace: int = 1, **metadata: Any) -> Target:
        """A pod on the node; its labels say `app: NAME` unless they say something else."""
        container = {"name": "main", "image": "example.org/main"}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}, **metadata},
            "spec": {"nodeName": self.node, "containers": [container], "terminationGracePeriodSeconds": grace},
        }
        created = self.kube.client.create(self.path("").rstrip("/"), body)
        return Target(self.namespace, name, created["metadata"]["uid"])

    def budget(self, name: str, app: str, least: int) -> str:
        """A budget that wants so many ready pods; there is none before its controller has counted. Returns its path."""
        collection = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"
        spec = {"minAvailable": least, "selector": {"matchLabels": {"app": app}}}
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
        self.kube.client.create(collection, body)
        path = f"{collection}/{name}"
        until(lambda: (self.kube.require(path).get("status") or {}).get("currentHealthy", 0) >= 1, limit=30)
        return path

    def evict(self, *pods: Target, client: Client | None = None, **options: Any) -> None:
        values: dict[str, Any] = {"node": self.node, "grace_period": None, "timeout": 20, "lease": self.lease}
        evict(client or self.kube.client, pods, **{**values, "say": self.said.append, **options})

    def there(self, pod: Target) -> bool:
        return self.kube.client.get(self.path(pod.name)) is not None


@contextlib.contextmanager
def meanwhile(met: Callable[[], bool], then: Callable[[], Any]) -> Iterator[None]:
    """Somebody else, who does a thing as soon as a condition is met, while the block runs."""

    def work() -> None:
        until(met, limit=30)
        then()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def a_ward(kube: Kube, annotations: dict[str, str]) -> Ward:
    metadata = {"name": kube.prefix, "annotations": annotations}
    kube.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    kube.delete_afterwards(f"{NODES}/{kube.prefix}")
    namespace = kube.namespace()
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    until(lambda: kube.client.get(f"{accounts}/default") is not None, limit=30)
    return Ward(kube, kube.prefix, namespace)


@pytest.fixture
def ward(kube: Kube) -> Ward:
    return a_ward(kube, PLAYED)


@pytest.fixture
def silent(kube: Kube) -> Ward:
    """A node whose kubelet says nothing."""
    return a_ward(kube, {})


def test_pods_go_and_those_that_are_gone_cost_no_request(ward: Ward) -> None:
    meant, stays = [ward.pod("a"), ward.pod("b")], ward.pod("c")
    ward.evict(*meant)
    assert [ward.there(pod) for pod in (*meant, stays)] == [False, False, True]
    assert ward.lease.checks == 2
    with ward.kube.watched() as watched:
        ward.evict(*meant, client=ward.kube.connect("accel.gpu/test", watched.kubeconfig))
        assert watched.asked() == ["GET /api/v1/pods"]
        ward.evict(client=ward.kube.connect("accel.gpu/test", watched.kubeconfig))
        assert watched.asked() == []


def test_a_budget_that_never_allows_it_is_told_from_the_first_look_on(ward: Ward) -> None:
    free, kept = ward.pod("free"), ward.pod("kept")
    ward.budget("keep", "kept", 1)
    with pytest.raises(WaitTimeout) as caught:
        ward.evict(free, kept, timeout=6)
    assert not isinstance(caught.value, EvictionRefused)
    rule = f"PodDisruptionBudget {ward.namespace}/keep needs 1 healthy pods and has 1 currently"
    assert f"{kept}: not evicted for" in str(caught.value)
    assert rule in str(caught.value)
    assert "maxUnavailable" in str(caught.value)
    assert caught.value.partial == {"pods_left": [str(kept)]}
    assert rule in ward.said[0]
    assert [ward.there(pod) for pod in (free, kept)] == [False, True]


def test_a_budget_that_allows_it_late_is_waited_for(ward: Ward) -> None:
    kept = ward.pod("kept")
    budget = ward.budget("keep", "kept", 1)
    with meanwhile(lambda: len(ward.said) > 1, lambda: ward.kube.client.patch(budget, {"spec": {"minAvailable": 0}})):
        ward.evict(kept)
    assert "0/1 pods gone" in ward.said[0]
    assert not ward.there(kept)


def test_two_budgets_are_refused_at_once_and_the_others_go(ward: Ward) -> None:
    kept, free = ward.pod("kept"), ward.pod("free")
    for name in ("one", "two"):
        ward.budget(name, "kept", 0)
    started = time.monotonic()
    with pytest.raises(EvictionRefused, match=r"more than one PodDisruptionBudget.*kubectl get pdb"):
        ward.evict(kept, free, timeout=600)
    assert time.monotonic() - started < 30
    until(lambda: not ward.there(free), limit=30)


def test_a_finalizer_is_named(ward: Ward) -> None:
    held = ward.pod("held", finalizers=["example.org/keep"])
    try:
        with pytest.raises(WaitTimeout, match=r"being deleted, with .*finalizer example\.org/keep"):
            ward.evict(held, timeout=2, now=lambda: time.time() + 60)
        without = functools.partial(ward.kube.client.patch, ward.path("held"), {"metadata": {"finalizers": None}})
        ward.said.clear()
        with meanwhile(lambda: len(ward.said) > 0, without):
            ward.evict(held)
        assert ward.lease.checks == 1
    finally:
        with contextlib.suppress(ApiError):
            ward.kube.client.patch(ward.path("held"), {"metadata": {"finalizers": None}})


def test_another_pod_of_the_same_name_stays(silent: Ward) -> None:
    # Whoever plays a kubelet here deletes by name, late, and so the wrong one.
    first = silent.pod("a")
    silent.kube.client.delete(silent.path("a"), body={"gracePeriodSeconds": 0})
    second = silent.pod("a")
    silent.evict(first)
    assert silent.lease.checks == 0

    # It is replaced between our look and our request.
    third: list[Target] = []

    def before(request: Request) -> Answer | None:
        if request.path.endswith("/eviction") and not third:
            silent.kube.client.delete(silent.path("a"), body={"gracePeriodSeconds": 0})
            third.append(silent.pod("a"))
        return None

    with silent.kube.watched() as watched:
        watched.proxy.before = before
        silent.evict(second, client=silent.kube.connect("accel.gpu/test", watched.kubeconfig))
    assert silent.kube.require(silent.path("a"))["metadata"]["uid"] == third[0].uid
    assert "deletionTimestamp" not in silent.kube.require(silent.path("a"))["metadata"]


def test_a_servers_own_429_is_no_budgets(ward: Ward) -> None:
    pod = ward.pod("a")
    answers = iter([OVERLOADED, OVERLOADED])
    with ward.kube.watched() as watched:
        watched.proxy.before = lambda request: next(answers, None) if request.path.endswith("/eviction") else None
        ward.evict(pod, client=ward.kube.connect("accel.gpu/test", watched.kubeconfig))
    assert not ward.there(pod)
    # It was waited out by the client: one eviction, as the drain sees it, and nothing to tell of it.
    assert ward.lease.checks == 1
    assert not [line for line in ward.said if "many requests" in line]


def test_a_pod_may_use_its_grace_period_to_the_end(silent: Ward) -> None:
    slow = silent.pod("slow", grace=120)
    end = functools.partial(silent.kube.client.delete, silent.path("slow"), body={"gracePeriodSeconds": 0})
    with meanwhile(lambda: len(silent.said) > 3, end):
        silent.evict(slow, timeout=1)
    assert "120 s to end (grace_period shortens that)" in silent.said[-1]


def test_a_shorter_grace_period_also_is_for_those_that_end_already(silent: Ward) -> None:
    slow = silent.pod("slow", grace=3600)
    silent.kube.client.delete(silent.path("slow"))
    with pytest.raises(WaitTimeout):
        silent.evict(slow, timeout=1, grace_period=7, now=lambda: time.time() + 60)
    assert silent.kube.require(silent.path("slow"))["metadata"]["deletionGracePeriodSeconds"] == 7
    assert silent.lease.checks == 1
    silent.kube.client.delete(silent.path("slow"), body={"gracePeriodSeconds": 0})


def test_a_node_that_does_not_report_is_told(silent: Ward) -> None:
    conditions = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    silent.kube.client.patch(f"{NODES}/{silent.node}/status", {"status": {"conditions": conditions}})
    pod = silent.pod("a")
    with pytest.raises(WaitTimeout, match=r"not ready since 2026-01-01T00:00:00Z.*out-of-service"):
        silent.evict(pod, timeout=1, now=lambda: time.time() + 60)
    silent.kube.client.delete(silent.path("a"), body={"gracePeriodSeconds": 0})


def test_a_lost_lease_ends_it_before_the_next_eviction(ward: Ward) -> None:
    pods = [ward.pod("a"), ward.pod("b")]
    ward.lease = Lease(lost_at=2)
    with pytest.raises(RuntimeError, match="lost"):
        ward.evict(*pods)
    assert ward.there(pods[1])


def test_a_missing_right_ends_it(ward: Ward) -> None:
    pod = ward.pod("a")
    user = ward.kube.limited_user([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}])
    with pytest.raises(ApiError, match="pods/eviction"):
        ward.evict(pod, client=ward.kube.connect("accel.gpu/test", user))
    assert ward.there(pod)
