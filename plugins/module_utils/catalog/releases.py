# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The releases of the GPU operator, of CUDA, of vGPU software and of driver images, and what each of them changed."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from typing import NamedTuple

# The releases of the GPU operator with all data that depends on them, and the default releases of the operator and of NFD.
#
# distributions.py contains the known issues of each release.

# API version and kind.
Kind = tuple[str, str]
# The first two numbers of a version; for a release of the operator, they are the year and the month.
Release = tuple[int, int]

# NVIDIA's Helm repository, and the registry in which NFD has published its charts since v0.17. Sources: the installation guides of both.
OPERATOR_CHART = "gpu-operator"
OPERATOR_NAMESPACE = "gpu-operator"
OPERATOR_HELM_RELEASE = "gpu-operator"
OPERATOR_CHART_REPO = "https://helm.ngc.nvidia.com/nvidia"
NFD_NAMESPACE = "node-feature-discovery"
NFD_HELM_RELEASE = "nfd"
NFD_CHART = "oci://registry.k8s.io/nfd/charts/node-feature-discovery"

OPERATOR_VERSION = "v25.10.1"
NFD_VERSION = "0.19.0"

# Source: node-feature-discovery v0.19.0, deployment/helm/node-feature-discovery/crds/nfd-api-crds.yaml.
NFD_KINDS: tuple[Kind, ...] = (
    ("nfd.k8s-sigs.io/v1alpha1", "NodeFeature"),
    ("nfd.k8s-sigs.io/v1alpha1", "NodeFeatureRule"),
    ("nfd.k8s-sigs.io/v1alpha1", "NodeFeatureGroup"),
)

# The first release with the kind GPUCluster (crds/ of the tag v26.7.0).
GPU_CLUSTER_SINCE: Release = (26, 7)
# The kinds of the operator's CRDs, and the first release with each kind; (0, 0) stands for every release in the catalog.
_KINDS_SINCE: dict[Kind, Release] = {
    ("nvidia.com/v1", "ClusterPolicy"): (0, 0),
    ("nvidia.com/v1alpha1", "NVIDIADriver"): (0, 0),
    ("nvidia.com/v1alpha1", "GPUCluster"): GPU_CLUSTER_SINCE,
    ("resource.nvidia.com/v1beta1", "ComputeDomain"): GPU_CLUSTER_SINCE,
    ("resource.nvidia.com/v1beta1", "ComputeDomainClique"): GPU_CLUSTER_SINCE,
}
_VERSION = re.compile(r"v?(\d+(?:\.\d+){0,2})(.*)", re.ASCII)

_NEWEST: Release = (98, 0)
_NEVER: Release = (99, 0)

# The releases that added fields of gpu_cluster.operator to the ClusterPolicy, or to the chart only (fabric_manager); older releases silently drop them
# (CRDs and charts of the tags v24.3.0 to v26.7.0).
OPERATOR_FIELDS_SINCE: dict[tuple[str, ...], Release] = {
    ("gdrcopy", "enabled"): (24, 3),
    ("driver", "kernel_module_type"): (25, 3),
    ("driver", "secret_env"): (25, 10),
    ("driver", "fabric_manager", "mode"): (26, 7),
}

# The first release whose driver pods mount the licensing token from a Secret (api/nvidia/v1/clusterpolicy_types.go of the tag v25.10.0).
LICENSING_SECRET_SINCE: Release = (25, 10)
# The releases that added fields of a pool's `driver`, which are fields of NVIDIADriver (CRDs of the tags v24.9.2 to v26.7.0).
POOL_DRIVER_FIELDS_SINCE: dict[tuple[str, ...], Release] = {
    ("kernel_module_type",): (25, 3),
    ("secret_env",): (25, 10),
    ("licensing_secret",): LICENSING_SECRET_SINCE,
    ("upgrade",): (26, 7),
}
# The first release in which the operator restarts driver pods in place if the digest of the driver's configuration does not change
# (internal/predicates/restart_only.go of the tag v26.7.0, which does not exist in the tags up to v26.3.3).
_RESTARTS_IN_PLACE_SINCE: Release = (26, 7)
# The first release of the driver manager that compares digests (k8s-driver-manager v0.10.0, cmd/driver-manager/main.go).
_DRIVER_MANAGER_COMPARES_SINCE: Release = (0, 10)
# Since this release, each NVIDIADriver has its own upgrade policy, and one of them can be the default (crds/ of the tags v26.3.3 and v26.7.0);
# in earlier releases, the policy in the ClusterPolicy applies to all of them.
OWN_UPGRADE_POLICY_SINCE: Release = (26, 7)

# The folder of nvcr.io with the image of each component, by the component's path in the values of NVIDIA's chart. A chart
# ignores the values of a component that it does not have. No public registry has the image of vgpuManager.
# Source: gpu-operator, deployments/gpu-operator/values.yaml of the tags v23.9.2 to v26.7.0.
_IMAGE_FOLDERS: dict[str, str] = {
    "operator": "nvidia",
    "operator.initContainer": "nvidia",
    "validator": "nvidia",
    "driver": "nvidia",
    "driver.manager": "nvidia/cloud-native",
    "toolkit": "nvidia/k8s",
    "devicePlugin": "nvidia",
    "gfd": "nvidia",
    "dcgm": "nvidia/cloud-native",
    "dcgmExporter": "nvidia/k8s",
    "migManager": "nvidia/cloud-native",
    "nodeStatusExporter": "nvidia",
    "gds": "nvidia/cloud-native",
    "gdrcopy": "nvidia/cloud-native",
    "vgpuManager.driverManager": "nvidia/cloud-native",
    "vgpuDeviceManager": "nvidia/cloud-native",
    "vfioManager": "nvidia/cloud-native",
    "vfioManager.driverManager": "nvidia/cloud-native",
    "kataManager": "nvidia/cloud-native",
    "sandboxDevicePlugin": "nvidia",
    "kataSandboxDevicePlugin": "nvidia/cloud-native",
    "ccManager": "nvidia/cloud-native",
    "draDriver": "nvidia",
}
# Repository and image of the parts of a ClusterPolicy whose version a user can set, as in the chart's values.
DRIVER_IMAGE = ("nvcr.io/nvidia", "driver")
VERSIONED_IMAGES: dict[str, tuple[str, str]] = {
    "driver": DRIVER_IMAGE,
    "gds": ("nvcr.io/nvidia/cloud-native", "nvidia-fs"),
    "gdrcopy": ("nvcr.io/nvidia/cloud-native", "gdrdrv"),
}
# The release that added a part to the ClusterPolicy. The image folders contain the part for every release, because older charts ignore it.
POLICY_PARTS_SINCE: dict[str, Release] = {"kataSandboxDevicePlugin": (26, 3)}
# The release that changed the folder of a component, and the folder before this release.
_IMAGE_FOLDERS_BEFORE: tuple[tuple[Release, str, str], ...] = (
    ((25, 10), "validator", "nvidia/cloud-native"),
    ((25, 10), "nodeStatusExporter", "nvidia/cloud-native"),
    ((26, 3), "vfioManager", "nvidia"),
)
# The release that removed a component.
_REMOVED_IN: dict[str, Release] = {"operator.initContainer": (26, 3), "kataManager": (26, 3)}
# The image of a manager's init container is pulled with its pod's secrets, and has no separate field for secrets.
COMPONENTS_WITHOUT_SECRETS = frozenset({"driver.manager", "vgpuManager.driverManager", "vfioManager.driverManager"})

# The values of the charts of the GPU operator and of NFD that are maps, with the maps in each of them. If a scalar
# replaces a map, Helm only warns, and templates that read a field of the map then fail or render nothing. Sources:
# deployments/gpu-operator/values.yaml of gpu-operator (v25.10, and draDriver, kataSandboxDevicePlugin of v26.3) and
# deployment/helm/node-feature-discovery/values.yaml of node-feature-discovery (v0.18).
OPERATOR_MAPS: dict[str, tuple[str, ...]] = {
    "ccManager": ("resources",),
    "cdi": (),
    "daemonsets": ("annotations", "labels", "rollingUpdate"),
    "dcgm": ("resources",),
    "dcgmExporter": ("resources", "service", "serviceMonitor"),
    "devicePlugin": ("config", "mps", "resources"),
    "draDriver": (),
    "driver": (
        "certConfig",
        "kernelModuleConfig",
        "licensingConfig",
        "manager",
        "nvidiaDriverCRD",
        "rdma",
        "repoConfig",
        "resources",
        "startupProbe",
        "upgradePolicy",
        "virtualTopology",
    ),
    "gdrcopy": (),
    "gds": (),
    "gfd": ("resources",),
    "hostPaths": (),
    "kataManager": ("config", "resources"),
    "kataSandboxDevicePlugin": (),
    "mig": (),
    "migManager": ("config", "gpuClientsConfig", "resources"),
    "nfd": (),
    "node-feature-discovery": (),
    "nodeStatusExporter": ("resources",),
    "operator": ("affinity", "annotations", "initContainer", "logging", "resources"),
    "platform": (),
    "psa": (),
    "sandboxDevicePlugin": ("resources",),
    "sandboxWorkloads": (),
    "toolkit": ("resources",),
    "validator": ("plugin", "resources"),
    "vfioManager": ("driverManager", "resources"),
    "vgpuDeviceManager": ("config",),
    "vgpuManager": ("driverManager", "resources"),
}
# The maps in the values of every NFD workload.
_NFD_WORKLOAD = (
    "affinity",
    "annotations",
    "labels",
    "livenessProbe",
    "networkPolicy",
    "nodeSelector",
    "podSecurityContext",
    "rbac",
    "readinessProbe",
    "resources",
    "serviceAccount",
)
NFD_MAPS: dict[str, tuple[str, ...]] = {
    "featureGates": (),
    "gc": (*_NFD_WORKLOAD, "deploymentAnnotations", "podDisruptionBudget"),
    "global": (),
    "image": (),
    "master": (*_NFD_WORKLOAD, "deploymentAnnotations", "podDisruptionBudget", "securityContext", "startupProbe"),
    "prometheus": ("labels",),
    "topologyUpdater": (*_NFD_WORKLOAD, "daemonsetAnnotations", "securityContext"),
    "worker": (*_NFD_WORKLOAD, "daemonsetAnnotations", "securityContext", "updateStrategy"),
}


@dataclasses.dataclass(frozen=True)
class OperatorRelease:
    """One release of the GPU operator; `device_plugin` is the image tag in its chart."""

    version: str
    device_plugin: str

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version as comparable numbers."""
        return tuple(int(number) for number in self.version.removeprefix("v").split("."))

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of its CRDs."""
        return tuple(kind for kind, since in _KINDS_SINCE.items() if release_of(self.version) >= since)

    @property
    def extras_named(self) -> bool:
        """Whether its device plugin offers MIG devices with extras (+me, +gfx) under their own names; up to v0.19, it treats them as plain devices.

        Source: k8s-device-plugin #1807, and a run of v0.19.0 on such devices.
        """
        return release_of(self.device_plugin) >= (0, 20)


# Source: NVIDIA/gpu-operator at the tag: deployments/gpu-operator/values.yaml (devicePlugin.version), crds/. Oldest first.
#
# To add a release, add a row. Then compare its chart with that of the release before: new CRDs (_KINDS_SINCE), new or removed fields of the ClusterPolicy and
# of NVIDIADriver (OPERATOR_FIELDS_SINCE, POOL_DRIVER_FIELDS_SINCE, _REMOVED_IN), the folders of images (_IMAGE_FOLDERS), and the known issues
# (catalog/distributions.py). tests/integration/test_charts.py compares the images with a chart.
OPERATOR_RELEASES: tuple[OperatorRelease, ...] = (
    OperatorRelease("v23.9.0", "v0.14.2-ubi8"),
    OperatorRelease("v23.9.1", "v0.14.3-ubi8"),
    OperatorRelease("v23.9.2", "v0.14.5-ubi8"),
    OperatorRelease("v24.3.0", "v0.15.0-ubi8"),
    OperatorRelease("v24.6.0", "v0.16.1-ubi8"),
    OperatorRelease("v24.6.1", "v0.16.2-ubi8"),
    OperatorRelease("v24.6.2", "v0.16.2-ubi8"),
    OperatorRelease("v24.9.0", "v0.17.0-ubi9"),
    OperatorRelease("v24.9.1", "v0.17.0"),
    OperatorRelease("v24.9.2", "v0.17.0"),
    OperatorRelease("v25.3.0", "v0.17.1"),
    OperatorRelease("v25.3.1", "v0.17.2"),
    OperatorRelease("v25.3.2", "v0.17.3"),
    OperatorRelease("v25.3.3", "v0.17.4"),
    OperatorRelease("v25.3.4", "v0.17.4"),
    OperatorRelease("v25.10.0", "v0.18.0"),
    OperatorRelease("v25.10.1", "v0.18.1"),
    OperatorRelease("v26.3.0", "v0.19.0"),
    OperatorRelease("v26.3.1", "v0.19.0"),
    OperatorRelease("v26.3.2", "v0.19.2"),
    OperatorRelease("v26.3.3", "v0.19.3"),
    OperatorRelease("v26.7.0", "v0.20.0"),
)


@dataclasses.dataclass(frozen=True)
class OperatorVersion:
    """A requested version of the GPU operator, and its release in the catalog."""

    requested: str
    release: OperatorRelease
    """The release itself, or the most similar one."""
    exact: bool

    @property
    def warning(self) -> str | None:
        """The message for the user if the version is not in the catalog."""
        if self.exact:
            return None
        return f"GPU operator {self.requested} is not in the catalog; it is treated like {self.release.version}"


def operator_release(version: str) -> OperatorVersion:
    """The catalog's release for this version: `v25.10.1`, with or without `v`.

    For an unknown version, this is the next older known release, or the oldest release if none is older. If the version cannot
    be parsed, it is the newest release.
    """
    parsed = _VERSION.fullmatch(version.strip())
    if parsed is None:
        return OperatorVersion(version, OPERATOR_RELEASES[-1], exact=False)
    numbers = tuple(int(number) for number in parsed[1].split("."))
    same = next((release for release in OPERATOR_RELEASES if release.numbers == numbers), None)
    if same and not parsed[2]:
        return OperatorVersion(version, same, exact=True)
    # A release candidate comes before its release.
    before_same = parsed[2].startswith("-")
    older = [
        release
        for release in OPERATOR_RELEASES
        if release.numbers[: len(numbers)] <= numbers and not (before_same and release is same)
    ]
    return OperatorVersion(version, older[-1] if older else OPERATOR_RELEASES[0], exact=False)


def operator_kinds(version: str) -> tuple[Kind, ...]:
    """The API kinds that this operator release installs."""
    return operator_release(version).release.kinds


def image_folders(version: str) -> dict[str, str]:
    """The folder of nvcr.io with the image of each component that this operator release has."""
    release = release_of(version)
    folders = {
        component: folder
        for component, folder in _IMAGE_FOLDERS.items()
        if release < _REMOVED_IN.get(component, _NEVER)
    }
    return {**folders, **{component: folder for before, component, folder in _IMAGE_FOLDERS_BEFORE if release < before}}


def restarts_in_place(version: str) -> bool:
    """Whether this operator release restarts driver pods in place if possible; False if the release cannot be read from the version."""
    return (
        known_release_of(version) is not None
        and operator_release(version).release.numbers[:2] >= _RESTARTS_IN_PLACE_SINCE
    )


def compares_digests(image: str) -> bool:
    """Whether this image of the driver manager compares digests; False if the image has no tag with a release, for example only a digest."""
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    release = known_release_of(tag)
    return release is not None and release >= _DRIVER_MANAGER_COMPARES_SINCE


def release_of(version: str) -> Release:
    """The first two numbers of a version; any other format counts as the newest release, so that no field is omitted.

    Use known_release_of() for decisions that are safe only for new releases.
    """
    return known_release_of(version) or _NEWEST


def is_downgrade(installed: str, desired: str) -> bool:
    """Whether the desired version is older than the installed one; False if either is not a version with three numbers."""
    before, after = (re.match(r"v?(\d+)\.(\d+)\.(\d+)", text, re.ASCII) for text in (installed, desired))
    return before is not None and after is not None and [*map(int, after.groups())] < [*map(int, before.groups())]


def known_release_of(version: str) -> Release | None:
    """The first two numbers of a version that has three; None for any other text."""
    match = re.match(r"v?(\d+)\.(\d+)\.", version, re.ASCII)
    return (int(match[1]), int(match[2])) if match else None


# CUDA versions, and the GPUs that each version supports.

# Major and minor number of a CUDA version or compute capability.
CudaVersion = tuple[int, int]

# The key for an image that is used with every CUDA version.
ANY_CUDA_VERSION = "0.0"

# The lowest compute capability of each major version (CUDA Toolkit release notes, "Deprecated Architectures").
_MIN_COMPUTE: dict[int, CudaVersion] = {11: (3, 5), 12: (5, 0), 13: (7, 5)}
_CUDA_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.\d{1,4})*", re.ASCII)


def parse_cuda_version(text: str) -> CudaVersion | None:
    """The first two numbers of a version; None for other text."""
    match = _CUDA_VERSION.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else None


def runs_on_cuda(cuda: CudaVersion, compute: CudaVersion | None) -> bool:
    """Whether programs built for a CUDA version run on GPUs with a compute capability; an unknown capability (None) counts as supported."""
    return compute is None or compute >= _MIN_COMPUTE.get(cuda[0], (0, 0))


# The releases of NVIDIA's vGPU software: the versions of the manager on the hypervisor and of the driver in Linux guests.
#
# Sources: NVIDIA vGPU release notes ("vGPU Software Driver Versions"), Tenable's plugins for NVIDIA bulletins, Google's bucket of GRID drivers. An empty
# string stands for a version that no source lists.


class VgpuRelease(NamedTuple):
    """One release: its number, and the versions of the manager and of the guest driver for Linux."""

    number: str
    manager: str
    guest: str

    @property
    def branch(self) -> int:
        """The major number of the release."""
        return int(self.number.partition(".")[0])


# The branch of vGPU releases for each major number of the drivers.
BRANCHES: dict[int, int] = {470: 13, 510: 14, 525: 15, 535: 16, 550: 17, 570: 18, 580: 19, 595: 20}
# The first branch whose guests need a newer license server, and the version of that Delegated License Service (NVIDIA License System release notes).
DLS_VERSION_NEEDED = (18, "3.4")
# Branches with long-term support. A later branch also supports guests of the previous one (NVIDIA vGPU 19.0 release notes, "Compatibility").
LONG_TERM_BRANCHES = (13, 16, 19)

RELEASES: tuple[VgpuRelease, ...] = (
    VgpuRelease("20.1", "", "595.71.05"),
    VgpuRelease("20.0", "595.58.02", "595.58.03"),
    VgpuRelease("19.6", "", "580.178.04"),
    VgpuRelease("19.5", "580.159.01", "580.159.03"),
    VgpuRelease("19.4", "580.126.08", "580.126.09"),
    VgpuRelease("19.3", "580.105.06", "580.105.08"),
    VgpuRelease("19.2", "580.95.02", "580.95.05"),
    VgpuRelease("19.1", "580.82.02", "580.82.07"),
    VgpuRelease("19.0", "580.65.05", "580.65.06"),
    VgpuRelease("18.6", "", "570.211.01"),
    VgpuRelease("18.5", "570.195.02", ""),
    VgpuRelease("18.4", "570.172.07", "570.172.08"),
    VgpuRelease("18.3", "570.158.02", "570.158.01"),
    VgpuRelease("18.2", "570.148.06", "570.148.08"),
    VgpuRelease("18.1", "570.133.10", "570.133.20"),
    VgpuRelease("18.0", "570.124.03", ""),
    VgpuRelease("17.6", "550.163.02", "550.163.01"),
    VgpuRelease("17.5", "550.144.02", "550.144.03"),
    VgpuRelease("17.4", "550.127.06", "550.127.05"),
    VgpuRelease("17.3", "550.90.05", "550.90.07"),
    VgpuRelease("17.2", "550.90.05", "550.90.07"),
    VgpuRelease("17.1", "550.54.16", "550.54.15"),
    VgpuRelease("17.0", "550.54.10", "550.54.14"),
    VgpuRelease("16.14", "", "535.309.01"),
    VgpuRelease("16.13", "", "535.288.01"),
    VgpuRelease("16.12", "535.274.03", ""),
    VgpuRelease("16.11", "535.261.04", "535.261.03"),
    VgpuRelease("16.10", "535.247.02", "535.247.01"),
    VgpuRelease("16.9", "535.230.02", "535.230.02"),
    VgpuRelease("16.8", "535.216.01", "535.216.01"),
    VgpuRelease("16.7", "535.183.04", "535.183.06"),
    VgpuRelease("16.6", "535.183.04", "535.183.01"),
    VgpuRelease("16.5", "535.161.05", "535.161.08"),
    VgpuRelease("16.4", "535.161.05", "535.161.07"),
    VgpuRelease("16.3", "535.154.02", "535.154.05"),
    VgpuRelease("16.2", "535.129.03", "535.129.03"),
    VgpuRelease("16.1", "535.104.06", "535.104.05"),
    VgpuRelease("16.0", "535.54.06", "535.54.03"),
    VgpuRelease("15.4", "525.147.01", "525.147.05"),
    VgpuRelease("15.3", "525.125.03", "525.125.06"),
    VgpuRelease("15.2", "525.105.14", "525.105.17"),
    VgpuRelease("15.1", "525.85.07", "525.85.05"),
    VgpuRelease("15.0", "525.60.12", "525.60.13"),
    VgpuRelease("14.4", "510.108.03", "510.108.03"),
    VgpuRelease("14.2", "510.85.03", "510.85.02"),
    VgpuRelease("14.1", "510.73.06", "510.73.08"),
    VgpuRelease("14.0", "510.47.03", "510.47.03"),
    VgpuRelease("13.12", "470.256.02", "470.256.02"),
    VgpuRelease("13.10", "470.239.01", "470.239.06"),
    VgpuRelease("13.9", "470.223.02", "470.223.02"),
    VgpuRelease("13.8", "470.199.03", "470.199.02"),
    VgpuRelease("13.7", "470.182.02", "470.182.03"),
    VgpuRelease("13.6", "470.161.02", "470.161.03"),
    VgpuRelease("13.4", "470.141.05", "470.141.03"),
    VgpuRelease("13.3", "470.129.04", "470.129.06"),
    VgpuRelease("13.2", "470.103.02", "470.103.01"),
    VgpuRelease("13.1", "470.82", "470.82.01"),
    VgpuRelease("13.0", "470.63", "470.63.01"),
)


def release_with(*, manager: str = "", guest: str = "") -> VgpuRelease | None:
    """The newest release with this version of the manager or of the guest driver; None if the table has none."""
    return next(
        (item for item in RELEASES if (manager and item.manager == manager) or (guest and item.guest == guest)), None
    )


def branch_of(version: str) -> int | None:
    """The branch of vGPU releases for a driver's version; None if it is not known."""
    major = version.partition(".")[0]
    return BRANCHES.get(int(major)) if major.isdecimal() else None


# The operating systems of nodes, the tags of their driver images, and the sources of these images.
#
# To form a tag, the operator appends the operating system to the driver's version.
# Sources: gpu-operator controllers/object_controls.go (resolveDriverTag), controllers/state_manager.go (getGPUNodeOSInfo) and internal/state/nodepool.go
# (getOSTag) of the tags v23.9.2 to v26.7.0; NVIDIA/gpu-driver-container Makefile and its folders.

# NFD's labels with ID and VERSION_ID from /etc/os-release.
OS_LABELS = ("system-os_release.ID", "system-os_release.VERSION_ID")
# NFD's label with the kernel release, which is part of the tags of precompiled drivers.
KERNEL_LABEL = "kernel-version.full"
_OS_TAG = re.compile(r"(?P<system>[a-z]+(?:-[a-z]+)?)(?P<version>\d+(?:\.\d+)?)")
# RHCOS has been built from RHEL 9 since OpenShift 4.13 (release notes of OpenShift).
_RHCOS_9_SINCE = 13


def _rhel_folder(version: str) -> str:
    return f"rhel{version.partition('.')[0]}"


def _rhcos_folder(version: str) -> str:
    major, dummy, minor = version.partition(".")
    return "rhel9" if int(major) > 4 or int(minor or 0) >= _RHCOS_9_SINCE else "rhel8"


class BuildTarget(t.NamedTuple):
    """The sources of an operating system's image; systems with the same target share an image.

    folder: the folder of gpu-driver-container. arguments: the names and values of the Dockerfile's arguments that depend on the system.
    """

    folder: str
    arguments: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True)
class OperatingSystem:
    """An operating system of nodes.

    name: the ID in /etc/os-release. published: whether NVIDIA publishes driver images for the system.
    folder: a function that returns, for a version, the folder of gpu-driver-container from which images are built; None if there is no folder.
    arguments: functions that return, for a version, the value of a Dockerfile argument, by the argument's name.
    major_tags: pairs of a major version and a release of the operator. Since that release, the tags for that major version and later ones contain only the
    major version. os_image: for a system without images, the beginning of the name that the kubelet reports, which is known before NFD runs.
    """

    name: str
    published: bool = False
    folder: t.Callable[[str], str] | None = None
    arguments: t.Mapping[str, t.Callable[[str], str]] = dataclasses.field(default_factory=dict)
    major_tags: tuple[tuple[int, Release], ...] = ()
    os_image: str = ""


SYSTEMS = (
    OperatingSystem("ubuntu", published=True, folder="ubuntu{}".format),
    OperatingSystem("rhcos", published=True, folder=_rhcos_folder),
    OperatingSystem("rhel", published=True, folder=_rhel_folder, major_tags=((10, (26, 3)), (0, (26, 7)))),
    OperatingSystem("rocky", published=True, folder=_rhel_folder, major_tags=((0, (26, 3)),)),
    OperatingSystem("ol", folder=_rhel_folder, major_tags=((0, (26, 7)),)),
    # gpu-driver-container has no directory for SLES since its commit 7a164e3 of 2026-04-28 (unsupported distributions).
    OperatingSystem("sles"),
    OperatingSystem("sl-micro"),
    # OKD's CoreOS.
    OperatingSystem("centos", os_image="CentOS Stream CoreOS"),
    OperatingSystem("fedora", os_image="Fedora"),
    OperatingSystem("debian", os_image="Debian"),
    OperatingSystem("flatcar", os_image="Flatcar"),
    OperatingSystem("bottlerocket", os_image="Bottlerocket"),
    OperatingSystem("talos", os_image="Talos"),
    OperatingSystem("opensuse-leap", os_image="openSUSE"),
)
_BY_NAME = {system.name: system for system in SYSTEMS}
PUBLISHED_SYSTEMS = frozenset(system.name for system in SYSTEMS if system.published)
UNPUBLISHED_OS_IMAGES = tuple(system.os_image for system in SYSTEMS if system.os_image)

# Registries from which anyone can pull. NVIDIA's license does not allow the publication of the vGPU driver
# (NVIDIA vGPU software license agreement, distribution).
PUBLIC_REGISTRIES = frozenset(
    {"docker.io", "index.docker.io", "registry-1.docker.io", "quay.io", "ghcr.io", "nvcr.io", "gcr.io", "registry.k8s.io", "public.ecr.aws"}
    | {"registry.gitlab.com", "registry.access.redhat.com"}
)  # fmt: skip


def os_tag(system: str, version: str, operator_version: str) -> str:
    """The suffix that a release of the operator appends for a node with this ID and VERSION_ID, such as rhcos4.18, rhel9.6 or rhel9."""
    release, known = release_of(operator_version), _BY_NAME.get(system)
    major = version.partition(".")[0]
    number = int(major) if major.isdecimal() else 0
    by_major = known is not None and any(number >= first and release >= since for first, since in known.major_tags)
    return f"{system}{major if by_major else version}"


def build_target(tag: str) -> BuildTarget | None:
    """The target that builds an operating system's image; None for a system that is unknown or has no folder."""
    match = _OS_TAG.fullmatch(tag)
    system = _BY_NAME.get(match["system"]) if match else None
    if match is None or system is None or system.folder is None:
        return None
    version = match["version"]
    return BuildTarget(
        system.folder(version), tuple((name, value(version)) for name, value in sorted(system.arguments.items()))
    )
