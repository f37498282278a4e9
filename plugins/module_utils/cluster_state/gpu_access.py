# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the ways in which a pod's containers access GPUs without requesting a GPU (pure).

| in the pod | access to | source |
|---|---|---|
| a privileged container | every device of the node, regardless of its mounts | containerd internal/cri/opts: WithHostDevices, WithAllDevicesAllowed |
| hostPath `/dev/nvidia*`, mounted | the device files, because there is no other reason to mount them | |
| hostPath `/dev` or `/`, mounted | nothing: the device cgroup only allows the runtime's default devices (runc specconv AllowedDevices) | |
| CDI annotation, value `nvidia.com/...` | the devices that it names | container-device-interface pkg/cdi/annotations.go; toolkit: prefix nvidia.cdi.k8s.io/ |
| annotation io.kubernetes.cri-o.Devices | the device files that it lists | cri-o internal/config/device |
| a RuntimeClass with an NVIDIA handler | the devices in NVIDIA_VISIBLE_DEVICES of the image or the pod | nvidia-container-toolkit internal/config/image |
| a nodeSelector with nvidia.com/gpu.deploy.client | unknown: the pod declares itself a GPU client | mig-parted pkg/mig/reconfigure |
| a mount below /var/run/nvidia-container-devices | the devices in its path | toolkit: accept-nvidia-visible-devices-as-volume-mounts |
"""

from __future__ import annotations

import posixpath
import typing as t

from ..catalog.names import CLIENT_LABEL

# The RuntimeClasses that the GPU operator creates (assets/pre-requisites). With the first one, the environment of an image can request all GPUs.
RUNTIME_CLASSES = ("nvidia", "nvidia-cdi", "nvidia-legacy")
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
# Values that inject no device (nvidia-container-toolkit, internal/config/image).
_NO_DEVICES = ("", "none", "void")
_DEVICE_FILES = "/dev/nvidia"
_DEVICES_AS_MOUNTS = "/var/run/nvidia-container-devices/"
_CDI_PREFIXES = ("cdi.k8s.io/", "nvidia.cdi.k8s.io/")
_CRIO_DEVICES = "io.kubernetes.cri-o.Devices"

Document = t.Mapping[str, t.Any]


def nvidia_runtime_classes(runtime_classes: t.Iterable[Document]) -> frozenset[str]:
    """The names of the RuntimeClasses (node.k8s.io/v1) with an NVIDIA handler, and those that the operator creates."""
    names = {item["metadata"]["name"] for item in runtime_classes if "nvidia" in str(item.get("handler") or "")}
    return frozenset({*names, *RUNTIME_CLASSES})


def gpu_access(pod: Document, runtime_classes: t.Collection[str]) -> t.Iterator[str]:
    """Descriptions of the pod's access to GPUs; only kinds of access that have no other purpose count."""
    spec = pod["spec"]
    if spec.get("runtimeClassName") in runtime_classes:
        yield f"runtimeClassName {spec['runtimeClassName']}"
    if CLIENT_LABEL in (spec.get("nodeSelector") or {}):
        yield f"nodeSelector {CLIENT_LABEL}"
    yield from _annotations(pod["metadata"].get("annotations") or {})
    mounts = [mount for container in _containers(spec) for mount in container.get("volumeMounts") or ()]
    mounted = {mount.get("name") for mount in mounts}
    for volume in spec.get("volumes") or ():
        path = posixpath.normpath((volume.get("hostPath") or {}).get("path") or "/")
        if path.startswith(_DEVICE_FILES) and volume.get("name") in mounted:
            yield f"mounts {path}"
    for mount in mounts:
        if str(mount.get("mountPath") or "").startswith(_DEVICES_AS_MOUNTS):
            yield f"mounts {mount['mountPath']}"
    for container in _containers(spec):
        yield from _environment(container)


def privileged_containers(pod: Document) -> t.Iterator[str]:
    """Descriptions of the pod's privileged containers, which can access every device of the node, except finished init containers."""
    starting = (pod.get("status") or {}).get("phase") == "Pending"
    for container in _containers(pod["spec"]):
        if not (container.get("securityContext") or {}).get("privileged"):
            continue
        is_init = any(container is other for other in pod["spec"].get("initContainers") or ())
        if not is_init or starting or container.get("restartPolicy") == "Always":
            yield f"privileged container {container.get('name')}"


def _containers(spec: Document) -> t.Iterator[Document]:
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        yield from spec.get(kind) or ()


def _annotations(annotations: t.Mapping[str, str]) -> t.Iterator[str]:
    for key, value in sorted(annotations.items()):
        if key.startswith(_CDI_PREFIXES):
            devices = [device.strip() for device in value.split(",")]
            # NVIDIA's CDI vendors: nvidia.com, management.nvidia.com, runtime.nvidia.com.
            gpus = [device for device in devices if f".{device.partition('/')[0]}".endswith(".nvidia.com")]
            if gpus:
                yield f"annotation {key}: {', '.join(gpus)}"
        elif key == _CRIO_DEVICES and _DEVICE_FILES in value:
            yield f"annotation {key}: {value}"


def _environment(container: Document) -> t.Iterator[str]:
    for entry in container.get("env") or ():
        if entry.get("name") != VISIBLE_DEVICES:
            continue
        if entry.get("valueFrom"):
            # The value is known only on the node, but the reference shows that the variable is set on purpose.
            yield f"{VISIBLE_DEVICES} from a reference"
        elif entry.get("value", "") not in _NO_DEVICES:
            yield f"{VISIBLE_DEVICES}={entry['value']}"
