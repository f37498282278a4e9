# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module license_rotation with restarts of drivers on a cluster in memory: nodes that are cordoned, pods that are evicted, and driver pods."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import BUDGET_CAUSE, ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.paths import NODES, PODS
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from tests.helpers.license_api import vgpu_pool
from tests.helpers.license_nodes import NAMESPACE, Container, Containers, Killed, initial_files
from tests.helpers.license_tokens import make_token
from tests.helpers.rotation_module import RotationModule

Object = dict[str, Any]
NOTE = "accel.gpu/cordoned"
OLD, NEW = (make_token(hosts=[f"{name}.example.com"]) for name in ("old", "new"))
CONFIG = "FeatureType=1\n"
CLIENT = "nvidia.com/gpu.deploy.client"


def gpu_pod(name: str, node: str, *, owner: str = "ReplicaSet", **spec: Any) -> Object:
    """A pod with a GPU; without an owner if this is empty."""
    owners = [{"kind": owner, "name": "owner", "controller": True}] if owner else []
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", "ownerReferences": owners}
    return {"metadata": metadata, "spec": {"nodeName": node, "containers": [container], **spec}, "status": {}}


@dataclass
class RestartModule(RotationModule):
    """The nodes, the pods on them by name, and what was requested. No protected pod is evicted."""

    nodes: dict[str, Object] = field(default_factory=dict)
    pods: dict[str, Object] = field(default_factory=dict)
    protected: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    # How many reads it takes until the device plugin of a node is ready.
    plugin_delay: int = 0
    # How many reads it takes until the driver of a node is loaded after its restart.
    start_delays: dict[str, int] = field(default_factory=dict)
    # The run is killed after this number of changes; None: it is not killed.
    kill_after: int | None = None

    def __post_init__(self) -> None:
        self.params = {"restart_drivers": True, **self.params}
        super().__post_init__()
        self.nodes = {item["metadata"]["name"]: item for item in super()._nodes()}
        for number, node in enumerate(self.nodes.values()):
            node["metadata"]["resourceVersion"] = str(number)
            node["spec"] = {}
        self.containers.after = self._after_command

    def add(self, *pods: Object) -> None:
        """Run these pods."""
        self.pods.update({pod["metadata"]["name"]: pod for pod in pods})

    def delay_driver(self, node: str) -> None:
        """Let the driver of a node not start again."""
        self.start_delays[node] = 1_000_000

    def cordons(self) -> dict[str, str | None]:
        """The cordoned nodes, with the reason if the cordon is one of the collection."""
        return {
            name: (node["metadata"].get("annotations") or {}).get(NOTE)
            for name, node in self.nodes.items()
            if node["spec"].get("unschedulable")
        }

    def changed(self, request: str) -> None:
        """A change was made."""
        self.requests.append(request)
        if self.kill_after is not None:
            self.kill_after -= 1
            if self.kill_after == 0:
                raise Killed

    def _after_command(self, node: str, command: tuple[str, ...]) -> None:
        if command[0] in ("cp", "mv", "kill", "env"):
            self.changed(f"{command[0]} {node}")

    def _nodes(self) -> Iterable[Object]:
        return copy.deepcopy([self.nodes[name] for name in self.containers.by_node])

    def _plugin(self, node: str) -> Object:
        self.plugin_delay -= 1
        ready = {"type": "Ready", "status": "False" if self.plugin_delay >= 0 else "True"}
        labels = {"app": "nvidia-device-plugin-daemonset"}
        containers = [{"name": "nvidia-device-plugin", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]
        status = {"conditions": [ready], "containerStatuses": containers}
        return {"metadata": {"name": f"plugin-{node}", "labels": labels}, "spec": {"nodeName": node}, "status": status}

    def list(self, path: str, **selectors: Any) -> Iterable[Object]:
        if path.endswith(f"/{NAMESPACE}/pods") and "label_selector" not in selectors:
            return [self._plugin(selectors["field_selector"].removeprefix("spec.nodeName="))]
        if path != PODS:
            return super().list(path, **selectors)
        node = (selectors.get("field_selector") or "").partition("spec.nodeName=")[2].partition(",")[0]
        return [copy.deepcopy(pod) for pod in self.pods.values() if not node or pod["spec"]["nodeName"] == node]

    def get(self, path: str) -> Object:
        if not path.startswith(f"{NODES}/"):
            return super().get(path)
        return copy.deepcopy(self.nodes[path.removeprefix(f"{NODES}/")])

    def patch(self, path: str, body: Object, *, dry_run: bool = False) -> Object:
        name = path.removeprefix(f"{NODES}/")
        node, metadata = self.nodes[name], dict(body["metadata"])
        if metadata.pop("resourceVersion") != node["metadata"]["resourceVersion"]:
            raise ApiError("changed", status=409, method="PATCH", path=path)
        node["metadata"]["resourceVersion"] += "0"
        for key, values in metadata.items():
            merge(node["metadata"].setdefault(key, {}), values)
        merge(node["spec"], body.get("spec") or {})
        self.changed(f"patch {name}")
        return copy.deepcopy(node)

    def strategic_merge(self, path: str, body: Object, *, dry_run: bool = False) -> None:
        self.patch(path, body, dry_run=dry_run)

    def evict(self, path: str, body: Object) -> None:
        name = body["metadata"]["name"]
        assert path == f"/api/v1/namespaces/team/pods/{name}/eviction"
        if name in self.protected:
            causes = [{"reason": BUDGET_CAUSE, "message": "The disruption budget web needs 1 healthy pods and has 1"}]
            raise ApiError("not allowed", status=429, details={"causes": causes}, method="POST", path=path)
        pod = self.pods[name]
        assert self.nodes[pod["spec"]["nodeName"]]["spec"].get("unschedulable"), "the pod could return"
        assert body["deleteOptions"]["preconditions"] == {"uid": pod["metadata"]["uid"]}
        del self.pods[name]
        self.changed(f"evict {name}")

    def delete(self, path: str, *, body: Object) -> bool:
        node = path.rpartition("/driver-")[2].partition("+")[0]
        pod = self.containers.pod(node)["metadata"]
        if body["preconditions"] != {"uid": pod["uid"]} or not path.endswith(f"/{pod['name']}"):
            raise ApiError("another pod", status=409, method="DELETE", path=path)
        users = [name for name, pod in self.pods.items() if pod["spec"]["nodeName"] == node and _uses_gpu(pod)]
        assert not users, "the driver is in use"
        self.containers.starting[node] = self.start_delays.get(node, 2)
        # The driver has its license later, and the next run may read it before that.
        self.containers.replace_pod(node, Container(initial_files(self.token, self.config), delay=2, waiting=3))
        self.changed(f"delete {path.rpartition('/')[2]}")
        return True


def restart_module(count: int = 2, rollout: Object | None = None, **options: Any) -> RestartModule:
    """The module with this number of nodes, whose drivers have an old token."""
    containers = Containers({f"n{index}": Container(initial_files(OLD, CONFIG)) for index in range(count)})
    actual = RestartModule(containers, NEW, CONFIG, **options)
    actual.plan = derive({"name": "prod"}, {}, [{**vgpu_pool("vdi", "licensing-config"), "rollout": rollout or {}}])
    return actual


@contextlib.contextmanager
def passing_time() -> Iterator[None]:
    """Let time pass only by sleeps, without waiting, so that no limit depends on the speed of the machine."""
    start, passed = time.monotonic(), 0.0

    def pass_time(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    def now() -> float:
        return start + passed

    with mock.patch.object(time, "sleep", pass_time), mock.patch.object(time, "monotonic", now):
        yield


def _uses_gpu(pod: Object) -> bool:
    return bool(pod["spec"]["containers"][0]["resources"])


def merge(target: Object, values: Object) -> None:
    """A merge patch of a map without maps in it."""
    for key, value in values.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = value


def changes_of(requests: Iterable[str], *verbs: str) -> Iterator[str]:
    """The requests with these verbs."""
    return (request for request in requests if request.split()[0] in verbs)
