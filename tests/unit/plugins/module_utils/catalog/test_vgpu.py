# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vGPU types: what their names say, whether containers can use them, which license they need, and which guest drivers a manager supports."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog import vgpu
from ansible_collections.accel.gpu.plugins.module_utils.catalog.vgpu import VgpuType, vgpu_type


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # On a host, in a guest on vSphere, in a guest elsewhere, and in the documentation.
        *(
            (name, VgpuType("a100", None, 10, "C", False))
            for name in ("grid_a100-10c", "GRID-A100-10C", "NVIDIA-A100-10C", "A100-10C", "GRID A100-10C")
        ),
        ("nvidia_l40s-48q", VgpuType("l40s", None, 48, "Q", False)),
        ("grid_a100-3-20c", VgpuType("a100", 3, 20, "C", False)),
        ("GRID-A100-1-5CME-SHARED", VgpuType("a100", 1, 5, "C", True)),
        ("grid_t4-0b", VgpuType("t4", None, 0.5, "B", False)),
        ("GRID-T4-1B4", VgpuType("t4", None, 1, "B", False)),
        ("NVIDIA-RTX-PRO-6000-Blackwell-DC-4-24Q", VgpuType("dc", 4, 24, "Q", False)),
        *(
            (name, None)
            for name in (
                "",
                "grid_a100-10",
                "grid_a100-0-10c",
                "grid_a100-8-10c",
                "10c",
                "Tesla-T4",
                "Nvidia:4@grid_a100-40c",
                "NVIDIA-H100-80GB-HBM3",
            )
        ),
    ],
)
def test_the_name_of_a_vgpu_type(name: str, expected: VgpuType | None) -> None:
    assert vgpu_type(name) == expected


@pytest.mark.parametrize(
    ("profile", "problem"),
    [
        ("grid_a100-10c", ""),
        ("nvidia_l40s-24q", ""),
        # vCenter decides about names that are not known.
        ("future", ""),
        (
            "nvidia_l40s-2b",
            "nvidia_l40s-2b is of the series B (virtual PC), on which CUDA does not run, so no container could use it; choose a profile of the series C or Q, "
            "such as nvidia_l40s-2c or nvidia_l40s-2q if the hosts offer it",
        ),
        ("grid_t4-16A", "grid_t4-16A is of the series A (virtual applications), on which CUDA"),
        (
            "grid_t4-2b4",
            "grid_t4-2b4 is of the series B (virtual PC), on which CUDA does not run, so no container could use it; choose a profile of the series C or Q",
        ),
    ],
)
def test_containers_need_a_series_with_cuda(profile: str, problem: str) -> None:
    actual = vgpu.profile_problem(profile)
    assert actual.startswith(problem)
    assert bool(actual) == bool(problem)


@pytest.mark.parametrize(
    ("guest", "manager", "problem"),
    [
        ("580.95.05", "580.95.02", ""),
        ("570.148.08", "580.95.02", ""),
        # Both are long-term branches.
        ("535.161.07", "580.95.02", ""),
        (
            "595.71.05",
            "580.95.02",
            "Guest driver 595.71.05 belongs to vGPU 20, and is newer than vGPU manager 580.95.02 of vGPU 19: the driver would not load. "
            "Use a driver of vGPU 19, such as 580.178.04, or upgrade the manager.",
        ),
        (
            "550.90.07",
            "580.95.02",
            "vGPU manager 580.95.02 of vGPU 19 does not support guest driver 550.90.07 of vGPU 17. Use a driver of vGPU 19, such as 580.178.04.",
        ),
        (
            "610.1",
            "600.1",
            "Guest driver 610.1 belongs to a newer branch than vGPU manager 600.1: the driver would not load. Use a driver of branch 600, or upgrade the "
            "manager.",
        ),
        # Nothing is known about these.
        ("600.1", "610.1", ""),
        ("new", "580.95.02", ""),
    ],
)
def test_guest_drivers_that_a_manager_supports(guest: str, manager: str, problem: str) -> None:
    assert vgpu.guest_problem(guest, manager) == problem


@pytest.mark.parametrize(
    ("product", "kind"),
    [
        ("A100-10C", "C"),
        ("NVIDIA-A100-3-20C", "C"),
        ("GRID-A100-1-5CME", "C"),
        ("GRID-T4-16Q", "Q"),
        ("GRID-T4-16Q-SHARED", "Q"),
        ("NVIDIA L40S-24Q", "Q"),
        ("GRID-T4-1B4", "B"),
        ("M10-8A", "A"),
        ("NVIDIA-A100-SXM4-40GB", None),
        ("Tesla-T4", None),
        ("", None),
    ],
)
def test_the_series_of_a_vgpu_type(product: str, kind: str | None) -> None:
    assert vgpu.series_of(product) == kind


def test_the_names_of_all_series_are_recognized() -> None:
    assert [vgpu.series_of(f"A100-10{letter}") for letter in vgpu.SERIES] == list(vgpu.SERIES)
    assert vgpu.COMPUTE in vgpu.SERIES


def test_the_automatic_feature_type_fits_each_series() -> None:
    assert not any(vgpu.feature_mismatch(vgpu.AUTOMATIC, kind) for kind in vgpu.SERIES)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "Q", ""),
        (1, "C", ""),
        (4, "C", ""),
        (2, "Q", ""),
        (
            2,
            "C",
            "FeatureType=2 requests NVIDIA RTX Virtual Workstation, but vGPU types of the series C require 1 (NVIDIA vGPU) or 4 (NVIDIA Virtual Compute Server)",
        ),
        (1, "Q", ""),
        (
            4,
            "Q",
            "FeatureType=4 requests NVIDIA Virtual Compute Server, but vGPU types of the series Q require 2 (NVIDIA RTX Virtual Workstation) or 1 (NVIDIA vGPU)",
        ),
        (0, "A", "FeatureType=0 requests no license, but vGPU types of the series A require 1 (NVIDIA vGPU)"),
        (9, "B", "FeatureType=9 requests an unknown product, but vGPU types of the series B require 1 (NVIDIA vGPU)"),
    ],
)
def test_mismatches(value: int | None, kind: str, text: str) -> None:
    assert vgpu.feature_mismatch(value, kind) == text
