# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_validation on the lab: real scheduling proves the pools, once, and every way not to is told and cleaned up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import gpu_info, gpu_validation, node_profile
from tests.helpers.cluster import NAMESPACE, Cluster
from tests.labs import Lab

NODES = {"notebooks": "t4-", "inference": "l40s-", "train-a100": "a100-", "train-h100": "h100-", "train-h200": "h200-"}
QUICK = {"hold": 3, "wait_sleep": 1}


@pytest.fixture(scope="module")
def cluster(lab: Lab) -> Cluster:
    """The inventory's pools, as the role sharing leaves them."""
    cluster = Cluster(lab).install()
    assert not cluster.run(node_profile.main, pools=cluster.pools()).get("failed")
    return cluster


def validated(cluster: Cluster, **options: Any) -> dict[str, Any]:
    return cluster.run(gpu_validation.main, **{"pools": cluster.pools(), "wait_timeout": 60, **QUICK, **options})


def pods(cluster: Cluster) -> list[str]:
    """Validation pods that are on the cluster."""
    return [pod["metadata"]["name"] for pod in cluster.get("pods", "-A", "-l", "accel.gpu/validation")["items"]]


def t4(cluster: Cluster) -> list[str]:
    """The names of the T4 nodes."""
    return sorted(name for name in cluster.nodes() if name.startswith("t4-"))


def held(cluster: Cluster, node: str, count: int) -> None:
    """Workloads of somebody else that hold shares of a T4 node until they are deleted."""
    container = {
        "name": "main",
        "image": "registry.example/holder",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    for number in range(count):
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"holder-{node}-{number}", "namespace": "default"},
            "spec": {"nodeName": node, "tolerations": [{"operator": "Exists"}], "containers": [container]},
        }
        cluster.kubectl("create", "-f", _written(cluster, body))


def _written(cluster: Cluster, body: dict[str, Any]) -> str:
    path = cluster.lab.directory / f"{body['metadata']['name']}.json"
    path.write_text(json.dumps(body))
    return str(path)


def test_every_pool_is_proven_once(cluster: Cluster) -> None:
    predicted = validated(cluster, check=True)
    assert {pool["status"] for pool in predicted["gpu_validation"]["pools"].values()} == {"would_run"}
    assert predicted["changed"] is True
    result = validated(cluster)
    assert result["changed"] is True, result
    told = result["gpu_validation"]["pools"]
    assert {name: pool["status"] for name, pool in told.items()} == dict.fromkeys(NODES, "proven")
    assert all(told[name]["node"].startswith(prefix) for name, prefix in NODES.items())
    assert list(told["notebooks"]["devices"].values()) == [4]
    assert sorted(told["inference"]["devices"].values()) == [2, 2]
    assert list(told["train-h100"]["devices"].values()) == [1] * 8
    assert pods(cluster) == []
    mark = cluster.mark()
    again = validated(cluster)
    assert again["changed"] is False
    assert {pool["status"] for pool in again["gpu_validation"]["pools"].values()} == {"skipped"}
    assert {request.split()[0] for request in cluster.requests(mark, "gpu_validation")} <= {"get", "list"}
    assert validated(cluster, check=True)["changed"] is False


def test_force_proves_again_and_left_overs_of_a_killed_run_go(cluster: Cluster) -> None:
    left = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "accel-gpu-validation-left",
            "namespace": NAMESPACE,
            "labels": {"accel.gpu/validation": "notebooks", "accel.gpu/run": "dead"},
        },
        "spec": {"containers": [{"name": "main", "image": "registry.example/left"}]},
    }
    cluster.kubectl("create", "-f", _written(cluster, left))
    notebooks = [pool for pool in cluster.pools() if pool["name"] == "notebooks"]
    result = validated(cluster, pools=notebooks, force=True)
    assert result["changed"] is True
    assert result["gpu_validation"]["leftovers"] == 1
    assert result["gpu_validation"]["pools"]["notebooks"]["status"] == "proven"
    assert pods(cluster) == []


def test_pods_that_no_node_takes_are_told_with_the_schedulers_reason(cluster: Cluster) -> None:
    names = t4(cluster)
    for name in names:
        cluster.kubectl("taint", "--overwrite", "node", name, "example.org/closed=yes:NoSchedule")
    try:
        notebooks = [pool for pool in cluster.pools() if pool["name"] == "notebooks"]
        result = validated(cluster, pools=notebooks, force=True, wait_timeout=6)
    finally:
        for name in names:
            cluster.kubectl("taint", "node", name, "example.org/closed-")
    assert result["failed"] is True
    for word in ("notebooks on t4-", "Pending, Unschedulable", "taint"):
        assert word in result["msg"]
    assert pods(cluster) == []


def test_a_pool_at_work_is_left_in_peace(cluster: Cluster) -> None:
    names = t4(cluster)
    for name in names:
        held(cluster, name, 4)
    try:
        notebooks = [pool for pool in cluster.pools() if pool["name"] == "notebooks"]
        result = validated(cluster, pools=notebooks, force=True)
        fleet = cluster.run(gpu_info.main, pools=notebooks, workloads=True)["gpu_info"]
    finally:
        cluster.kubectl("delete", "pods", "-n", "default", "--all", "--wait=false")
    assert result["changed"] is False
    assert result["gpu_validation"]["pools"]["notebooks"]["status"] == "busy"
    assert f"{4 * len(names)} nvidia.com/gpu" in result["gpu_validation"]["pools"]["notebooks"]["reason"]
    workloads = next(node for node in fleet["nodes"] if node["name"] == "t4-1")["workloads"]
    assert {entry["pod"] for entry in workloads} == {f"holder-t4-1-{number}" for number in range(4)}


def test_another_sharing_is_proven_again(cluster: Cluster) -> None:
    pools = [
        {**pool, "sharing": {"mode": "time-slicing", "replicas": 2}}
        for pool in cluster.pools()
        if pool["name"] == "notebooks"
    ]
    result = validated(cluster, pools=pools, check=True)
    assert result["gpu_validation"]["pools"]["notebooks"]["status"] == "would_run"
    assert "changed since" in result["gpu_validation"]["pools"]["notebooks"]["reason"]
