# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""cluster_policy with the real operator: managed fields are set and removed, foreign ones stay, and failures are explained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator import cluster_policy_client
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.cluster_policy import active_policy
from ansible_collections.accel.gpu.plugins.modules import cluster_policy, gpu_info, uninstall
from tests.helpers.cluster import Cluster
from tests.labs import Lab

NEW = {"key": "example.com/team", "value": "vision", "effect": "NoSchedule"}
TOLERATION = {"key": "example.com/team", "operator": "Equal", "value": "vision", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def installed(lab: Lab) -> Cluster:
    return Cluster(lab).install()


@pytest.fixture
def cluster(installed: Cluster) -> Iterator[Cluster]:
    yield installed
    installed.lab.command("fault", "clear")


def converge(cluster: Cluster, pools: list[dict[str, Any]] | None = None, **options: Any) -> dict[str, Any]:
    args = {"gpu_pools": pools if pools is not None else cluster.pools(), "wait_timeout": 90, "wait_sleep": 1}
    return cluster.run(cluster_policy.main, **{**args, **options})


def policy(cluster: Cluster) -> dict[str, Any]:
    actual: dict[str, Any] = cluster.get("clusterpolicy", "cluster-policy")
    return actual


def tolerations(cluster: Cluster) -> list[dict[str, Any]]:
    actual: list[dict[str, Any]] = policy(cluster)["spec"]["daemonsets"]["tolerations"]
    return actual


@pytest.mark.usual(40)
def test_a_converged_cluster_is_verified_by_four_lists(cluster: Cluster) -> None:
    converge(cluster)
    mark = cluster.mark()
    again = converge(cluster)
    assert again["changed"] is False
    assert again["cluster_policy"]["ready"]
    assert again["cluster_policy"]["reason"] == "Reconciled"
    assert again["cluster_policy"]["gpu_nodes"] == 20
    assert again["cluster_policy"]["operands"]["nvidia-driver-daemonset"] == {"desired": 20, "ready": 20}
    sent = [request.split("?")[0] for request in cluster.requests(mark, "cluster_policy")]
    assert sorted(sent) == [
        "get /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/accel-gpu",
        "list /api/v1/nodes",
        "list /apis/apps/v1/namespaces/gpu-operator/daemonsets",
        "list /apis/node.k8s.io/v1/runtimeclasses",
        "list /apis/nvidia.com/v1/clusterpolicies",
    ]
    assert again["cluster_policy"]["runtime_classes"] == {"nvidia": "nvidia"}


def test_the_namespace_of_the_operator_is_found_before_its_policy_has_a_status(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_status(policies: list[dict[str, Any]]) -> dict[str, Any]:
        return {**(active_policy(policies) or {}), "status": {}}

    monkeypatch.setattr(cluster_policy_client, "active_policy", without_status)
    connection = {"name": cluster.lab.name, "kubeconfig": str(cluster.lab.kubeconfig)}
    declared = {**connection, "operator": {"namespace": "elsewhere"}}
    again = converge(cluster, gpu_cluster=declared, wait_timeout=10)
    assert not again.get("failed"), again["msg"]
    assert again["cluster_policy"]["ready"]


def test_the_installation_set_and_recorded_the_tolerations_of_the_pools(cluster: Cluster) -> None:
    noted = json.loads(policy(cluster)["metadata"]["annotations"]["accel.gpu/tolerations"])
    assert noted == tolerations(cluster)
    assert [entry["key"] for entry in noted] == ["nvidia.com/gpu", "restricted-access"]


def test_a_new_taint_is_held_back_while_drivers_run(cluster: Cluster) -> None:
    pools = cluster.pools({"name": "train-h200", "taints": [NEW]})
    before = policy(cluster)["spec"]
    actual = converge(cluster, pools)
    assert actual["changed"] is False
    assert actual["cluster_policy"]["held_back"] == ["spec.daemonsets.tolerations"]
    assert "was held back, because it would restart the driver on 20 nodes" in str(actual["warnings"])
    assert policy(cluster)["spec"] == before
    allowed = converge(cluster, pools, allow_driver_rollout=True, check=True, diff=True)
    assert allowed["changed"]
    assert TOLERATION in allowed["cluster_policy"]["tolerations"]
    assert TOLERATION not in actual["cluster_policy"]["tolerations"]
    assert allowed["cluster_policy"]["driver_nodes"] == 20
    assert TOLERATION in allowed["diff"]["after"]["spec"]["daemonsets"]["tolerations"]
    assert policy(cluster)["spec"] == before


def test_a_removed_taint_stays_tolerated_until_no_node_has_it(cluster: Cluster) -> None:
    """Otherwise, the node would lose its GPUs, and the operator would upgrade no driver in the cluster."""
    pools = cluster.pools({"name": "train-h100", "taints": []})
    before = policy(cluster)["spec"]
    cluster.kubectl("taint", "node", "h100-1", "restricted-access=yes:NoSchedule")
    actual = converge(cluster, pools, allow_driver_rollout=True)
    assert actual["changed"] is False, actual.get("msg")
    assert "keeps the toleration for the taint restricted-access=yes:NoSchedule" in str(actual["warnings"])
    assert policy(cluster)["spec"] == before
    cluster.kubectl("taint", "node", "h100-1", "restricted-access-")
    later = converge(cluster, pools, allow_driver_rollout=True, check=True)
    assert later["changed"]
    assert "restricted-access" not in str(later["cluster_policy"]["tolerations"])


def test_a_crashing_plugin_is_named_with_its_node(cluster: Cluster) -> None:
    cluster.lab.command("fault", "inject", "plugin-crash", "--nodes", "t4-1")
    cluster.until(lambda: cluster.restarts() > 0)
    actual = converge(cluster, wait_timeout=6)
    assert actual["failed"]
    assert "nvidia-device-plugin-daemonset: 19 of 20 pods are ready" in actual["msg"]
    assert "on node t4-1" in actual["msg"]
    assert "CrashLoopBackOff" in actual["msg"]
    assert actual["cluster_policy"]["operands"]["nvidia-device-plugin-daemonset"] == {"desired": 20, "ready": 19}


@pytest.mark.parametrize("check", [True, False])
def test_without_pools_only_managed_fields_are_removed(cluster: Cluster, check: bool) -> None:
    live = policy(cluster)
    actual = converge(cluster, [], check=check)
    assert not actual.get("failed")
    assert policy(cluster)["spec"]["driver"] == live["spec"]["driver"]
    converge(cluster)


WITH_DRIVER = {"name": "train-h200", "driver": {"version": "570.148.08"}}


@pytest.fixture
def drivers(installed: Cluster) -> Iterator[Cluster]:
    """A stopped operator, so that NVIDIADriver objects have no effect on the drivers, and none of them afterwards."""
    namespace = ["--namespace", "gpu-operator"]
    installed.kubectl("scale", "deployment", "gpu-operator", "--replicas=0", *namespace)
    installed.until(lambda: not installed.get("pods", "-l", "app=gpu-operator", *namespace)["items"])
    yield installed
    installed.kubectl("delete", "nvidiadrivers", "--all")
    patch = json.dumps({"spec": {"driver": {"useNvidiaDriverCRD": False}}})
    installed.kubectl("patch", "clusterpolicy", "cluster-policy", "--type=merge", "--patch", patch)
    installed.kubectl("label", "clusterpolicy", "cluster-policy", "--overwrite", "app.kubernetes.io/version=v25.10.1")
    installed.kubectl("scale", "deployment", "gpu-operator", "--replicas=1", *namespace)


def driver(cluster: Cluster, name: str) -> dict[str, Any]:
    actual: dict[str, Any] = cluster.get("nvidiadriver", name)
    return actual


def create_driver(cluster: Cluster, name: str, path: Path) -> None:
    """A foreign object that selects no node."""
    spec = {"driverType": "gpu", "image": "driver", "version": "1.2.3", "nodeSelector": {"rack": "x"}}
    body = {"apiVersion": "nvidia.com/v1alpha1", "kind": "NVIDIADriver", "metadata": {"name": name}, "spec": spec}
    path.write_text(json.dumps(body))
    cluster.kubectl("create", "-f", str(path))


def planned_warnings(cluster: Cluster, pools: list[dict[str, Any]], version: str = "v25.10.1") -> list[str]:
    operator = {"version": version, "chart": f"{cluster.lab.env['LAB_CHARTS']}/gpu-operator"}
    declared = {"name": cluster.lab.name, "kubeconfig": str(cluster.lab.kubeconfig), "operator": operator}
    result = cluster.run(gpu_info.main, gpu_cluster=declared, gpu_pools=pools, include_impact=True)
    warnings: list[str] = result["gpu_info"]["warnings"]
    return warnings


@pytest.mark.usual(30)
@pytest.mark.sampled(1, group="drivers of an installed operator")
def test_driver_objects_are_created_corrected_and_never_taken_over(drivers: Cluster, tmp_path: Path) -> None:
    pools = drivers.pools(WITH_DRIVER)
    options: dict[str, Any] = {"allow_driver_rollout": True, "wait": False}
    create_driver(drivers, "accel-gpu-train-h200", tmp_path / "foreign.json")
    foreign = driver(drivers, "accel-gpu-train-h200")
    problem = "NVIDIADriver accel-gpu-train-h200 was not created by this collection, but pool train-h200 needs its name"
    for check in (True, False):
        assert problem in converge(drivers, pools, check=check, **options)["msg"]
    assert any(problem in line for line in planned_warnings(drivers, pools))
    assert driver(drivers, "accel-gpu-train-h200") == foreign
    assert len(drivers.get("nvidiadrivers")["items"]) == 1

    preview = drivers.run(uninstall.main, stage="before_helm", check=True)
    assert not preview.get("failed")
    assert "NVIDIADriver" not in str(preview)

    handed_over = "app.kubernetes.io/managed-by=accel.gpu"
    drivers.kubectl("label", "nvidiadriver", "accel-gpu-train-h200", handed_over)
    preview = drivers.run(uninstall.main, stage="before_helm", check=True)
    assert "NVIDIADriver" not in str(preview), "a label can be a copy: nothing was written to the object yet"
    first = converge(drivers, pools, **options)
    preview = drivers.run(uninstall.main, stage="before_helm", check=True)
    assert "NVIDIADriver accel-gpu-train-h200" in str(preview)
    assert {item["name"]: item["created"] for item in first["cluster_policy"]["nvidia_drivers"]} == {
        f"accel-gpu-{pool['name']}": pool["name"] != "train-h200" for pool in pools
    }
    spec = driver(drivers, "accel-gpu-train-h200")["spec"]
    assert (spec["version"], spec["nodeSelector"]) == ("570.148.08", {"accel.gpu/pool": "train-h200"})
    assert converge(drivers, pools, **options)["changed"] is False

    # A key of another manager, in an object that was created by the module.
    name = f"accel-gpu-{pools[0]['name']}"
    patch = json.dumps({"spec": {"nodeSelector": {"rack": "x"}}})
    drivers.kubectl("patch", "nvidiadriver", name, "--type=merge", "--patch", patch)
    result = drivers.run(cluster_policy.main, gpu_pools=pools, check=True, diff=True, **options)
    assert result["diff"]["before"]["drivers"][name]["nodeSelector"]["rack"] == "x"
    assert "rack" not in result["diff"]["after"]["drivers"][name]["nodeSelector"]
    assert any(f"NVIDIADriver {name} does not select" in line for line in result["cluster_policy"]["waiting"])
    assert converge(drivers, pools, **options)["changed"]
    assert driver(drivers, name)["spec"]["nodeSelector"] == {"accel.gpu/pool": pools[0]["name"]}

    # A field of the creation that is no longer declared.
    for secret in ({"secret_env": "s"}, {}):
        changed = {**pools[0], "driver": {"version": "570.148.08", **secret}}
        assert converge(drivers, [changed, *pools[1:]], **options)["changed"]
        assert driver(drivers, name)["spec"].get("secretEnv") == secret.get("secret_env")
    drivers.kubectl("delete", "nvidiadriver", name)
    created = {**pools[0], "driver": {"version": "570.148.08", "secret_env": "s"}}
    converge(drivers, [created, *pools[1:]], **options)
    assert driver(drivers, name)["spec"]["secretEnv"] == "s"
    converge(drivers, [changed, *pools[1:]], **options)
    assert "secretEnv" not in driver(drivers, name)["spec"]
    assert converge(drivers, [changed, *pools[1:]], **options)["changed"] is False


def test_a_crd_that_is_older_than_the_operator_is_refused_before_the_first_object(drivers: Cluster) -> None:
    pools = drivers.pools(WITH_DRIVER)
    drivers.kubectl("label", "clusterpolicy", "cluster-policy", "--overwrite", "app.kubernetes.io/version=v26.7.0")
    before = policy(drivers)
    problem = "The CRD nvidiadrivers.nvidia.com is older than operator v26.7.0: it has no spec.default"
    for check in (True, False):
        actual = converge(drivers, pools, check=check, allow_driver_rollout=True, wait=False)
        assert problem in actual["msg"]
    assert any(problem in line for line in planned_warnings(drivers, pools, "v26.7.0"))
    assert not drivers.get("nvidiadrivers")["items"]
    assert policy(drivers)["spec"] == before["spec"]


@pytest.mark.usual(40)
@pytest.mark.sampled(1, group="drivers of an installed operator")
def test_from_v26_7_on_a_new_taint_restarts_driver_pods_in_place(lab: Lab, installed: Cluster) -> None:
    """The driver's DaemonSet as the operator v26.7.0 writes it; the pinned operator is stopped, since it would revert that."""
    pools = installed.pools({"name": "train-h200", "taints": [NEW]})
    namespace = ["--namespace", "gpu-operator"]
    installed.kubectl("scale", "deployment", "gpu-operator", "--replicas=0", *namespace)
    installed.until(lambda: not installed.get("pods", "-l", "app=gpu-operator", *namespace)["items"])
    template = {
        "initContainers": [
            {
                "name": "k8s-driver-manager",
                "image": "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0",
                "env": [{"name": "DRIVER_CONFIG_DIGEST", "value": "3f2a"}],
            }
        ]
    }
    patch = json.dumps({"spec": {"template": {"spec": template}}})
    installed.kubectl("patch", "daemonset", "nvidia-driver-daemonset", *namespace, "--patch", patch)
    installed.kubectl("label", "clusterpolicy", "cluster-policy", "--overwrite", "app.kubernetes.io/version=v26.7.0")

    def change(**options: Any) -> dict[str, Any]:
        return converge(installed, pools, check=True, **options)

    def impact(version: str) -> tuple[int, bool, bool]:
        operator = {"version": version, "chart": f"{lab.env['LAB_CHARTS']}/gpu-operator"}
        cluster = {"name": lab.name, "kubeconfig": str(lab.kubeconfig), "operator": operator}
        result = installed.run(gpu_info.main, gpu_cluster=cluster, gpu_pools=pools, include_impact=True)
        total = result["gpu_info"]["impact"]
        return total["driver_restarts"], total["in_place"], total["held_back"]

    # The running pods are of the template before.
    assert change()["cluster_policy"]["held_back"] == ["spec.daemonsets.tolerations"]
    installed.kubectl("delete", "pods", "-l", "app=nvidia-driver-daemonset", *namespace, "--wait=false")

    def updated() -> int:
        result = installed.get("daemonset", "nvidia-driver-daemonset", *namespace)
        return int(result["status"].get("updatedNumberScheduled") or 0)

    installed.until(lambda: updated() == 20, 90)
    result = change()
    assert result["changed"]
    assert (result["cluster_policy"]["held_back"], result["cluster_policy"]["driver_nodes"]) == ([], 20)
    assert "The driver pods of 20 nodes restart in place, at most 1 at a time" in str(result["warnings"])
    assert "no GPU pod is evicted" in str(result["warnings"])
    assert impact("v26.7.0") == (20, True, False)

    installed.kubectl("label", "clusterpolicy", "cluster-policy", "--overwrite", "app.kubernetes.io/version=v26.3.3")
    assert change()["cluster_policy"]["held_back"] == ["spec.daemonsets.tolerations"]
    assert impact("v26.3.3") == (20, False, True)


def test_on_an_empty_cluster(lab: Lab, installed: Cluster) -> None:
    """Runs last, because it uninstalls the operator."""
    lab.reset()
    for check in (True, False):
        actual = converge(installed, check=check)
        assert "install the GPU operator first" in actual["msg"]
    expected = {"kinds": [{"api_version": "nvidia.com/v1", "kind": "ClusterPolicy"}]}
    actual = converge(installed, check=True, diff=True, expected=expected)
    assert actual["changed"]
    assert actual["diff"]["before"] == {}
    assert actual["diff"]["after"]["cluster_name"]
    assert set(actual["diff"]["after"]["spec"]) == {"devicePlugin", "daemonsets"}
