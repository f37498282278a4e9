# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""evict_pods on a real API server: disruption budgets, finalizers, grace periods, a lost lease, missing permissions."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import WaitTimeout
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.paths import NODES, object_path
from ansible_collections.accel.gpu.plugins.module_utils.nodes.drain import EvictionRefused, evict_pods
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import PodOnNode
from ansible_collections.accel.gpu.plugins.module_utils.schema.validators import DrainOptions
from tests.faults.api_proxy import Answer, Request
from tests.helpers.kube import Kube
from tests.helpers.polling import until

KWOK_NODE = {"kwok.x-k8s.io/node": "fake"}
OVERLOADED = Answer(
    429, b"Too many requests, please try again later.", {"Retry-After": "1", "Content-Type": "text/plain"}
)


class LosableLease:
    """A lease that is lost at the given check; counts the checks."""

    def __init__(self, lost_at: int = 0) -> None:
        self.checks, self._lost_at = 0, lost_at

    def check(self) -> None:
        self.checks += 1
        if self.checks == self._lost_at:
            raise RuntimeError("lost")


@dataclass
class NodeWithPods:
    """A node of the test with pods on it; kwok plays its kubelet unless the test does that itself."""

    kube: Kube
    node: str
    namespace: str
    progress: list[str] = field(default_factory=list)
    lease: LosableLease = field(default_factory=LosableLease)

    def path(self, name: str) -> str:
        return object_path("v1", "Pod", name, self.namespace)

    def pod(self, name: str, grace: int = 1, **metadata: Any) -> PodOnNode:
        """A pod on the node, with the label `app: NAME` by default."""
        container = {"name": "main", "image": "example.org/main"}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}, **metadata},
            "spec": {"nodeName": self.node, "containers": [container], "terminationGracePeriodSeconds": grace},
        }
        created = self.kube.client.create(self.path("").rstrip("/"), body)
        return PodOnNode(self.namespace, name, created["metadata"]["uid"])

    def budget(self, name: str, app: str, least: int) -> str:
        """A budget with minAvailable `least`, after its controller has counted the pods; returns its path."""
        collection = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"
        spec = {"minAvailable": least, "selector": {"matchLabels": {"app": app}}}
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
        self.kube.client.create(collection, body)
        path = f"{collection}/{name}"
        until(lambda: (self.kube.require(path).get("status") or {}).get("currentHealthy", 0) >= 1, limit=30)
        return path

    def evict(self, *pods: PodOnNode, client: Client | None = None, **options: Any) -> None:
        now = options.pop("now", time.time)
        drain = DrainOptions(**{"drain_timeout": 20, **options})
        evict_pods(client or self.kube.client, self.node, pods, drain, self.lease.check, self.progress.append, now=now)

    def exists(self, pod: PodOnNode) -> bool:
        return self.kube.client.get(self.path(pod.name)) is not None


@contextlib.contextmanager
def meanwhile(condition: Callable[[], bool], action: Callable[[], Any]) -> Iterator[None]:
    """Run an action as soon as a condition is met, while the block runs."""

    def work() -> None:
        until(condition, limit=30)
        action()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def make_node(kube: Kube, annotations: dict[str, str]) -> NodeWithPods:
    metadata = {"name": kube.prefix, "annotations": annotations}
    kube.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    kube.delete_afterwards(f"{NODES}/{kube.prefix}")
    namespace = kube.namespace()
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    until(lambda: kube.client.get(f"{accounts}/default") is not None, limit=30)
    return NodeWithPods(kube, kube.prefix, namespace)


@pytest.fixture
def node(kube: Kube) -> NodeWithPods:
    return make_node(kube, KWOK_NODE)


@pytest.fixture
def node_without_kubelet(kube: Kube) -> NodeWithPods:
    """A node whose kubelet does nothing."""
    return make_node(kube, {})


def test_pods_are_evicted_and_gone_pods_cost_no_request(node: NodeWithPods) -> None:
    meant, stays = [node.pod("a"), node.pod("b")], node.pod("c")
    node.evict(*meant)
    assert [node.exists(pod) for pod in (*meant, stays)] == [False, False, True]
    assert node.lease.checks == 2
    with node.kube.watched() as watched:
        node.evict(*meant, client=node.kube.connect("accel.gpu/test", watched.kubeconfig))
        assert watched.new_requests() == ["GET /api/v1/pods"]
        node.evict(client=node.kube.connect("accel.gpu/test", watched.kubeconfig))
        assert watched.new_requests() == []


def test_a_budget_that_never_allows_eviction_is_reported_from_the_first_poll_on(node: NodeWithPods) -> None:
    free, kept = node.pod("free"), node.pod("kept")
    node.budget("keep", "kept", 1)
    with pytest.raises(WaitTimeout) as caught:
        node.evict(free, kept, drain_timeout=6)
    assert not isinstance(caught.value, EvictionRefused)
    rule = f"PodDisruptionBudget {node.namespace}/keep needs 1 healthy pod and has 1 currently"
    assert f"{kept.full_name}: not evicted for" in str(caught.value)
    assert rule in str(caught.value)
    assert "maxUnavailable" in str(caught.value)
    assert caught.value.partial == {"pods_left": [kept.full_name]}
    assert rule in node.progress[0]
    assert [node.exists(pod) for pod in (free, kept)] == [False, True]


def test_waits_for_a_budget_that_allows_eviction_later(node: NodeWithPods) -> None:
    kept = node.pod("kept")
    budget = node.budget("keep", "kept", 1)
    with meanwhile(
        lambda: len(node.progress) > 0, lambda: node.kube.client.patch(budget, {"spec": {"minAvailable": 0}})
    ):
        node.evict(kept)
    assert "0/1 pods gone" in node.progress[0]
    assert not node.exists(kept)


def test_two_budgets_fail_at_once_and_the_other_pods_are_evicted(node: NodeWithPods) -> None:
    kept, free = node.pod("kept"), node.pod("free")
    for name in ("one", "two"):
        node.budget(name, "kept", 0)
    started = time.monotonic()
    with pytest.raises(EvictionRefused, match=r"more than one PodDisruptionBudget.*kubectl get pdb"):
        node.evict(kept, free, drain_timeout=600)
    assert time.monotonic() - started < 600
    until(lambda: not node.exists(free), limit=30)


def test_a_finalizer_is_named(node: NodeWithPods) -> None:
    held = node.pod("held", finalizers=["example.org/keep"])
    try:
        with pytest.raises(WaitTimeout, match=r"being deleted, with .*finalizer example\.org/keep"):
            node.evict(held, drain_timeout=2, now=lambda: time.time() + 60)
        without = functools.partial(node.kube.client.patch, node.path("held"), {"metadata": {"finalizers": None}})
        node.progress.clear()
        with meanwhile(lambda: len(node.progress) > 0, without):
            node.evict(held)
        assert node.lease.checks == 1
    finally:
        with contextlib.suppress(ApiError):
            node.kube.client.patch(node.path("held"), {"metadata": {"finalizers": None}})


def test_another_pod_of_the_same_name_is_not_evicted(node_without_kubelet: NodeWithPods) -> None:
    # A kubelet that kwok plays deletes by name and late, and thus the wrong pod.
    first = node_without_kubelet.pod("a")
    node_without_kubelet.kube.client.delete(node_without_kubelet.path("a"), body={"gracePeriodSeconds": 0})
    second = node_without_kubelet.pod("a")
    node_without_kubelet.evict(first)
    assert node_without_kubelet.lease.checks == 0

    # Replaced between the poll and the request.
    third: list[PodOnNode] = []

    def before(request: Request) -> Answer | None:
        if request.path.endswith("/eviction") and not third:
            node_without_kubelet.kube.client.delete(node_without_kubelet.path("a"), body={"gracePeriodSeconds": 0})
            third.append(node_without_kubelet.pod("a"))
        return None

    with node_without_kubelet.kube.watched() as watched:
        watched.proxy.before = before
        node_without_kubelet.evict(
            second, client=node_without_kubelet.kube.connect("accel.gpu/test", watched.kubeconfig)
        )
    assert node_without_kubelet.kube.require(node_without_kubelet.path("a"))["metadata"]["uid"] == third[0].uid
    assert "deletionTimestamp" not in node_without_kubelet.kube.require(node_without_kubelet.path("a"))["metadata"]


def test_a_429_of_an_overloaded_server_is_no_budget(node: NodeWithPods) -> None:
    pod = node.pod("a")
    answers = iter([OVERLOADED, OVERLOADED])
    with node.kube.watched() as watched:
        watched.proxy.before = lambda request: next(answers, None) if request.path.endswith("/eviction") else None
        node.evict(pod, client=node.kube.connect("accel.gpu/test", watched.kubeconfig))
    assert not node.exists(pod)
    # The client has waited: one eviction for the drain, and no progress line about it.
    assert node.lease.checks == 1
    assert not [line for line in node.progress if "many requests" in line]


def test_a_pod_may_use_its_whole_grace_period(node_without_kubelet: NodeWithPods) -> None:
    slow = node_without_kubelet.pod("slow", grace=120)
    end = functools.partial(
        node_without_kubelet.kube.client.delete, node_without_kubelet.path("slow"), body={"gracePeriodSeconds": 0}
    )
    with meanwhile(lambda: len(node_without_kubelet.progress) > 1, end):
        node_without_kubelet.evict(slow, drain_timeout=1)
    assert "a grace period of 120 s (grace_period shortens it)" in node_without_kubelet.progress[-1]


def test_a_shorter_grace_period_applies_to_terminating_pods(node_without_kubelet: NodeWithPods) -> None:
    slow = node_without_kubelet.pod("slow", grace=3600)
    node_without_kubelet.kube.client.delete(node_without_kubelet.path("slow"))
    with pytest.raises(WaitTimeout):
        node_without_kubelet.evict(slow, drain_timeout=1, grace_period=7, now=lambda: time.time() + 60)
    assert (
        node_without_kubelet.kube.require(node_without_kubelet.path("slow"))["metadata"]["deletionGracePeriodSeconds"]
        == 7
    )
    assert node_without_kubelet.lease.checks == 1
    node_without_kubelet.kube.client.delete(node_without_kubelet.path("slow"), body={"gracePeriodSeconds": 0})


def test_a_node_that_is_not_ready_is_reported(node_without_kubelet: NodeWithPods) -> None:
    conditions = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    node_without_kubelet.kube.client.patch(
        f"{NODES}/{node_without_kubelet.node}/status", {"status": {"conditions": conditions}}
    )
    pod = node_without_kubelet.pod("a")
    with pytest.raises(WaitTimeout, match=r"not ready since 2026-01-01T00:00:00Z.*out-of-service"):
        node_without_kubelet.evict(pod, drain_timeout=1, now=lambda: time.time() + 60)
    node_without_kubelet.kube.client.delete(node_without_kubelet.path("a"), body={"gracePeriodSeconds": 0})


def test_a_lost_lease_stops_the_next_eviction(node: NodeWithPods) -> None:
    pods = [node.pod("a"), node.pod("b")]
    node.lease = LosableLease(lost_at=2)
    with pytest.raises(RuntimeError, match="lost"):
        node.evict(*pods)
    assert node.exists(pods[1])


def test_a_missing_right_is_an_error(node: NodeWithPods) -> None:
    pod = node.pod("a")
    user = node.kube.limited_user([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}])
    with pytest.raises(ApiError, match="pods/eviction"):
        node.evict(pod, client=node.kube.connect("accel.gpu/test", user))
    assert node.exists(pod)
