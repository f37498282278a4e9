# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The images of the GPU operator's own pods, and of the pods with an image of the lab's registries (the part `registry`).

kwok starts such a pod when it has the annotation below, which means that the lab has the release of the GPU operator's image,
and that the registry has the image for the pod's login. Until then the pod's state is that of a real node that cannot pull
the image (pkg/kubelet/images of Kubernetes).
"""

from __future__ import annotations

import datetime
import time

from . import operators
from .api import Api, ApiError, Object
from .registry import resolve

# Read by lab/kwok/pod-start.yaml, which also contains the labels and the loopback addresses.
ANNOTATION = "lab.accel.gpu/image"
_LABELS = ("app", "app.kubernetes.io/component")
_IMAGE = "gpu-operator"
_LOOPBACK = ("127.0.0.1:", "localhost:")
_CSV_VARIABLE = "OPERATOR_CONDITION_NAME"
# A release that is added later is found after this time.
_RETRY_SECONDS = 3.0


def tag(image: str) -> str:
    """Return the tag of an image reference; empty if it has none, or a digest."""
    name = image.rpartition("/")[2]
    return "" if "@" in name else name.partition(":")[2]


def release(container: Object) -> str:
    """Return the release of the GPU operator that a container's image contains.

    OLM's bundles refer to the image by digest: the release is then that of the ClusterServiceVersion, which OLM writes to the
    environment of every container that it deploys.
    """
    image = container["image"]
    if "@" not in image:
        return tag(image)
    names = [variable.get("value", "") for variable in container.get("env", []) if variable["name"] == _CSV_VARIABLE]
    return names[0].partition(".")[2] if names else ""


def is_waiting(pod: Object, registries: resolve.Registries | None = None) -> bool:
    """Return whether a pod waits for its images: one of the GPU operator, or of these registries (None: the lab has none)."""
    metadata = pod["metadata"]
    return (
        ANNOTATION not in metadata.get("annotations", {})
        and pod.get("status", {}).get("phase", "Pending") == "Pending"
        and bool(pod["spec"].get("nodeName"))
        and (
            any(metadata.get("labels", {}).get(label) == _IMAGE for label in _LABELS)
            or (registries is not None and any(_is_on_loopback(one["image"]) for one in _containers(pod)))
        )
    )


class ImagePull:
    """The pull of a pod's images, repeated until all can be pulled."""

    def __init__(self, pod: Object, registries: resolve.Registries | None = None) -> None:
        """Take a pod for which `is_waiting` is true."""
        self.pod = pod
        self._registries = registries
        self._failures, self._next = 0, 0.0
        self._problems: dict[str, str] = {}

    def advance(self, api: Api) -> None:
        """Let kwok start the pod if all its images can be pulled; else write the pod's state, once for each change."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _RETRY_SECONDS
        try:
            before, self._problems = self._problems, self._find_problems(api)
            if not self._problems:
                api.merge(self._path, {"metadata": {"annotations": {ANNOTATION: "present"}}})
                return
            self._failures += 1
            changed = before != self._problems
            # The kubelet alternates between the two reasons; the lab ends with the second one.
            if self._failures <= 2 or changed:
                self._report(api)
            if changed:
                self._event(api)
        except ApiError as error:
            if error.status != 404:
                raise

    def _find_problems(self, api: Api) -> dict[str, str]:
        """Return the message for each container whose image cannot be pulled now, by the name of the container.

        The init containers run one after another, before the others: only the first failure of one is known.
        """
        spec = self.pod["spec"]
        known = resolve.logins(api, self.pod) if self._registries else []
        for container in spec.get("initContainers") or ():
            if problem := self._problem(container, known):
                return {container["name"]: problem}
        by_container = {container["name"]: self._problem(container, known) for container in spec["containers"]}
        return {name: problem for name, problem in by_container.items() if problem}

    def _problem(self, container: Object, known: list[resolve.Login]) -> str | None:
        image = container["image"]
        if self._registries and self._registries.has(image) and (problem := self._registries.problem(image, known)):
            return problem
        return None if _is_available(container) else resolve.not_found(image)

    @property
    def _path(self) -> str:
        metadata = self.pod["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"

    def _report(self, api: Api) -> None:
        """Write the state of a pod whose images cannot be pulled."""
        spec = self.pod["spec"]
        initial = [container["name"] for container in spec.get("initContainers") or ()]
        # Known only if all init containers can start.
        blocked = not self._problems.keys().isdisjoint(initial)
        waiting = [
            container["name"] for container in spec["containers"] if blocked or container["name"] in self._problems
        ]
        unready = _condition("ContainersNotReady", "unready", waiting)
        conditions = [{"type": "Ready", **unready}, {"type": "ContainersReady", **unready}]
        status = {
            "phase": "Pending",
            "containerStatuses": [
                self._status(container, "PodInitializing" if blocked else "ContainerCreating")
                for container in spec["containers"]
            ],
            "conditions": conditions,
        }
        if initial:
            status["initContainerStatuses"] = [
                self._status(container, "PodInitializing") for container in spec["initContainers"]
            ]
        if blocked:
            conditions.append({"type": "Initialized", **_condition("ContainersNotInitialized", "incomplete", initial)})
        body = {"metadata": {"uid": self.pod["metadata"]["uid"]}, "status": status}
        api.request("PATCH", f"{self._path}/status", body, "application/strategic-merge-patch+json")

    def _status(self, container: Object, reason: str) -> Object:
        image = container["image"]
        waiting = {"reason": reason}
        if problem := self._problems.get(container["name"]):
            waiting = {"reason": "ErrImagePull", "message": problem}
            if self._failures > 1:
                waiting = {
                    "reason": "ImagePullBackOff",
                    "message": f'Back-off pulling image "{image}": ErrImagePull: {problem}',
                }
        return {
            "name": container["name"],
            "image": image,
            "imageID": "",
            "ready": False,
            "started": False,
            "restartCount": 0,
            "state": {"waiting": waiting},
        }

    def _event(self, api: Api) -> None:
        metadata = self.pod["metadata"]
        image, problem = next(
            (container["image"], self._problems[container["name"]])
            for container in _containers(self.pod)
            if container["name"] in self._problems
        )
        now = _now()
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "type": "Warning",
            "reason": "Failed",
            "message": f'Failed to pull image "{image}": {problem}',
            "source": {"component": "kubelet", "host": self.pod["spec"]["nodeName"]},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        api.request("POST", f"/api/v1/namespaces/{metadata['namespace']}/events", event)


def _containers(pod: Object) -> list[Object]:
    return [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]


def _is_on_loopback(image: str) -> bool:
    """Return whether kwok waits for the annotation because of this image; one of no registry of the lab needs no pull."""
    return image.startswith(_LOOPBACK)


def _condition(reason: str, state: str, names: list[str]) -> Object:
    text = f"containers with {state} status: [{' '.join(names)}]"
    return {"status": "False", "reason": reason, "message": text, "lastTransitionTime": _now()}


def _is_available(container: Object) -> bool:
    """Return whether the lab has the release of an image of the GPU operator; other images need no program."""
    image = container["image"]
    if image.rpartition("/")[2].partition(":")[0].partition("@")[0] != _IMAGE:
        return True
    operator = operators.find(release(container))
    return operator is not None and operator.folder is not None


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
