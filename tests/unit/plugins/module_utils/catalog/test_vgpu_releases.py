# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of vGPU releases is consistent, and versions are found in it."""

from __future__ import annotations

import re

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.releases import (
    BRANCHES,
    LONG_TERM_BRANCHES,
    RELEASES,
    VgpuRelease,
    branch_of,
    release_with,
)


def test_every_release_once_and_in_order() -> None:
    numbers = [tuple(map(int, item.number.split("."))) for item in RELEASES]
    assert numbers == sorted(set(numbers), reverse=True)
    assert {item.branch for item in RELEASES} == set(BRANCHES.values())
    assert set(LONG_TERM_BRANCHES) <= set(BRANCHES.values())


@pytest.mark.parametrize("item", RELEASES, ids=lambda item: item.number)
def test_entry(item: VgpuRelease) -> None:
    versions = [version for version in (item.manager, item.guest) if version]
    assert versions
    for version in versions:
        assert re.fullmatch(r"\d{3}\.\d+(\.\d{2})?", version)
        assert branch_of(version) == item.branch


@pytest.mark.parametrize(
    ("manager", "guest", "number"),
    [
        ("550.163.02", "", "17.6"),
        ("", "550.163.01", "17.6"),
        # Two releases with the same versions: the newer one.
        ("550.90.05", "", "17.3"),
        ("535.183.04", "", "16.7"),
        ("580.95.02", "", "19.2"),
        ("", "580.95.05", "19.2"),
        # A guest's version is not a manager's.
        ("550.163.01", "", None),
        ("", "550.163.02", None),
        # Releases without one of the versions.
        ("", "", None),
        ("999.1", "", None),
    ],
)
def test_release_with(manager: str, guest: str, number: str | None) -> None:
    actual = release_with(manager=manager, guest=guest)
    assert (actual and actual.number) == number


@pytest.mark.parametrize(
    ("version", "branch"),
    [
        ("580.95.05", 19),
        ("535", 16),
        ("470.63", 13),
        ("595.91.07", 20),
        ("565.57.01", None),
        ("", None),
        ("latest", None),
    ],
)
def test_branch_of(version: str, branch: int | None) -> None:
    assert branch_of(version) == branch
