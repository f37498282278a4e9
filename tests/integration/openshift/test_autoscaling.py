# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module autoscaling against a real API server with the CRDs of OpenShift, and the operator of the lab's autoscaler."""

from __future__ import annotations

import copy
import json
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.common.nested import get_nested
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
MANAGED = {"accel.gpu/nodegroup", "accel.gpu/created"}
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
        options = {"wait_timeout": 30, "wait_sleep": 1, **variables, **options}
        return run_module(
            autoscaling.main, {"kubeconfig": str(self.lab.kubeconfig), **options}, check=check, diff=True
        )

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
        # The operator adds its finalizer.
        until(lambda: bool(self.scaler(name)["metadata"].get("finalizers")), limit=30)
        return self.scaler(name)

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
    found = Autoscaler(autoscaler_lab)
    yield found
    found.forget()


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
    assert "there is no MachineSet notebooks in namespace openshift-machine-api. Run the role nodegroups" in refused["msg"]
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
    train = pool("train", 4, model="L4", sharing={"mode": "none"})
    made = scaled.run(pool(), train)
    after = comparable(scaled.get(f"{CLUSTER}/default"))
    limits = after["spec"]["resourceLimits"].pop("gpus")
    assert limits == [{"type": "NVIDIA-L4", "min": 1, "max": 3}, {"type": KIND, "min": 0, "max": 12}]
    assert after["metadata"].pop("annotations") == {"accel.gpu/gpu-limits": json.dumps({KIND: {"max": 12}}, separators=(",", ":"))}
    del before["spec"]["resourceLimits"]["gpus"]
    assert after == before
    assert "spec.resourceLimits.gpus[NVIDIA-L4].max is 3 (set by accel.gpu and kubectl-create)" in str(made["warnings"]) or (
        "spec.resourceLimits.gpus[NVIDIA-L4].max is 3" in str(made["warnings"])
    )
    assert not scaled.run(pool(), train)["changed"]

    forced = scaled.run(pool(), train, force=True)
    assert forced["changed"]
    assert scaled.limits() == {"NVIDIA-L4": (1, 16), KIND: (0, 12)}
    removed = scaled.run(pool(), train, state="absent")
    assert removed["changed"]
    assert comparable(scaled.get(f"{CLUSTER}/default")) == {**comparable(TUNED_WITH_UID(scaled)), "spec": TUNED["spec"]}
    assert scaled.scaler("notebooks") == {} or scaled.scaler("notebooks")["metadata"].get("deletionTimestamp")


def TUNED_WITH_UID(scaled: Autoscaler) -> Object:  # noqa: N802
    return scaled.get(f"{CLUSTER}/default")
