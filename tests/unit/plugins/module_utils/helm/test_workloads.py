# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts of a release's workloads, and the failures of their pods."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.helm.preparation import (
    format_failure,
    pod_failures,
    unready_reasons,
    workload_rollout,
    workloads,
)

MANIFEST = """---
# Source: x/templates/deployment.yaml
apiVersion: apps/v1
kind: Deployment
metadata:
  name: operator
---
# Source: x/templates/service.yaml
apiVersion: v1
kind: Service
metadata: {name: x}
---
# Source: x/templates/worker.yaml
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: worker}
"""


def test_workloads_of_a_manifest() -> None:
    assert workloads(MANIFEST) == [("Deployment", "operator"), ("DaemonSet", "worker")]
    assert workloads("") == []


def live(kind: str, generation: int = 1, observed: int = 1, **status: int) -> dict[str, Any]:
    return {
        "metadata": {"name": "w", "generation": generation},
        "spec": {
            "selector": {"matchLabels": {"b": "2", "a": "1"}},
            **({"replicas": 2} if kind == "Deployment" else {}),
        },
        "status": {"observedGeneration": observed, **status},
    }


@pytest.mark.parametrize(
    ("kind", "actual", "done"),
    [
        ("DaemonSet", live("DaemonSet", desiredNumberScheduled=3, updatedNumberScheduled=3, numberAvailable=3), True),
        ("DaemonSet", live("DaemonSet", desiredNumberScheduled=3, updatedNumberScheduled=2, numberAvailable=3), False),
        ("DaemonSet", live("DaemonSet", desiredNumberScheduled=3, updatedNumberScheduled=3, numberAvailable=2), False),
        ("DaemonSet", live("DaemonSet", generation=2), False),
        ("DaemonSet", live("DaemonSet", observed=0), False),
        ("Deployment", live("Deployment", updatedReplicas=2, availableReplicas=2), True),
        ("Deployment", live("Deployment", updatedReplicas=2, availableReplicas=1), False),
        ("Deployment", live("Deployment"), False),
    ],
)
def test_a_workload_is_rolled_out(kind: str, actual: dict[str, Any], done: bool) -> None:
    assert workload_rollout(kind, actual).done is done
    assert workload_rollout(kind, actual).selector == "a=1,b=2"


def test_pod_failures_are_sorted_by_restarts() -> None:
    def pod(name: str, node: str = "n", **status: Any) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": status}

    ready: dict[str, Any] = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "c"}],
    }
    crash = {"name": "c", "restartCount": 7, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    pods = [
        pod("fine", "n", **ready),
        pod("starting", phase="Running", containerStatuses=[{"name": "c"}]),
        pod(
            "pending",
            "",
            phase="Pending",
            conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}],
        ),
        pod("crashing", "gpu-1", phase="Running", containerStatuses=[crash]),
    ]
    lines = [format_failure(failure) for failure in pod_failures(pods)]
    assert "crashing" in lines[0]
    assert "CrashLoopBackOff" in lines[0]
    assert "on node gpu-1" in lines[0]
    assert any("pending" in line and "0/3 nodes" in line and "on no node" in line for line in lines)
    assert any("starting" in line and "not ready" in line for line in lines)
    assert len(lines) == 3
    assert [failure.pod for failure in pod_failures(pods, last_nodes={"gpu-1"})][-1] == "crashing"


@pytest.mark.parametrize(
    "reason", ["ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError", "CrashLoopBackOff"]
)
def test_pods_that_cannot_start_are_listed_before_those_that_wait_for_them(reason: str) -> None:
    def pod(name: str, **status: Any) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": {"nodeName": "n"}, "status": {"phase": "Pending", **status}}

    restarted = {"name": "c", "restartCount": 2, "lastState": {"terminated": {"exitCode": 1}}}
    image = {"name": "driver", "state": {"waiting": {"reason": reason, "message": "driver:580"}}}
    waiting = [pod(f"toolkit-{number}", containerStatuses=[restarted]) for number in range(6)]
    pods = [*waiting, pod("driver-0", containerStatuses=[image]), pod("driver-1", containerStatuses=[image])]
    failures = pod_failures(pods)
    assert [failure.pod for failure in failures][:2] == ["driver-0", "driver-1"]
    assert "driver:580" in failures[0].reason
    assert len(failures) == 5


def test_a_pod_that_is_not_ready_names_the_init_container_that_it_waits_for() -> None:
    running: dict[str, Any] = {"running": {}}
    initializing = {"waiting": {"reason": "PodInitializing"}}
    statuses: dict[str, Any] = {
        "initContainerStatuses": [{"name": "sidecar", "state": running}, {"name": "toolkit", "state": running}],
        "containerStatuses": [{"name": "main", "state": initializing}],
    }
    pod: dict[str, Any] = {
        "metadata": {"name": "plugin"},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Pending", **statuses},
    }
    (failure,) = pod_failures([pod])
    assert str(failure) == "pod plugin container toolkit: the init container is running"
    statuses["containerStatuses"] = [{"name": "main", "state": running}]
    pod["status"] = {"phase": "Running", **statuses}
    (failure,) = pod_failures([pod])
    assert str(failure) == "pod plugin container -: running, but not ready"


READY_CONDITION = [{"type": "Ready", "status": "True"}]


@pytest.mark.parametrize(
    ("container", "reason"),
    [
        (
            {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}},
            "pod p container main: ImagePullBackOff (not found) on node n",
        ),
        (
            {
                "restartCount": 4,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            },
            "pod p container main: CrashLoopBackOff (exit 137: OOMKilled), 4 restarts on node n",
        ),
        ({"state": {"running": {}}}, "pod p container -: running, but not ready on node n"),
    ],
)
def test_the_reason_why_a_pod_is_not_ready_is_that_of_its_container(container: dict[str, Any], reason: str) -> None:
    status = {"phase": "Running", "containerStatuses": [{"name": "main", **container}]}
    pod: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": status}
    assert unready_reasons([pod]) == [reason]
    assert unready_reasons([{**pod, "status": {**status, "conditions": READY_CONDITION}}]) == []
