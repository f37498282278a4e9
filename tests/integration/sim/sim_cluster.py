# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster with simulated nodes, as the simulator's tests read and change it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from lab import fleet
from lab.api import Api, ApiError, Object
from lab.layout import Lab as LabLayout
from tests.helpers.polling import BUSY
from tests.labs import Lab
from tests.programs import run

OPERATOR = "gpu-operator"
PLUGIN, GFD = "nvidia-device-plugin-daemonset", "gpu-feature-discovery"
MIG_MANAGER = "nvidia-mig-manager"
# The ClusterPolicy sets no MIG strategy, so that the config of each node determines it.
VALUES = (
    "nfd.enabled=false,operator.upgradeCRD=false,devicePlugin.config.name=configs,"
    "migManager.config.name=parted,mig.strategy=null"
)
_WORKER = {
    "sources": {
        "pci": {"deviceClassWhitelist": ["02", "0200", "0207", "0300", "0302"], "deviceLabelFields": ["vendor"]}
    }
}
_LABEL = "nvidia.com/device-plugin.config"
_MIG_LABEL, _MIG_STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
_FAULTS = "lab.accel.gpu/faults"
_MIG_CONFIGS = """
version: v1
mig-configs:
  all-disabled: [{devices: all, mig-enabled: false}]
  all-enabled: [{devices: all, mig-enabled: true, mig-devices: {}}]
  halves: [{devices: all, mig-enabled: true, mig-devices: {"3g.40gb": 2}}]
  balanced: [{devices: all, mig-enabled: true, mig-devices: {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}}]
  too-much: [{devices: all, mig-enabled: true, mig-devices: {"3g.40gb": 3}}]
  foreign: [{devices: all, mig-enabled: true, mig-devices: {"1g.5gb": 7}}]
"""


def sharing(replicas: int, *, rename: bool = False, one: bool = False) -> str:
    """Return a device plugin config that offers every GPU `replicas` times."""
    return (
        f"version: v1\nsharing: {{timeSlicing: {{renameByDefault: {str(rename).lower()}, failRequestsGreaterThanOne: "
        f"{str(one).lower()}, resources: [{{name: nvidia.com/gpu, replicas: {replicas}}}]}}}}\n"
    )


def install(lab: Lab, limit: float = 90) -> SimCluster:
    """Install both charts with Helm and ConfigMaps for device plugin and MIG manager; wait `limit` seconds for all operands."""
    charts = lab.env["LAB_CHARTS"]
    helm = ["helm", "upgrade", "--install", "--create-namespace", "--wait", "--namespace"]
    worker = f"worker.config={json.dumps(_WORKER)}"
    run(*helm, "node-feature-discovery", "nfd", f"{charts}/node-feature-discovery", "--set-json", worker, env=lab.env)
    cluster = SimCluster.of_lab(lab)
    cluster.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": OPERATOR}})
    cluster.configs({"none": "version: v1\n"})
    cluster.mig_configs()
    run(*helm, OPERATOR, "gpu-operator", f"{charts}/gpu-operator", "--set", VALUES, env=lab.env)
    cluster.wait(cluster.settled, limit=limit, what="the operator's DaemonSets")
    return cluster


@dataclass
class SimCluster:
    """One cluster with simulated nodes."""

    lab: Lab
    api: Api
    changed_nodes: set[str] = field(default_factory=set)
    mig_nodes: set[str] = field(default_factory=set)

    @classmethod
    def of_lab(cls, lab: Lab) -> SimCluster:
        return cls(lab, Api(LabLayout.named(lab.name)))

    def node(self, name: str) -> Object:
        actual = self.api.get(f"/api/v1/nodes/{name}")
        assert actual is not None
        return actual

    def labels(self, name: str) -> dict[str, str]:
        labels: dict[str, str] = self.node(name)["metadata"]["labels"]
        return labels

    def gpus(self, name: str) -> dict[str, int]:
        """Return a node's allocatable resources of NVIDIA; deleted resources, which remain in the status with 0, are omitted."""
        allocatable = self.node(name)["status"]["allocatable"]
        return {k: int(v) for k, v in allocatable.items() if k.startswith("nvidia.com/") and v != "0"}

    def sharing_state(self, name: str) -> tuple[dict[str, int], str, str, str]:
        """Return a node's resources, and product, replicas and sharing strategy from GFD's labels."""
        labels = self.labels(name)
        names = ("product", "replicas", "sharing-strategy")
        product, replicas, strategy = (labels.get(f"nvidia.com/gpu.{key}", "") for key in names)
        return self.gpus(name), product, replicas, strategy

    def set_config(self, name: str, config: str | None) -> None:
        """Set the device plugin config of a node; None removes the label."""
        self.changed_nodes.add(name)
        self.api.merge(f"/api/v1/nodes/{name}", {"metadata": {"labels": {_LABEL: config}}})

    def configs(self, data: dict[str, str | None]) -> None:
        """Add entries to the device plugin's ConfigMap; None removes an entry."""
        self._config_map("configs", data)

    def mig_configs(self) -> None:
        """Create the MIG manager's ConfigMap."""
        self._config_map("parted", {"config.yaml": _MIG_CONFIGS})

    def _config_map(self, name: str, data: dict[str, str | None]) -> None:
        path = f"/api/v1/namespaces/{OPERATOR}/configmaps"
        try:
            self.api.merge(f"{path}/{name}", {"data": data})
        except ApiError as error:
            if error.status != 404:
                raise
            self.api.request("POST", path, {"metadata": {"name": name}, "data": data})

    def partition(self, name: str, config: str) -> None:
        """Set the MIG config of a node and remove the state of the last change in the same request."""
        self.mig_nodes.add(name)
        labels = {_MIG_LABEL: config, _MIG_STATE: None}
        self.api.merge(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})

    def mig(self, name: str) -> tuple[str, str]:
        """Return the state of a node's last MIG change, and the deploy label of its device plugin."""
        labels = self.labels(name)
        return labels.get(_MIG_STATE, ""), labels.get("nvidia.com/gpu.deploy.device-plugin", "")

    def partition_and_wait(self, name: str, config: str, state: str = "success", plugin: str = "true") -> None:
        """Set the MIG config of a node, and wait for its result."""
        self.partition(name, config)
        self.wait(lambda: self.mig(name) == (state, plugin), what=f"{name} to be {config}: {state}, plugin {plugin}")

    def restart(self, name: str, app: str) -> None:
        """Delete the pod of a DaemonSet on one node."""
        for pod in self.pods(name, app):
            self.api.request("DELETE", f"/api/v1/namespaces/{OPERATOR}/pods/{pod['metadata']['name']}")

    def fault(self, name: str, faults: str | None) -> None:
        """Set the faults of a node; None clears all."""
        self.changed_nodes.add(name)
        self.api.merge(f"/api/v1/nodes/{name}", {"metadata": {"annotations": {_FAULTS: faults}}})

    def undo(self) -> None:
        """Restore nodes and pods to the state of a new installation."""
        self.api.request("DELETE", "/api/v1/namespaces/default/pods")
        for name in self.changed_nodes:
            self.set_config(name, None)
            self.fault(name, None)
        self.changed_nodes.clear()
        self._undo_mig()
        self.wait(self.settled, limit=60, what="every operand to run again")

    def _undo_mig(self) -> None:
        """Disable MIG; the restarted MIG manager resumes operands that a failed change left paused."""
        for name in self.mig_nodes:
            self.partition(name, "all-disabled")
            self.restart(name, MIG_MANAGER)
        self.wait(
            lambda: all(self.mig(name) == ("success", "true") for name in self.mig_nodes),
            what="nodes without MIG",
            limit=60,
        )
        self.mig_nodes.clear()

    def pods(self, name: str, app: str) -> list[Object]:
        """Return the pods of a DaemonSet on a node."""
        path = f"/api/v1/namespaces/{OPERATOR}/pods"
        return list(self.api.list(path, labelSelector=f"app={app}", fieldSelector=f"spec.nodeName={name}"))

    def waiting_containers(self, name: str, app: str, *, init: bool = False) -> dict[str, tuple[str, int]]:
        """Return the reason and the restart count of each waiting container of a pod."""
        [pod] = self.pods(name, app)
        statuses = pod["status"].get("initContainerStatuses" if init else "containerStatuses", [])
        return {
            status["name"]: (status["state"]["waiting"].get("reason", ""), status["restartCount"])
            for status in statuses
            if "waiting" in status["state"]
        }

    def settled(self) -> bool:
        """Return whether all DaemonSets of the operator are ready, and all GPUs are allocatable."""
        daemon_sets = list(self.api.list(f"/apis/apps/v1/namespaces/{OPERATOR}/daemonsets"))
        ready = all(
            d["metadata"]["generation"] == d["status"].get("observedGeneration")
            and d["status"]["desiredNumberScheduled"]
            == d["status"].get("numberReady", 0)
            == d["status"].get("updatedNumberScheduled", 0)
            for d in daemon_sets
        )
        nodes = list(self.api.list("/api/v1/nodes"))
        gpus = sum(int(n["status"]["allocatable"].get("nvidia.com/gpu", 0)) for n in nodes)
        labeled = sum(int(n["metadata"]["labels"].get("nvidia.com/gpu.count", 0)) for n in nodes)
        total = fleet.load(LabLayout.named(self.lab.name).fleet).gpus
        return ready and len(daemon_sets) > 5 and gpus == labeled == total

    def run_pod(
        self, name: str, node: str, *, gpus: int = 1, resource: str = "nvidia.com/gpu", command: str = "sleep 30"
    ) -> None:
        """Create a pod that requests GPUs of a node."""
        container = {
            "name": "main",
            "image": "cuda",
            "command": ["sh", "-c", command],
            "resources": {"limits": {resource: str(gpus)}},
        }
        spec = {
            "restartPolicy": "Never",
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        }
        self.api.request("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec})

    def pod(self, name: str) -> Object:
        actual = self.api.get(f"/api/v1/namespaces/default/pods/{name}")
        assert actual is not None
        return actual

    def phase(self, name: str) -> str:
        phase: str = self.pod(name)["status"]["phase"]
        return phase

    def log(self, *words: str) -> str:
        return run("kubectl", "logs", *words, env=self.lab.env)

    def wait(self, done: Callable[[], Any], *, what: str, limit: float = 30) -> None:
        """Wait until a condition is true; otherwise fail the test with its description."""
        deadline = time.monotonic() + BUSY * limit
        while not done():
            if time.monotonic() > deadline:
                pytest.fail(f"waited {BUSY * limit:.0f} s for {what}", pytrace=False)
            time.sleep(0.1)
