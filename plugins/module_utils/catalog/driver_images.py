# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operating systems of nodes, the tags of their driver images, and the sources of these images.

To form a tag, the operator appends the operating system to the driver's version.
Sources: gpu-operator controllers/object_controls.go (resolveDriverTag), controllers/state_manager.go (getGPUNodeOSInfo) and internal/state/nodepool.go
(getOSTag) of the tags v23.9.2 to v26.7.0; NVIDIA/gpu-driver-container Makefile and its folders.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from .releases import Release, release_of

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
