# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vGPU types: what their names say, which license each series needs, and which vGPU managers work with which guest drivers (pure)."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from .names import SHARED_SUFFIX
from .releases import LONG_TERM_BRANCHES, RELEASES, branch_of

# The values of FeatureType in gridd.conf, with the products that they request.
#
# Sources: NVIDIA Virtual GPU Client Licensing User Guide, "Configuration Parameters for vGPU Software on Linux"; NVIDIA's cloud-native-docs,
# install-gpu-operator-vgpu.
FEATURE_TYPES: t.Mapping[int, str] = {
    0: "no license",
    1: "NVIDIA vGPU",
    2: "NVIDIA RTX Virtual Workstation",
    4: "NVIDIA Virtual Compute Server",
}
# With this value, the client requests the product that fits its vGPU type, so the same value is suitable for all nodes of the cluster.
AUTOMATIC = 1


@dataclass(frozen=True)
class VgpuSeries:
    """A series of vGPU types, which is the letter at the end of their names.

    name: for readers. cuda: whether CUDA runs on it (NVIDIA vGPU user guide, "CUDA Toolkit and OpenCL Support"). feature_types: those with which its types
    get a license, the usual one first.
    """

    letter: str
    name: str
    cuda: bool
    feature_types: tuple[int, ...]


COMPUTE = "C"
SERIES: t.Mapping[str, VgpuSeries] = {
    series.letter: series
    for series in (
        VgpuSeries("A", "virtual applications", cuda=False, feature_types=(AUTOMATIC,)),
        VgpuSeries("B", "virtual PC", cuda=False, feature_types=(AUTOMATIC,)),
        VgpuSeries(COMPUTE, "compute", cuda=True, feature_types=(AUTOMATIC, 4)),
        VgpuSeries("Q", "virtual workstation", cuda=True, feature_types=(2, AUTOMATIC)),
    )
}

# The names of vGPU types.
#
# Source: NVIDIA vGPU user guide, "Virtual GPU Types for Supported GPUs". The same type is grid_a100-10c on a host, GRID-A100-10C in a guest on vSphere,
# NVIDIA-A100-10C in a guest elsewhere, and A100-10C in the documentation.

# NAME-FRAME_BUFFER, or NAME-SLICES-FRAME_BUFFER if the type is a MIG instance: a100-10c, a100-3-20c, l40s-48q, H200X-1-18CME, T4-1B4.
_TYPE = re.compile(
    r"(?:[a-z0-9]+[-_\s])*(?P<gpu>(?=[0-9]*[a-z])[a-z0-9]+)-(?:(?P<slices>[1-7])-)?(?P<size>[0-9]{1,4})"
    rf"(?P<series>[{''.join(SERIES)}])(?P<media>me)?[0-9]?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class VgpuType:
    """What the name of a vGPU type says.

    gpu: the model in lower case, such as a100d. slices: of a MIG instance; None for a time-sliced type. size_gib: the frame buffer, as a whole number except
    0.5. media: whether the instance has the media engines of the GPU, which only one can have.
    """

    gpu: str
    slices: int | None
    size_gib: float
    series: str
    media: bool


def vgpu_type(name: str) -> VgpuType | None:
    """The vGPU type with this name, which may be a profile of a host, or GFD's product name in a guest; None for any other string."""
    match = _TYPE.fullmatch(name.removesuffix(SHARED_SUFFIX))
    if match is None:
        return None
    slices, size = match["slices"], int(match["size"])
    return VgpuType(
        match["gpu"].lower(),
        int(slices) if slices else None,
        size or 0.5,
        match["series"].upper(),
        bool(match["media"]),
    )


def series_of(name: str) -> str | None:
    """The letter of the series of a vGPU type; None for any other string."""
    known = vgpu_type(name)
    return known.series if known else None


# What a declared vGPU may be. The texts are the ends of messages that begin with the path of the value.

# The largest number of vGPUs of a virtual machine (vSphere 8.0 Update 2, "Configuration Maximums"); vCenter reports the limit of older hardware versions.
MAX_VGPUS = 16
# Twice the memory of 16 GPUs with 2 TiB each, which no GPU has: beyond it is a mistake, such as a size in MiB.
MAX_MMIO_GIB = 1 << 16
# The length of the name of a virtual machine, 80, without the release and the checksum that the name of a template also contains.
MAX_TEMPLATE_NAME = 40


def profile_problem(profile: str) -> str:
    """Why nodes cannot use a profile; empty if nothing speaks against it."""
    series = SERIES.get(series_of(profile) or "")
    if series is None or series.cuda:
        return ""
    letters = [each.letter for each in SERIES.values() if each.cuda]
    usable = [f"{profile[:-1]}{letter.lower()}" for letter in letters] if profile[-1:].isalpha() else []
    such = f", such as {' or '.join(usable)} if the hosts offer it" if usable else ""
    return (
        f"{profile} is of the series {series.letter} ({series.name}), on which CUDA does not run, so no container could use it; choose a profile of the "
        f"series {' or '.join(letters)}{such}"
    )


def mmio_problem(gib: int) -> str:
    """Why an MMIO space cannot have a size; empty if it can."""
    if gib > MAX_MMIO_GIB:
        return f"{gib} is larger than any MMIO space of a virtual machine; set at most {MAX_MMIO_GIB}, or omit it"
    return "" if gib > 0 and not gib & (gib - 1) else f"{gib} is not a power of two; set one, such as 256, or omit it"


def feature_mismatch(feature_type: int | None, series: str) -> str:
    """Why vGPU types of a series get no license with this FeatureType, as a sentence without the period; empty if they get one."""
    fitting = SERIES[series].feature_types
    if feature_type is None or feature_type in fitting:
        return ""
    needed = " or ".join(f"{value} ({FEATURE_TYPES[value]})" for value in fitting)
    requested = FEATURE_TYPES.get(feature_type, "an unknown product")
    return f"FeatureType={feature_type} requests {requested}, but vGPU types of the series {series} require {needed}"


# Which managers work with which guest drivers.
#
# Source: NVIDIA vGPU 19.0 release notes, "Compatibility". The last number of a guest's version may be lower or higher than the manager's, so releases are
# compared, never version numbers.


def guest_problem(guest: str, manager: str) -> str:
    """Why a guest driver does not work with a vGPU manager; empty if it does, or if that is not known."""
    guest_branch, host_branch = branch_of(guest), branch_of(manager)
    if guest_branch is None or host_branch is None:
        if not _major(guest) > _major(manager) > 0:
            return ""
        return (
            f"Guest driver {guest} belongs to a newer branch than vGPU manager {manager}: the driver would not load. Use a driver of branch "
            f"{_major(manager)}, or upgrade the manager."
        )
    if guest_branch > host_branch:
        return (
            f"Guest driver {guest} belongs to vGPU {guest_branch}, and is newer than vGPU manager {manager} of vGPU {host_branch}: the driver "
            f"would not load. Use a driver of vGPU {host_branch}{_example(host_branch)}, or upgrade the manager."
        )
    if not _supports(host_branch, guest_branch):
        return (
            f"vGPU manager {manager} of vGPU {host_branch} does not support guest driver {guest} of vGPU {guest_branch}. Use a driver of "
            f"vGPU {host_branch}{_example(host_branch)}."
        )
    return ""


def _major(version: str) -> int:
    """The first number of a version, which increases with each branch; 0 if it is not a number."""
    text = version.partition(".")[0]
    return int(text) if text.isdecimal() else 0


def _supports(host: int, guest: int) -> bool:
    """Whether the guest belongs to the host's branch, to the branch before it or, if both are long-term branches, to the previous long-term branch."""
    if guest in (host, host - 1):
        return True
    if host not in LONG_TERM_BRANCHES or guest not in LONG_TERM_BRANCHES:
        return False
    return LONG_TERM_BRANCHES.index(host) - LONG_TERM_BRANCHES.index(guest) == 1


def _example(branch: int) -> str:
    newest = next((item.guest for item in RELEASES if item.branch == branch and item.guest), "")
    return f", such as {newest}" if newest else ""
