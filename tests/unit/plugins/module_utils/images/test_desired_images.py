# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver images that pools need, and their tags."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog import releases
from ansible_collections.accel.gpu.plugins.module_utils.catalog.releases import BuildTarget, OperatingSystem
from ansible_collections.accel.gpu.plugins.module_utils.images.driver_images import (
    DriverImage,
    System,
    desired_images,
    tags_by_target,
)
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate

VERSION, REPOSITORY = "580.95.05", "registry.example.com/nvidia"
RHEL, RHCOS, UBUNTU = ("rhel", "9.6"), ("rhcos", "4.18"), ("ubuntu", "22.04")
OLD, NEW = "v25.10.1", "v26.7.0"
Document = dict[str, Any]


def pool(name: str, model: str = "L40S", **driver: Any) -> Document:
    """A pool with a vGPU driver."""
    return {
        "name": name,
        "match": {"model": model},
        "driver": {"type": "vgpu", "version": VERSION, "repository": REPOSITORY, **driver},
    }


def images(
    *pools: Document,
    systems: Mapping[str, Collection[System]] | None = None,
    operators: Collection[str] = (NEW,),
    operator: Document | None = None,
    public: bool = False,
) -> tuple[list[DriverImage], list[str], list[str]]:
    """The images of pools, whose nodes have RHEL 9.6 unless `systems` has the pool; problems, and pools without known systems."""
    plan = derive({"name": "c", **({"operator": operator} if operator else {})}, {}, list(pools))
    known = systems or {}
    return desired_images(plan, lambda one: known.get(one.name, {RHEL}), operators, allow_public_registry=public)


def test_only_pools_with_a_vgpu_driver_need_an_image() -> None:
    others = [
        {"name": "a", "match": {"model": "A100-SXM4-80GB"}},
        {"name": "b", "match": {"model": "Tesla-T4"}, "driver": {"type": "gpu", "version": VERSION}},
    ]
    assert images(*others) == ([], [], [])
    actual, problems, _unknown = images(*others, pool("vdi"))
    assert problems == []
    assert [(one.pools, str(one.repository), one.version, one.tags) for one in actual] == [
        (("vdi",), f"{REPOSITORY}/driver", VERSION, (f"{VERSION}-rhel9",))
    ]


def test_two_pools_with_one_driver_share_an_image() -> None:
    systems = {"a": {RHEL}, "b": {UBUNTU}, "c": {RHEL}}
    actual, problems, _unknown = images(
        pool("a"),
        pool("b", "A40"),
        pool("c", "A10", image="other"),
        pool("d", "A16", version="570.172.08"),
        systems=systems,
    )
    assert problems == []
    assert [(one.pools, str(one.repository), one.version) for one in actual] == [
        (("a", "b"), f"{REPOSITORY}/driver", VERSION),
        (("c",), f"{REPOSITORY}/other", VERSION),
        (("d",), f"{REPOSITORY}/driver", "570.172.08"),
    ]
    assert actual[0].targets == {
        BuildTarget("rhel9"): (f"{VERSION}-rhel9",),
        BuildTarget("ubuntu22.04"): (f"{VERSION}-ubuntu22.04",),
    }


@pytest.mark.parametrize(
    ("systems", "operators", "expected"),
    [
        ({RHEL}, {OLD}, {"rhel9": ("rhel9.6",)}),
        ({RHEL}, {NEW}, {"rhel9": ("rhel9",)}),
        # During an upgrade of the operator.
        ({RHEL}, {OLD, NEW}, {"rhel9": ("rhel9", "rhel9.6")}),
        # During an upgrade of OpenShift from 4.18 to 4.19, and to 4.22.
        ({RHCOS, RHEL}, {OLD, NEW}, {"rhel9": ("rhcos4.18", "rhel9", "rhel9.6")}),
        ({RHEL, ("rhel", "9.8")}, {OLD}, {"rhel9": ("rhel9.6", "rhel9.8")}),
        ({UBUNTU, ("ubuntu", "24.04")}, {OLD, NEW}, {"ubuntu22.04": ("ubuntu22.04",), "ubuntu24.04": ("ubuntu24.04",)}),
        ({("rhel", "8.10"), RHEL}, {NEW}, {"rhel8": ("rhel8",), "rhel9": ("rhel9",)}),
        (set(), {NEW}, {}),
    ],
)
def test_tags(systems: set[System], operators: set[str], expected: dict[str, tuple[str, ...]]) -> None:
    targets, unknown = tags_by_target(VERSION, systems, operators)
    assert unknown == []
    assert targets == {
        BuildTarget(folder): tuple(f"{VERSION}-{suffix}" for suffix in suffixes)
        for folder, suffixes in expected.items()
    }


def test_systems_whose_folder_needs_their_version_share_no_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """As SLES 15 in earlier releases of gpu-driver-container: sle15/Dockerfile has an argument SLES_VERSION, which has no default."""
    sles = OperatingSystem("sles", folder="sle{:.2}".format, arguments={"SLES_VERSION": "{}".format})
    monkeypatch.setitem(releases._BY_NAME, "sles", sles)
    targets, unknown = tags_by_target(VERSION, {("sles", "15.7"), ("sles", "15.6"), RHEL}, {NEW})
    assert unknown == []
    assert list(targets.items()) == [
        (BuildTarget("rhel9"), (f"{VERSION}-rhel9",)),
        (BuildTarget("sle15", (("SLES_VERSION", "15.6"),)), (f"{VERSION}-sles15.6",)),
        (BuildTarget("sle15", (("SLES_VERSION", "15.7"),)), (f"{VERSION}-sles15.7",)),
    ]


def test_tags_of_an_image_with_several_folders_are_sorted() -> None:
    (actual,), dummy, _unknown = images(pool("a"), systems={"a": {UBUNTU, RHCOS, RHEL}}, operators=(OLD, NEW))
    assert actual.tags == tuple(f"{VERSION}-{suffix}" for suffix in ("rhcos4.18", "rhel9", "rhel9.6", "ubuntu22.04"))


def test_the_driver_inherits_the_fields_of_the_operator() -> None:
    for inherited in ({"driver": {"version": "580.82.07"}}, {"values": {"driver": {"version": "580.82.07"}}}):
        (actual,), problems, _unknown = images(pool("a", version=None), operator=inherited)
        assert (problems, actual.version) == ([], "580.82.07")


@pytest.mark.parametrize(
    ("given", "operator", "problem"),
    [
        (
            pool("a", version=None),
            None,
            'Pool a: driver.version is ""; set the version of the image, such as 580.95.05',
        ),
        (pool("a", version=None), {"values": {"driver": {"version": 580}}}, "Pool a: driver.version is 580; set"),
        (pool("a", version=f"sha256:{'0' * 64}"), None, 'Pool a: driver.version is "sha256:0'),
        (
            pool("a", repository="quay.io/me"),
            None,
            "Pool a: quay.io is a public registry, and NVIDIA's license does not allow",
        ),
        (pool("a", repository="docker.io/me"), None, "Pool a: docker.io is a public registry"),
    ],
)
def test_problems(given: Document, operator: Document | None, problem: str) -> None:
    actual, problems, _unknown = images(given, operator=operator)
    assert (actual, len(problems)) == ([], 1)
    assert problems[0].startswith(problem)


def test_a_public_registry_can_be_allowed() -> None:
    actual, problems, _unknown = images(pool("a", repository="quay.io/me"), public=True)
    assert (problems, [str(one.repository) for one in actual]) == ([], ["quay.io/me/driver"])


def test_unknown_operating_systems() -> None:
    systems: dict[str, Collection[System]] = {"a": (), "b": {("sles", "15.5"), RHEL}, "c": {("sles", "15.5")}}
    pools = (pool("a"), pool("b", "A40", image="x"), pool("c", "A16", image="x"))
    images_of_b_and_c, problems, unknown = images(*pools, systems=systems)
    assert [one.pools for one in images_of_b_and_c] == [("b", "c")]
    assert problems == ["Pool b and c: gpu-driver-container has no directory for the operating system sles15.5"]
    assert unknown == ["a"]


def test_a_version_with_the_suffix_of_an_operating_system_is_rejected_before() -> None:
    """The operator appends the suffix, so an image 580.95.05-rhel9-rhel9 is impossible."""
    (problem,) = validate({"name": "c"}, {}, [pool("a", version=f"{VERSION}-rhel9.6")])
    assert "ends with the tag of an operating system, which the operator appends" in problem
