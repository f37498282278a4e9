# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases of the GPU operator and of NFD: what is installed by default, and which API kinds come with it."""

from __future__ import annotations

import dataclasses

# NVIDIA's Helm repository, and NFD's registry of charts since v0.17 (their installation guides).
OPERATOR_CHART = "gpu-operator"
OPERATOR_NAMESPACE = "gpu-operator"
OPERATOR_RELEASE = "gpu-operator"
OPERATOR_CHART_REPO = "https://helm.ngc.nvidia.com/nvidia"
NFD_NAMESPACE = "node-feature-discovery"
NFD_RELEASE = "nfd"
NFD_CHART = "oci://registry.k8s.io/nfd/charts/node-feature-discovery"

OPERATOR_VERSION = "v25.10.1"
NFD_VERSION = "0.19.0"

Kind = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class OperatorRelease:
    """What one release of the GPU operator brings."""

    version: str
    driver: str
    device_plugin: str
    cuda_image: str
    kinds: tuple[Kind, ...]


_POLICY_KINDS: tuple[Kind, ...] = (("nvidia.com/v1", "ClusterPolicy"), ("nvidia.com/v1alpha1", "NVIDIADriver"))

# Source: the chart of the tag, deployments/gpu-operator: values.yaml (driver.version, devicePlugin.version,
# operator.initContainer) and crds/.
OPERATOR_RELEASES = (
    OperatorRelease(
        version="v25.10.1",
        driver="580.105.08",
        device_plugin="v0.18.1",
        cuda_image="nvcr.io/nvidia/cuda:13.0.1-base-ubi9",
        kinds=_POLICY_KINDS,
    ),
)

# Source: node-feature-discovery v0.19.0, deployment/helm/node-feature-discovery/crds/nfd-api-crds.yaml.
NFD_KINDS: tuple[Kind, ...] = (
    ("nfd.k8s-sigs.io/v1alpha1", "NodeFeature"),
    ("nfd.k8s-sigs.io/v1alpha1", "NodeFeatureRule"),
    ("nfd.k8s-sigs.io/v1alpha1", "NodeFeatureGroup"),
)

# nvidia-smi is not in this image: the container toolkit mounts it into every container that was given a GPU.
VALIDATION_IMAGE = OPERATOR_RELEASES[0].cuda_image


def operator_kinds(version: str) -> tuple[Kind, ...]:
    """The API kinds that this operator release installs; those of the newest known one where the release is unknown."""
    for release in OPERATOR_RELEASES:
        if release.version.lstrip("v") == version.lstrip("v"):
            return release.kinds
    return _POLICY_KINDS
