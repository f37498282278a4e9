# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines of MachineSets and the autoscaler in a lab with OpenShift, without the collection."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

from lab.api import Api, ApiError, Object
from lab.layout import Lab as LabLayout
from lab.machine_api.machine_sets import MACHINE_SETS, machine_set, provider_spec
from tests.helpers.openshift import OpenShift
from tests.helpers.polling import until

pytestmark = [pytest.mark.usual(60)]

NAMESPACE = "openshift-machine-api"
MACHINES = f"/apis/machine.openshift.io/v1beta1/namespaces/{NAMESPACE}/machines"
SCALERS = f"/apis/autoscaling.openshift.io/v1beta1/namespaces/{NAMESPACE}/machineautoscalers"
CLUSTER = "/apis/autoscaling.openshift.io/v1/clusterautoscalers"
PODS = "/api/v1/namespaces/default/pods"
DELETE_NOW = {"terminationGracePeriodSeconds": 0}


class MachineCluster:
    """The Machine API of a lab, and the objects that a test creates in it."""

    def __init__(self, cluster: OpenShift) -> None:
        self.lab = cluster.lab
        self.api = Api(LabLayout.named(cluster.lab.name))
        self._created: list[str] = []

    def create(self, name: str, *, replicas: int, kind: str = "m6i.xlarge", **template: Any) -> str:
        """Create a MachineSet; `template` are fields of the template's spec."""
        body = machine_set(name, {**provider_spec("AWS", "us-east-2a"), "instanceType": kind}, replicas=replicas)
        body["spec"]["template"]["spec"].update(template)
        self.apply(f"{MACHINE_SETS}/{name}", body)
        return name

    def apply(self, path: str, body: Object) -> None:
        self.api.apply(path, body)
        self._created.append(path)

    def scale(self, name: str, replicas: int) -> None:
        self.api.merge(f"{MACHINE_SETS}/{name}", {"spec": {"replicas": replicas}})

    def set(self, name: str) -> Object:
        return self.api.get(f"{MACHINE_SETS}/{name}") or {}

    def has_available(self, name: str, count: int) -> bool:
        return bool((self.set(name).get("status") or {}).get("availableReplicas", 0) == count)

    def machines(self, name: str) -> list[Object]:
        selector = f"machine.openshift.io/cluster-api-machineset={name}"
        return list(self.api.list(MACHINES, labelSelector=selector))

    def phases(self, name: str) -> list[str]:
        return [(one.get("status") or {}).get("phase", "") for one in self.machines(name)]

    def node(self, machine: Object) -> Object:
        actual = self.api.get(f"/api/v1/nodes/{machine['status']['nodeRef']['name']}")
        assert actual
        return actual

    def close(self) -> None:
        self.lab.command("cloud", "fault", "clear")
        for path in reversed(self._created):
            if self.api.get(path) is not None:
                self.api.request("DELETE", path)
        until(lambda: all(self.api.get(path) is None for path in self._created), limit=60)
        owned = [path.rpartition("/")[2] for path in self._created if path.startswith(MACHINE_SETS)]
        until(lambda: not any(self.machines(name) for name in owned), limit=60)


@pytest.fixture
def cloud(openshift: OpenShift) -> Iterator[MachineCluster]:
    openshift.lab.command("cloud", "set", "machines.boot-seconds=20")
    actual = MachineCluster(openshift)
    yield actual
    actual.close()


def test_the_installers_machine_sets_have_ready_nodes(cloud: MachineCluster) -> None:
    for name, zone in {"prod-worker-us-east-2a": "us-east-2a", "prod-worker-us-east-2b": "us-east-2b"}.items():
        until(functools.partial(cloud.has_available, name, 1))
        actual = cloud.set(name)
        status = actual["status"]
        assert (status["replicas"], status["readyReplicas"], status["fullyLabeledReplicas"]) == (1, 1, 1)
        assert status["observedGeneration"] == actual["metadata"]["generation"]
        assert actual["metadata"]["annotations"]["machine.openshift.io/vCPU"] == "4"
        (machine,) = cloud.machines(name)
        node = cloud.node(machine)
        assert node["spec"]["providerID"] == machine["spec"]["providerID"]
        assert (
            node["metadata"]["annotations"]["machine.openshift.io/machine"]
            == f"{NAMESPACE}/{machine['metadata']['name']}"
        )
        assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == zone
        assert "node-role.kubernetes.io/worker" in node["metadata"]["labels"]


@pytest.mark.parametrize(
    ("path", "spec", "message"),
    [
        (
            f"{SCALERS}/wrong",
            {"minReplicas": 0, "maxReplicas": 0, "scaleTargetRef": {"kind": "MachineSet", "name": "a"}},
            "maxReplicas",
        ),
        (f"{CLUSTER}/wrong", {"maxNodeProvisionTime": "soon"}, "maxNodeProvisionTime"),
        (f"{CLUSTER}/wrong", {"expanders": ["Cheapest"]}, "expanders"),
        (f"{MACHINE_SETS}/wrong", {"deletePolicy": "Biggest"}, "deletePolicy"),
    ],
)
def test_the_api_server_enforces_openshifts_schemas(
    cloud: MachineCluster, path: str, spec: Object, message: str
) -> None:
    group = path.split("/")
    kinds = {
        "machineautoscalers": "MachineAutoscaler",
        "clusterautoscalers": "ClusterAutoscaler",
        "machinesets": "MachineSet",
    }
    body = {
        "apiVersion": f"{group[2]}/{group[3]}",
        "kind": kinds[group[-2]],
        "metadata": {"name": "wrong"},
        "spec": spec,
    }
    with pytest.raises(ApiError, match=message):
        cloud.apply(path, body)


def test_labels_and_taints_of_the_template_are_those_of_the_node(cloud: MachineCluster) -> None:
    taint = {"key": "restrictedaccess", "value": "yes", "effect": "NoSchedule"}
    name = cloud.create("labeled", replicas=2, metadata={"labels": {"team": "a"}}, taints=[taint])
    until(lambda: cloud.phases(name) == ["Running", "Running"], limit=60)
    for machine in cloud.machines(name):
        node = cloud.node(machine)
        assert node["metadata"]["labels"]["team"] == "a"
        assert taint in node["spec"]["taints"]
    marked, kept = cloud.machines(name)
    cloud.api.merge(
        f"{MACHINES}/{marked['metadata']['name']}",
        {"metadata": {"annotations": {"machine.openshift.io/delete-machine": "yes"}}},
    )
    cloud.scale(name, 1)
    until(lambda: [one["metadata"]["name"] for one in cloud.machines(name)] == [kept["metadata"]["name"]], limit=60)
    assert cloud.api.get(f"/api/v1/nodes/{marked['status']['nodeRef']['name']}") is None


def test_an_illegal_label_leaves_a_node_without_labels_and_taints(cloud: MachineCluster) -> None:
    labels = {"cluster-api/accelerator": "nvidia.com/gpu", "team": "a"}
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    name = cloud.create("illegal", replicas=1, kind="g4dn.xlarge", metadata={"labels": labels}, taints=[taint])
    until(lambda: cloud.phases(name) == ["Running"], limit=60)
    node = cloud.node(cloud.machines(name)[0])
    assert not labels.keys() & node["metadata"]["labels"].keys()
    assert taint not in node["spec"].get("taints", [])


@pytest.mark.parametrize(
    ("fault", "phase", "message"),
    [
        ("quota", "Failed", "vCPU capacity"),
        ("no-capacity", "Provisioning", ""),
        ("stuck-provisioning", "Provisioning", ""),
        ("never-joins", "Provisioned", ""),
    ],
)
def test_faults_of_the_cloud(cloud: MachineCluster, fault: str, phase: str, message: str) -> None:
    name = cloud.create("faulty", replicas=0)
    cloud.lab.command("cloud", "fault", "inject", f"machines.{fault}", "--group", name)
    cloud.scale(name, 1)
    until(lambda: cloud.phases(name) == [phase], limit=30)
    status = cloud.machines(name)[0]["status"]
    assert message in status.get("errorMessage", "")
    assert ("errorReason" in status) is (phase == "Failed")
    cloud.lab.command("cloud", "fault", "clear", f"machines.{fault}")
    if phase != "Failed":
        until(lambda: cloud.phases(name) == ["Running"], limit=60)


def test_an_unknown_instance_type_fails(cloud: MachineCluster) -> None:
    name = cloud.create("unknown-type", replicas=1, kind="g99.huge")
    until(lambda: cloud.phases(name) == ["Failed"], limit=30)
    assert "g99.huge" in cloud.machines(name)[0]["status"]["errorMessage"]


def test_pending_pods_scale_a_machine_set_from_zero_and_back(cloud: MachineCluster) -> None:
    name = cloud.create("scaled", replicas=0, metadata={"labels": {"pool": "scaled"}})
    down = {"enabled": True, "unneededTime": "20s", "delayAfterAdd": "20s"}
    body: Object = {
        "apiVersion": "autoscaling.openshift.io/v1",
        "kind": "ClusterAutoscaler",
        "metadata": {"name": "default"},
    }
    cloud.apply(f"{CLUSTER}/default", {**body, "spec": {"scaleDown": down}})
    target = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": name}
    body = {"apiVersion": "autoscaling.openshift.io/v1beta1", "kind": "MachineAutoscaler", "metadata": {"name": name}}
    cloud.apply(f"{SCALERS}/{name}", {**body, "spec": {"minReplicas": 0, "maxReplicas": 2, "scaleTargetRef": target}})
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "3"}}}
    spec = {**DELETE_NOW, "nodeSelector": {"pool": "scaled"}, "containers": [container]}
    for pod in ("one", "two", "three"):
        cloud.apply(f"{PODS}/{pod}", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}, "spec": spec})
    until(lambda: cloud.phases(name) == ["Running", "Running"], limit=60)
    until(
        lambda: sum((one.get("status") or {}).get("phase") == "Running" for one in cloud.api.list(PODS)) == 2, limit=30
    )
    assert cloud.set(name)["spec"]["replicas"] == 2
    for pod in ("one", "two", "three"):
        cloud.api.request("DELETE", f"{PODS}/{pod}")
    until(lambda: not cloud.machines(name), limit=90)
    assert cloud.set(name)["spec"]["replicas"] == 0
