# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""uninstall on a cluster with a foreign operator and a foreign NFD: they keep working, without the collection's changes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import cluster_policy, gpu_sharing, uninstall
from tests.faults.api_proxy import ApiProxy, Request
from tests.helpers.cluster import CONFIG_LABEL, NAMESPACE, Cluster
from tests.helpers.foreign import Foreign
from tests.helpers.snapshot import Objects, differences, snapshot, written_by
from tests.labs import Lab
from tests.programs import run

pytestmark = pytest.mark.soak

FOREIGN = {"key": "example.com/theirs", "operator": "Exists"}
PCI = {"sources": {"pci": {"deviceClassWhitelist": ["0300", "0302"], "deviceLabelFields": ["vendor"]}}}
NFD: dict[str, Any] = {
    "master": {"extraLabelNs": ["nvidia.com"]},
    "worker": {"tolerations": [{"operator": "Exists"}], "config": PCI},
}
GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
OPERATOR = {
    "nfd": {"enabled": False},
    "operator": {"upgradeCRD": False},
    "daemonsets": {"tolerations": [GPU, FOREIGN]},
    # All at the same time; the operator's default is one node after the other.
    "driver": {"version": "580.95.05", "upgradePolicy": {"maxParallelUpgrades": 0, "maxUnavailable": "100%"}},
}


MIG_LABEL = "nvidia.com/mig.config"
STUCK = "a100-1"


# A configuration of the device plugin.
SHARED = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n      - {{name: nvidia.com/gpu, replicas: {}}}\n"


def debugger(node: str) -> dict[str, Any]:
    """A privileged pod, which can access every GPU of its node and requests none."""
    container = {
        "name": "main",
        "image": "busybox",
        "securityContext": {"privileged": True},
        "command": ["sleep", "3600"],
    }
    spec = {"nodeName": node, "containers": [container], "tolerations": [{"operator": "Exists"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "debugger", "namespace": "default"}, "spec": spec}


def helm(cluster: Cluster, release: str, chart: str, namespace: str, values: dict[str, Any]) -> None:
    charts = cluster.lab.env["LAB_CHARTS"]
    text = json.dumps(values)
    run(
        "bash",
        "-c",
        f"helm install {release} {charts}/{chart} -n {namespace} --create-namespace --wait -f - <<'E'\n{text}\nE",
        env=cluster.lab.env,
    )


@pytest.fixture(scope="module")
def cluster(lab: Lab) -> Cluster:
    """NFD and the operator as installed manually, under other names."""
    lab.reset()
    cluster = Cluster(lab)
    helm(cluster, "features", "node-feature-discovery", "features", NFD)
    helm(cluster, "nvidia", "gpu-operator", NAMESPACE, OPERATOR)
    cluster.until(lambda: all(cluster.offered("t4-").values()), 60)
    return cluster


def policy(cluster: Cluster) -> dict[str, Any]:
    actual: dict[str, Any] = cluster.get("clusterpolicy", "cluster-policy", "--show-managed-fields")
    return actual


def configure(cluster: Cluster, *changes: dict[str, Any]) -> None:
    """Apply the sharing to the cluster."""
    pools = cluster.pools(*changes)
    for main, more in ((cluster_policy.main, {"allow_driver_rollout": True, "wait_sleep": 1}), (gpu_sharing.main, {})):
        result = cluster.run(main, gpu_pools=pools, wait_timeout=300, **more)
        assert not result.get("failed"), result["msg"]


def uninstall_stage(cluster: Cluster, /, stage: str = "before_helm", **options: Any) -> dict[str, Any]:
    result = cluster.run(
        uninstall.main, stage=stage, confirm=[cluster.lab.name], wait_timeout=300, wait_sleep=1, **options
    )
    assert not result.get("failed"), result["msg"]
    return result


def managers(actual: dict[str, Any]) -> set[str]:
    return {entry["manager"] for entry in actual["metadata"]["managedFields"]}


@contextmanager
def written_meanwhile(cluster: Cluster, folder: Path) -> Iterator[dict[str, str]]:
    """A proxy with which another client changes the policy right before the first patch in either mode."""
    met: set[bool] = set()

    def meanwhile(request: Request) -> None:
        dry = "dryRun=" in request.path
        if request.method == "PATCH" and "/clusterpolicies/" in request.path and dry not in met:
            met.add(dry)
            cluster.kubectl(
                "annotate", "--overwrite", "clusterpolicy", "cluster-policy", f"example.com/seen={len(met)}"
            )

    proxy = ApiProxy(cluster.lab.kubeconfig)
    proxy.before = meanwhile
    with proxy.running():
        yield {"name": cluster.lab.name, "kubeconfig": str(proxy.kubeconfig(folder / "kubeconfig"))}
    assert met == {True, False}


@pytest.mark.usual(60)
def test_a_foreign_operator_works_without_the_managed_configuration(cluster: Cluster) -> None:
    before, offered = policy(cluster), cluster.offered("t4-")
    configure(cluster, {"name": "train-h100", "taints": []})
    assert cluster.offered("t4-") != offered
    restarts = cluster.restarts()

    preview = uninstall_stage(cluster, check=True, diff=True)
    actual = uninstall_stage(cluster, diff=True)
    assert preview["changed"]
    assert actual["changed"]
    assert preview["diff"] == actual["diff"]
    assert preview["uninstall"] == actual["uninstall"]
    assert actual["uninstall"]["held_back"] == []
    assert not any(release["uninstall"] for release in actual["uninstall"]["releases"])
    assert (
        "ClusterPolicy cluster-policy: adopted, stays: this collection did not install it"
        in actual["uninstall"]["kept"]
    )

    after = policy(cluster)
    assert after["spec"] == before["spec"]
    assert "accel.gpu/tolerations" not in (after["metadata"].get("annotations") or {})
    assert "accel.gpu" not in managers(after)
    cluster.until(lambda: cluster.offered("t4-") == offered, 60)
    assert cluster.restarts() == restarts
    for node in cluster.nodes().values():
        assert not [key for key in node["metadata"]["labels"] if key.startswith("accel.gpu/") or key == CONFIG_LABEL]
        assert not [key for key in node["metadata"].get("annotations", {}) if key.startswith("accel.gpu/")]
    assert uninstall_stage(cluster)["changed"] is False

    last = uninstall_stage(cluster, "after_helm")
    assert last["uninstall"]["removed"] == ["Lease kube-system/accel-gpu: deleted"]
    assert uninstall_stage(cluster, "after_helm")["changed"] is False
    assert written_by(cluster.lab, "accel.gpu") == []
    assert policy(cluster)["status"]["state"] == "ready"


@pytest.mark.usual(40)
def test_tolerations_are_held_back_while_drivers_run(cluster: Cluster, tmp_path: Path) -> None:
    configure(cluster)
    assert [entry["key"] for entry in policy(cluster)["spec"]["daemonsets"]["tolerations"]] == [
        "nvidia.com/gpu",
        "example.com/theirs",
        "restricted-access",
    ]
    for check in (True, False):
        actual = uninstall_stage(cluster, check=check)
        assert actual["uninstall"]["held_back"] == ["spec.daemonsets.tolerations"]
        assert "the driver would restart on 20 nodes" in str(actual["uninstall"]["kept"])
    held = policy(cluster)
    assert len(held["spec"]["daemonsets"]["tolerations"]) == 3
    assert "config" not in held["spec"]["devicePlugin"]
    assert uninstall_stage(cluster)["changed"] is False
    with written_meanwhile(cluster, tmp_path) as way:
        for check in (True, False):
            assert uninstall_stage(cluster, check=check, allow_driver_rollout=True, gpu_cluster=way)["changed"]
    assert policy(cluster)["spec"]["daemonsets"]["tolerations"] == [GPU, FOREIGN]
    assert "accel.gpu" not in managers(policy(cluster))
    assert uninstall_stage(cluster, allow_driver_rollout=True)["changed"] is False


@pytest.mark.usual(60)
def test_mig_is_disabled_on_partitioned_gpus(cluster: Cluster) -> None:
    offered = cluster.offered("a100-")
    configure(
        cluster,
        {"name": "train-h100", "taints": []},
        {"name": "train-a100", "sharing": {"mode": "mig", "layout": {"3g.40gb": 2}}},
    )
    assert all(
        "nvidia.com/gpu" not in actual or actual != whole
        for actual, whole in zip(cluster.offered("a100-").values(), offered.values(), strict=True)
    )
    preview = uninstall_stage(cluster, check=True, diff=True)
    assert not [line for line in preview["uninstall"]["kept"] if "MIG" in line]
    actual = uninstall_stage(cluster, diff=True)
    assert preview["diff"] == actual["diff"]
    assert actual["uninstall"]["removed"] == preview["uninstall"]["removed"]
    assert "ConfigMap gpu-operator/accel-gpu-mig-parted: deleted" in actual["uninstall"]["removed"]
    cluster.until(lambda: cluster.offered("a100-") == offered, 60)
    for name, node in cluster.nodes().items():
        if name.startswith("a100-"):
            labels = node["metadata"]["labels"]
            # The operator's own default, and the MIG manager's result.
            assert labels.get("nvidia.com/mig.config") == "all-disabled"
            assert labels.get("nvidia.com/mig.config.state") == "success"
    assert uninstall_stage(cluster)["changed"] is False


@pytest.mark.usual(120)
def test_a_failed_mig_reset_keeps_the_node_and_the_next_run_completes_it(cluster: Cluster) -> None:
    """The first run restarts the MIG manager without success, the second one finds the failed state and restarts it successfully."""
    configure(
        cluster,
        {"name": "train-h100", "taints": []},
        {"name": "train-a100", "sharing": {"mode": "mig", "layout": {"3g.40gb": 2}}},
    )
    run("bash", "-c", f"kubectl apply -f - <<'E'\n{json.dumps(debugger(STUCK))}\nE", env=cluster.lab.env)
    before = cluster.nodes()[STUCK]
    cluster.lab.command("fault", "inject", "mig-failed", "--nodes", STUCK)
    started = time.monotonic()
    failed = cluster.run(
        uninstall.main, stage="before_helm", confirm=[cluster.lab.name], wait_timeout=600, wait_sleep=1
    )
    assert time.monotonic() - started < 300
    assert failed.get("failed")
    assert f"The MIG manager has failed to reset the layout of node {STUCK}, even after a restart" in failed["msg"]
    assert "pods that use its GPUs: default/debugger (privileged container main)" in failed["msg"]
    assert "the MIG manager's log ends" in failed["msg"]

    after = cluster.nodes()[STUCK]
    labels = after["metadata"]["labels"]
    assert (labels[MIG_LABEL], labels[f"{MIG_LABEL}.state"]) == ("all-disabled", "failed")
    assert labels["accel.gpu/pool"] == "train-a100"
    assert labels.get(CONFIG_LABEL) == before["metadata"]["labels"].get(CONFIG_LABEL)
    assert after["spec"].get("taints") == before["spec"].get("taints")
    notes = {key: value for key, value in before["metadata"]["annotations"].items() if key.startswith("accel.gpu/")}
    assert {key: after["metadata"]["annotations"].get(key) for key in notes} == notes

    cluster.lab.command("fault", "clear")
    # The failed run may have removed something already.
    preview = uninstall_stage(cluster, check=True, diff=True)
    actual = uninstall_stage(cluster, diff=True)
    assert actual["uninstall"]["removed"] == preview["uninstall"]["removed"]
    cluster.kubectl("delete", "pod", "debugger", "--now")
    given_back = cluster.nodes()[STUCK]["metadata"]
    assert not [key for part in ("labels", "annotations") for key in given_back[part] if key.startswith("accel.gpu/")]
    assert uninstall_stage(cluster)["changed"] is False


def test_a_cluster_without_the_collection(cluster: Cluster) -> None:
    for stage in ("before_helm", "after_helm"):
        uninstall_stage(cluster, stage)
    mark = cluster.mark()
    for stage in ("before_helm", "after_helm"):
        assert uninstall_stage(cluster, stage)["changed"] is False
    assert {request.split()[0] for request in cluster.requests(mark, "uninstall")} <= {"get", "list"}


# Equal to the taint and toleration of pool train-h100.
EQUAL_TOLERATION = {"key": "restricted-access", "operator": "Exists"}
EQUAL_TAINT = "restricted-access=yes:NoSchedule"
GFD_STARTED = "nvidia.com/gfd.timestamp"
UPGRADE_STATE = "nvidia.com/gpu-driver-upgrade-state"


def lasting(actual: Objects) -> Objects:
    """Remove the fields that change without the collection."""
    after: Objects = {}
    for label, item in actual.items():
        metadata = dict(item["metadata"])
        owners = {owner["kind"] for owner in metadata.get("ownerReferences", [])}
        # Pods of a DaemonSet are replaced when its template changes.
        if item["kind"] == "Pod" and "DaemonSet" in owners:
            continue
        # Kubernetes counts the changes of a template; GFD records its start time and its pod.
        for place, key in (("annotations", "deprecated.daemonset.template.generation"), ("labels", GFD_STARTED)):
            metadata[place] = {name: value for name, value in metadata.get(place, {}).items() if name != key}
        after[label] = {**item, "metadata": metadata}
        if item["kind"] == "NodeFeature":
            metadata.pop("ownerReferences", None)
            labels = item["spec"].get("labels") or {}
            after[label]["spec"] = {**item["spec"], "labels": {k: v for k, v in labels.items() if k != GFD_STARTED}}
    return after


@pytest.mark.usual(90)
def test_foreign_settings_survive_sharing_its_change_and_its_end(cluster: Cluster) -> None:
    """ClusterPolicy, tolerations, taints, labels, annotations, a cordon and ConfigMaps; some equal those of the collection."""
    foreign = Foreign(cluster.lab)
    foreign.create()
    cluster.kubectl("-n", NAMESPACE, "create", "configmap", "theirs", "--from-literal=kept=yes")
    foreign_spec = {
        "daemonsets": {"tolerations": [GPU, FOREIGN, EQUAL_TOLERATION]},
        "dcgmExporter": {"env": [{"name": "THEIRS", "value": "yes"}]},
    }
    cluster.kubectl(
        "patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p", json.dumps({"spec": foreign_spec})
    )
    cluster.kubectl("taint", "node", "h100-1", EQUAL_TAINT)
    cluster.until(lambda: tolerated(cluster, "restricted-access") and whole(cluster), 240)
    before, spec = lasting(snapshot(cluster.lab)), policy(cluster)["spec"]

    configure(cluster)
    keys = [entry["key"] for entry in policy(cluster)["spec"]["daemonsets"]["tolerations"]]
    # The foreign toleration covers the one that the pool needs.
    assert keys == ["nvidia.com/gpu", "example.com/theirs", "restricted-access"]
    assert [tainted(cluster, name) for name in ("h100-1", "h100-2")] == [True, True]

    configure(
        cluster,
        {"name": "train-h100", "taints": []},
        {"name": "notebooks", "sharing": {"mode": "time-slicing", "replicas": 2}},
    )
    assert policy(cluster)["spec"]["daemonsets"]["tolerations"] == [GPU, FOREIGN, EQUAL_TOLERATION]
    assert [tainted(cluster, name) for name in ("h100-1", "h100-2")] == [True, False]
    assert set(map(str, cluster.offered("t4-").values())) == {str({"nvidia.com/gpu": 2})}

    uninstall_stage(cluster, allow_driver_rollout=True)
    uninstall_stage(cluster, "after_helm")
    foreign.require_intact()
    assert policy(cluster)["spec"] == spec
    cluster.until(lambda: tolerated(cluster, "restricted-access") and whole(cluster), 240)
    assert differences(before, lasting(snapshot(cluster.lab))) == {}


def pod(node: str) -> dict[str, Any]:
    """A pod with one GPU or MIG device of its node."""
    container = {"name": "main", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"nodeName": node, "containers": [container], "tolerations": [{"operator": "Exists"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"on-{node}", "namespace": "default"}, "spec": spec}


def apply(cluster: Cluster, item: dict[str, Any]) -> None:
    run("bash", "-c", f"kubectl apply -f - <<'E'\n{json.dumps(item)}\nE", env=cluster.lab.env)


@pytest.mark.usual(120)
def test_labels_and_mig_devices_from_before_the_collection_are_restored(cluster: Cluster) -> None:
    """The pod on a100-1 keeps its MIG device, and the pod on a100-2, whose MIG devices the collection has created, ends the run before any change."""
    texts = {"none": "version: v1", "x8": SHARED.format(8), "x4": SHARED.format(4)}
    metadata = {"name": "theirs", "namespace": NAMESPACE}
    apply(cluster, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": texts})
    plugin = {"spec": {"devicePlugin": {"config": {"name": "theirs", "default": "none"}}}}
    cluster.kubectl("patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p", json.dumps(plugin))
    for name, label in {
        "t4-1": f"{CONFIG_LABEL}=x8",
        "t4-2": f"{CONFIG_LABEL}=x4",
        "a100-1": f"{MIG_LABEL}=all-3g.40gb",
    }.items():
        cluster.kubectl("label", "--overwrite", "node", name, label)
    sharing = {"t4-1": 8, "t4-2": 4, "t4-3": 1, "a100-1": 16, "a100-2": 8}

    def has(expected: dict[str, int]) -> bool:
        offered = cluster.offered("")
        return all(offered[name] == {"nvidia.com/gpu": count} for name, count in expected.items())

    cluster.until(lambda: has(sharing), 120)
    configure(
        cluster,
        {"name": "train-h100", "taints": []},
        {"name": "notebooks", "sharing": {"mode": "time-slicing", "replicas": 2}},
        {"name": "train-a100", "sharing": {"mode": "mig", "layout": {"3g.40gb": 2}}},
    )
    cluster.until(lambda: has({"t4-1": 2, "t4-2": 2, "t4-3": 2, "a100-1": 16, "a100-2": 16}), 60)
    cluster.kubectl("-n", NAMESPACE, "patch", "configmap", "theirs", "--type=merge", "-p", '{"data": {"x4": null}}')
    for name in ("a100-1", "a100-2"):
        apply(cluster, pod(name))
    before = lasting(snapshot(cluster.lab))
    held = "whose MIG layout must be reset: a100-2: default/on-a100-2"
    preview = uninstall_stage(cluster, check=True, diff=True)
    assert held in str(preview["warnings"])
    failed = cluster.run(uninstall.main, stage="before_helm", confirm=[cluster.lab.name], wait_timeout=300)
    assert failed["failed"]
    assert held in failed["msg"]
    after = lasting(snapshot(cluster.lab))
    assert {label: item for label, item in after.items() if item["kind"] == "Node"} == {
        label: item for label, item in before.items() if item["kind"] == "Node"
    }

    cluster.kubectl("delete", "pod", "on-a100-2", "--now")
    actual = uninstall_stage(cluster, diff=True)
    assert preview["diff"] == actual["diff"]
    assert preview["uninstall"] == actual["uninstall"]
    kept = "\n".join(actual["uninstall"]["kept"])
    assert "and not set back to x4, because ConfigMap theirs has no such entry" in kept
    assert "to x8" in kept
    assert "node a100-1: MIG devices (16 x 3g.40gb): label nvidia.com/mig.config is set back from" in kept
    cluster.until(lambda: has({**sharing, "t4-2": 1}), 120)
    labels = {name: node["metadata"]["labels"] for name, node in cluster.nodes().items()}
    assert [labels[name].get(CONFIG_LABEL) for name in ("t4-1", "t4-2", "t4-3")] == ["x8", None, None]
    assert labels["a100-1"][MIG_LABEL] == "all-3g.40gb"
    assert labels["a100-2"][MIG_LABEL] == "all-disabled"
    assert cluster.get("pod", "on-a100-1")["status"]["phase"] == "Running"
    assert uninstall_stage(cluster)["changed"] is False


def tolerated(cluster: Cluster, key: str) -> bool:
    """Whether each of the operator's DaemonSets has such a toleration, and all of its pods are ready."""
    return all(
        any(entry.get("key") == key for entry in actual["spec"]["template"]["spec"].get("tolerations", []))
        and actual["status"].get("observedGeneration") == actual["metadata"]["generation"]
        and actual["status"].get("updatedNumberScheduled", 0) == actual["status"]["desiredNumberScheduled"]
        and actual["status"].get("numberReady", 0) == actual["status"]["desiredNumberScheduled"]
        for actual in cluster.get("daemonsets", "-n", NAMESPACE)["items"]
    )


def whole(cluster: Cluster) -> bool:
    """Whether no driver is being restarted, and every T4 node offers its one GPU, not shared."""
    states = {node["metadata"]["labels"].get(UPGRADE_STATE, "upgrade-done") for node in cluster.nodes().values()}
    offered = cluster.offered("t4-").values()
    return states == {"upgrade-done"} and all(actual == {"nvidia.com/gpu": 1} for actual in offered)


def tainted(cluster: Cluster, name: str) -> bool:
    """Whether the node has a taint equal to that of pool train-h100."""
    taints = cluster.nodes()[name]["spec"].get("taints", [])
    return {"key": "restricted-access", "value": "yes", "effect": "NoSchedule"} in taints
