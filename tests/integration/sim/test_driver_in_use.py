# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver pod that is replaced while a pod uses the GPU: with auto-upgrade it waits for that pod, without it evicts it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.api import Object
from tests.integration.sim.sim_cluster import SimCluster

pytestmark = [pytest.mark.usual(15)]

NODE, DRIVER = "t4-3", "nvidia-driver-daemonset"
POLICY = "/apis/nvidia.com/v1/clusterpolicies/cluster-policy"
REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
ENABLED = "nvidia.com/gpu-driver-upgrade-enabled"


@pytest.fixture
def training(cluster: SimCluster) -> Iterator[SimCluster]:
    """The cluster with a ReplicaSet of one pod that holds the node's GPU."""
    container = {
        "name": "main",
        "image": "cuda",
        "command": ["sleep", "inf"],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    template = {
        "metadata": {"labels": {"app": "training"}},
        "spec": {"nodeSelector": {"kubernetes.io/hostname": NODE}, "containers": [container]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "training"}}, "template": template}
    cluster.api.request("POST", REPLICA_SETS, {"metadata": {"name": "training"}, "spec": spec})
    cluster.wait(lambda: [pod["status"]["phase"] for pod in users(cluster)] == ["Running"], what="the pod to run")
    yield cluster
    cluster.api.request("DELETE", f"{REPLICA_SETS}/training?propagationPolicy=Background")
    cluster.wait(lambda: not users(cluster), what="the pod to end")


def users(cluster: SimCluster) -> list[Object]:
    return list(cluster.api.list("/api/v1/namespaces/default/pods", labelSelector="app=training"))


def uid(cluster: SimCluster) -> str:
    [pod] = cluster.pods(NODE, DRIVER)
    actual: str = pod["metadata"]["uid"]
    return actual


def replaced(cluster: SimCluster) -> None:
    """Delete the driver's pod, and wait for its successor."""
    before = uid(cluster)
    cluster.restart(NODE, DRIVER)
    cluster.wait(
        lambda: [pod for pod in cluster.pods(NODE, DRIVER) if pod["metadata"]["uid"] != before],
        what="a new driver pod",
    )


def ready(cluster: SimCluster) -> bool:
    [pod] = cluster.pods(NODE, DRIVER)
    return all(status["ready"] for status in pod["status"].get("containerStatuses", [{"ready": False}]))


def cordoned(cluster: SimCluster) -> bool:
    return bool(cluster.node(NODE)["spec"].get("unschedulable"))


def test_with_auto_upgrade_the_driver_waits_for_the_pod(training: SimCluster) -> None:
    [user] = users(training)
    assert training.node(NODE)["metadata"]["annotations"][ENABLED] == "true"
    replaced(training)
    training.wait(
        lambda: "k8s-driver-manager" in training.waiting_containers(NODE, DRIVER, init=True),
        what="the driver manager to fail",
    )
    reason, restarts = training.waiting_containers(NODE, DRIVER, init=True)["k8s-driver-manager"]
    assert (reason, restarts > 0) == ("CrashLoopBackOff", True)
    [pod] = training.pods(NODE, DRIVER)
    log = training.log("-n", "gpu-operator", pod["metadata"]["name"], "-c", "k8s-driver-manager")
    assert "failed to uninstall nvidia driver components" in log
    [still] = users(training)
    assert (still["metadata"]["uid"], still["status"]["phase"]) == (user["metadata"]["uid"], "Running")
    assert not cordoned(training)
    training.api.merge(f"{REPLICA_SETS}/training", {"spec": {"replicas": 0}})
    training.wait(lambda: ready(training) and training.gpus(NODE) == {"nvidia.com/gpu": 1}, what="the driver", limit=60)


def test_without_auto_upgrade_the_pod_is_evicted(training: SimCluster) -> None:
    [user] = users(training)
    set_auto_upgrade(training, on=False)
    try:
        replaced(training)
        training.wait(
            lambda: user["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in users(training)},
            what="the eviction",
        )
        training.wait(lambda: ready(training) and not cordoned(training), what="the driver")
        training.wait(
            lambda: [pod["status"]["phase"] for pod in users(training)] == ["Running"],
            what="the evicted pod's successor",
            limit=60,
        )
    finally:
        set_auto_upgrade(training, on=True)


def set_auto_upgrade(cluster: SimCluster, *, on: bool) -> None:
    cluster.api.merge(POLICY, {"spec": {"driver": {"upgradePolicy": {"autoUpgrade": on}}}})
    cluster.wait(
        lambda: (cluster.node(NODE)["metadata"]["annotations"].get(ENABLED) == "true") is on,
        what="the operator's annotation",
        limit=60,
    )
