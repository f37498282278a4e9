# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The progress of the wait for the operator names pods that are not ready if nothing changes for a minute."""

from __future__ import annotations

import contextlib
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.common.wait import (
    StateTimer,
    WaitOptions,
    WaitTimeout,
    wait_until,
)
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.cluster_policy_client import ClusterPolicyClient
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.stalled_pods import StalledPods
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from tests.helpers.fleet import pool
from tests.helpers.readiness import EFFECT, Object, Scenario, status

Lists = list[Object]
DRIVER = "nvidia-driver-daemonset"


class Clock:
    """Time passes only in waits."""

    def __init__(self) -> None:
        self.now = 1000.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Cluster:
    """Three nodes of a pool, on the last of which the driver crashes."""

    def __init__(self, *, may_list_pods: bool = True) -> None:
        self.scenario = Scenario()
        for node in self.scenario.nodes:
            node["metadata"]["labels"]["nvidia.com/gpu.product"] = "Tesla-T4"
        self.scenario.policy = status("notReady", error="OperandNotReady", message="states not ready: [state-driver]")
        self.scenario.driver["status"]["numberAvailable"] = 2
        self.lists_of_pods: Lists = []
        self._may_list_pods = may_list_pods

    def list(self, path: str, **options: Any) -> Lists:
        if path.endswith("/nodes"):
            return self.scenario.nodes
        if path.endswith("/daemonsets"):
            return [self.scenario.driver, self.scenario.plugin]
        self.lists_of_pods.append(options)
        if not self._may_list_pods:
            raise ApiError("pods is forbidden", status=403)
        waiting = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}}
        failing = {"name": "nvidia-driver-ctr", "restartCount": 43, **waiting}
        metadata = {"name": f"{DRIVER}-x", "labels": {"app": DRIVER}}
        pod = {"metadata": metadata, "spec": {"nodeName": "gpu-2"}, "status": {"containerStatuses": [failing]}}
        return [pod]

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


def progress_lines(cluster: Cluster) -> list[str]:
    """The lines of a wait of 150 seconds, one every 10 seconds."""
    clock, progress = Clock(), Progress()
    client = ClusterPolicyClient(cast("Any", cluster), "gpu-operator", [pool()])
    client._stalled_pods = StalledPods(cast("Any", cluster), StateTimer(lambda: clock.now))
    waiting = Waiting(150, cast("Any", clock), cast("Any", progress))
    with pytest.raises((WaitTimeout, ApiError)):
        client.await_ready("cluster-policy", EFFECT, waiting, lambda dummy: {}, contextlib.nullcontext)  # type: ignore[arg-type]
    return progress.lines


def test_a_pod_that_is_not_ready_is_named_after_a_minute_without_a_change() -> None:
    cluster = Cluster()
    lines = progress_lines(cluster)
    assert [DRIVER + "-x" in line for line in lines[:7]] == [False] * 6 + [True]
    for text in ("CrashLoopBackOff", "43 restarts", "on node gpu-2"):
        assert text in lines[-1]
    selected = [options for options in cluster.lists_of_pods if options.get("label_selector") == f"app in ({DRIVER})"]
    # Once a minute, and for the message of the timeout.
    assert len(selected) == 3


def test_without_permission_to_list_pods_the_progress_names_none() -> None:
    lines = progress_lines(Cluster(may_list_pods=False))
    assert len(lines) == 16
    assert not [line for line in lines if DRIVER + "-x" in line]
