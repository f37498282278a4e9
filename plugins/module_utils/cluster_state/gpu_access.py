# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""By which ways the containers of a pod get access to GPUs without requesting one (pure).

| in the pod | what it gives | source |
|---|---|---|
| a privileged container | every device of the node, whatever is mounted | containerd internal/cri/opts: WithHostDevices, WithAllDevicesAllowed |
| hostPath `/dev/nvidia*`, mounted | the device files; they are mounted for no other purpose | |
| hostPath `/dev` or `/`, mounted | nothing: the device cgroup allows the runtime's default devices alone (runc specconv AllowedDevices) | |
| CDI annotation, value `nvidia.com/...` | the devices that it names | container-device-interface pkg/cdi/annotations.go; toolkit: prefix nvidia.cdi.k8s.io/ |
| annotation io.kubernetes.cri-o.Devices | the device files that it lists | cri-o internal/config/device |
| a RuntimeClass with a handler of NVIDIA's | what the image's or the pod's NVIDIA_VISIBLE_DEVICES asks for | nvidia-container-toolkit internal/config/image |
| a nodeSelector with nvidia.com/gpu.deploy.client | whatever it takes: it names itself a client of GPUs | mig-parted pkg/mig/reconfigure |
| a mount below /var/run/nvidia-container-devices | the devices that its path names | the same, accept-nvidia-visible-devices-as-volume-mounts |
"""

from __future__ import annotations

import posixpath
import typing as t

from ..catalog.names import CLIENT_LABEL

# RuntimeClasses of the GPU operator (assets/pre-requisites); with the first, an image's own environment asks for all GPUs.
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
    """The names of the RuntimeClasses (node.k8s.io/v1) whose handler is one of NVIDIA's, and those that the operator makes."""
    found = {item["metadata"]["name"] for item in runtime_classes if "nvidia" in str(item.get("handler") or "")}
    return frozenset({*found, *RUNTIME_CLASSES})


def gpu_access(pod: Document, runtime_classes: t.Collection[str]) -> t.Iterator[str]:
    """The ways for which there is no other reason than a GPU, in words."""
    spec = pod["spec"]
    if spec.get("runtimeClassName") in runtime_classes:
        yield f"runtimeClassName {spec['runtimeClassName']}"
    if CLIENT_LABEL in (spec.get("nodeSelector") or {}):
        yield f"nodeSelector {CLIENT_LABEL}"
    yield from _annotated(pod["metadata"].get("annotations") or {})
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
        yield from _visible(container)


def privileged(pod: Document) -> t.Iterator[str]:
    """The containers that see every device of the node, in words; an init container that has ended holds nothing any more."""
    starting = (pod.get("status") or {}).get("phase") == "Pending"
    for container in _containers(pod["spec"]):
        if not (container.get("securityContext") or {}).get("privileged"):
            continue
        is_init = any(container is one for one in pod["spec"].get("initContainers") or ())
        if not is_init or starting or container.get("restartPolicy") == "Always":
            yield f"privileged container {container.get('name')}"


def _containers(spec: Document) -> t.Iterator[Document]:
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        yield from spec.get(kind) or ()


def _annotated(annotations: t.Mapping[str, str]) -> t.Iterator[str]:
    for key, value in sorted(annotations.items()):
        if key.startswith(_CDI_PREFIXES):
            devices = [device.strip() for device in value.split(",")]
            found = [device for device in devices if _is_nvidia(device.partition("/")[0])]
            if found:
                yield f"annotation {key}: {', '.join(found)}"
        elif key == _CRIO_DEVICES and _DEVICE_FILES in value:
            yield f"annotation {key}: {value}"


def _is_nvidia(vendor: str) -> bool:
    """CDI's vendor of a device: nvidia.com, management.nvidia.com, runtime.nvidia.com."""
    return vendor == "nvidia.com" or vendor.endswith(".nvidia.com")


def _visible(container: Document) -> t.Iterator[str]:
    for entry in container.get("env") or ():
        if entry.get("name") != VISIBLE_DEVICES:
            continue
        if entry.get("valueFrom"):
            # The value is known on the node alone; a reference is set for a reason.
            yield f"{VISIBLE_DEVICES} from a reference"
        elif entry.get("value", "") not in _NO_DEVICES:
            yield f"{VISIBLE_DEVICES}={entry['value']}"
