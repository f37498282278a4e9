# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of the simulator read from a cluster and change on it."""

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
from tests.labs import Lab
from tests.programs import run

OPERATOR = "gpu-operator"
PLUGIN, GFD = "nvidia-device-plugin-daemonset", "gpu-feature-discovery"
MIG_MANAGER = "nvidia-mig-manager"
# The ClusterPolicy gives no MIG strategy, so that each node's config decides.
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
    """A config of the device plugin that makes `replicas` of every GPU."""
    return (
        f"version: v1\nsharing: {{timeSlicing: {{renameByDefault: {str(rename).lower()}, failRequestsGreaterThanOne: "
        f"{str(one).lower()}, resources: [{{name: nvidia.com/gpu, replicas: {replicas}}}]}}}}\n"
    )


def install(lab: Lab, limit: float = 90) -> Cluster:
    """Both charts by plain Helm, every operand ready (in `limit` seconds), ConfigMaps for device plugin and MIG manager."""
    charts = lab.env["LAB_CHARTS"]
    helm = ["helm", "upgrade", "--install", "--create-namespace", "--wait", "--namespace"]
    worker = f"worker.config={json.dumps(_WORKER)}"
    run(*helm, "node-feature-discovery", "nfd", f"{charts}/node-feature-discovery", "--set-json", worker, env=lab.env)
    cluster = Cluster.of(lab)
    cluster.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": OPERATOR}})
    cluster.configs({"none": "version: v1\n"})
    cluster.mig_configs()
    run(*helm, OPERATOR, "gpu-operator", f"{charts}/gpu-operator", "--set", VALUES, env=lab.env)
    cluster.wait(cluster.settled, limit=limit, what="the operator's DaemonSets")
    return cluster


@dataclass
class Cluster:
    """One cluster with simulated nodes."""

    lab: Lab
    api: Api
    touched: set[str] = field(default_factory=set)
    cut: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, lab: Lab) -> Cluster:
        return cls(lab, Api(LabLayout.named(lab.name)))

    def node(self, name: str) -> Object:
        found = self.api.get(f"/api/v1/nodes/{name}")
        assert found is not None
        return found

    def labels(self, name: str) -> dict[str, str]:
        labels: dict[str, str] = self.node(name)["metadata"]["labels"]
        return labels

    def gpus(self, name: str) -> dict[str, int]:
        """What a node has to give, by resource; a resource that is gone stays in the node's status with 0."""
        allocatable = self.node(name)["status"]["allocatable"]
        return {k: int(v) for k, v in allocatable.items() if k.startswith("nvidia.com/") and v != "0"}

    def shared(self, name: str) -> tuple[dict[str, int], str, str, str]:
        """A node's resources beside what GFD says of them."""
        labels = self.labels(name)
        names = ("product", "replicas", "sharing-strategy")
        product, replicas, strategy = (labels.get(f"nvidia.com/gpu.{key}", "") for key in names)
        return self.gpus(name), product, replicas, strategy

    def use(self, name: str, config: str | None) -> None:
        """Label a node with the config that it shall use."""
        self.touched.add(name)
        self.api.merge(f"/api/v1/nodes/{name}", {"metadata": {"labels": {_LABEL: config}}})

    def configs(self, data: dict[str, str | None]) -> None:
        """Add entries to the ConfigMap; None takes one out."""
        self._config_map("configs", data)

    def mig_configs(self) -> None:
        """Make the MIG manager's ConfigMap."""
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
        """Label a node with the MIG config that it shall have; the state of the last change goes in the same request."""
        self.cut.add(name)
        labels = {_MIG_LABEL: config, _MIG_STATE: None}
        self.api.merge(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})

    def mig(self, name: str) -> tuple[str, str]:
        """The state of a node's last MIG change, and whether its device plugin may run."""
        labels = self.labels(name)
        return labels.get(_MIG_STATE, ""), labels.get("nvidia.com/gpu.deploy.device-plugin", "")

    def partitioned(self, name: str, config: str, state: str = "success", plugin: str = "true") -> None:
        """Give a node a MIG config, and wait for the outcome."""
        self.partition(name, config)
        self.wait(lambda: self.mig(name) == (state, plugin), what=f"{name} to be {config}: {state}, plugin {plugin}")

    def restart(self, name: str, app: str) -> None:
        """Delete the pod of a DaemonSet on one node."""
        for pod in self.pods(name, app):
            self.api.request("DELETE", f"/api/v1/namespaces/{OPERATOR}/pods/{pod['metadata']['name']}")

    def fault(self, name: str, faults: str | None) -> None:
        """Put faults on a node, or take all off."""
        self.touched.add(name)
        self.api.merge(f"/api/v1/nodes/{name}", {"metadata": {"annotations": {_FAULTS: faults}}})

    def undo(self) -> None:
        """Bring nodes, pods and configs back to what a fresh installation has."""
        self.api.request("DELETE", "/api/v1/namespaces/default/pods")
        for name in self.touched:
            self.use(name, None)
            self.fault(name, None)
        self.touched.clear()
        self._undo_mig()
        self.wait(self.settled, limit=60, what="every operand to run again")

    def _undo_mig(self) -> None:
        """Take MIG off again; a new MIG manager lets the operands run that a failed change has left paused."""
        for name in self.cut:
            self.partition(name, "all-disabled")
            self.restart(name, MIG_MANAGER)
        self.wait(
            lambda: all(self.mig(name) == ("success", "true") for name in self.cut), what="nodes without MIG", limit=60
        )
        self.cut.clear()

    def pods(self, name: str, app: str) -> list[Object]:
        """The pods of one DaemonSet on one node."""
        path = f"/api/v1/namespaces/{OPERATOR}/pods"
        return list(self.api.list(path, labelSelector=f"app={app}", fieldSelector=f"spec.nodeName={name}"))

    def waiting(self, name: str, app: str, *, init: bool = False) -> dict[str, tuple[str, int]]:
        """Why the containers of a pod do not run, and how often they were started again."""
        [pod] = self.pods(name, app)
        statuses = pod["status"].get("initContainerStatuses" if init else "containerStatuses", [])
        return {
            status["name"]: (status["state"]["waiting"].get("reason", ""), status["restartCount"])
            for status in statuses
            if "waiting" in status["state"]
        }

    def settled(self) -> bool:
        """Whether every DaemonSet of the operator has all its pods ready, and every GPU is there to be had."""
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
        labelled = sum(int(n["metadata"]["labels"].get("nvidia.com/gpu.count", 0)) for n in nodes)
        there = fleet.load(LabLayout.named(self.lab.name).fleet).gpus
        return ready and len(daemon_sets) > 5 and gpus == labelled == there

    def run(
        self, name: str, node: str, *, gpus: int = 1, resource: str = "nvidia.com/gpu", command: str = "sleep 30"
    ) -> None:
        """Start a pod that asks for GPUs of one node."""
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
        found = self.api.get(f"/api/v1/namespaces/default/pods/{name}")
        assert found is not None
        return found

    def phase(self, name: str) -> str:
        phase: str = self.pod(name)["status"]["phase"]
        return phase

    def log(self, *words: str) -> str:
        return run("kubectl", "logs", *words, env=self.lab.env)

    def wait(self, done: Callable[[], Any], *, what: str, limit: float = 30) -> None:
        """Wait until a reading is true; fail the test with what was waited for."""
        deadline = time.monotonic() + limit
        while not done():
            if time.monotonic() > deadline:
                pytest.fail(f"waited {limit:.0f} s for {what}", pytrace=False)
            time.sleep(0.1)
