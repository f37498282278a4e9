# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_sharing in the lab: modes, check mode, labels and taints, ConfigMap entries, failures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.sharing import rollout, verification
from ansible_collections.accel.gpu.plugins.modules import gpu_sharing
from tests.helpers.cluster import CONFIG_LABEL, NAMESPACE, Cluster, settled
from tests.labs import Lab

X4 = {"mode": "time-slicing", "replicas": 4}
X8 = {"mode": "time-slicing", "replicas": 8}
RENAMED = {"mode": "time-slicing", "replicas": 4, "rename": True}
NONE = {"mode": "none"}
# A taint of the inventory, which the operator's pods tolerate.
RESTRICTED = {"key": "restricted-access", "value": "yes", "effect": "NoSchedule"}

EXPECTED: dict[str, tuple[dict[str, Any], dict[str, int], dict[str, str]]] = {
    "none": (NONE, {"nvidia.com/gpu": 1}, {"replicas": "1", "strategy": "none", "product": "Tesla-T4"}),
    "x4": (X4, {"nvidia.com/gpu": 4}, {"replicas": "4", "strategy": "time-slicing", "product": "Tesla-T4-SHARED"}),
    "x8": (X8, {"nvidia.com/gpu": 8}, {"replicas": "8", "strategy": "time-slicing", "product": "Tesla-T4-SHARED"}),
    "renamed": (
        RENAMED,
        {"nvidia.com/gpu.shared": 4},
        {"replicas": "4", "strategy": "time-slicing", "product": "Tesla-T4"},
    ),
}


@pytest.fixture(scope="module")
def installed(lab: Lab) -> Cluster:
    return Cluster(lab).install()


@pytest.fixture
def cluster(installed: Cluster) -> Iterator[Cluster]:
    """The cluster with whole GPUs in all pools, whatever the test before has configured."""
    installed.lab.command("fault", "clear")
    shared(installed, NONE)
    yield installed
    installed.lab.command("fault", "clear")


def shared(cluster: Cluster, sharing: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Run the module with this sharing of the T4 nodes, and whole GPUs in all other pools."""
    pools = cluster.pools({"name": "notebooks", "sharing": sharing}, {"name": "inference", "sharing": NONE})
    return cluster.run(gpu_sharing.main, **{"gpu_pools": pools, "wait_timeout": 60, **options})


def t4(cluster: Cluster) -> list[str]:
    """The names of the T4 nodes."""
    return sorted(name for name in cluster.nodes() if name.startswith("t4-"))


def require_mode(cluster: Cluster, mode: str) -> None:
    """Every T4 node offers exactly the resources of the mode, and has its labels."""
    dummy, resources, labels = EXPECTED[mode]
    assert cluster.offered("t4-") == dict.fromkeys(t4(cluster), resources)
    for name, node in cluster.nodes().items():
        if name.startswith("t4-"):
            assert {
                "replicas": node["metadata"]["labels"]["nvidia.com/gpu.replicas"],
                "strategy": node["metadata"]["labels"]["nvidia.com/gpu.sharing-strategy"],
                "product": node["metadata"]["labels"]["nvidia.com/gpu.product"],
            } == labels


def test_every_mode_is_verified_and_no_other_node_changes(cluster: Cluster) -> None:
    others = {name: settled(node) for name, node in cluster.nodes().items() if not name.startswith("t4-")}
    restarts, mark = cluster.restarts(), cluster.mark()
    for mode in ("x4", "x8", "renamed", "x4", "none"):
        result = shared(cluster, EXPECTED[mode][0])
        assert result["changed"] is True, result
        assert result["gpu_sharing"]["changed_nodes"] == t4(cluster)
        assert result["gpu_sharing"]["pools"]["notebooks"]["verified"] == len(t4(cluster))
        require_mode(cluster, mode)
        keys = {node["metadata"]["labels"].get(CONFIG_LABEL) for node in cluster.nodes().values()} - {None}
        assert cluster.entries() == keys
    assert cluster.written_nodes(mark, "gpu_sharing") == set(t4(cluster))
    assert {name: settled(node) for name, node in cluster.nodes().items() if name in others} == others
    assert cluster.restarts() == restarts


def test_a_second_run_sends_four_requests(cluster: Cluster) -> None:
    shared(cluster, X4)
    mark = cluster.mark()
    assert shared(cluster, X4)["changed"] is False
    assert cluster.requests(mark, "gpu_sharing") == [
        # One request serves the cluster's name and the lease.
        "get /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/accel-gpu",
        "list /apis/nvidia.com/v1/clusterpolicies?limit=500",
        "list /api/v1/nodes?limit=500",
        f"get /api/v1/namespaces/{NAMESPACE}/configmaps/accel-gpu-device-plugin",
    ]


@pytest.mark.sampled(1, group="faults of a rolling update")
@pytest.mark.parametrize("sharing", [X4, RENAMED])
def test_check_mode_predicts_the_run(cluster: Cluster, sharing: dict[str, Any]) -> None:
    before = {name: settled(node) for name, node in cluster.nodes().items()}
    predicted = shared(cluster, sharing, check=True, diff=True)
    assert {name: settled(node) for name, node in cluster.nodes().items()} == before
    done = shared(cluster, sharing, diff=True)
    assert predicted["diff"] == done["diff"]
    for key in ("changed_nodes", "changed_count", "config_entries", "released_nodes"):
        assert predicted["gpu_sharing"][key] == done["gpu_sharing"][key]
    assert shared(cluster, sharing, check=True)["changed"] is False


@pytest.mark.sampled(1, group="faults of a rolling update")
def test_a_new_entry_crashes_no_device_plugin(cluster: Cluster) -> None:
    restarts = cluster.restarts()
    shared(cluster, {**X4, "replicas": 5})
    assert cluster.restarts() == restarts


@pytest.mark.sampled(1, group="faults of a rolling update")
def test_without_the_refresh_device_plugins_crash(cluster: Cluster) -> None:
    restarts = cluster.restarts()
    with mock.patch.object(rollout, "refresh_configmaps", return_value=0):
        result = shared(cluster, {**X4, "replicas": 6}, wait_timeout=2)
    assert result.get("failed") or cluster.restarts() > restarts


def test_labels_and_taints_are_set_and_removed_and_foreign_ones_stay(cluster: Cluster) -> None:
    cluster.kubectl("label", "--overwrite", "node", "t4-1", "rack=7", "shift=night")
    cluster.kubectl("taint", "--overwrite", "node", "t4-1", "example.org/mine=yes:PreferNoSchedule")
    tainted = {
        "name": "notebooks",
        "labels": {"shift": "night", "course": "ml"},
        "taints": [RESTRICTED],
    }
    assert cluster.run(gpu_sharing.main, gpu_pools=cluster.pools(tainted))["changed"] is True
    node = cluster.nodes()["t4-1"]
    assert node["metadata"]["labels"].items() >= {"rack": "7", "shift": "night", "course": "ml"}.items()
    assert {taint["key"] for taint in node["spec"]["taints"]} >= {"restricted-access", "example.org/mine"}
    # The pool is removed: its labels and taints are removed, others stay.
    others = [pool for pool in cluster.pools() if pool["name"] != "notebooks"]
    result = cluster.run(gpu_sharing.main, gpu_pools=others)
    assert result["gpu_sharing"]["released_nodes"] == dict.fromkeys(t4(cluster), "notebooks")
    node = cluster.nodes()["t4-1"]
    assert node["metadata"]["labels"].items() >= {"rack": "7", "shift": "night"}.items()
    assert not {"course", "accel.gpu/pool", CONFIG_LABEL} & set(node["metadata"]["labels"])
    assert [taint["key"] for taint in node["spec"]["taints"] if "unschedulable" not in taint["key"]] == [
        "example.org/mine"
    ]
    assert "accel.gpu/pool-labels" not in node["metadata"]["annotations"]
    cluster.kubectl("taint", "node", "t4-1", "example.org/mine-")
    cluster.kubectl("label", "node", "t4-1", "rack-", "shift-")


def test_a_taint_that_the_policy_does_not_tolerate_is_held_back(cluster: Cluster) -> None:
    pools = cluster.pools({"name": "notebooks", "labels": {"shift": "late"}, "taints": [{**RESTRICTED, "key": "new"}]})
    expected = [{"key": "new", "operator": "Exists"}]
    after_the_rollout = cluster.run(
        gpu_sharing.main, gpu_pools=pools, expected_policy={"tolerations": expected}, check=True, diff=True
    )
    assert after_the_rollout["gpu_sharing"]["held_back"] == {}
    assert "new=yes:NoSchedule" in after_the_rollout["diff"]["after"]["nodes"]["t4-1"]["taints"]
    actual = {
        check: cluster.run(gpu_sharing.main, gpu_pools=pools, expected_policy={}, check=check, diff=True)
        for check in (True, False)
    }
    assert actual[True]["diff"] == actual[False]["diff"]
    for result in actual.values():
        assert result["gpu_sharing"]["held_back"] == {"notebooks": ["new=yes:NoSchedule"]}
        assert "new=yes:NoSchedule of pool notebooks was held back" in str(result["warnings"])
    node = cluster.nodes()["t4-1"]
    assert node["metadata"]["labels"]["shift"] == "late"
    assert "new" not in {taint["key"] for taint in node["spec"].get("taints", [])}
    assert cluster.run(gpu_sharing.main, gpu_pools=pools)["changed"] is False


@pytest.mark.sampled(1, group="faults of a rolling update")
def test_an_entry_that_another_node_names_stays(cluster: Cluster) -> None:
    shared(cluster, X4)
    (old,) = {node["metadata"]["labels"][CONFIG_LABEL] for name, node in cluster.nodes().items() if name == "t4-1"}
    cluster.kubectl("label", "--overwrite", "node", "cpu-1", f"{CONFIG_LABEL}={old}")
    cluster.kubectl(
        "patch", "configmap", "accel-gpu-device-plugin", "-n", NAMESPACE, "--field-manager=other-manager",
        "--type=merge", "-p", '{"data": {"theirs": "version: v1"}}',
    )  # fmt: skip
    shared(cluster, NONE)
    assert {old, "theirs"} <= cluster.entries()
    cluster.kubectl("label", "node", "cpu-1", f"{CONFIG_LABEL}-")
    shared(cluster, NONE)
    assert old not in cluster.entries()
    assert "theirs" in cluster.entries()


@pytest.mark.sampled(1, group="faults of a rolling update")
def test_a_crashing_device_plugin_is_reported_with_node_and_reason(cluster: Cluster) -> None:
    cluster.lab.command("fault", "inject", "plugin-crash", "--nodes", "t4-2")
    result = shared(cluster, X4, wait_timeout=8)
    assert result["failed"] is True
    assert result["code"] == "partial"
    for word in ("t4-2 (pool notebooks)", "CrashLoopBackOff", "nvidia-device-plugin-daemonset", "kubectl", "for "):
        assert word in result["msg"]
    assert "t4-1" not in result["msg"]
    assert result["changed"] is True
    assert result["gpu_sharing"]["pools"]["notebooks"]["verified"] == len(t4(cluster)) - 1
    cluster.lab.command("fault", "clear")
    assert shared(cluster, X4)["gpu_sharing"]["pools"]["notebooks"]["verified"] == len(t4(cluster))


@pytest.mark.sampled(1, group="faults of a rolling update")
def test_labels_that_nfd_has_dropped_are_repaired(cluster: Cluster) -> None:
    """NFD's master updates a node only when one of its NodeFeatures changes."""
    shared(cluster, X4)
    cluster.kubectl("label", "--overwrite", "node", "t4-1", "nvidia.com/gpu.replicas=1")
    with mock.patch.object(verification, "LABELS_LATE", 1.0):
        result = shared(cluster, X4)
    assert result["gpu_sharing"]["repaired"] == {"t4-1": verification.DISCOVERY_RESTARTED}
    assert cluster.nodes()["t4-1"]["metadata"]["labels"]["nvidia.com/gpu.replicas"] == "4"
    assert shared(cluster, X4)["changed"] is False


@pytest.mark.sampled(1, group="faults of a rolling update")
def test_a_node_that_is_not_ready_does_not_delay_the_others(cluster: Cluster) -> None:
    cluster.lab.command("fault", "inject", "node-not-ready", "--nodes", "t4-3")
    cluster.until(
        lambda: all(
            condition["status"] != "True"
            for condition in cluster.nodes()["t4-3"]["status"]["conditions"]
            if condition["type"] == "Ready"
        ),
        seconds=90,
    )
    result = shared(cluster, X4)
    assert not result.get("failed"), result
    assert result["gpu_sharing"]["not_ready"] == ["t4-3"]
    assert result["gpu_sharing"]["pools"]["notebooks"]["verified"] == len(t4(cluster)) - 1
    assert "t4-3" in str(result["warnings"])


@pytest.mark.sampled(1, group="faults of a rolling update")
def test_a_missing_gpu_fails_at_once(cluster: Cluster) -> None:
    pools = cluster.pools({"name": "notebooks", "sharing": NONE, "gpus_per_node": 2})
    result = cluster.run(gpu_sharing.main, gpu_pools=pools, wait_timeout=60)
    assert result["failed"] is True
    assert "has 1 GPU(s), but gpus_per_node is 2" in result["msg"]


@pytest.mark.sampled(1, group="faults of a rolling update")
def test_without_wait_the_nodes_are_labeled(cluster: Cluster) -> None:
    result = shared(cluster, X4, wait=False)
    assert result["changed"] is True
    cluster.until(lambda: cluster.offered("t4-1") == {"t4-1": {"nvidia.com/gpu": 4}})


def test_report_path_gets_the_whole_result(cluster: Cluster, tmp_path: Any) -> None:
    path = tmp_path / "result.json"
    result = shared(cluster, X4, report_path=str(path))
    assert result["gpu_sharing"]["report_path"] == str(path)
    assert json.loads(path.read_text())["changed_nodes"] == t4(cluster)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"gpu_pools": [{"name": "a", "sharing": {"mode": "time-slicing", "replicas": 1}}]},
            "gpu_pools[0].sharing.replicas",
        ),
        ({}, "pools"),
    ],
)
def test_invalid_options_fail_before_the_first_request(cluster: Cluster, options: dict[str, Any], words: str) -> None:
    mark = cluster.mark()
    result = cluster.run(gpu_sharing.main, **options)
    assert result["failed"] is True
    assert words in result["msg"]
    assert cluster.requests(mark, "gpu_sharing") == []
