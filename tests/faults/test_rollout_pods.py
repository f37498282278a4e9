# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rolling updates with pods that block the drain, end late, or start meanwhile: no pod is lost, and blocking pods are named."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.rolling import ALL_AT_ONCE, CORDONED, HALVES, MPS, NONE, POOL, TARGET, Rolling
from tests.helpers.workloads import GPU, NAMESPACE, WAYS

pytestmark = [
    pytest.mark.sampled(1, group="faults of a rolling update"),
    pytest.mark.usual(60),
    pytest.mark.timeout(600),
]


def share(rolling: Rolling, sharing: dict[str, Any], **rollout: Any) -> dict[str, Any]:
    return rolling.share(sharing, rollout={**ALL_AT_ONCE, **rollout})


def start_gpu_pods(rolling: Rolling) -> dict[str, str]:
    """Start a pod with a GPU on each node; returns the pods by node. The app is named after the node."""
    for node in rolling.nodes():
        rolling.users.deployment(node, node, resource=GPU)
    pods = rolling.users.wait_running(len(rolling.nodes()))
    return {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in pods}


def when(condition: Callable[[], bool], act: Callable[[], Any]) -> threading.Thread:
    """Act as soon as a condition is met, during the change."""

    def wait() -> None:
        end = time.monotonic() + 60
        while not condition():
            if time.monotonic() > end:
                return
            time.sleep(0.1)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def cordoned(rolling: Rolling) -> bool:
    """Whether the node is cordoned by the run."""
    node = rolling.cluster.nodes().get(TARGET, {"metadata": {}})
    return CORDONED in (node["metadata"].get("annotations") or {})


def require_others_changed(rolling: Rolling, result: dict[str, Any]) -> None:
    """The failed node is not counted as changed."""
    changed = [name for name in rolling.nodes() if name != TARGET]
    assert result["gpu_sharing"]["changed_nodes"] == changed
    assert result["gpu_sharing"]["change_counts"] == {"plugin": len(changed)}
    assert result["gpu_sharing"]["pools"][POOL]["changed"] == len(changed)


def test_a_budget_that_never_allows_eviction(rolling: Rolling) -> None:
    pods = start_gpu_pods(rolling)
    rolling.users.budget("strict", TARGET, minAvailable=1)
    with rolling.users.watched() as watch:
        result = share(rolling, MPS, drain_timeout=6)
    assert result["failed"] is True
    assert list(result["gpu_sharing"]["failed"]) == [TARGET]
    for word in (TARGET, f"{NAMESPACE}/{pods[TARGET]}", "strict", "drain_timeout"):
        assert word in result["msg"], result["msg"]
    require_others_changed(rolling, result)
    rolling.require_offered({GPU: 4}, but=TARGET)
    assert watch.names() == {f"{NAMESPACE}/{pod}" for node, pod in pods.items() if node != TARGET}
    # The node was not changed, and its pod still runs.
    assert rolling.cluster.offered(TARGET) == {TARGET: {GPU: 1}}
    rolling.require_clean()


def test_a_budget_that_allows_eviction_later(rolling: Rolling) -> None:
    pods = start_gpu_pods(rolling)
    rolling.users.budget("strict", TARGET, minAvailable=1)

    since = rolling.cluster.mark()

    def refused() -> bool:
        """Whether the budget has refused more than one eviction."""
        requests = rolling.cluster.requests(since, "gpu_sharing", status=429)
        return sum("/eviction" in request for request in requests) > 1

    with rolling.users.watched() as watch:
        later = when(refused, lambda: rolling.users.no_budget("strict"))
        result = share(rolling, MPS)
        later.join()
    assert not result.get("failed"), result["msg"]
    rolling.require_offered({GPU: 4})
    assert watch.names() == {f"{NAMESPACE}/{pod}" for pod in pods.values()}
    assert watch.not_evicted() == []
    rolling.require_clean()


def test_a_pod_without_a_controller_is_evicted_only_by_force(rolling: Rolling) -> None:
    rolling.users.unmanaged_pod("experiment", TARGET, resource=GPU)
    rolling.users.wait_running(1)
    with rolling.users.watched() as watch:
        result = share(rolling, MPS, drain_timeout=10)
    assert list(result["gpu_sharing"]["failed"]) == [TARGET]
    for word in (f"{NAMESPACE}/experiment", "force"):
        assert word in result["msg"], result["msg"]
    assert watch.names() == set()
    require_others_changed(rolling, result)
    rolling.require_offered({GPU: 4}, but=TARGET)
    rolling.require_clean()
    with rolling.users.watched() as watch:
        done = share(rolling, MPS, force=True)
    assert not done.get("failed"), done["msg"]
    assert watch.names() == {f"{NAMESPACE}/experiment"}


def test_drain_none_waits_until_the_pods_end(rolling: Rolling) -> None:
    rolling.users.unmanaged_pod("brief", TARGET, resource=GPU, seconds="8", restartPolicy="Never")
    rolling.users.wait_running(1)
    with rolling.users.watched() as watch:
        result = share(rolling, MPS, drain="none")
    assert not result.get("failed"), result["msg"]
    assert watch.names() == set()
    [pod] = rolling.users.pods()
    assert pod["status"]["phase"] == "Succeeded"
    rolling.require_offered({GPU: 4})
    rolling.require_clean()


def test_drain_all_evicts_all_pods_except_daemonsets(rolling: Rolling) -> None:
    rolling.users.deployment("web", TARGET)
    rolling.users.daemonset("logs", TARGET)
    rolling.users.deployment("notebook", TARGET, way=WAYS["runtime-class"])
    rolling.users.wait_running(3)
    with rolling.users.watched() as watch:
        result = share(rolling, MPS, drain="all")
    assert not result.get("failed"), result["msg"]
    assert {name.partition("/")[2].partition("-")[0] for name in watch.names()} == {"web", "notebook"}
    assert watch.not_evicted() == []


def test_a_node_that_is_deleted(rolling: Rolling) -> None:
    start_gpu_pods(rolling)
    rolling.users.budget("strict", TARGET, minAvailable=1)
    later = when(lambda: cordoned(rolling), lambda: rolling.cluster.kubectl("delete", "node", TARGET))
    started = time.monotonic()
    result = share(rolling, MPS, drain_timeout=600)
    later.join()
    assert time.monotonic() - started < 600
    assert TARGET in f"{result.get('msg')} {result.get('warnings')} {result['gpu_sharing']['failed']}"
    rolling.require_offered({GPU: 4}, but=TARGET)
    rolling.require_clean()


def test_a_node_that_joins_the_pool(rolling: Rolling) -> None:
    start_gpu_pods(rolling)
    rolling.users.budget("strict", TARGET, minAvailable=1)

    def join() -> None:
        rolling.scale(4)
        # The budget blocks until the new node offers its GPU, while the others are changed.
        rolling.cluster.until(lambda: rolling.cluster.offered("a100-4") == {"a100-4": {GPU: 1}})
        rolling.users.no_budget("strict")

    later = when(lambda: cordoned(rolling), join)
    result = share(rolling, MPS)
    later.join()
    assert not result.get("failed"), result["msg"]
    rolling.require_clean()
    rolling.require_offered({GPU: 4}, but=TARGET)
    again = share(rolling, MPS)
    assert not again.get("failed"), again["msg"]
    assert rolling.cluster.offered("a100-") == {f"a100-{number}": {GPU: 4} for number in range(1, 5)}
    assert rolling.share(NONE, check=True)["gpu_sharing"]["change_counts"] == {"plugin": 4}


def test_another_client_changes_the_label(rolling: Rolling) -> None:
    """Once, during the change of the node: it ends as declared, or the failure names the node and the label."""
    label = "nvidia.com/mig.config"

    def cut() -> bool:
        labels: dict[str, str] = rolling.cluster.nodes()[TARGET]["metadata"]["labels"]
        return labels.get(label) != "all-disabled"

    later = when(cut, lambda: rolling.cluster.kubectl("label", "--overwrite", "node", TARGET, f"{label}=all-1g.10gb"))
    result = rolling.share(HALVES, rollout=ALL_AT_ONCE, wait_timeout=25)
    later.join()
    rolling.require_offered({GPU: 2}, but=TARGET)
    if result.get("failed"):
        assert list(result["gpu_sharing"]["failed"]) == [TARGET]
        for word in (TARGET, label, "all-1g.10gb"):
            assert word in result["msg"], result["msg"]
    else:
        assert rolling.cluster.offered(TARGET) == {TARGET: {GPU: 2}}
    unschedulable = bool(rolling.cluster.nodes()[TARGET]["spec"].get("unschedulable"))
    assert (result["gpu_sharing"]["left_cordoned"] == [TARGET]) is unschedulable
