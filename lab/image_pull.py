# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The images of the GPU operator's own pods.

kwok starts such a pod when it has the annotation below, which means that the lab has the release of its image. Until then
the pod's state is that of a real node whose registry does not have the image (pkg/kubelet/images of Kubernetes).
"""

from __future__ import annotations

import datetime
import time

from . import operators
from .api import Api, ApiError, Object

# Read by lab/kwok/pod-start.yaml, which also contains the labels.
ANNOTATION = "lab.accel.gpu/image"
_LABELS = ("app", "app.kubernetes.io/component")
_IMAGE = "gpu-operator"
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


def is_waiting(pod: Object) -> bool:
    """Return whether a pod of the GPU operator waits for its image."""
    metadata = pod["metadata"]
    return (
        any(metadata.get("labels", {}).get(label) == _IMAGE for label in _LABELS)
        and ANNOTATION not in metadata.get("annotations", {})
        and pod.get("status", {}).get("phase", "Pending") == "Pending"
        and bool(pod["spec"].get("nodeName"))
    )


class ImagePull:
    """The pull of a pod's image, repeated until the lab has its release."""

    def __init__(self, pod: Object) -> None:
        """Take a pod for which `is_waiting` is true."""
        self.pod = pod
        self._failures, self._next = 0, 0.0

    def advance(self, api: Api) -> None:
        """Let kwok start the pod if the lab has all its images; else write the pod's state, once for each change."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _RETRY_SECONDS
        missing = [container for container in self.pod["spec"]["containers"] if not _is_available(container)]
        try:
            if not missing:
                api.merge(self._path, {"metadata": {"annotations": {ANNOTATION: "present"}}})
                return
            self._failures += 1
            # The kubelet alternates between the two reasons; the lab ends with the second one.
            if self._failures <= 2:
                self._report(api, [container["name"] for container in missing])
            if self._failures == 1:
                self._event(api, missing[0]["image"])
        except ApiError as error:
            if error.status != 404:
                raise

    @property
    def _path(self) -> str:
        metadata = self.pod["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"

    def _report(self, api: Api, missing: list[str]) -> None:
        """Write the state of a pod whose image cannot be pulled."""
        text = f"containers with unready status: [{' '.join(missing)}]"
        unready = {"status": "False", "reason": "ContainersNotReady", "message": text, "lastTransitionTime": _now()}
        containers = [self._status(container) for container in self.pod["spec"]["containers"]]
        status = {
            "phase": "Pending",
            "containerStatuses": containers,
            "conditions": [{"type": "Ready", **unready}, {"type": "ContainersReady", **unready}],
        }
        body = {"metadata": {"uid": self.pod["metadata"]["uid"]}, "status": status}
        api.request("PATCH", f"{self._path}/status", body, "application/strategic-merge-patch+json")

    def _status(self, container: Object) -> Object:
        image = container["image"]
        waiting = {"reason": "ContainerCreating"}
        if not _is_available(container):
            waiting = {"reason": "ErrImagePull", "message": _pull_error(image)}
            if self._failures > 1:
                waiting = {
                    "reason": "ImagePullBackOff",
                    "message": f'Back-off pulling image "{image}": ErrImagePull: {_pull_error(image)}',
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

    def _event(self, api: Api, image: str) -> None:
        metadata = self.pod["metadata"]
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
            "message": f'Failed to pull image "{image}": {_pull_error(image)}',
            "source": {"component": "kubelet", "host": self.pod["spec"]["nodeName"]},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        api.request("POST", f"/api/v1/namespaces/{metadata['namespace']}/events", event)


def _is_available(container: Object) -> bool:
    """Return whether the lab has the release of an image of the GPU operator; other images need no program."""
    image = container["image"]
    if image.rpartition("/")[2].partition(":")[0].partition("@")[0] != _IMAGE:
        return True
    found = operators.find(release(container))
    return found is not None and found.folder is not None


def _pull_error(image: str) -> str:
    """Return containerd's message for an image that its registry does not have."""
    return (
        f'rpc error: code = NotFound desc = failed to pull and unpack image "{image}": failed to resolve reference'
        f' "{image}": {image}: not found'
    )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
