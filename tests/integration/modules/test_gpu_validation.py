# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_validation in the lab: it verifies the pools once with scheduled pods, reports every failure, and deletes its objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import cluster_policy, gpu_info, gpu_sharing, gpu_validation
from tests.helpers.cluster import NAMESPACE, Cluster
from tests.labs import Lab

NODES = {"notebooks": "t4-", "inference": "l40s-", "train-a100": "a100-", "train-h100": "h100-", "train-h200": "h200-"}
QUICK = {"hold_seconds": 8, "wait_sleep": 1}
CUT = (
    {"name": "inference", "sharing": {"mode": "mps", "replicas": 4}},
    {"name": "train-a100", "sharing": {"mode": "mig", "layout": {"3g.40gb": 2}}},
)


@pytest.fixture(scope="module")
def cluster(lab: Lab) -> Cluster:
    """The inventory's pools, after the role sharing."""
    return Cluster(lab).share()


def validated(cluster: Cluster, **options: Any) -> dict[str, Any]:
    return cluster.run(gpu_validation.main, **{"gpu_pools": cluster.pools(), "wait_timeout": 180, **QUICK, **options})


def shared(cluster: Cluster, pools: list[dict[str, Any]]) -> None:
    """Apply the pools' sharing, as the roles gpu_operator and sharing do."""
    for main, limit in ((cluster_policy.main, 90), (gpu_sharing.main, 300)):
        result = cluster.run(main, gpu_pools=pools, wait_timeout=limit)
        assert not result.get("failed"), result["msg"]


def pods(cluster: Cluster) -> list[str]:
    """The existing validation pods."""
    return [pod["metadata"]["name"] for pod in cluster.get("pods", "-A", "-l", "accel.gpu/validation")["items"]]


def t4(cluster: Cluster) -> list[str]:
    """The names of the T4 nodes."""
    return sorted(name for name in cluster.nodes() if name.startswith("t4-"))


def hold_shares(cluster: Cluster, node: str, count: int) -> None:
    """Foreign workloads that hold shares of a T4 node until they are deleted."""
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


@pytest.mark.usual(40)
def test_every_pool_is_verified_once(cluster: Cluster) -> None:
    predicted = validated(cluster, check=True)
    assert {pool["status"] for pool in predicted["gpu_validation"]["pools"].values()} == {"would_run"}
    assert predicted["changed"] is True
    result = validated(cluster)
    assert result["changed"] is True, result
    assert not result.get("failed"), result["msg"]
    reported = result["gpu_validation"]["pools"]
    assert {name: pool["status"] for name, pool in reported.items()} == dict.fromkeys(NODES, "verified")
    assert all(reported[name]["node"].startswith(prefix) for name, prefix in NODES.items())
    assert list(reported["notebooks"]["devices"].values()) == [4]
    assert sorted(reported["inference"]["devices"].values()) == [2, 2]
    assert list(reported["train-h100"]["devices"].values()) == [1] * 8
    assert {pool["one_more"] for pool in reported.values()} == {"waited"}
    assert {name for name, pool in reported.items() if pool.get("two_shares") == "refused"} == {
        "notebooks",
        "inference",
    }
    assert pods(cluster) == []
    mark = cluster.mark()
    again = validated(cluster)
    assert again["changed"] is False
    assert {pool["status"] for pool in again["gpu_validation"]["pools"].values()} == {"skipped"}
    assert {pool["one_more"] for pool in again["gpu_validation"]["pools"].values()} == {"waited"}
    assert {request.split()[0] for request in cluster.requests(mark, "gpu_validation")} <= {"get", "list"}
    assert validated(cluster, check=True)["changed"] is False


@pytest.mark.sampled(1, group="states of validation")
def test_force_verifies_again_and_remains_of_a_killed_run_are_deleted(cluster: Cluster) -> None:
    remaining: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "accel-gpu-validation-left",
            "namespace": NAMESPACE,
            "labels": {"accel.gpu/validation": "notebooks", "accel.gpu/run": "dead"},
        },
        "spec": {"containers": [{"name": "main", "image": "registry.example/left"}]},
    }
    cluster.kubectl("create", "--field-manager=accel.gpu", "-f", _written(cluster, remaining))
    foreign = {**remaining, "metadata": {**remaining["metadata"], "name": "a-copy"}}
    cluster.kubectl("create", "-f", _written(cluster, foreign))
    notebooks = [pool for pool in cluster.pools() if pool["name"] == "notebooks"]
    result = validated(cluster, gpu_pools=notebooks, force=True)
    assert result["changed"] is True
    assert result["gpu_validation"]["leftovers"] == 1
    assert result["gpu_validation"]["pools"]["notebooks"]["status"] == "verified"
    assert "are kept: a-copy" in str(result["warnings"])
    assert pods(cluster) == ["a-copy"]
    cluster.kubectl("-n", NAMESPACE, "delete", "pod", "a-copy", "--force", "--grace-period=0")


@pytest.mark.sampled(1, group="states of validation")
def test_nodes_with_taints_of_a_maintenance_are_left_out(cluster: Cluster) -> None:
    """Other nodes of the pool are used; if all have such taints, the pool fails at once, and its evidence stays."""
    names = t4(cluster)
    notebooks = [pool for pool in cluster.pools() if pool["name"] == "notebooks"]
    try:
        cluster.kubectl("taint", "--overwrite", "node", names[0], "maintenance=x:NoSchedule")
        passed = validated(cluster, gpu_pools=notebooks, force=True)
        for name in names:
            cluster.kubectl("taint", "--overwrite", "node", name, "maintenance=x:NoSchedule")
        failed = validated(cluster, gpu_pools=notebooks, force=True)
    finally:
        for name in names:
            cluster.kubectl("taint", "node", name, "maintenance-")
    assert not passed.get("failed"), passed["msg"]
    assert passed["gpu_validation"]["pools"]["notebooks"]["node"] != names[0]
    assert failed["failed"] is True
    reason = failed["gpu_validation"]["pools"]["notebooks"]["reason"]
    assert reason.startswith("all nodes have taints that the pool does not declare: maintenance=x:NoSchedule on t4-")
    assert f"notebooks: {reason}" in failed["msg"]
    assert pods(cluster) == []
    assert validated(cluster, gpu_pools=notebooks)["gpu_validation"]["pools"]["notebooks"]["status"] == "skipped"


@pytest.mark.sampled(1, group="states of validation")
def test_a_pool_in_use_is_not_disturbed(cluster: Cluster) -> None:
    names = t4(cluster)
    for name in names:
        hold_shares(cluster, name, 4)
    try:
        notebooks = [pool for pool in cluster.pools() if pool["name"] == "notebooks"]
        result = validated(cluster, gpu_pools=notebooks, force=True)
        fleet = cluster.run(gpu_info.main, gpu_pools=notebooks, include_workloads=True)["gpu_info"]
    finally:
        cluster.kubectl("delete", "pods", "-n", "default", "--all", "--wait=false")
    assert result["changed"] is False
    assert result["gpu_validation"]["pools"]["notebooks"]["status"] == "busy"
    assert f"{4 * len(names)} nvidia.com/gpu" in result["gpu_validation"]["pools"]["notebooks"]["reason"]
    workloads = next(node for node in fleet["nodes"] if node["name"] == "t4-1")["workloads"]
    assert {entry["pod"] for entry in workloads} == {f"holder-t4-1-{number}" for number in range(4)}


@pytest.mark.sampled(1, group="states of validation")
def test_another_sharing_is_verified_again(cluster: Cluster) -> None:
    before = [pool for pool in cluster.pools() if pool["name"] == "notebooks"]
    assert not validated(cluster, gpu_pools=before).get("failed")
    pools = [
        {**pool, "sharing": {"mode": "time-slicing", "replicas": 2}}
        for pool in cluster.pools()
        if pool["name"] == "notebooks"
    ]
    result = validated(cluster, gpu_pools=pools, check=True)
    assert result["gpu_validation"]["pools"]["notebooks"]["status"] == "would_run"
    assert "changed since" in result["gpu_validation"]["pools"]["notebooks"]["reason"]


@pytest.mark.sampled(1, group="states of validation")
@pytest.mark.usual(40)
def test_mps_and_mig_are_verified(cluster: Cluster) -> None:
    """Every share and every MIG device of a node is held at once, and no further one is granted."""
    shared(cluster, cluster.pools(*CUT))
    pools = [pool for pool in cluster.pools(*CUT) if pool["name"] in ("inference", "train-a100")]
    result = validated(cluster, gpu_pools=pools, max_pods=16)
    assert not result.get("failed"), result["msg"]
    mps, mig = (result["gpu_validation"]["pools"][name] for name in ("inference", "train-a100"))
    assert (mps["status"], mps["one_more"], mps["two_shares"]) == ("verified", "waited", "refused")
    assert sorted(mps["devices"].values()) == [4, 4]
    assert (mig["status"], mig["one_more"]) == ("verified", "waited")
    assert list(mig["devices"].values()) == [1] * 16
    assert all(uuid.startswith("MIG-") for uuid in mig["devices"])
    assert pods(cluster) == []


@pytest.mark.sampled(1, group="states of validation")
def test_two_granted_shares_are_reported(cluster: Cluster) -> None:
    """The nodes' configuration grants two shares in one request, although the pool forbids it."""
    lenient = {"mode": "time-slicing", "replicas": 4, "fail_requests_greater_than_one": False}
    notebooks = [pool for pool in cluster.pools() if pool["name"] == "notebooks"]
    # Another test may have partitioned these nodes.
    pools = cluster.pools({"name": "train-a100", "sharing": {"mode": "none"}})
    shared(cluster, [{**pool, "sharing": lenient} if pool in notebooks else pool for pool in pools])
    result = validated(cluster, gpu_pools=notebooks, force=True)
    assert result["failed"] is True
    assert (
        "a request for two nvidia.com/gpu was granted, even though failRequestsGreaterThanOne is set" in result["msg"]
    )
    assert result["gpu_validation"]["pools"]["notebooks"]["two_shares"] == "granted"
    assert pods(cluster) == []
