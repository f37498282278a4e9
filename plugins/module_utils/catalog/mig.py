# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG geometries: the profiles of each GPU model, with their placements and maximum counts."""

from __future__ import annotations

import dataclasses
import typing as t

RESOURCE_PREFIX = "nvidia.com/mig-"

# Families (GFD's gpu.family) whose GPUs are reset when their MIG mode is switched; a GPU that is passed through to a
# virtual machine may not support the reset, and then needs a reboot. Hopper and later GPUs are not reset. Source: MIG
# user guide, "Enable MIG Mode".
RESET_FAMILIES = ("ampere",)

# Used in place of a GI profile id that is not published.
UNKNOWN_ID = -1

# A profile's part of the media engines (NVDEC, NVENC, JPEG, OFA): its share, which may be zero; the media extensions (+me);
# all engines (+me.all); none (-me).
Media = t.Literal["share", "one", "all", "none"]

# For each kind of media, the kinds that can be combined with it on one GPU: at most one instance has the media extensions, and if
# one instance has all engines, all other instances have none. Source: MIG user guide, "Supported MIG Profiles".
MEDIA_BESIDE: dict[Media, frozenset[Media]] = {
    "share": frozenset({"share", "one", "none"}),
    "one": frozenset({"share", "none"}),
    "all": frozenset({"none"}),
    "none": frozenset({"share", "one", "all", "none"}),
}


@dataclasses.dataclass(frozen=True)
class Profile:
    """One GPU instance profile of a model."""

    name: str
    """The name in nvidia-smi's notation: `3g.20gb`, `1g.5gb+me`."""
    id: int
    """The GI profile id of `nvidia-smi mig -lgip`; UNKNOWN_ID if it is not published."""
    compute: int
    """Compute slices, the number before `g`."""
    size: int
    """The number of memory slices that the profile occupies."""
    starts: tuple[int, ...]
    """The memory slices at which the profile can start."""
    max_count: int
    """The maximum number of such devices on one GPU."""
    media: Media
    driver: int = 0
    """The first driver branch that offers the profile; 0 means every driver that supports MIG on this GPU."""

    @property
    def resource(self) -> str:
        """The extended resource under strategy mixed (k8s-device-plugin internal/rm/rm.go: `+` becomes `.`)."""
        return RESOURCE_PREFIX + self.name.replace("+", ".")

    @property
    def graphics(self) -> bool:
        """Whether the profile also supports graphics APIs, which a MIG-backed vGPU on an RTX PRO needs."""
        return self.name.endswith("+gfx")


@dataclasses.dataclass(frozen=True)
class Geometry:
    """The MIG profiles of a GPU model."""

    slices: int
    """Memory slices of the whole GPU: the units of `size` and `starts`."""
    profiles: tuple[Profile, ...]
    kind: str
    """The key of the table with the placements."""
    balanced: tuple[tuple[str, int], ...] = ()
    """NVIDIA's `all-balanced` layout as (profile, count); empty if there is none."""
    verified: bool = True
    """False if NVIDIA's sources disagree about the profiles; a profile that is missing here may exist."""
    note: str = ""
    """Information for users about the table; empty if there is none."""

    def __hash__(self) -> int:
        """A fast hash, because thousands of GPUs are grouped by their geometry; few geometries begin with the same profile."""
        return hash((self.kind, self.slices, self.profiles[:1] and self.profiles[0].name))

    def profile(self, name: str) -> Profile | None:
        """The profile with exactly this name in nvidia-smi's notation."""
        return next((profile for profile in self.profiles if profile.name == name), None)


class _Row(t.NamedTuple):
    """A profile without its name, which depends on the model's memory; `balanced`: its count in all-balanced."""

    id: int
    compute: int
    size: int
    starts: tuple[int, ...]
    max_count: int
    media: Media = "share"
    driver: int = 0
    balanced: int = 0


class _Kind(t.NamedTuple):
    slices: int
    rows: tuple[_Row, ...]


# The placements of each profile. Sources: A: `nvidia-smi mig -lgip` and `-lgipp` on an H200, driver 580.159.04;
# B: go-nvml's mock of the A30 and transcripts of one; C: transcripts of an RTX PRO 6000; D: only the fractions are
# published, so the two slices of D are halves. Source of the driver branches: MIG user guide, notes on the A100 and the A30.
# Source of all-balanced: mig-parted v0.15.0, pkg/mig/builder/balanced.go.
# (go-nvml's mocks of H100, H200 and B200 have wrong placements; instaslice's A30 has a 3g.24gb that does not exist.)
_KINDS: dict[str, _Kind] = {
    "A": _Kind(
        8,
        (
            _Row(19, 1, 1, (0, 1, 2, 3, 4, 5, 6), 7, balanced=2),
            _Row(20, 1, 1, (0, 1, 2, 3, 4, 5, 6), 1, "one", driver=470),
            _Row(15, 1, 2, (0, 2, 4, 6), 4, driver=525),
            _Row(14, 2, 2, (0, 2, 4), 3, balanced=1),
            _Row(9, 3, 4, (0, 4), 2, balanced=1),
            _Row(5, 4, 4, (0,), 1),
            _Row(0, 7, 8, (0,), 1),
        ),
    ),
    "B": _Kind(
        4,
        (
            _Row(14, 1, 1, (0, 1, 2, 3), 4, balanced=2),
            _Row(21, 1, 1, (0, 1, 2, 3), 1, "one", driver=470),
            _Row(5, 2, 2, (0, 2), 2, balanced=1),
            _Row(6, 2, 2, (0, 2), 1, "one", driver=525),
            _Row(0, 4, 4, (0,), 1),
        ),
    ),
    "C": _Kind(
        12,
        (
            _Row(14, 1, 3, (0, 3, 6, 9), 4, balanced=2),
            _Row(21, 1, 3, (0, 3, 6, 9), 1, "one"),
            _Row(47, 1, 3, (0, 3, 6, 9), 4),
            _Row(65, 1, 3, (0, 3, 6, 9), 1, "all"),
            _Row(67, 1, 3, (0, 3, 6, 9), 4, "none"),
            _Row(5, 2, 6, (0, 6), 2, balanced=1),
            _Row(35, 2, 6, (0, 6), 2),
            _Row(64, 2, 6, (0, 6), 1, "all"),
            _Row(66, 2, 6, (0, 6), 2, "none"),
            _Row(0, 4, 12, (0,), 1),
            _Row(32, 4, 12, (0,), 1),
        ),
    ),
    "D": _Kind(
        2,
        (
            _Row(UNKNOWN_ID, 1, 1, (0, 1), 2),
            _Row(UNKNOWN_ID, 1, 1, (0, 1), 1, "one"),
            _Row(UNKNOWN_ID, 1, 1, (0, 1), 2),
            _Row(UNKNOWN_ID, 1, 1, (0, 1), 1, "all"),
            _Row(UNKNOWN_ID, 1, 1, (0, 1), 2, "none"),
            _Row(UNKNOWN_ID, 2, 2, (0,), 1),
            _Row(UNKNOWN_ID, 2, 2, (0,), 1),
        ),
    ),
}


class _Named(t.NamedTuple):
    """The names of a kind's rows, in the order of the rows, for these models (keys in models.py); "" if the models do not have that row."""

    kind: str
    models: tuple[str, ...]
    names: tuple[str, ...]
    verified: bool = True
    note: str = ""


_OF_VGPU_TYPES = "The profiles come from the model's MIG-backed vGPU types, because no nvidia-smi listing was found."
_HALVES = "For this model, NVIDIA publishes only the fractions of the GPU, not the placements or profile IDs."

# Sources: MIG user guide, "Supported MIG Profiles"; gpu-operator v26.7.0 assets/state-mig-manager/0400_configmap.yaml
# and the release notes of v25.3.0 and v25.10.0 for B200, GB200, B300, GB300; the vGPU types in open-gpu-kernel-modules
# 595.45.04 src/nvidia/generated/g_nv_name_released.h for the H100 of 64 GB and the H20 of 141 GB.
_NAMES: tuple[_Named, ...] = (
    _Named("B", ("A30",), ("1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb")),
    _Named(
        "A",
        ("A100-SXM4-40GB", "A100-PCIE-40GB", "A800-SXM4-40GB", "A800-40GB-Active"),
        ("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    ),
    _Named(
        "A",
        (
            *("A100-SXM4-80GB", "A100-80GB-PCIe", "A800-SXM4-80GB", "A800-80GB-PCIe"),
            *("H100-80GB-HBM3", "H100-PCIe", "H800", "H800-PCIe"),
        ),
        ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    ),
    _Named(
        "A",
        ("H100-SXM5-64GB",),
        ("1g.8gb", "1g.8gb+me", "1g.16gb", "2g.16gb", "3g.32gb", "4g.32gb", "7g.64gb"),
        note=_OF_VGPU_TYPES,
    ),
    _Named(
        "A",
        ("H100-NVL", "H100-SXM5-94GB", "H800-NVL"),
        ("1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"),
    ),
    _Named(
        "A",
        ("PG506-232", "H20", "GH200-480GB"),
        ("1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"),
    ),
    _Named(
        "A",
        ("H200", "H200-NVL"),
        ("1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    ),
    _Named(
        "A",
        ("H20-3e",),
        ("1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
        note=_OF_VGPU_TYPES,
    ),
    _Named(
        "A",
        ("GH200-144GB",),
        ("1g.18gb", "1g.18gb+me", "1g.36gb", "2g.36gb", "3g.72gb", "4g.72gb", "7g.144gb"),
    ),
    _Named("A", ("B200",), ("1g.23gb", "1g.23gb+me", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb")),
    _Named(
        "A",
        ("GB200",),
        ("1g.23gb", "1g.23gb+me", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb"),
        verified=False,
        note="A GPU that reports 189 GB has the profiles 1g.24gb, 1g.24gb+me, 3g.95gb, 4g.95gb and 7g.189gb instead, "
        "according to the vGPU types and to the operator's configurations up to v25.3.2.",
    ),
    _Named("A", ("B300",), ("1g.34gb", "1g.34gb+me", "1g.67gb", "2g.67gb", "3g.135gb", "4g.135gb", "7g.269gb")),
    _Named("A", ("GB300",), ("1g.35gb", "1g.35gb+me", "1g.70gb", "2g.70gb", "3g.139gb", "4g.139gb", "7g.278gb")),
    _Named(
        "C",
        ("RTX-PRO-6000-Server", "RTX-PRO-6000-Workstation", "RTX-PRO-6000-Max-Q"),
        (
            *("1g.24gb", "1g.24gb+me", "1g.24gb+gfx", "1g.24gb+me.all", "1g.24gb-me"),
            *("2g.48gb", "2g.48gb+gfx", "2g.48gb+me.all", "2g.48gb-me"),
            *("4g.96gb", "4g.96gb+gfx"),
        ),
    ),
    _Named(
        "D",
        ("RTX-PRO-5000",),
        ("1g.24gb", "1g.24gb+me", "1g.24gb+gfx", "1g.24gb+me.all", "1g.24gb-me", "2g.48gb", "2g.48gb+gfx"),
        verified=False,
        note=f"{_HALVES} The guide for driver R580 listed different profiles: 1g.12gb, 2g.24gb-me and 4g.48gb.",
    ),
    _Named(
        "D",
        ("RTX-PRO-4500", "RTX-PRO-4500-Server"),
        ("1g.16gb", "", "1g.16gb+gfx", "1g.16gb+me.all", "1g.16gb-me", "2g.32gb", "2g.32gb+gfx"),
        note=_HALVES,
    ),
)


def _built(named: _Named) -> Geometry:
    kind = _KINDS[named.kind]
    rows = [(name, row) for name, row in zip(named.names, kind.rows, strict=True) if name]
    return Geometry(
        slices=kind.slices,
        profiles=tuple(Profile(name, *row[:-1]) for name, row in rows),
        kind=named.kind,
        balanced=tuple((name, row.balanced) for name, row in rows if row.balanced),
        verified=named.verified,
        note=named.note,
    )


_GEOMETRIES: dict[str, Geometry] = {
    key: geometry for named in _NAMES for geometry in (_built(named),) for key in named.models
}


def geometry(model_key: str) -> Geometry | None:
    """The MIG profiles of the model with this key in models.py; None if it does not support MIG."""
    return _GEOMETRIES.get(model_key)


def placement_tables() -> tuple[Geometry, ...]:
    """One geometry for each table of placements, with the profile names of the model that has the most of the table's profiles."""
    tables: dict[str, Geometry] = {}
    for candidate in _GEOMETRIES.values():
        if candidate.kind not in tables or len(candidate.profiles) > len(tables[candidate.kind].profiles):
            tables[candidate.kind] = candidate
    return tuple(tables.values())
