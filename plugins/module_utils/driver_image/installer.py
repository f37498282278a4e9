# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines from the name of an installer file which driver it contains (pure).

Sources: NVIDIA/gpu-driver-container README and vgpu/src/vgpu-util.go (the names that a container expects); NVIDIA vGPU documentation (the files of a release).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"NVIDIA-Linux-(?P<arch>x86_64|aarch64)-(?P<version>\d+\.\d+(?:\.\d+)?)(?P<kind>-[a-z0-9-]+)?\.run")
_GUEST = "-grid"
_KINDS = {
    "-vgpu-kvm": "the vGPU manager for KVM hosts",
    "-vgpu-kvm-aie": "the vGPU manager for KVM hosts",
    "-vgpu-xen": "the vGPU manager for Xen hosts",
    "": "the data center driver, which has no vGPU license client; the operator's own images contain it",
    "-no-compat32": "the data center driver, which has no vGPU license client; the operator's own images contain it",
}
# The architecture names that buildah and image names use.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Installer:
    """A guest driver's installer: its file name, its version without a suffix, and its architecture (amd64, arm64)."""

    name: str
    version: str
    architecture: str


class WrongInstaller(ValueError):
    """The file is not the installer of a guest driver."""


def parse_installer(name: str) -> Installer:
    """The installer with this file name; raises WrongInstaller."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise WrongInstaller(
            f"{name} does not have the name of an NVIDIA driver, such as NVIDIA-Linux-x86_64-580.95.05-grid.run. Use the file of the vGPU "
            "package under its original name, because the driver container searches for this name"
        )
    kind = match["kind"] or ""
    if kind != _GUEST:
        title = _KINDS.get(kind, f"a driver of a different kind ({kind.lstrip('-')})")
        raise WrongInstaller(
            f"{name} is {title}. The image needs the guest driver: NVIDIA-Linux-{match['arch']}-{match['version']}{_GUEST}.run in the directory "
            "Guest_Drivers of the vGPU package"
        )
    return Installer(name, match["version"], ARCHITECTURES[match["arch"]])
