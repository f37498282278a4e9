# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The releases of the GPU operator with all data that depends on them, and the default releases of the operator and of NFD.

known_issues.py contains the known issues of each release.
"""

from __future__ import annotations

import dataclasses
import re

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
