# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The default releases of the GPU operator and of NFD, and the lookup of other releases."""

from __future__ import annotations

import dataclasses
import re

from .operator_releases import OPERATOR_RELEASES, Kind, OperatorRelease, TagRule

__all__ = (
    "OPERATOR_CHART",
    "OPERATOR_CHART_REPO",
    "OPERATOR_NAMESPACE",
    "OPERATOR_RELEASE",
    "OPERATOR_RELEASES",
    "OPERATOR_VERSION",
    "NFD_CHART",
    "NFD_KINDS",
    "NFD_NAMESPACE",
    "NFD_RELEASE",
    "NFD_VERSION",
    "VALIDATION_IMAGE",
    "Kind",
    "OperatorRelease",
    "OperatorVersion",
    "Release",
    "TagRule",
    "driver_os_tag",
    "operator_kinds",
    "operator_release",
    "release_of",
)

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

# Source: node-feature-discovery v0.19.0, deployment/helm/node-feature-discovery/crds/nfd-api-crds.yaml.
NFD_KINDS: tuple[Kind, ...] = (
    ("nfd.k8s-sigs.io/v1alpha1", "NodeFeature"),
    ("nfd.k8s-sigs.io/v1alpha1", "NodeFeatureRule"),
    ("nfd.k8s-sigs.io/v1alpha1", "NodeFeatureGroup"),
)

# The CUDA image of the operator that is installed by default. nvidia-smi is not in it: the container toolkit mounts it
# into every container that was given a GPU.
VALIDATION_IMAGE = "nvcr.io/nvidia/cuda:13.0.1-base-ubi9"

_VERSION = re.compile(r"v?(\d+(?:\.\d+){0,2})(.*)", re.ASCII)

# Year and month of a release of the operator.
Release = tuple[int, int]
_NEWEST: Release = (98, 0)


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

    For an unknown one the next older release that is known; the oldest where none is older; the newest where the version cannot
    be parsed.
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


def driver_os_tag(rule: TagRule, os_id: str, version_id: str) -> str:
    """The end of a driver image's tag for an operating system, given NFD's os_release.ID and VERSION_ID.

    The operator appends it to every driver version: `rhel9.6` up to v26.3, `rhel9` from v26.7 on.
    """
    major = version_id.partition(".")[0]
    short = any(os_id == system and major.isdigit() and int(major) >= since for system, since in rule)
    return f"{os_id}{major if short else version_id}"


def release_of(version: str) -> Release:
    """Year and month of an operator's version; an unknown form counts as the newest."""
    found = re.match(r"v?(\d+)\.(\d+)\.", version)
    return (int(found[1]), int(found[2])) if found else _NEWEST
