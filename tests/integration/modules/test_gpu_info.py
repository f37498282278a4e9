# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_info in the lab: the fleet is read with one list, drift is reported, and an unreachable cluster is handled."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.report.text import lines
from ansible_collections.accel.gpu.plugins.modules import gpu_info, gpu_sharing, operator_info
from tests.helpers.cluster import Cluster
from tests.helpers.kube import Kube
from tests.labs import Lab


@pytest.fixture(scope="module")
def cluster(lab: Lab) -> Cluster:
    return Cluster(lab).install()


def test_the_fleet_is_one_list(cluster: Cluster) -> None:
    mark = cluster.mark()
    fleet = cluster.run(gpu_info.main, limit=3)["gpu_info"]
    # The cluster's identity needs two small reads.
    assert cluster.requests(mark, "gpu_info") == [
        "get /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/accel-gpu",
        "list /api/v1/nodes?limit=500",
        "get /api/v1/namespaces/kube-system",
    ]
    gpus = [int(node["metadata"]["labels"].get("nvidia.com/gpu.count", 0)) for node in cluster.nodes().values()]
    assert fleet["totals"]["gpus"] == sum(gpus)
    assert fleet["totals"]["gpu_nodes"] == sum(1 for count in gpus if count)
    t4 = sum(1 for name in cluster.nodes() if name.startswith("t4-"))
    assert fleet["models"]["Tesla-T4"] == {"nodes": t4, "gpus": t4, "driver_versions": ["580.105.08"]}
    assert [node["name"] for node in fleet["nodes"]] == ["a100-1", "a100-2", "a100-3"]
    assert fleet["nodes_not_shown"] == fleet["totals"]["gpu_nodes"] - 3


def test_drift_is_what_gpu_sharing_would_change(cluster: Cluster) -> None:
    pools = cluster.pools()
    fleet = cluster.run(gpu_info.main, gpu_pools=pools)["gpu_info"]
    predicted = cluster.run(gpu_sharing.main, gpu_pools=pools, check=True)["gpu_sharing"]
    for name, pool in fleet["pools"].items():
        assert pool["changes"].get("nodes", 0) == predicted["pools"][name]["changed"]
    assert {entry["pool"] for entry in fleet["drift"]} == {pool["name"] for pool in pools}
    rows = {row["name"]: row for row in fleet["nodes"]}
    assert "will join pool notebooks" in rows["t4-1"]["drift"]
    assert "label team is absent, but teaching is declared" in rows["t4-1"]["drift"]
    assert cluster.run(gpu_sharing.main, gpu_pools=pools)["changed"] is True
    after = cluster.run(gpu_info.main, gpu_pools=pools)["gpu_info"]
    assert after["drift"] == []
    assert all(pool["as_declared"] for pool in after["pools"].values())
    assert [row["name"] for row in after["nodes"] if row["drift"]] == []
    assert len(after["nodes"]) == after["totals"]["gpu_nodes"]
    shown = lines(after)
    assert max(map(len, shown)) <= 100
    assert sum("as declared, not validated yet" in line for line in shown) == len(pools)


def test_the_owners_of_the_installations_need_a_few_reads(cluster: Cluster) -> None:
    mark = cluster.mark()
    result = cluster.run(operator_info.main, gpu_pools=cluster.pools())
    assert result["changed"] is False
    assert sorted(request.partition("?")[0] for request in cluster.requests(mark, "operator_info")) == [
        "get /apis/coordination.k8s.io/v1/namespaces/gpu-operator/leases/accel-gpu-helm-gpu-operator",
        "get /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/accel-gpu",
        "get /apis/coordination.k8s.io/v1/namespaces/node-feature-discovery/leases/accel-gpu-helm-nfd",
        "list /api/v1/nodes",
        "list /apis/apps/v1/deployments",
        "list /apis/apps/v1/deployments",
        "list /apis/apps/v1/deployments",
        "list /apis/nvidia.com/v1/clusterpolicies",
    ]
    reported = result["operator_info"]
    assert {name: (part["managed"], part["adopted"], part["manager"]) for name, part in reported.items()} == {
        "nfd": (True, False, "helm"),
        "operator": (True, False, "helm"),
    }
    assert reported["operator"]["version"] == "v25.10.1"
    # Only operator_info returns what the roles need for the installation.
    reported = {
        name: {key: value for key, value in part.items() if key not in ("provides", "driver_nodes")}
        for name, part in reported.items()
    }
    installed = cluster.run(gpu_info.main, gpu_pools=cluster.pools())["gpu_info"]["installed"]
    assert [part.pop("changes") for part in installed.values()] == [[], []]
    assert installed == reported


@pytest.mark.sampled(1, group="failures of a release")
@pytest.mark.usual(60)
def test_a_foreign_nfd_without_toleration_fails_at_once(cluster: Cluster, kube: Kube) -> None:
    lease = "/apis/coordination.k8s.io/v1/namespaces/node-feature-discovery/leases/accel-gpu-helm-nfd"
    noted = kube.require(lease)
    taint = {"key": "example.org/dear", "value": "yes", "effect": "NoSchedule"}
    pools = cluster.pools({"name": "notebooks", "taints": [taint]})
    kube.client.delete(lease)
    try:
        # Nodes that NFD has labeled before keep their labels.
        known = cluster.run(operator_info.main, gpu_pools=pools, components=["nfd"])
        assert known["operator_info"]["nfd"]["adopted"] is True
        assert "do not tolerate example.org/dear:NoSchedule" in str(known["warnings"])
        (new,) = kube.nodes(1, {"accel.gpu/pool": "notebooks"}, [taint])
        refused = cluster.run(operator_info.main, gpu_pools=pools, components=["nfd"])
        assert refused["failed"] is True
        assert f"cannot label node {new}: its workers do not tolerate example.org/dear:NoSchedule" in refused["msg"]
    finally:
        del noted["metadata"]["resourceVersion"], noted["metadata"]["uid"]
        kube.client.create(lease.rpartition("/")[0], noted)


def test_impact_is_computed_only_for_changes(cluster: Cluster) -> None:
    pools = cluster.pools()
    cluster.run(gpu_sharing.main, gpu_pools=pools)
    mark = cluster.mark()
    settled = cluster.run(gpu_info.main, gpu_pools=pools, include_impact=True)["gpu_info"]
    assert not any(settled["impact"].values())
    assert not [request for request in cluster.requests(mark, "gpu_info") if "/pods" in request]
    taint = {"key": "new", "value": "x", "effect": "NoSchedule"}
    cut = {"name": "train-a100", "taints": [taint], "sharing": {"mode": "mig", "layout": {"1g.10gb": 7}}}
    dear = cluster.run(gpu_info.main, gpu_pools=cluster.pools(cut), include_impact=True)["gpu_info"]
    nodes = dear["pools"]["train-a100"]["nodes"]
    costs = dear["pools"]["train-a100"]["impact"]
    assert (costs["driver_restarts"], costs["repartitioned_nodes"], costs["resets"]) == (nodes, nodes, nodes)
    assert costs["operand_pods"] >= 5 * nodes
    # A toleration that is new to the ClusterPolicy restarts all driver pods.
    assert dear["impact"]["driver_restarts"] == dear["totals"]["gpu_nodes"]
    assert dear["impact"]["held_back"] is True
    assert (dear["impact"]["max_parallel"], dear["impact"]["reasons"]) == (1, ["daemonsets.tolerations"])
    assert any("MIG manager" in warning for warning in dear["warnings"])


def test_an_unreachable_cluster(cluster: Cluster) -> None:
    options = {
        "gpu_cluster": {"name": "lab"},
        "host": "https://127.0.0.1:9",
        "gpu_pools": cluster.pools(),
        "kubeconfig": None,
    }
    refused = cluster.run(gpu_info.main, **options)
    assert refused["failed"] is True
    assert "127.0.0.1:9" in refused["msg"]
    away = cluster.run(gpu_info.main, **options, allow_unreachable=True)
    assert not away.get("failed"), away
    assert away["gpu_info"]["reachable"] is False
    assert "127.0.0.1:9" in away["gpu_info"]["reason"]
    assert away["gpu_info"]["pools"]["notebooks"]["resource"] == "nvidia.com/gpu"
    assert "time-slicing x4" in "\n".join(lines(away["gpu_info"], "plan"))


def test_invalid_variables_fail_offline_too(cluster: Cluster) -> None:
    pools = [{"name": "a", "sharing": {"mode": "time-slicing", "replicas": 1}}]
    refused = cluster.run(gpu_info.main, gpu_pools=pools, host="https://127.0.0.1:9", allow_unreachable=True)
    assert refused["failed"] is True
    assert "gpu_pools[0].sharing.replicas" in refused["msg"]
