# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which guest drivers work with a vGPU manager: by the rules of NVIDIA's release notes, and by NVIDIA's catalog file."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.releases import RELEASES, VgpuRelease
from ansible_collections.accel.gpu.plugins.module_utils.images.driver_build import (
    Compatibility,
    catalog_problem,
    check_compatibility,
)


@pytest.mark.parametrize(
    ("guest", "manager"),
    [
        # The same release, with a lower, an equal and a higher last number than the manager's.
        ("550.163.01", "550.163.02"),
        ("535.216.01", "535.216.01"),
        ("580.95.05", "580.95.02"),
        # Other releases of the branch.
        ("580.65.06", "580.159.01"),
        ("580.159.03", "580.65.05"),
        # The branch before.
        ("570.172.08", "580.95.02"),
        ("525.60.13", "535.54.06"),
        # The long-term branch before a long-term branch.
        ("535.274.02", "580.95.02"),
        ("470.63.01", "535.54.06"),
    ],
)
def test_supported(guest: str, manager: str) -> None:
    assert check_compatibility(guest, manager).problem == ""


@pytest.mark.parametrize(
    "item", [item for item in RELEASES if item.manager and item.guest], ids=lambda item: item.number
)
def test_every_release_works_with_itself(item: VgpuRelease) -> None:
    assert check_compatibility(item.guest, item.manager) == Compatibility()


@pytest.mark.parametrize(
    ("guest", "manager", "problem"),
    [
        (
            "580.95.05",
            "570.172.07",
            "Guest driver 580.95.05 belongs to vGPU 19, and is newer than vGPU manager 570.172.07 of vGPU 18: the driver would not load. Use a driver "
            "of vGPU 18, such as 570.211.01, or upgrade the manager.",
        ),
        (
            "535.129.03",
            "525.60.12",
            "Guest driver 535.129.03 belongs to vGPU 16, and is newer than vGPU manager 525.60.12 of vGPU 15",
        ),
        (
            "550.163.01",
            "580.95.02",
            "vGPU manager 580.95.02 of vGPU 19 does not support guest driver 550.163.01 of vGPU 17. Use a driver of vGPU 19, such as 580.178.04.",
        ),
        (
            "535.129.03",
            "570.172.07",
            "vGPU manager 570.172.07 of vGPU 18 does not support guest driver 535.129.03 of vGPU 16.",
        ),
        # Two long-term branches before.
        (
            "470.63.01",
            "580.95.02",
            "vGPU manager 580.95.02 of vGPU 19 does not support guest driver 470.63.01 of vGPU 13.",
        ),
        # A long-term guest under a branch without long-term support.
        (
            "535.129.03",
            "595.58.02",
            "vGPU manager 595.58.02 of vGPU 20 does not support guest driver 535.129.03 of vGPU 16.",
        ),
        # Branches that the table lacks: a larger number is a newer branch.
        ("590.44.01", "580.95.02", "Guest driver 590.44.01 belongs to a newer branch than vGPU manager 580.95.02"),
        ("595.58.03", "590.44.01", "Guest driver 595.58.03 belongs to a newer branch than vGPU manager 590.44.01"),
    ],
)
def test_not_supported(guest: str, manager: str, problem: str) -> None:
    actual = check_compatibility(guest, manager)
    assert actual.problem.startswith(problem)
    assert actual.warning == ""


@pytest.mark.parametrize(
    ("guest", "manager", "warning"),
    [
        (
            "580.95.99",
            "580.95.02",
            "The catalog does not have guest driver 580.95.99; only the branches were compared.",
        ),
        ("580.95.05", "580.1.2", "The catalog does not have vGPU manager 580.1.2;"),
        ("580.1", "580.2", "The catalog does not have guest driver 580.1 and vGPU manager 580.2;"),
        ("565.57.01", "580.95.02", "The branch of 565.57.01 is unknown, so it is not verified that"),
        ("580.95.05", "610.57.04", "The branch of 610.57.04 is unknown"),
    ],
)
def test_unlisted_versions_are_warned_about(guest: str, manager: str, warning: str) -> None:
    actual = check_compatibility(guest, manager)
    assert actual.problem == ""
    assert actual.warning.startswith(warning)


def catalog(**guest: Any) -> dict[str, Any]:
    """A catalog in the form of vgpuDriverCatalog.yaml with one manager and one guest."""
    return {
        "version": 1,
        "branch": [
            {"name": "host-19", "type": "host", "allow": {"branch": ["guest-19"]}, "deny": {"branch": ["guest-12"]}},
            {"name": "guest-19", "type": "guest", "allow": {"branch": ["host-19"]}},
            {"name": "guest-15", "type": "guest", "allow": {"branch": ["host-19"]}},
            {"name": "guest-12", "type": "guest", "allow": {"branch": ["host-19"]}},
            {"name": "guest-11", "type": "guest", "deny": {"branch": ["host-19"]}},
        ],
        "driver": [
            {"version": "580.95.02", "type": "host", "branch": "host-19"},
            {"version": "580.95.05", "type": "guest", "branch": "guest-19", **guest},
        ],
    }


def test_the_catalog_file_allows() -> None:
    assert check_compatibility("580.95.05", "580.95.02", catalog()) == Compatibility()
    # Precedes the rule about branches.
    allowed = catalog(branch="guest-11", allow={"driver": [{"version": "580.95.02"}]})
    assert check_compatibility("580.95.05", "580.95.02", allowed) == Compatibility()


@pytest.mark.parametrize(
    ("guest", "problem"),
    [
        (
            {"deny": {"driver": [{"version": "580.95.02"}]}},
            "excludes guest driver 580.95.05 for vGPU manager 580.95.02.",
        ),
        (
            {"branch": "guest-15"},
            "does not allow guest driver 580.95.05 (branch guest-15) for vGPU manager 580.95.02 (branch host-19).",
        ),
        ({"branch": "guest-12"}, "does not allow guest driver 580.95.05 (branch guest-12)"),
        ({"branch": "guest-11"}, "does not allow guest driver 580.95.05 (branch guest-11)"),
        ({"branch": "unlisted"}, "does not allow guest driver 580.95.05 (branch unlisted)"),
    ],
)
def test_the_catalog_file_denies(guest: dict[str, Any], problem: str) -> None:
    actual = check_compatibility("580.95.05", "580.95.02", catalog(**guest))
    assert problem in actual.problem
    assert actual.warning == ""


@pytest.mark.parametrize(
    ("guest", "manager", "missing"),
    [
        ("580.105.08", "580.95.02", "guest driver 580.105.08"),
        ("580.95.05", "580.105.06", "vGPU manager 580.105.06"),
        ("580.95.05", "610.57.04", "vGPU manager 610.57.04"),
    ],
)
def test_the_catalog_file_lacks_a_version(guest: str, manager: str, missing: str) -> None:
    actual = check_compatibility(guest, manager, catalog())
    assert actual.problem == ""
    assert actual.warning.startswith(f"vgpuDriverCatalog.yaml does not have {missing};")


def test_the_rules_decide_without_both_versions_in_the_catalog_file() -> None:
    for document in (catalog(), {}, {"driver": None, "branch": ["text"]}):
        actual = check_compatibility("595.58.03", "580.95.02", document)
        assert "is newer than vGPU manager 580.95.02" in actual.problem
        assert actual.warning == ""


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (None, "it is empty, or not YAML"),
        ([], "it is a list, not a map"),
        ({"branch": 5}, "branch is a number, not a list"),
        ({"driver": None}, ""),
        ({"driver": {"a": 1}}, "driver is a map, not a list"),
        ({"driver": ["x"]}, "driver[0] is a string, not a map"),
        ({"driver": [{"version": ["x"]}]}, "driver[0].version is a list, not a string"),
        ({"branch": [{"name": "x"}, {"type": {}}]}, "branch[1].type is a map, not a string"),
        ({"driver": [{"deny": ["x"]}]}, "driver[0].deny is a list, not a map"),
        ({"driver": [{"deny": {"driver": "x"}}]}, "driver[0].deny.driver is a string, not a list"),
        ({"driver": [{"allow": {"driver": ["x"]}}]}, "driver[0].allow.driver[0] is a string, not a map"),
        ({"branch": [{"allow": {"branch": 5}}]}, "branch[0].allow.branch is a number, not a list"),
        ({"branch": [{"allow": {"branch": [{}]}}]}, "branch[0].allow.branch[0] is a map, not a string"),
    ],
)
def test_documents_that_are_no_catalogs(document: Any, problem: str) -> None:
    assert catalog_problem(document) == problem
    assert catalog_problem(catalog()) == ""
