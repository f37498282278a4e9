# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of a message about a failing operand: the end of the log, and the pods that keep a driver in use."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import ContainerFailure, describe_failures

Object = dict[str, t.Any]
IN_USE = "Could not unload NVIDIA driver kernel modules, driver is in use"


def pod(name: str, namespace: str = "ml", **spec: t.Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", **spec}]},
        "status": {"phase": "Running"},
    }


class Cluster:
    """One node with a pod that holds a GPU; the log of each container has one line."""

    def __init__(self, log: str, *pods: Object, status: int = 0) -> None:
        self.log, self.pods, self.status = log, pods, status
        self.lists: list[str] = []

    def text(self, *_arguments: t.Any) -> str:
        return self.log

    def list(self, path: str, *, field_selector: str) -> t.Sequence[Object]:
        self.lists.append(field_selector)
        if self.status:
            raise ApiError("no", status=self.status, reason="Forbidden", method="GET", path=path)
        return self.pods


def message(cluster: Cluster, reason: str = "CrashLoopBackOff") -> str:
    failure = ContainerFailure("n1", "nvidia-driver-daemonset-x", "k8s-driver-manager", reason, 4)
    return describe_failures(t.cast("t.Any", cluster), "gpu-operator", {"n1": failure})["n1"]


HOLDER = pod("notebook", resources={"limits": {"nvidia.com/gpu": "1"}})


@pytest.mark.parametrize(
    "log",
    [
        IN_USE,
        "failed to uninstall nvidia driver components: failed to unload driver: resource temporarily unavailable",
        'level=error msg="Failed to uninstall nvidia driver components"',
    ],
)
def test_the_pods_that_keep_the_driver_in_use_are_named(log: str) -> None:
    text = message(Cluster(log, HOLDER, pod("web")))
    assert f"its log ends: {log}; pods that hold a GPU of the node: ml/notebook (" in text
    assert text.endswith("; delete them, or drain the node")
    assert "web" not in text


def test_the_reason_of_the_container_counts_too() -> None:
    assert "ml/notebook" in message(Cluster("", HOLDER), f"exit 1: {IN_USE}")


def test_other_failures_read_no_pods() -> None:
    cluster = Cluster("no such device", HOLDER)
    assert "notebook" not in message(cluster)
    assert cluster.lists == []


@pytest.mark.parametrize("cluster", [Cluster(IN_USE, pod("web")), Cluster(IN_USE, HOLDER, status=403)])
def test_the_message_is_complete_without_holders(cluster: Cluster) -> None:
    assert message(cluster).endswith(f"its log ends: {IN_USE}")
    assert len(cluster.lists) == 1
