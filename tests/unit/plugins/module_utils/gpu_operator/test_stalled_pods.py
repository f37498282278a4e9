# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wait for the operator if nothing changes for a minute: the progress names pods that are not ready, and the wait ends without broken nodes."""

from __future__ import annotations

from typing import Any, cast
from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import PartialFailure
from ansible_collections.accel.gpu.plugins.module_utils.core.waits import (
    StateTimer,
    WaitOptions,
    WaitTimeout,
    wait_until,
)
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.cluster_policy_client import ClusterPolicyClient
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.readiness import OperatorReadiness, StalledPods
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from tests.helpers.fleet import pool
from tests.helpers.readiness import EFFECT, Object, Scenario, node, status

Lists = list[Object]
DRIVER, PLUGIN = "nvidia-driver-daemonset", "nvidia-device-plugin-daemonset"


class Clock:
    """Time passes only in waits."""

    def __init__(self) -> None:
        self.now = 1000.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Cluster:
    """Three nodes of a pool; on the last `count` of them, the driver has crashed, and now waits because of `reason` or runs again."""

    def __init__(
        self, restarts: int = 2, reason: str = "CrashLoopBackOff", *, count: int = 1, may_list_pods: bool = True
    ) -> None:
        self.scenario = Scenario()
        for item in self.scenario.nodes[:3]:
            item["metadata"]["labels"]["nvidia.com/gpu.product"] = "Tesla-T4"
        self.scenario.policy = status("notReady", error="OperandNotReady", message="states not ready: [state-driver]")
        self.scenario.driver["status"]["numberAvailable"] = 3 - count
        state = {"waiting": {"reason": reason}} if reason else {"running": {}}
        last = {"terminated": {"exitCode": 1}}
        container = {"name": "nvidia-driver-ctr", "restartCount": restarts, "state": state, "lastState": last}
        self._pods = [
            {
                "metadata": {"name": f"{DRIVER}-{name}", "labels": {"app": DRIVER}},
                "spec": {"nodeName": name},
                "status": {"containerStatuses": [container]},
            }
            for name in ("gpu-2", "gpu-1", "gpu-0")[:count]
        ]
        self.lists_of_pods: Lists = []
        self.lists_of_nodes = 0
        self._may_list_pods = may_list_pods

    def list(self, path: str, **options: Any) -> Lists:
        if path.endswith("/nodes"):
            self.lists_of_nodes += 1
            return self.scenario.nodes
        if path.endswith("/daemonsets"):
            return [self.scenario.driver, self.scenario.plugin]
        self.lists_of_pods.append(options)
        if not self._may_list_pods:
            raise ApiError("pods is forbidden", status=403)
        return self._pods

    def list_known(self, path: str) -> Lists:
        return []

    def get(self, path: str) -> Object:
        return self.scenario.policy

    def text(self, path: str, query: Object) -> str:
        return "insmod: ERROR"


class Progress:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def report(self, text: str, *dummy: int) -> None:
        self.lines.append(text)


class Waiting(WaitOptions):
    """Waits that take no time."""

    def until(self, read: Any, done: Any, **options: Any) -> Any:
        clock, functions = cast("Clock", self.interval), {"timeout": self.timeout, "progress": self.progress}
        return wait_until(read, done, interval=10, clock=lambda: clock.now, sleep=clock.sleep, **functions, **options)  # type: ignore[arg-type]


def await_ready(
    cluster: Cluster, progress: Progress | None = None, *, sharing_follows: bool = True
) -> tuple[OperatorReadiness, float]:
    """A wait of at most 150 seconds that reads every 10 seconds; returns its result and its length."""
    clock, progress = Clock(), progress or Progress()
    client = ClusterPolicyClient(cast("Any", cluster), "gpu-operator", [pool()])
    client.sharing_follows = sharing_follows
    client._stalled_pods = StalledPods(cast("Any", cluster), StateTimer(lambda: clock.now))
    waiting = Waiting(150, cast("Any", clock), cast("Any", progress))
    readiness = client.await_ready("cluster-policy", EFFECT, waiting, lambda dummy: {}, mock.MagicMock())
    return readiness, clock.now - 1000


def progress_lines(cluster: Cluster) -> list[str]:
    """The lines of a wait that ends with its timeout."""
    progress = Progress()
    with pytest.raises((WaitTimeout, ApiError)):
        await_ready(cluster, progress)
    return progress.lines


def test_a_pod_that_is_not_ready_is_named_after_a_minute_without_a_change() -> None:
    cluster = Cluster()
    lines = progress_lines(cluster)
    assert [DRIVER + "-gpu-2" in line for line in lines[:7]] == [False] * 6 + [True]
    for text in ("CrashLoopBackOff", "2 restarts", "on node gpu-2"):
        assert text in lines[-1]
    selected = [options for options in cluster.lists_of_pods if options.get("label_selector") == f"app in ({DRIVER})"]
    # Once a minute, and for the message of the timeout.
    assert len(selected) == 3


def test_without_permission_to_list_pods_the_progress_names_none() -> None:
    lines = progress_lines(Cluster(may_list_pods=False))
    assert len(lines) == 16
    assert not [line for line in lines if DRIVER + "-gpu-2" in line]


def test_the_wait_ends_without_a_node_of_a_pool_whose_driver_crashes() -> None:
    readiness, seconds = await_ready(Cluster(restarts=3))
    assert readiness.ready
    assert readiness.broken_nodes == ("gpu-2",)
    for text in (f"pod {DRIVER}-gpu-2", "CrashLoopBackOff", "3 restarts", "insmod: ERROR"):
        assert text in readiness.ignored_nodes["gpu-2"]
    assert seconds == 60


def test_without_gpu_sharing_the_wait_fails_for_this_node() -> None:
    with pytest.raises(PartialFailure) as caught:
        await_ready(Cluster(restarts=3), sharing_follows=False)
    for text in (
        "except on 1 node(s) that belong to pools",
        f"gpu-2: pod {DRIVER}-gpu-2",
        "3 restarts",
        "then run the playbook again",
    ):
        assert text in str(caught.value)


@pytest.mark.parametrize(
    "cluster",
    [
        # It may be compiling the driver, after reboots of the node.
        Cluster(restarts=5, reason=""),
        # A failure on all nodes is not caused by one of them.
        Cluster(restarts=5, count=3),
    ],
)
def test_a_driver_that_may_still_start_is_waited_for(cluster: Cluster) -> None:
    assert DRIVER + "-gpu-2" in progress_lines(cluster)[-1]


def test_pods_are_read_again_each_minute_until_the_number_of_ready_pods_changes() -> None:
    cluster, clock = Cluster(), Clock()
    stalled = StalledPods(cast("Any", cluster), StateTimer(lambda: clock.now))

    def named_after(seconds: float) -> int:
        clock.now += seconds
        return len(stalled.find(cluster.scenario.verdict(), "gpu-operator"))

    assert [named_after(seconds) for seconds in (0, 59, 1, 59, 1)] == [0, 0, 1, 1, 1]
    assert len(cluster.lists_of_pods) == 2
    cluster.scenario.driver["status"]["numberAvailable"] = 1
    assert named_after(1) == 0
    # The earlier number again; what was read then is out of date.
    cluster.scenario.driver["status"]["numberAvailable"] = 2
    assert [named_after(seconds) for seconds in (1, 59, 1)] == [0, 0, 1]
    assert len(cluster.lists_of_pods) == 3


def failing_pod(app: str, node: str, generation: str = "1", *, waits: bool = False) -> Object:
    """A pod whose image cannot be pulled, or that waits in an init container for the driver."""
    init = [{"name": "toolkit-validation", "state": {"running": {}}}]
    containers = [
        {"name": "main", "state": {"waiting": {"reason": "PodInitializing" if waits else "ImagePullBackOff"}}}
    ]
    labels = {"app": app, "pod-template-generation": generation}
    return {
        "metadata": {
            "name": f"{app}-{node}",
            "uid": f"{app}-{node}",
            "labels": labels,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"nodeName": node},
        "status": {"initContainerStatuses": init if waits else [], "containerStatuses": containers},
    }


def test_a_new_template_that_fails_on_a_node_of_a_pool_is_not_spread_to_other_nodes() -> None:
    """The test's client cannot delete pods."""
    cluster = Cluster(count=0)
    plugin = cluster.scenario.plugin
    plugin["metadata"]["annotations"] = {"deprecated.daemonset.template.generation": "2"}
    plugin["status"].update(updatedNumberScheduled=1, numberAvailable=2)
    cluster._pods = [failing_pod(PLUGIN, "gpu-0", "2")]
    assert f"pod {PLUGIN}-gpu-0" in progress_lines(cluster)[-1]


def test_an_update_continues_beside_a_node_whose_driver_is_broken() -> None:
    """The plugin waits for the driver there, so its new template is not the cause."""

    class Replacing(Cluster):
        """Selects pods by their app, and replaces a deleted pod with a ready one of the new template."""

        def list(self, path: str, **options: Any) -> Any:
            actual: Any = super().list(path, **options)
            app = str(options.get("label_selector") or "").removeprefix("app=")
            return (
                [pod for pod in actual if pod["metadata"]["labels"]["app"] == app]
                if app.startswith("nvidia")
                else actual
            )

        def delete(self, path: str, **dummy: Any) -> None:
            (pod,) = (each for each in cast("Any", self._pods) if path.endswith(f"/{each['metadata']['name']}"))
            pod["metadata"]["labels"]["pod-template-generation"] = "2"
            status: Any = self.scenario.plugin["status"]
            status["updatedNumberScheduled"] += 1
            deleted.append(pod["metadata"]["name"])

    deleted: list[str] = []
    cluster = Replacing(count=0)
    plugin, driver = cluster.scenario.plugin, cluster.scenario.driver
    plugin["metadata"]["annotations"] = {"deprecated.daemonset.template.generation": "2"}
    plugin["status"].update(updatedNumberScheduled=1, numberAvailable=2)
    driver["status"].update(numberAvailable=2)
    cluster._pods = [failing_pod(DRIVER, "gpu-0"), failing_pod(PLUGIN, "gpu-0", "2", waits=True)]
    cluster._pods += [ready_pod(PLUGIN, name, "1") for name in ("gpu-1", "gpu-2")]
    readiness, dummy = await_ready(cluster)
    assert deleted == [f"{PLUGIN}-gpu-1", f"{PLUGIN}-gpu-2"]
    assert readiness.broken_nodes == ("gpu-0",)


def ready_pod(app: str, node: str, generation: str) -> Object:
    pod = failing_pod(app, node, generation)
    ready = {"name": app, "ready": True, "restartCount": 0, "state": {"running": {}}}
    pod["status"] = {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [ready]}
    return pod


def test_pods_that_wait_for_broken_drivers_do_not_hide_them() -> None:
    nodes = [f"gpu-{number}" for number in range(60)]
    waiting = ["gpu-feature-discovery", "nvidia-container-toolkit-daemonset", "nvidia-dcgm-exporter", PLUGIN]
    cluster = Cluster(count=0)
    cluster.scenario.nodes = [node(name) for name in [*nodes, "gpu-60"]]
    for item in cluster.scenario.nodes:
        item["metadata"]["labels"]["nvidia.com/gpu.product"] = "Tesla-T4"
    for daemonset in (cluster.scenario.driver, cluster.scenario.plugin):
        daemonset["status"].update(desiredNumberScheduled=61, updatedNumberScheduled=61, numberAvailable=1)
    cluster._pods = [failing_pod(app, name, waits=True) for app in waiting for name in nodes]
    cluster._pods += [failing_pod(DRIVER, name) for name in nodes]
    readiness, seconds = await_ready(cluster)
    assert readiness.broken_nodes == tuple(sorted(nodes))
    assert seconds == 60


def test_the_pods_and_nodes_of_a_stalled_wait_are_read_once_a_minute() -> None:
    """While other nodes are unfinished for another reason."""
    cluster = Cluster(restarts=3)
    cluster.scenario.plugin["status"]["numberAvailable"] = 1
    progress_lines(cluster)
    # One when the wait starts, one at each of the two reads of pods, and no more.
    assert cluster.lists_of_nodes <= 4
    assert len(cluster.lists_of_pods) <= 4


def wrongly_configured(label: str | None) -> Cluster:
    """The device plugin fails on all nodes, whose label selects this configuration."""
    cluster = Cluster(count=0)
    cluster.scenario.policy = status("notReady", error="OperandNotReady", message="not ready: [state-device-plugin]")
    cluster.scenario.driver["status"]["numberAvailable"] = 3
    cluster.scenario.plugin["status"]["numberAvailable"] = 0
    for item in cluster.scenario.nodes[:3]:
        item["metadata"]["labels"] |= {"nvidia.com/device-plugin.config": label} if label else {}
    cluster._pods = [failing_pod(PLUGIN, f"gpu-{number}") for number in range(3)]
    return cluster


def test_nodes_whose_configuration_is_replaced_next_are_not_waited_for() -> None:
    readiness, seconds = await_ready(wrongly_configured("gone"))
    assert readiness.ready
    assert seconds == 60
    # gpu_sharing changes these nodes, so they must not count as broken.
    assert readiness.broken_nodes == ()
    assert sorted(readiness.ignored_nodes) == ["gpu-0", "gpu-1", "gpu-2"]
    assert "replaces its label nvidia.com/device-plugin.config" in readiness.ignored_nodes["gpu-0"]


@pytest.mark.parametrize("label", [None, pool().config_key])
def test_a_configuration_that_is_not_replaced_is_waited_for(label: str | None) -> None:
    assert PLUGIN in progress_lines(wrongly_configured(label))[-1]


def test_a_configuration_is_not_replaced_if_no_sharing_follows() -> None:
    with pytest.raises(WaitTimeout):
        await_ready(wrongly_configured("gone"), sharing_follows=False)


def test_a_run_that_does_not_wait_has_the_reasons_as_well() -> None:
    cluster = Cluster()
    client = ClusterPolicyClient(cast("Any", cluster), "gpu-operator", [pool()])
    readiness = client.read_readiness("cluster-policy", EFFECT)
    assert (DRIVER + "-gpu-2" in str(readiness.waiting), cluster.lists_of_pods) == (False, [])
    explained = client.with_reasons(readiness).waiting
    assert (
        explained[-1]
        == f"pod {DRIVER}-gpu-2 container nvidia-driver-ctr: CrashLoopBackOff (exit 1), 2 restarts on node gpu-2"
    )
    assert len(cluster.lists_of_pods) == 1
    ready = OperatorReadiness("ready", "", 3)
    assert client.with_reasons(ready) == ready
    assert len(cluster.lists_of_pods) == 1
    forbidden = ClusterPolicyClient(cast("Any", Cluster(may_list_pods=False)), "gpu-operator", [pool()])
    assert forbidden.with_reasons(readiness) == readiness
