# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Device plugins and schedulers, other than the GPU operator's operands, that give NVIDIA GPUs to pods, and the marks by which they are recognized.

To add one, add an entry to DEVICE_PLUGINS. A resource that is not listed here never counts as an NVIDIA GPU; if its name suggests a GPU, it is only reported
(see is_unknown_gpu_resource()).

| plugin | source |
|---|---|
| HAMi | Project-HAMi/HAMi charts/hami/values.yaml (resources, images), pkg/device/nvidia/device.go (annotations) |
| Volcano | volcano-sh/devices volcano-device-plugin.yml, volcano-vgpu-device-plugin.yml; Project-HAMi/volcano-vgpu-device-plugin |
| gpushare | AliyunContainerService/gpushare-device-plugin device-plugin-ds.yaml, pkg/gpu/nvidia/const.go |
| GPU Manager | tkestack/gpu-manager gpu-manager.yaml |
| InstaSlice | openshift/instaslice-operator internal/controller/constants.go, Makefile (image); its newer device plugin offers mig.das.com |
| stand-alone plugin of NVIDIA | NVIDIA/k8s-device-plugin deployments/static, deployments/helm/nvidia-device-plugin |
| GKE | GoogleCloudPlatform/container-engine-accelerators cmd/nvidia_gpu/device-plugin.yaml |
| KAI Scheduler and Run:ai | NVIDIA/KAI-Scheduler pkg/binder/binding/resourcereservation, docs/gpu-sharing; runai-reservation: before v0.6 |
| DRA | kubernetes v1.36 staging/src/k8s.io/api/resource/v1/types.go (ResourceDeviceClassPrefix) |
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from .names import GPU_RESOURCE


@dataclass(frozen=True)
class DevicePlugin:
    """A device plugin that is not an operand.

    resources: the names of its resources; a name that ends with a hyphen or a slash is a prefix. images: the last parts of its images' paths, without tags.
    annotations: the keys of its annotations on nodes; a key that ends with a hyphen is a prefix. registers_gpu: whether it offers nvidia.com/gpu, as the
    operator's own plugin does.
    """

    title: str
    resources: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    registers_gpu: bool = False


DEVICE_PLUGINS = (
    DevicePlugin(
        "HAMi",
        ("nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "nvidia.com/priority"),
        ("hami", "k8s-vgpu"),
        # The plugins for other vendors' devices set hami.io/node-handshake-VENDOR.
        ("hami.io/node-nvidia-", "hami.io/node-handshake"),
        registers_gpu=True,
    ),
    DevicePlugin(
        "Volcano",
        ("volcano.sh/vgpu-", "volcano.sh/gpu-"),
        ("volcano-device-plugin", "volcano-vgpu-device-plugin"),
        ("volcano.sh/node-vgpu-",),
    ),
    DevicePlugin("gpushare of Alibaba Cloud", ("aliyun.com/gpu-",), ("k8s-gpushare-plugin",)),
    DevicePlugin("GPU Manager of Tencent", ("tencent.com/vcuda-",), ("gpu-manager",)),
    DevicePlugin(
        "InstaSlice",
        ("instaslice.redhat.com/", "org.instaslice/", "mig.das.com/"),
        ("instaslice-daemonset", "instaslice-daemonset-rhel9"),
    ),
    DevicePlugin("the stand-alone device plugin of NVIDIA", images=("k8s-device-plugin",), registers_gpu=True),
    DevicePlugin("the device plugin of GKE", images=("nvidia-gpu-device-plugin",), registers_gpu=True),
)
# The namespaces and labels of the pods with which a scheduler reserves a whole GPU for pods that use a part of it. The scheduler creates and deletes them.
RESERVATION_APPS = ("kai-resource-reservation", "runai-reservation")
GPU_GROUP_LABEL = "runai-gpu-group"
FRACTION_ANNOTATIONS = ("gpu-fraction", "gpu-memory")
FRACTION_SCHEDULERS = ("kai-scheduler", "runai-scheduler")
# The implicit names of resources that are requested through dynamic resource allocation.
_DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
_DRA_CLASSES = ("gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com")
# Domains whose resources are GPUs of other vendors.
_OTHER_VENDORS = ("amd.com", "intel.com", "habana.ai", "metax-tech.com", "mthreads.com", "iluvatar.ai", "huawei.com")
# Images of other vendors whose paths end like those of plugins in DEVICE_PLUGINS (ROCm/k8s-device-plugin k8s-ds-amdgpu-dp.yaml).
_OTHER_VENDORS_IMAGES = ("rocm/k8s-device-plugin",)
_GPU_NAME = re.compile(r"gpu|vcuda|(^|[^a-z])mig-")


def plugin_of_resource(resource: str) -> DevicePlugin | None:
    """The known plugin that offers this resource; None for nvidia.com/gpu, which several plugins offer, and for unknown resources."""
    return next((plugin for plugin in DEVICE_PLUGINS if _is_among(resource, plugin.resources)), None)


def is_foreign_gpu_resource(resource: str) -> bool:
    """Whether a resource outside the domain nvidia.com is known to represent NVIDIA GPUs. Pods are evicted for this reason, so a name is never enough."""
    if resource.startswith(_DEVICE_CLASS_PREFIX):
        return resource.removeprefix(_DEVICE_CLASS_PREFIX) in _DRA_CLASSES
    return not resource.startswith("nvidia.com/") and plugin_of_resource(resource) is not None


def is_unknown_gpu_resource(resource: str) -> bool:
    """Whether a resource's name suggests a GPU, but its vendor is unknown. This is a reason to report it, never to evict a pod."""
    domain, slash, name = resource.partition("/")
    if not slash or domain == "nvidia.com" or domain.endswith((".nvidia.com", "kubernetes.io", ".k8s.io")):
        return False
    is_other = any(domain == vendor or domain.endswith(f".{vendor}") for vendor in _OTHER_VENDORS)
    return not is_other and plugin_of_resource(resource) is None and bool(_GPU_NAME.search(name.lower()))


def is_gpu_group_label(label: str) -> bool:
    """Whether the key is that of a label on pods that share reserved GPUs; a pod with parts of several GPUs has one label for each of them."""
    return label == GPU_GROUP_LABEL or label.startswith(f"{GPU_GROUP_LABEL}/")


def plugin_of_image(image: str) -> DevicePlugin | None:
    """The known plugin with this image."""
    directory, _, last = image.partition("@")[0].rpartition("/")
    name = last.partition(":")[0]
    if f"/{directory}/{name}".endswith(tuple(f"/{other}" for other in _OTHER_VENDORS_IMAGES)):
        return None
    return next((plugin for plugin in DEVICE_PLUGINS if name in plugin.images), None)


def plugin_of_annotations(annotations: t.Iterable[str]) -> tuple[DevicePlugin, str] | None:
    """The known plugin that has set one of these annotations on a node, and the annotation."""
    keys = sorted(annotations)
    return next(
        ((plugin, key) for plugin in DEVICE_PLUGINS for key in keys if _is_among(key, plugin.annotations)),
        None,
    )


def conflict_of(plugin: DevicePlugin) -> str:
    """The effect of the plugin for the operator's own device plugin on the same node, as the end of a sentence."""
    if plugin.registers_gpu:
        return f"it also registers {GPU_RESOURCE}, and the kubelet only uses the plugin that registered last"
    return "it gives the same GPUs to pods a second time, because neither plugin counts the pods of the other"


def _is_among(resource: str, names: t.Iterable[str]) -> bool:
    return any(resource == name or (name.endswith(("-", "/")) and resource.startswith(name)) for name in names)
