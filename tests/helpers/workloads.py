# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Users' pods in the lab, which use GPUs in every possible way, and a watch that records which of them ended, and how."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lab.api import Api, ApiError, Object
from lab.layout import Lab as LabLayout
from tests.helpers.polling import BUSY
from tests.labs import Lab

NAMESPACE = "users"
GPU = "nvidia.com/gpu"
URGENT = "urgent"
_DRA, _DRIVER = "/apis/resource.k8s.io/v1", "gpu.nvidia.com"
# The API server's condition on a pod that was evicted by the Eviction API.
_EVICTED = "EvictionByEvictionAPI"
# Ways to use a GPU without a resource request: a part of a pod's spec and one of its container's.
WAYS: dict[str, tuple[Object, Object]] = {
    "runtime-class": ({"runtimeClassName": "nvidia"}, {}),
    "host-path": (
        {"volumes": [{"name": "device", "hostPath": {"path": "/dev/nvidia0"}}]},
        {"volumeMounts": [{"name": "device", "mountPath": "/dev/nvidia0"}]},
    ),
    "visible-devices": ({}, {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}),
    # A claim of the DRA driver's devices; Users.claimable() creates some on a node.
    "claim": (
        {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]},
        {"resources": {"claims": [{"name": "gpu"}]}},
    ),
}
# Similar, but no use of a GPU: the value with which NVIDIA's own images request none.
INNOCENT: dict[str, tuple[Object, Object]] = {
    "web": ({}, {}),
    "void": ({}, {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}),
}


@dataclass(frozen=True)
class EndedPod:
    """A pod that no longer exists: `at` is the monotonic time at which the watch received its end."""

    name: str
    uid: str
    node: str
    evicted: bool
    at: float


@dataclass(frozen=True)
class Users:
    """All users of a lab's cluster, in one namespace."""

    lab: Lab

    @property
    def api(self) -> Api:
        """The lab's own client, whose requests are not in the audit log."""
        return Api(LabLayout.named(self.lab.name))

    def create_namespace(self) -> Users:
        """Create the missing parts of the namespace, with Kubernetes' defaults and the administrator's objects for users."""
        api = self.api
        selector = {"cel": {"expression": f"device.driver == '{_DRIVER}'"}}
        request = {"name": "gpu", "exactly": {"deviceClassName": _DRIVER}}
        for path, body in (
            ("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}),
            (f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}}),
            ("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": URGENT}, "value": 1000}),
            (f"{_DRA}/deviceclasses", {"metadata": {"name": _DRIVER}, "spec": {"selectors": [selector]}}),
            (
                f"{_DRA}/namespaces/{NAMESPACE}/resourceclaimtemplates",
                {"metadata": {"name": "gpu"}, "spec": {"spec": {"devices": {"requests": [request]}}}},
            ),
        ):
            _create(api, path, body)
        return self

    def deployment(self, name: str, node: str, replicas: int = 1, **options: Any) -> None:
        """Pods with a controller, pinned to a node; options as for template()."""
        body = {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template(name, node, **options),
        }
        self._apps("deployments", name, body)

    def daemonset(self, name: str, node: str, **options: Any) -> None:
        """A DaemonSet on one node, whose pod cannot move."""
        self._apps(
            "daemonsets",
            name,
            {"selector": {"matchLabels": {"app": name}}, "template": template(name, node, **options)},
        )

    def claimable(self, node: str) -> None:
        """A device that NVIDIA's DRA driver would offer on the node."""
        pool = {"name": node, "resourceSliceCount": 1, "generation": 1}
        spec = {"driver": _DRIVER, "nodeName": node, "pool": pool, "devices": [{"name": "gpu-0"}]}
        _create(self.api, f"{_DRA}/resourceslices", {"metadata": {"name": f"{node}-gpus"}, "spec": spec})

    def unmanaged_pod(self, name: str, node: str, **options: Any) -> None:
        """A pod without a controller."""
        created = template(name, node, **options)
        created["metadata"]["name"] = name
        _create(self.api, f"/api/v1/namespaces/{NAMESPACE}/pods", created)

    def runtime_class(self, name: str, handler: str) -> None:
        """A RuntimeClass of the cluster."""
        _create(self.api, "/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": name}, "handler": handler})

    def budget(self, name: str, app: str, **spec: Any) -> None:
        """A PodDisruptionBudget of an app: `minAvailable` or `maxUnavailable`."""
        body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": app}}, **spec}}
        _create(self.api, f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets", body)
        self.until(lambda: (self._budget(name).get("status") or {}).get("observedGeneration"), "the budget is counted")

    def no_budget(self, name: str) -> None:
        """Delete a budget."""
        self.api.request("DELETE", f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/{name}")

    def pods(self, app: str = "") -> list[Object]:
        """All pods of the users, or of one app."""
        query = {"labelSelector": f"app={app}"} if app else {}
        return list(self.api.list(f"/api/v1/namespaces/{NAMESPACE}/pods", **query))

    def running(self, app: str = "") -> list[Object]:
        """The running pods that are not terminating."""
        return [
            pod
            for pod in self.pods(app)
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        ]

    def wait_running(self, count: int, app: str = "") -> list[Object]:
        """Wait until this number of pods runs, and return them."""
        self.until(lambda: len(self.running(app)) == count, f"{count} pods of {app or 'all users'} run")
        return self.running(app)

    def delete_all(self) -> None:
        """Delete all objects and wait until they are gone."""
        api = self.api
        if api.get(f"/api/v1/namespaces/{NAMESPACE}") is None:
            return
        for kind in ("policy/v1/poddisruptionbudgets", "apps/v1/deployments", "apps/v1/daemonsets"):
            group, dummy, plural = kind.rpartition("/")
            api.request("DELETE", f"/apis/{group}/namespaces/{NAMESPACE}/{plural}")
        self.until(
            lambda: not list(api.list(f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets")), "no ReplicaSet is left"
        )
        api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods")
        self.until(lambda: not self.pods(), "no pod of a user is left")

    @staticmethod
    def until(done: Callable[[], Any], what: str, seconds: float = 90) -> None:
        """Wait for an action of controllers or simulated agents."""
        end = time.monotonic() + BUSY * seconds
        while not done():
            assert time.monotonic() < end, f"not within {BUSY * seconds:.0f} s: {what}"
            time.sleep(0.1)

    @contextmanager
    def watched(self) -> Iterator[Watch]:
        """Watch the pods that end while the block runs."""
        watch = Watch(self.api)
        watch.start()
        try:
            yield watch
        finally:
            watch.stop()

    def _apps(self, plural: str, name: str, spec: Object) -> None:
        _create(self.api, f"/apis/apps/v1/namespaces/{NAMESPACE}/{plural}", {"metadata": {"name": name}, "spec": spec})

    def _budget(self, name: str) -> Object:
        return self.api.get(f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/{name}") or {}


@dataclass
class Watch:
    """The users' pods since the start of the watch: existing and ended ones. Survives a restart of the API server."""

    api: Api
    gone: dict[str, EndedPod] = field(default_factory=dict)
    _known: dict[str, Object] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)
    _seen: threading.Condition = field(default_factory=threading.Condition)

    def start(self) -> None:
        """List the pods, and watch them from then on."""
        version = self._list()
        threading.Thread(target=self._follow, args=(version,), daemon=True).start()

    def stop(self) -> None:
        """Process all events until now, and end."""
        marker = f"seen-{time.monotonic_ns()}"
        body = {
            "metadata": {"name": marker},
            "spec": {"containers": [{"name": "main", "image": "none"}], "nodeName": "nowhere"},
        }
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        uid = self.api.request("POST", path, body)["metadata"]["uid"]
        self.api.request("DELETE", f"{path}/{marker}?gracePeriodSeconds=0")
        with self._seen:
            assert self._seen.wait_for(lambda: uid in self.gone, timeout=30), "the watch of pods has stopped"
            del self.gone[uid]
        self._over.set()

    def names(self) -> set[str]:
        """The ended pods, as namespace/name."""
        return {f"{NAMESPACE}/{gone.name}" for gone in self.gone.values()}

    def not_evicted(self) -> list[str]:
        """The pods that ended without an eviction."""
        return sorted(gone.name for gone in self.gone.values() if not gone.evicted)

    def _list(self) -> str:
        answer = self.api.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")
        present = {pod["metadata"]["uid"]: pod for pod in answer["items"]}
        for uid in set(self._known) - set(present):
            self._note(self._known[uid])
        self._known = present
        return str(answer["metadata"]["resourceVersion"])

    def _follow(self, version: str) -> None:
        while not self._over.is_set():
            try:
                for event in self.api.watch(f"/api/v1/namespaces/{NAMESPACE}/pods", version):
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] == "DELETED":
                        self._note(event["object"])
                    elif event["type"] in ("ADDED", "MODIFIED"):
                        self._known[event["object"]["metadata"]["uid"]] = event["object"]
                    if self._over.is_set():
                        return
            except ApiError:
                time.sleep(0.2)
                try:
                    version = self._list()
                except ApiError:
                    continue

    def _note(self, pod: Object) -> None:
        metadata = pod["metadata"]
        conditions = pod.get("status", {}).get("conditions") or []
        evicted = any(c["type"] == "DisruptionTarget" and c.get("reason") == _EVICTED for c in conditions)
        gone = EndedPod(metadata["name"], metadata["uid"], pod["spec"].get("nodeName", ""), evicted, time.monotonic())
        with self._seen:
            self._known.pop(gone.uid, None)
            self.gone[gone.uid] = gone
            self._seen.notify_all()


def template(
    app: str,
    node: str,
    *,
    resource: str = "",
    count: int = 1,
    way: tuple[Object, Object] = ({}, {}),
    priority: str = "",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    seconds: str = "inf",
    **spec: Any,
) -> Object:
    """A pod of an app on a node that holds `count` of a resource, or uses a GPU in a `way` of WAYS."""
    of_pod, of_container = way
    container: Object = {"name": "main", "image": "example.com/work", "command": ["sleep", seconds], **of_container}
    if resource:
        container["resources"] = {"limits": {resource: str(count)}}
    return {
        "metadata": {"labels": {"app": app, **(labels or {})}, "annotations": annotations or {}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}],
            "containers": [container],
            "automountServiceAccountToken": False,
            **({"priorityClassName": priority} if priority else {}),
            **of_pod,
            **spec,
        },
    }


def _create(api: Api, path: str, body: Object) -> None:
    try:
        api.request("POST", path, body)
    except ApiError as error:
        if error.status != 409:
            raise
