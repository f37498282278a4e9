# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab with OpenShift: its clusters for tests, and OLM's objects in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection_options import ConnectionOptions
from lab.machine_api.machine_sets import NAMESPACE as MACHINE_NAMESPACE
from tests.helpers.polling import until
from tests.labs import Lab

Object = dict[str, Any]
GPU_NAMESPACE, NFD_NAMESPACE = "nvidia-gpu-operator", "openshift-nfd"
GPU_PACKAGE, NFD_PACKAGE = "gpu-operator-certified", "nfd"
GPU_CSV, OLD_GPU_CSV, NFD_CSV = f"{GPU_PACKAGE}.v25.10.1", f"{GPU_PACKAGE}.v25.3.2", "nfd.v4.12.0"
SOURCES = {GPU_PACKAGE: "certified-operators", NFD_PACKAGE: "redhat-operators"}
CLUSTER_POLICY = "/apis/nvidia.com/v1/clusterpolicies/gpu-cluster-policy"
_V1, _ALPHA = "/apis/operators.coreos.com/v1", "/apis/operators.coreos.com/v1alpha1"
_WORKER_CONFIG = """\
sources:
  pci:
    deviceClassWhitelist: ["0200", "03", "12"]
    deviceLabelFields: ["vendor"]
"""


@dataclass(frozen=True)
class OpenShift:
    """A running lab with OpenShift, and an administrator's access to it."""

    lab: Lab

    @property
    def client(self) -> Client:
        """A client of the cluster; a reset changes neither address nor certificates."""
        return Client(ConnectionOptions(kubeconfig=str(self.lab.kubeconfig), request_timeout=30), "accel-gpu-tests")

    def empty(self) -> OpenShift:
        """A new cluster: OLM with its catalogs, machines, and no operators. Loaded in seconds."""
        self.lab.become("openshift-empty", lambda: None)
        return self

    def installed(self) -> OpenShift:
        """The same with NFD and the GPU operator installed by Subscriptions with automatic approval, both custom resources ready."""
        self.lab.become("openshift", self.install)
        return self

    def install(self) -> None:
        """Install NFD and the GPU operator into the present cluster without the collection, and wait until they are ready."""
        packages = {NFD_PACKAGE: NFD_NAMESPACE, GPU_PACKAGE: GPU_NAMESPACE}
        for package, namespace in packages.items():
            self.namespace(namespace)
            self.operator_group(namespace, [namespace])
            self.subscribe(namespace, package)
        csvs = {NFD_CSV: NFD_NAMESPACE, GPU_CSV: GPU_NAMESPACE}
        for csv, namespace in csvs.items():
            self.wait_succeeded(namespace, csv)
        self.create(f"/apis/nfd.openshift.io/v1/namespaces/{NFD_NAMESPACE}/nodefeaturediscoveries", _NFD_INSTANCE)
        self.create("/apis/nvidia.com/v1/clusterpolicies", self.example_policy(GPU_CSV))
        until(self.policy_is_ready, limit=120)

    def namespace(self, name: str) -> str:
        """Create a namespace and return its name."""
        self.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return name

    def operator_group(self, namespace: str, targets: Sequence[str] = (), name: str = "group", **metadata: Any) -> None:
        """Create an OperatorGroup; without targets it watches all namespaces."""
        body = {
            "apiVersion": "operators.coreos.com/v1",
            "kind": "OperatorGroup",
            "metadata": {"name": name, "namespace": namespace, **metadata},
            "spec": {"targetNamespaces": list(targets)} if targets else {},
        }
        self.create(f"{_V1}/namespaces/{namespace}/operatorgroups", body)

    def catalog_source(self, namespace: str, name: str, **spec: Any) -> None:
        """Create a CatalogSource with an address or an image."""
        body = {
            "apiVersion": "operators.coreos.com/v1alpha1",
            "kind": "CatalogSource",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"sourceType": "grpc", **spec},
        }
        self.create(f"{_ALPHA}/namespaces/{namespace}/catalogsources", body)

    def subscribe(self, namespace: str, package: str, **spec: Any) -> None:
        """Create a Subscription with the name of its package; `spec` replaces fields of the specification."""
        body = {
            "apiVersion": "operators.coreos.com/v1alpha1",
            "kind": "Subscription",
            "metadata": {"name": package, "namespace": namespace},
            "spec": {
                "name": package,
                "channel": "stable",
                "source": SOURCES[package],
                "sourceNamespace": "openshift-marketplace",
                "installPlanApproval": "Automatic",
                **spec,
            },
        }
        self.create(f"{_ALPHA}/namespaces/{namespace}/subscriptions", body)

    def approve(self, namespace: str, csv: str) -> None:
        """Approve the InstallPlan of a ClusterServiceVersion, which exists."""
        plan = next(one for one in self.plans(namespace) if csv in one["spec"]["clusterServiceVersionNames"])
        path = f"{_ALPHA}/namespaces/{namespace}/installplans/{plan['metadata']['name']}"
        self.client.patch(path, {"spec": {"approved": True}})

    def subscription(self, namespace: str, name: str) -> Object:
        """The status of a Subscription; empty if there is none."""
        actual = self.get(f"{_ALPHA}/namespaces/{namespace}/subscriptions/{name}")
        return dict(actual.get("status", {}))

    def condition(self, namespace: str, name: str, kind: str) -> Object:
        """A condition of a Subscription that is true; else empty."""
        conditions = self.subscription(namespace, name).get("conditions", [])
        return next((one for one in conditions if one["type"] == kind and one["status"] == "True"), {})

    def csv(self, namespace: str, name: str) -> Object:
        """The status of a ClusterServiceVersion; empty if there is none."""
        actual = self.get(f"{_ALPHA}/namespaces/{namespace}/clusterserviceversions/{name}")
        return dict(actual.get("status", {}))

    def plans(self, namespace: str) -> list[Object]:
        """The InstallPlans of a namespace."""
        return list(self.client.list(f"{_ALPHA}/namespaces/{namespace}/installplans"))

    def wait_succeeded(self, namespace: str, csv: str) -> None:
        """Wait until a ClusterServiceVersion is in phase Succeeded, and a Subscription shows it as installed, which OLM writes later."""

        def succeeded() -> bool:
            subscriptions = self.client.list_known(f"{_ALPHA}/namespaces/{namespace}/subscriptions")
            shown = {item.get("status", {}).get("installedCSV") for item in subscriptions}
            return self.csv(namespace, csv).get("phase") == "Succeeded" and csv in shown

        until(succeeded, limit=90)

    def catalog_state(self, name: str) -> str:
        """The last observed connection state of a CatalogSource in openshift-marketplace."""
        actual = self.get(f"{_ALPHA}/namespaces/openshift-marketplace/catalogsources/{name}")
        return str(actual.get("status", {}).get("connectionState", {}).get("lastObservedState", ""))

    def channels(self, package: str) -> Mapping[str, str]:
        """The current ClusterServiceVersion of each channel of a package."""
        actual = self.get(
            f"/apis/packages.operators.coreos.com/v1/namespaces/openshift-marketplace/packagemanifests/{package}"
        )
        return {channel["name"]: channel["currentCSV"] for channel in actual.get("status", {}).get("channels", [])}

    def example_policy(self, csv: str) -> Object:
        """The ClusterPolicy in a ClusterServiceVersion's examples."""
        actual = self.get(f"{_ALPHA}/namespaces/{GPU_NAMESPACE}/clusterserviceversions/{csv}")
        examples: list[Object] = json.loads(actual["metadata"]["annotations"]["alm-examples"])
        return next(one for one in examples if one["kind"] == "ClusterPolicy")

    def policy_is_ready(self) -> bool:
        """Whether the operator has reconciled the ClusterPolicy, with nodes that have GPUs."""
        conditions = self.get(CLUSTER_POLICY).get("status", {}).get("conditions", [])
        return any(one["type"] == "Ready" and one["reason"] == "Reconciled" for one in conditions)

    def scaling_state(self, selector: str) -> str:
        """JSON that shows why a pod waits for a node of a MachineSet: events, pods, nodes with these labels, machines."""
        nodes = list(self.client.list("/api/v1/nodes", label_selector=selector))
        names = {None, *(node["metadata"]["name"] for node in nodes)}
        pods = [pod for pod in self.client.list("/api/v1/pods") if pod["spec"].get("nodeName") in names]
        api = f"/apis/machine.openshift.io/v1beta1/namespaces/{MACHINE_NAMESPACE}"
        machines = [one for kind in ("machinesets", "machines") for one in self.client.list(f"{api}/{kind}")]
        events = list(self.client.list("/api/v1/namespaces/default/events"))
        for item in (*events, *pods, *nodes, *machines):
            item["metadata"].pop("managedFields", None)
        return json.dumps([*events, *pods, *nodes, *machines], indent=1)

    def get(self, path: str) -> Object:
        """An object; empty if it or its API does not exist."""
        return dict(self.client.get(path) or {})

    def create(self, path: str, body: Object) -> None:
        """Create an object."""
        self.client.create(path, body)


_NFD_INSTANCE: Object = {
    "apiVersion": "nfd.openshift.io/v1",
    "kind": "NodeFeatureDiscovery",
    "metadata": {"name": "nfd-instance", "namespace": NFD_NAMESPACE},
    "spec": {"operand": {"servicePort": 12000}, "workerConfig": {"configData": _WORKER_CONFIG}},
}
