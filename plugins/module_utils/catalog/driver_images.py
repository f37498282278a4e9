# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tags of driver images, and where they are built: the operator appends a node's operating system to the driver's version.

Sources: gpu-operator controllers/object_controls.go (resolveDriverTag), controllers/state_manager.go (getGPUNodeOSInfo) and internal/state/nodepool.go
(getOSTag) of the tags v23.9.2 to v26.7.0; NVIDIA/gpu-driver-container Makefile and its folders.
"""

from __future__ import annotations

import re

from .releases import Release, release_of

# The labels of NFD with ID and VERSION_ID of /etc/os-release.
OS_LABELS = ("system-os_release.ID", "system-os_release.VERSION_ID")
# The label of NFD with the release of the kernel, which is a part of the tags of precompiled drivers.
KERNEL_LABEL = "kernel-version.full"
# The first releases whose tags have only the major version of a system.
_MAJOR_SINCE: Release = (26, 7)
_MAJOR_SYSTEMS = frozenset({"rhel", "rocky", "ol"})
_SOME_MAJOR_SINCE: Release = (26, 3)
_FIRST_MAJOR_RHEL = 10
_OS_TAG = re.compile(r"(?P<system>[a-z]+(?:-[a-z]+)?)(?P<major>\d+)(?:\.(?P<minor>\d+))?")
# The values of ID in os-release for which NVIDIA publishes driver images.
PUBLISHED_SYSTEMS = frozenset({"ubuntu", "rhel", "rhcos", "rocky"})
# The beginning of the kubelet's name of systems without images, which is known before NFD runs.
UNPUBLISHED_OS_IMAGES = ("Fedora", "Flatcar", "Debian", "Bottlerocket", "Talos", "openSUSE", "CentOS Stream CoreOS")
# RHCOS is built from RHEL 9 since OpenShift 4.13 (its release notes).
_RHCOS_9_SINCE = 13

# Registries from which everyone can pull. NVIDIA's license does not allow the publication of the vGPU driver
# (NVIDIA vGPU software license agreement, distribution).
PUBLIC_REGISTRIES = frozenset(
    {"docker.io", "index.docker.io", "registry-1.docker.io", "quay.io", "ghcr.io", "nvcr.io", "gcr.io", "registry.k8s.io", "public.ecr.aws"}
    | {"registry.gitlab.com", "registry.access.redhat.com"}
)  # fmt: skip
# From this branch on, NVIDIA's installer uses the open kernel modules.
OPEN_MODULES_SINCE = 560


def os_tag(system: str, version: str, operator_version: str) -> str:
    """The suffix that a release of the operator appends for a node with this ID and VERSION_ID, such as rhcos4.18, rhel9.6 or rhel9."""
    release = release_of(operator_version)
    major = version.partition(".")[0]
    by_major = release >= _MAJOR_SINCE and system in _MAJOR_SYSTEMS
    if _SOME_MAJOR_SINCE <= release < _MAJOR_SINCE:
        by_major = system == "rocky" or (system == "rhel" and major.isdecimal() and int(major) >= _FIRST_MAJOR_RHEL)
    return f"{system}{major if by_major else version}"


def build_folder(tag: str) -> str | None:
    """The folder of gpu-driver-container that an operating system's image is built from; None for an unknown system."""
    found = _OS_TAG.fullmatch(tag)
    if found is None:
        return None
    system, major, minor = found["system"], found["major"], found["minor"]
    if system == "ubuntu":
        return tag
    if system == "rhcos":
        return "rhel9" if int(major) > 4 or int(minor or 0) >= _RHCOS_9_SINCE else "rhel8"
    return f"rhel{major}" if system in _MAJOR_SYSTEMS else None
