# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Catalog data of GPU operator releases, and of a release that the catalog does not have."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog import releases
from ansible_collections.accel.gpu.plugins.module_utils.catalog.distributions import KNOWN_ISSUES, KnownIssue, issues_of
from ansible_collections.accel.gpu.plugins.module_utils.catalog.releases import (
    OPERATOR_RELEASES,
    OperatorRelease,
    operator_kinds,
    operator_release,
    restarts_in_place,
)


def test_every_release_once_and_in_order() -> None:
    numbers = [item.numbers for item in OPERATOR_RELEASES]
    assert numbers == sorted(set(numbers))
    assert (OPERATOR_RELEASES[0].version, OPERATOR_RELEASES[-1].version) == ("v23.9.0", "v26.7.0")
    assert len(numbers) == 22


@pytest.mark.parametrize("item", OPERATOR_RELEASES, ids=lambda item: item.version)
def test_entry(item: OperatorRelease) -> None:
    assert re.fullmatch(r"v\d\d\.\d{1,2}\.\d", item.version)
    assert re.fullmatch(r"v0\.\d+\.\d+(-ubi[89])?", item.device_plugin)
    assert item.kinds[:2] == (("nvidia.com/v1", "ClusterPolicy"), ("nvidia.com/v1alpha1", "NVIDIADriver"))
    assert (("nvidia.com/v1alpha1", "GPUCluster") in item.kinds) == (item.numbers >= (26, 7))
    assert item.extras_named == (item.numbers >= (26, 7))
    assert any("crun" in issue.text for issue in issues_of(item.version))


@pytest.mark.parametrize("issue", KNOWN_ISSUES, ids=lambda issue: issue.text.partition(":")[0])
def test_known_issue_is_a_sentence_with_its_source(issue: KnownIssue) -> None:
    assert re.fullmatch(r"[A-Z].+ \((notes of|cloud-native-docs|mig-parted|gpu-operator) ?[^()]*\)", issue.text)
    assert issue.conditions
    assert all(
        any(KnownIssue((part,), issue.conditions, "").affects(item.version) for item in OPERATOR_RELEASES)
        for part in issue.releases
    )


@pytest.mark.parametrize(
    ("numbers", "version", "affected"),
    [
        (("v25.3.2",), "v25.3.2", True),
        (("v25.3.2",), "v25.3.21", False),
        (("v25.3",), "v25.3.4", True),
        (("v25.3",), "v25.30.0", False),
        (("v23.9", "v26"), "v26.7.0", True),
        (("v23.9", "v26"), "v24.3.0", False),
    ],
)
def test_known_issue_affects(numbers: tuple[str, ...], version: str, affected: bool) -> None:
    assert KnownIssue(numbers, frozenset({"mig"}), "").affects(version) == affected


@pytest.mark.parametrize(
    ("asked", "taken", "exact"),
    [
        ("v25.10.1", "v25.10.1", True),
        ("25.10.1", "v25.10.1", True),
        (" v23.9.0 ", "v23.9.0", True),
        ("v26.9.0", "v26.7.0", False),
        ("v99.1.0", "v26.7.0", False),
        ("v25.3.9", "v25.3.4", False),
        ("v25.6.0", "v25.3.4", False),
        ("v25.10", "v25.10.1", False),
        ("25", "v25.10.1", False),
        ("v26.7.0-rc.1", "v26.3.3", False),
        ("v26.7.0+build", "v26.7.0", False),
        ("v22.9.2", "v23.9.0", False),
        ("main-latest", "v26.7.0", False),
        ("", "v26.7.0", False),
    ],
)
def test_operator_release(asked: str, taken: str, exact: bool) -> None:
    known = operator_release(asked)
    assert (known.release.version, known.exact) == (taken, exact)
    assert (known.warning is None) == exact
    assert exact or taken in str(known.warning)
    assert operator_kinds(asked) == known.release.kinds


@given(st.text(max_size=12) | st.from_regex(r"v?\d{1,3}(\.\d{1,3}){0,3}(-rc\.\d)?", fullmatch=True))
def test_any_version_gets_an_answer(asked: str) -> None:
    known = operator_release(asked)
    assert known.release in OPERATOR_RELEASES
    assert known.exact == (asked.strip().removeprefix("v") == known.release.version.removeprefix("v"))


def test_the_default_release_is_known() -> None:
    assert operator_release(releases.OPERATOR_VERSION).exact


@pytest.mark.parametrize(
    ("version", "in_place"),
    [
        ("v25.10.1", False),
        ("v26.3.3", False),
        ("v26.7.0-rc.1", False),
        ("v26.7.0", True),
        ("26.7.0", True),
        ("v26.9.1", True),
        ("main-latest", False),
        ("", False),
        # Tags of builds that are commits, and a digest.
        ("26", False),
        ("9876543f", False),
        ("99f0a1b2-ubi9", False),
        (f"sha256:{'9' * 64}", False),
    ],
)
def test_driver_pods_restart_in_place_from_v26_7_on(version: str, in_place: bool) -> None:
    assert restarts_in_place(version) == in_place
