# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The components that the GPU operator runs on nodes, NFD, and the device plugins of others."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from dataclasses import dataclass

from .names import GPU_RESOURCE, NFD_PREFIX, NOUVEAU_LABEL

# The GPU operator's operands: their part of the ClusterPolicy, their images, and the label `app` of their pods.
#
# To add an operand, add an entry to OPERANDS.
#
# Sources: gpu-operator api/nvidia/v1/clusterpolicy_types.go (ImagePath, IsEnabled() for the defaults of `enabled`), deployments/gpu-operator/values.yaml (the
# chart enables vfioManager, sandboxDevicePlugin and vgpuDeviceManager, which IsEnabled() does not), controllers/object_controls.go (resolveDriverTag),
# controllers/state_manager.go (which states run), assets/*/*daemonset.yaml (labels), the tags v23.9.2 to v26.7.0. Restarts: the Transform functions in
# controllers/object_controls.go, v25.10.

# The values of the label app that other code needs; on OpenShift, the value for the driver has the operating system as a suffix.
DRIVER = "nvidia-driver-daemonset"
TOOLKIT = "nvidia-container-toolkit-daemonset"
PLUGIN = "nvidia-device-plugin-daemonset"
MPS_DAEMON = "nvidia-device-plugin-mps-control-daemon"
DISCOVERY = "gpu-feature-discovery"
MIG_MANAGER = "nvidia-mig-manager"
VALIDATOR = "nvidia-operator-validator"
DCGM = "nvidia-dcgm"
DCGM_EXPORTER = "nvidia-dcgm-exporter"
# The operator's variable with the image of the driver manager, which several operands use.
DRIVER_MANAGER_VARIABLE = "DRIVER_MANAGER_IMAGE"


@dataclasses.dataclass(frozen=True)
class OperandDefinition:
    """An operand with an image.

    part: its field in the spec of the ClusterPolicy. runs_by_default: whether it runs if `enabled` of this field is not set; None if there is no `enabled`.
    apps: the label app of its pods, which restart when the field changes; empty for pods that only nodes with virtual machines have.
    image_variable: the operator's variable with its image, if its name does not follow from `part`. manager: the field of the part with the
    image of the driver manager. by_system: whether the operator appends the operating system to the image's tag. virtual_machines: whether it runs only with
    sandboxWorkloads.enabled.
    """

    part: str
    runs_by_default: bool | None
    apps: tuple[str, ...] = ()
    image_variable: str = ""
    manager: str = ""
    by_system: bool = False
    virtual_machines: bool = False

    @property
    def variable(self) -> str:
        """The operator's variable with the image."""
        return self.image_variable or f"{re.sub(r'(?<=[a-z])(?=[A-Z])', '_', self.part).upper()}_IMAGE"


OPERANDS = (
    OperandDefinition("validator", None, (VALIDATOR,)),
    OperandDefinition("driver", True, (DRIVER,), manager="manager", by_system=True),
    OperandDefinition("toolkit", True, (TOOLKIT,), image_variable="CONTAINER_TOOLKIT_IMAGE"),
    OperandDefinition("devicePlugin", True, (PLUGIN, MPS_DAEMON)),
    OperandDefinition("gfd", True, (DISCOVERY,)),
    OperandDefinition("dcgm", True, (DCGM,)),
    OperandDefinition("dcgmExporter", True, (DCGM_EXPORTER,)),
    OperandDefinition("migManager", True, (MIG_MANAGER,)),
    OperandDefinition("nodeStatusExporter", False, ("nvidia-node-status-exporter",), image_variable="VALIDATOR_IMAGE"),
    OperandDefinition("gds", False, (DRIVER,), by_system=True),
    OperandDefinition("gdrcopy", False, (DRIVER,), by_system=True),
    OperandDefinition("vfioManager", True, manager="driverManager", virtual_machines=True),
    OperandDefinition("sandboxDevicePlugin", True, virtual_machines=True),
    OperandDefinition("kataSandboxDevicePlugin", False, virtual_machines=True),
    OperandDefinition("vgpuManager", False, manager="driverManager", by_system=True, virtual_machines=True),
    OperandDefinition("vgpuDeviceManager", True, virtual_machines=True),
    OperandDefinition("kataManager", False, virtual_machines=True),
    OperandDefinition("ccManager", False, virtual_machines=True),
)
APPS = frozenset(app for operand in OPERANDS for app in operand.apps)
# The pods that use the device plugin's configuration.
_CONFIGURED = frozenset({PLUGIN, MPS_DAEMON, DISCOVERY})
# Exceptions: fields below the ClusterPolicy's spec for which a change does not restart exactly the pods of their operand, each with the apps of the pods
# that restart.
_RESTARTS: dict[tuple[str, ...], frozenset[str]] = {
    # Init containers of the other operands also use the validator's image.
    ("validator",): APPS,
    **dict.fromkeys([("devicePlugin",), ("mig",)], _CONFIGURED),
    # The validator's pod checks the plugin's resources and the kernel modules of the sidecars, and gets the strategy.
    **dict.fromkeys([("devicePlugin", "enabled"), ("mig", "strategy")], _CONFIGURED | {VALIDATOR}),
    **dict.fromkeys([("gds", "enabled"), ("gdrcopy", "enabled")], frozenset({DRIVER, PLUGIN, VALIDATOR})),
    ("dcgm", "enabled"): frozenset({DCGM, DCGM_EXPORTER}),
    **dict.fromkeys([("toolkit", "enabled"), ("toolkit", "installDir")], frozenset({TOOLKIT, PLUGIN, MIG_MANAGER})),
    ("hostPaths", "kubeletRootDir"): APPS - {DRIVER},
    # These fields are not part of a pod template; they concern labels of the namespace, a Service, a ServiceMonitor, and the replacement of pods.
    **dict.fromkeys(
        [
            *(("psa",), ("psp",), ("dcgmExporter", "service"), ("dcgmExporter", "serviceMonitor")),
            *(("driver", "upgradePolicy"), ("daemonsets", "updateStrategy"), ("daemonsets", "rollingUpdate")),
        ],
        frozenset(),
    ),
}


def restarted_apps(path: t.Sequence[str]) -> frozenset[str]:
    """The apps of the pods that restart when the field at this path below the spec of the ClusterPolicy changes; all apps if it belongs to no operand."""
    for length in (2, 1):
        apps = _RESTARTS.get(tuple(path[:length]))
        if apps is not None:
            return apps
    return next((frozenset(operand.apps) for operand in OPERANDS if operand.part == path[0]), APPS)


# Device plugins and schedulers, other than the GPU operator's operands, that give NVIDIA GPUs to pods, and the marks by which they are recognized.
#
# To add one, add an entry to DEVICE_PLUGINS. A resource that is not listed here never counts as an NVIDIA GPU; if its name suggests a GPU, it is only
# reported
# (see is_unknown_gpu_resource()).
#
# | plugin | source |
# |---|---|
# | HAMi | Project-HAMi/HAMi charts/hami/values.yaml (resources, images), pkg/device/nvidia/device.go (annotations) |
# | Volcano | volcano-sh/devices volcano-device-plugin.yml, volcano-vgpu-device-plugin.yml; Project-HAMi/volcano-vgpu-device-plugin |
# | gpushare | AliyunContainerService/gpushare-device-plugin device-plugin-ds.yaml, pkg/gpu/nvidia/const.go |
# | GPU Manager | tkestack/gpu-manager gpu-manager.yaml |
# | InstaSlice | openshift/instaslice-operator internal/controller/constants.go, Makefile (image); its newer device plugin offers mig.das.com |
# | stand-alone plugin of NVIDIA | NVIDIA/k8s-device-plugin deployments/static, deployments/helm/nvidia-device-plugin |
# | GKE | GoogleCloudPlatform/container-engine-accelerators cmd/nvidia_gpu/device-plugin.yaml |
# | KAI Scheduler and Run:ai | NVIDIA/KAI-Scheduler pkg/binder/binding/resourcereservation, docs/gpu-sharing; runai-reservation: before v0.6 |
# | DRA | kubernetes v1.36 staging/src/k8s.io/api/resource/v1/types.go (ResourceDeviceClassPrefix) |


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
    directory, dummy, last = image.partition("@")[0].rpartition("/")
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


# The configuration of NFD's workers, for NFD's chart and for the NodeFeatureDiscovery of OpenShift.

# The classes of NVIDIA's own chart (gpu-operator v25.10.1, deployments/gpu-operator/values.yaml): network adapters, and the two classes of NVIDIA's GPUs,
# VGA and 3D controllers. The operator recognizes only these two (controllers/state_manager.go, pci-0300_10de and pci-0302_10de). NFD compares the
# beginning of a class (source/pci/pci.go), so "02" includes the next two. The sample configuration of OpenShift's NFD operator also lists "03" (all
# display controllers) and "12" (accelerators of other vendors). The collection does not use these labels.
_PCI_CLASSES = ("02", "0200", "0207", "0300", "0302")
# Labels nodes on which nouveau is loaded, the kernel module that prevents NVIDIA's modules from loading. NFD publishes loaded modules only by custom rules
# (NFD's "Customization guide").
_NOUVEAU_RULE: dict[str, t.Any] = {
    "name": "nouveau",
    "labels": {NOUVEAU_LABEL.removeprefix(NFD_PREFIX): "true"},
    "matchFeatures": [{"feature": "kernel.loadedmodule", "matchExpressions": {"nouveau": {"op": "Exists"}}}],
}
# `vendor` alone yields the label that the GPU operator reads, pci-10de.present.
WORKER_CONFIG: dict[str, t.Any] = {
    "sources": {
        "custom": [_NOUVEAU_RULE],
        "pci": {"deviceClassWhitelist": list(_PCI_CLASSES), "deviceLabelFields": ["vendor"]},
    }
}
