# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module autoscaling against a real API server with the CRDs of OpenShift, and the operator of the lab's autoscaler."""

from __future__ import annotations

import copy
import json
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.values import get_nested
from ansible_collections.accel.gpu.plugins.modules import autoscaling, machineset
from lab import audit
from lab.layout import Lab as LabLayout
from tests.helpers.machine_api import NAMESPACE, Object
from tests.helpers.modules import run_module
from tests.helpers.openshift import OpenShift
from tests.helpers.polling import until
from tests.labs import Lab

pytestmark = [pytest.mark.usual(4)]

SETS = f"/apis/machine.openshift.io/v1beta1/namespaces/{NAMESPACE}/machinesets"
SCALERS = f"/apis/autoscaling.openshift.io/v1beta1/namespaces/{NAMESPACE}/machineautoscalers"
CLUSTER = "/apis/autoscaling.openshift.io/v1/clusterautoscalers"
PRIORITIES = f"/api/v1/namespaces/{NAMESPACE}/configmaps/cluster-autoscaler-priority-expander"
KIND = "Tesla-T4-SHARED"
# What guides recommend, with a limit for another type of GPU, and with an expander.
TUNED: Object = {
    "apiVersion": "autoscaling.openshift.io/v1",
    "kind": "ClusterAutoscaler",
    "metadata": {"name": "default", "labels": {"team": "platform"}},
    "spec": {
        "logVerbosity": 4,
        "podPriorityThreshold": -10,
        "maxNodeProvisionTime": "17m",
        "balanceSimilarNodeGroups": True,
        "resourceLimits": {"maxNodesTotal": 40, "gpus": [{"type": "NVIDIA-L4", "min": 1, "max": 3}]},
        "scaleDown": {"enabled": False, "delayAfterAdd": "25m", "unneededTime": "7m"},
    },
}


class Autoscaler:
    """The module, and the objects that it configures."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.client = OpenShift(lab).client
        self.layout = LabLayout.named(lab.name)

    def run(self, *pools: Object, check: bool = False, declared: Object | None = None, **options: t.Any) -> Object:
        variables = {"gpu_cluster": self._cluster(declared), "gpu_pools": list(pools)}
        options = {"wait_timeout": 30, "wait_sleep": 1, "confirm": [self.lab.name], **variables, **options}
        return run_module(autoscaling.main, {"kubeconfig": str(self.lab.kubeconfig), **options}, check=check, diff=True)

    def _cluster(self, declared: Object | None) -> Object:
        cluster: Object = {"name": self.lab.name, "distribution": "openshift", "cloud": {"machineset": {}}}
        return {**cluster, "autoscaler": declared} if declared else cluster

    def machine_set(self, name: str, kind: str = KIND, check: bool = False) -> Object:
        """Run the module machineset for a group as pools() declare it."""
        group = {
            "name": name,
            "like": "prod-worker-us-east-2a",
            "flavor": "g4dn.xlarge",
            "node_count": 0,
            "min_node_count": 0,
            "max_node_count": 4,
            "node_labels": {"accel.gpu/pool": name, "cluster-api/accelerator": kind},
            "capacity": {"resources": {"nvidia.com/gpu": 4}},
        }
        options = {"kubeconfig": str(self.lab.kubeconfig), "nodegroups": [group], "wait": False}
        made = run_module(machineset.main, options, check=check)
        assert not made.get("failed"), made
        return t.cast("Object", made["nodegroups"])

    def get(self, path: str) -> Object:
        return t.cast("Object", self.client.get(path) or {})

    def scaler(self, name: str) -> Object:
        return self.get(f"{SCALERS}/{name}")

    def limits(self) -> dict[str, tuple[int, int]]:
        entries = get_nested(self.get(f"{CLUSTER}/default"), "spec", "resourceLimits", "gpus") or []
        return {entry["type"]: (entry["min"], entry["max"]) for entry in entries}

    def foreign_scaler(self, name: str, machine_set: str) -> Object:
        reference = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": machine_set}
        body = {
            "apiVersion": "autoscaling.openshift.io/v1beta1",
            "kind": "MachineAutoscaler",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"minReplicas": 1, "maxReplicas": 2, "scaleTargetRef": reference},
        }
        self.client.create(SCALERS, body, manager="by-hand")
        # The operator has processed it; a second one for the same MachineSet has no effect.
        until(lambda: self._is_processed(self.scaler(name)) or self._is_owned(machine_set), limit=30)
        return self.scaler(name)

    def _is_processed(self, scaler: Object) -> bool:
        """The operator writes the status and the finalizer in two requests."""
        return bool(get_nested(scaler, "status", "lastTargetRef") and scaler["metadata"].get("finalizers"))

    def _is_owned(self, machine_set: str) -> bool:
        annotations = self.get(f"{SETS}/{machine_set}")["metadata"].get("annotations") or {}
        return "autoscaling.openshift.io/machineautoscaler" in annotations

    def mutations(self, since: int) -> list[str]:
        """The requests of this collection that change something, without dry runs."""
        sent = audit.requests(self.layout, since, "accel.gpu/")
        return [f"{each.verb} {each.uri}" for each in sent if each.mutating and "dryRun" not in each.uri]

    def forget(self) -> None:
        """Delete all objects of the autoscaler, and the MachineSets of the tests."""
        for path in (SCALERS, CLUSTER):
            for item in list(self.client.list(path)):
                self.client.delete(f"{path}/{item['metadata']['name']}")
        self.client.delete(PRIORITIES)
        for item in list(self.client.list(SETS)):
            if "accel.gpu/nodegroup" in (item["metadata"].get("labels") or {}):
                self.client.delete(f"{SETS}/{item['metadata']['name']}")
        until(lambda: not list(self.client.list(SCALERS)), limit=60)
        until(lambda: all("worker" in item["metadata"]["name"] for item in self.client.list(SETS)), limit=60)


@pytest.fixture(scope="module")
def autoscaler_lab(openshift_lab: Lab) -> Lab:
    OpenShift(openshift_lab).empty()
    return openshift_lab


@pytest.fixture
def scaled(autoscaler_lab: Lab) -> t.Iterator[Autoscaler]:
    actual = Autoscaler(autoscaler_lab)
    yield actual
    actual.forget()


def pool(name: str = "notebooks", high: int = 3, **more: t.Any) -> Object:
    return {
        "name": name,
        "model": "T4",
        "gpus_per_node": 1,
        "nodes": {"flavor": "g4dn.xlarge"},
        "autoscale": {"min": 0, "max": high},
        "sharing": {"mode": "time-slicing", "replicas": 4},
        **more,
    }


def comparable(item: Object) -> Object:
    """An object without what changes with every write."""
    kept = copy.deepcopy(item)
    for key in ("resourceVersion", "generation", "managedFields"):
        kept["metadata"].pop(key, None)
    return kept


def test_create_again_and_update(scaled: Autoscaler) -> None:
    predicted_sets = scaled.machine_set("notebooks", check=True)
    since = audit.mark(scaled.layout)
    predicted = scaled.run(pool(), check=True, nodegroups=predicted_sets)
    assert (predicted["changed"], scaled.mutations(since)) == (True, []), predicted
    refused = scaled.run(pool())
    assert (
        "there is no MachineSet notebooks in namespace openshift-machine-api. Run the role nodegroups" in refused["msg"]
    )
    assert scaled.run(pool(), check=True)["failed"], "nothing in this run creates it"

    scaled.machine_set("notebooks")
    made = scaled.run(pool())
    assert made["diff"] == predicted["diff"], "also for a MachineSet that did not exist"
    assert made["autoscaling"]["objects"] == {
        "ClusterAutoscaler default": "created",
        f"MachineAutoscaler {NAMESPACE}/notebooks": "created",
    }
    spec = scaled.get(f"{CLUSTER}/default")["spec"]
    assert spec["scaleDown"] == {"enabled": True, "delayAfterAdd": "20m"}
    assert spec["maxNodeProvisionTime"] == "30m"
    assert scaled.limits() == {KIND: (0, 12)}
    annotations = scaled.get(f"{SETS}/notebooks")["metadata"]["annotations"]
    assert annotations["machine.openshift.io/cluster-api-autoscaler-node-group-max-size"] == "3"
    assert annotations["autoscaling.openshift.io/machineautoscaler"] == f"{NAMESPACE}/notebooks"

    since = audit.mark(scaled.layout)
    again = scaled.run(pool())
    assert not again["changed"], again
    assert again["diff"]["before"] == again["diff"]["after"]
    assert scaled.mutations(since) == []
    assert len(list(audit.requests(scaled.layout, since, "accel.gpu/"))) <= 8

    larger = pool(high=5, autoscale={"min": 1, "max": 5})
    predicted = scaled.run(larger, check=True, declared={"max_nodes_total": 30})
    made = scaled.run(larger, declared={"max_nodes_total": 30})
    assert made["diff"] == predicted["diff"]
    assert set(made["autoscaling"]["objects"].values()) == {"updated"}
    assert scaled.limits() == {KIND: (0, 20)}
    assert scaled.get(f"{CLUSTER}/default")["spec"]["resourceLimits"]["maxNodesTotal"] == 30
    assert scaled.scaler("notebooks")["spec"]["minReplicas"] == 1
    assert not scaled.run(larger)["changed"], "a field that is no longer declared stays"


def test_a_hand_tuned_cluster_autoscaler_survives(scaled: Autoscaler) -> None:
    scaled.client.create(CLUSTER, TUNED, manager="kubectl-create")
    before = comparable(scaled.get(f"{CLUSTER}/default"))
    scaled.machine_set("notebooks")
    scaled.machine_set("train", "NVIDIA-L4")
    train = pool("train", 4, model="L4", nodes={"flavor": "g6.xlarge"}, sharing={"mode": "none"})
    made = scaled.run(pool(), train)
    assert not made.get("failed"), made["msg"]
    after = comparable(scaled.get(f"{CLUSTER}/default"))
    limits = after["spec"]["resourceLimits"].pop("gpus")
    assert limits == [{"type": "NVIDIA-L4", "min": 1, "max": 3}, {"type": KIND, "min": 0, "max": 12}]
    record = json.loads(after["metadata"].pop("annotations")["accel.gpu/gpu-limits"])
    assert record == {KIND: {"max": 12}}
    rest = copy.deepcopy(before)
    del rest["spec"]["resourceLimits"]["gpus"]
    assert after == rest
    assert "spec.resourceLimits.gpus[NVIDIA-L4].max is 3 (set by " in str(made["warnings"])
    assert not scaled.run(pool(), train)["changed"]

    assert scaled.run(pool(), train, force=True)["changed"]
    assert scaled.limits() == {"NVIDIA-L4": (1, 4), KIND: (0, 12)}
    predicted = scaled.run(pool(), train, check=True, state="absent")
    removed = scaled.run(pool(), train, state="absent")
    assert removed["diff"] == predicted["diff"]
    assert comparable(scaled.get(f"{CLUSTER}/default")) == before, "the limit that was replaced is restored"
    until(lambda: not list(scaled.client.list(SCALERS)), limit=30)
    assert not scaled.run(pool(), train, state="absent")["changed"]


@pytest.mark.parametrize("force", [True, False])
def test_fields_of_another_manager_are_changed_only_if_the_user_says_so(scaled: Autoscaler, force: bool) -> None:
    scaled.client.create(CLUSTER, TUNED, manager="argocd-controller")
    scaled.machine_set("notebooks")
    scaled.run(pool())
    scaler = scaled.client.patch(f"{SCALERS}/notebooks", {"metadata": {"labels": {"team": "ml"}}})
    body = {key: scaler[key] for key in ("apiVersion", "kind")}
    metadata = {"name": "notebooks", "namespace": NAMESPACE}
    scaled.client.apply(
        f"{SCALERS}/notebooks", {**body, "metadata": metadata, "spec": {"maxReplicas": 2}}, manager="argocd-controller"
    )
    declared = {"scale_down": {"enabled": True, "delay_after_add": "1500s"}, "max_node_provision_time": "40m"}
    predicted = scaled.run(pool(), check=True, declared=declared, force=force)
    made = scaled.run(pool(), declared=declared, force=force)
    assert made["diff"] == predicted["diff"]
    assert made["changed"] is force
    named = str(made["warnings"])
    assert "spec.scaleDown.enabled is false (set by argocd-controller), but true is declared" in named
    assert "spec.maxNodeProvisionTime is 17m (set by argocd-controller), but 40m is declared" in named
    assert "spec.maxReplicas is 2 (set by argocd-controller), but 3 is declared" in named
    assert "delayAfterAdd" not in named, "25m and 1500s are equal"
    spec = scaled.get(f"{CLUSTER}/default")["spec"]
    assert spec["scaleDown"]["enabled"] is force
    assert spec["maxNodeProvisionTime"] == ("40m" if force else "17m")
    assert scaled.scaler("notebooks")["spec"]["maxReplicas"] == (3 if force else 2)
    assert scaled.scaler("notebooks")["metadata"]["labels"]["team"] == "ml"
    assert not scaled.run(pool(), declared=declared, force=force)["changed"]


def test_a_machine_autoscaler_of_others_is_adopted_only_on_request(scaled: Autoscaler) -> None:
    scaled.machine_set("notebooks")
    before = scaled.foreign_scaler("by-hand", "notebooks")
    made = scaled.run(pool())
    assert made["autoscaling"]["unmanaged"] == [f"{NAMESPACE}/by-hand"]
    assert "between 1 and 2 nodes; pool notebooks declares 0 to 3" in str(made["warnings"])
    assert comparable(scaled.scaler("by-hand")) == comparable(before)
    assert not scaled.scaler("notebooks")

    predicted = scaled.run(pool(), check=True, adopt=True)
    adopted = scaled.run(pool(), adopt=True)
    assert adopted["diff"] == predicted["diff"]
    after = scaled.scaler("by-hand")
    assert after["metadata"]["labels"] == {"accel.gpu/nodegroup": "notebooks"}
    assert (after["spec"]["minReplicas"], after["spec"]["maxReplicas"]) == (0, 3)
    assert not scaled.run(pool())["changed"], "it is managed from now on"
    assert len(list(scaled.client.list(SCALERS))) == 1


def test_what_no_pool_declares_any_more_is_reported_and_stays(scaled: Autoscaler) -> None:
    for name in ("notebooks", "former"):
        scaled.machine_set(name)
    scaled.run(pool(), pool("former"))
    without = {key: value for key, value in pool().items() if key != "autoscale"}
    without["nodes"] = {**without["nodes"], "count": 0}
    since = audit.mark(scaled.layout)
    result = scaled.run(without)
    assert result["autoscaling"]["undeclared"] == [f"{NAMESPACE}/former", f"{NAMESPACE}/notebooks"]
    assert "pool notebooks has no autoscale" in str(result["warnings"])
    assert "no pool has node group former" in str(result["warnings"])
    assert (result["changed"], scaled.mutations(since)) == (False, [])

    removed = scaled.run(pool(), pool("former"), pool_names=["former"], state="absent")
    assert removed["autoscaling"]["objects"][f"MachineAutoscaler {NAMESPACE}/former"] == "deleted"
    until(lambda: not scaled.scaler("former"), limit=30)
    assert scaled.limits() == {KIND: (0, 12)}, "those of the other pool"


def test_priorities_are_merged_into_the_configmap_of_the_expander(scaled: Autoscaler) -> None:
    text = "# of the platform team\n5:\n  - .*worker.*\n"
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": PRIORITIES.rpartition("/")[2], "namespace": NAMESPACE},
    }
    scaled.client.create(PRIORITIES.rpartition("/")[0], {**body, "data": {"priorities": text}}, manager="by-hand")
    scaled.machine_set("notebooks")
    ranked = pool(autoscale={"min": 0, "max": 3, "priority": 50})
    ignored = scaled.run(ranked)
    assert "has the expanders Random (default)" in str(ignored["warnings"])
    assert scaled.get(PRIORITIES)["data"]["priorities"] == text
    declared = {"expanders": ["Priority", "LeastWaste"]}
    predicted = scaled.run(ranked, check=True, declared=declared)
    made = scaled.run(ranked, declared=declared)
    assert made["diff"] == predicted["diff"]
    added = f"50:\n  - '^MachineSet/{NAMESPACE}/notebooks$'\n"
    assert scaled.get(PRIORITIES)["data"]["priorities"] == text + added
    assert not scaled.run(ranked, declared=declared)["changed"]
    scaled.run(pool(), declared=declared)
    assert scaled.get(PRIORITIES)["data"]["priorities"] == text


def test_deleting_a_node_group_deletes_its_machine_autoscaler(scaled: Autoscaler) -> None:
    for name in ("notebooks", "train"):
        scaled.machine_set(name)
    scaled.foreign_scaler("by-hand", "train")
    scaled.run(pool())
    groups = [{"name": name, "state": "absent"} for name in ("notebooks", "train")]
    options = {"kubeconfig": str(scaled.lab.kubeconfig), "nodegroups": groups, "wait_timeout": 60, "wait_sleep": 1}
    options |= {"gpu_cluster": {"name": scaled.lab.name}, "confirm": [scaled.lab.name]}
    deleted = run_module(machineset.main, options)
    assert deleted["changed"], deleted
    until(lambda: not scaled.scaler("notebooks"), limit=30)
    assert scaled.scaler("by-hand")
    assert "it is scaled by MachineAutoscaler by-hand, which is not deleted" in str(deleted["warnings"])


def test_a_wait_names_the_machine_set_and_what_to_do(scaled: Autoscaler) -> None:
    scaled.machine_set("notebooks")
    scaled.lab.command("cloud", "fault", "inject", "machines.paused")
    try:
        failed = scaled.run(pool(), wait_timeout=3)
        assert (failed["failed"], failed["code"]) == (True, "timeout")
        assert (
            f"MachineSet notebooks has no range, but MachineAutoscaler {NAMESPACE}/notebooks sets 0 to 3 nodes"
            in failed["msg"]
        )
        assert "logs deployment/cluster-autoscaler-operator" in failed["msg"]
        assert failed["autoscaling"]["objects"][f"MachineAutoscaler {NAMESPACE}/notebooks"] == "created"
    finally:
        scaled.lab.command("cloud", "fault", "clear", "machines.paused")
    assert not scaled.run(pool())["changed"]


def test_impossible_pools_are_found_before_anything_is_sent(scaled: Autoscaler) -> None:
    for name in ("notebooks", "train"):
        scaled.machine_set(name)
    scaled.foreign_scaler("notebooks", "prod-worker-us-east-2a")
    for name in ("one", "two"):
        scaled.foreign_scaler(name, "train")
    since = audit.mark(scaled.layout)
    for check in (True, False):
        failed = scaled.run(pool(), pool("train"), pool("worker"), adopt=True, check=check)
        assert failed["failed"]
        assert "Pool train: one and two refer to MachineSet train, and only one of them has an effect." in failed["msg"]
        assert (
            "Pool notebooks: MachineAutoscaler openshift-machine-api/notebooks refers to MachineSet prod-worker-us-east-2a"
            in failed["msg"]
        )
        assert "Pool worker: there is no MachineSet worker" in failed["msg"]
    assert scaled.mutations(since) == []
