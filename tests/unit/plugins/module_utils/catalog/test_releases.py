# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Catalog data of GPU operator releases, and of a release that the catalog does not have."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog import known_issues, releases
from ansible_collections.accel.gpu.plugins.module_utils.catalog.releases import (
    OPERATOR_RELEASES,
    OperatorRelease,
    driver_os_tag,
    operator_kinds,
    operator_release,
)

SENTENCES = {name: text for name, text in vars(known_issues).items() if name.isupper() and isinstance(text, str)}


def release(version: str) -> OperatorRelease:
    known = operator_release(version)
    assert known.exact
    return known.release


def test_every_release_once_and_in_order() -> None:
    numbers = [item.numbers for item in OPERATOR_RELEASES]
    assert numbers == sorted(set(numbers))
    assert (OPERATOR_RELEASES[0].version, OPERATOR_RELEASES[-1].version) == ("v23.9.0", "v26.7.0")
    assert len(numbers) == 22


@pytest.mark.parametrize("item", OPERATOR_RELEASES, ids=lambda item: item.version)
def test_entry(item: OperatorRelease) -> None:
    assert re.fullmatch(r"v\d\d\.\d{1,2}\.\d", item.version)
    assert re.fullmatch(r"\d{3}\.\d{2,3}\.\d{2}", item.driver)
    assert re.fullmatch(r"v0\.\d+\.\d+(-ubi[89])?", item.device_plugin)
    assert re.fullmatch(r"v1\.\d+\.\d+(-ubuntu20\.04)?", item.toolkit)
    assert re.fullmatch(r"v0\.\d+\.\d+(-ubuntu20\.04)?", item.mig_manager)
    assert item.cuda_image is None or re.fullmatch(r"nvcr\.io/nvidia/cuda:[\d.]+-base-ubi[89]", item.cuda_image)
    assert (item.cuda_image is None) == (item.numbers >= (26, 3))
    assert item.kinds[:2] == (("nvidia.com/v1", "ClusterPolicy"), ("nvidia.com/v1alpha1", "NVIDIADriver"))
    assert item.gpu_cluster == (("nvidia.com/v1alpha1", "GPUCluster") in item.kinds)
    assert known_issues.CRUN in item.known_issues
    assert len(set(item.known_issues)) == len(item.known_issues)
    assert set(item.known_issues) <= set(SENTENCES.values())


@pytest.mark.parametrize(
    ("field", "since"),
    [("secret_name", (25, 10)), ("generated_mig_config", (26, 3)), ("gpu_cluster", (26, 7))],
)
def test_what_a_release_knows_its_followers_know(field: str, since: tuple[int, int]) -> None:
    assert [getattr(item, field) for item in OPERATOR_RELEASES] == [item.numbers >= since for item in OPERATOR_RELEASES]


@pytest.mark.parametrize(("name", "text"), SENTENCES.items(), ids=list(SENTENCES))
def test_known_bad_is_a_sentence_with_its_source(name: str, text: str) -> None:
    assert re.fullmatch(r"[A-Z].+ \((notes of|cloud-native-docs|mig-parted|gpu-operator) ?[^()]*\)", text), name
    assert any(text in item.known_issues for item in OPERATOR_RELEASES)
    assert text in known_issues.REQUIRED_TRAITS


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


@pytest.mark.parametrize(
    ("version", "os_id", "version_id", "tag"),
    [
        ("v25.10.1", "rhcos", "4.18", "rhcos4.18"),
        ("v25.10.1", "rhel", "9.6", "rhel9.6"),
        ("v25.10.1", "rocky", "9.6", "rocky9.6"),
        ("v26.3.3", "rhel", "9.6", "rhel9.6"),
        ("v26.3.3", "rhel", "10.1", "rhel10"),
        ("v26.3.3", "rocky", "9.7", "rocky9"),
        ("v26.3.3", "ol", "9.6", "ol9.6"),
        ("v26.7.0", "rhel", "9.8", "rhel9"),
        ("v26.7.0", "ol", "9.6", "ol9"),
        ("v26.7.0", "rhcos", "4.18", "rhcos4.18"),
        ("v26.7.0", "ubuntu", "22.04", "ubuntu22.04"),
        ("v26.7.0", "rhel", "", "rhel"),
    ],
)
def test_driver_os_tag(version: str, os_id: str, version_id: str, tag: str) -> None:
    assert driver_os_tag(release(version).tag_rule, os_id, version_id) == tag


def test_the_default_release_is_known_and_its_image_validates() -> None:
    assert release(releases.OPERATOR_VERSION).cuda_image == releases.VALIDATION_IMAGE
