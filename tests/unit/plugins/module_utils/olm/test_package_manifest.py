# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The choice of catalog, channel and version, and the steps of an upgrade."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.olm.observed import (
    CatalogVersion,
    Channel,
    ChannelEntry,
    Problem,
    Version,
    allowed_steps,
    choose_version,
    downgrade,
    parse_package,
    parse_version,
    skipped_version,
)
from tests.helpers.olm_objects import NEW, OLD, PACKAGE, manifest

CERTIFIED = parse_package(manifest())
MIRROR = parse_package(manifest("mirror", channels={"v25.3": [OLD]}, defaultChannel="v25.3"))


def choose(*packages: Any, **options: Any) -> CatalogVersion | Problem:
    usual = {
        "package": PACKAGE,
        "version": "",
        "channel": "",
        "sources": [],
        "source_namespace": "openshift-marketplace",
    }
    return choose_version(packages or (CERTIFIED,), **{**usual, **options})


@pytest.mark.parametrize(
    ("options", "channel", "csv"),
    [
        ({}, "v25.10", NEW),
        ({"current_channel": "stable"}, "stable", NEW),
        ({"current_channel": "v25.3"}, "v25.3", OLD),
        ({"current_channel": "removed"}, "v25.10", NEW),
        ({"version": "v25.10.1"}, "v25.10", NEW),
        ({"version": "25.10.1"}, "v25.10", NEW),
        ({"version": NEW}, "v25.10", NEW),
        # The default channel does not have it, and v25.3 ends with it.
        ({"version": "v25.3.2"}, "v25.3", OLD),
        ({"version": "v25.3.2", "current_channel": "stable"}, "stable", OLD),
        ({"version": "v25.10.1", "current_channel": "v25.3"}, "v25.10", NEW),
        ({"version": "v25.3.2", "channel": "stable"}, "stable", OLD),
        ({"channel": "stable"}, "stable", NEW),
    ],
)
def test_channel(options: dict[str, Any], channel: str, csv: str) -> None:
    available = choose(**options)
    assert isinstance(available, CatalogVersion), available
    assert (available.channel.name, available.entry.name) == (channel, csv)


@pytest.mark.parametrize(
    ("sources", "version", "source"),
    [
        (["certified-operators", "mirror"], "", "certified-operators"),
        (["mirror", "certified-operators"], "", "mirror"),
        (["mirror", "certified-operators"], "v25.10.1", "certified-operators"),
        (["missing", "mirror"], "v25.3.2", "mirror"),
    ],
)
def test_the_first_source_with_the_version_is_used(sources: list[str], version: str, source: str) -> None:
    available = choose(CERTIFIED, MIRROR, sources=sources, version=version)
    assert isinstance(available, CatalogVersion)
    assert available.package.source == source


@pytest.mark.parametrize(
    ("packages", "options", "code", "text"),
    [
        ((CERTIFIED, MIRROR), {}, "source", "certified-operators and mirror"),
        ((CERTIFIED,), {"package": "gpu-operator"}, "package", "No package with this name"),
        ((CERTIFIED,), {"sources": ["red"]}, "package", "It is in certified-operators."),
        ((CERTIFIED,), {"source_namespace": "other"}, "package", "in namespace other"),
        (
            (CERTIFIED,),
            {"source_namespace": "other"},
            "package",
            "It is in certified-operators in namespace openshift-marketplace.",
        ),
        ((CERTIFIED,), {"channel": "v99"}, "channel", "stable, v25.10, v25.3. The package has no channel 'v99'"),
        (
            (CERTIFIED,),
            {"version": "v99.0.0"},
            "version",
            "25.10.1, 25.3.2. No channel of the package has version 'v99.0.0'",
        ),
        ((CERTIFIED,), {"version": "v25.3.2", "channel": "v25.10"}, "version", "It is in channel stable or v25.3."),
        (
            (parse_package(manifest(defaultChannel="")),),
            {},
            "channel",
            "The package has no default channel.",
        ),
    ],
)
def test_problems(packages: tuple[Any, ...], options: dict[str, Any], code: str, text: str) -> None:
    problem = choose(*packages, **options)
    assert isinstance(problem, Problem)
    assert problem.code == code
    assert text in str(problem)
    assert problem.remedy


def test_a_package_with_one_channel_has_it_as_default() -> None:
    package = parse_package(manifest(channels={"stable": [NEW]}, defaultChannel=""))
    assert package.default_channel == "stable"


def test_an_old_packageserver_lists_no_entries() -> None:
    actual = manifest()
    for channel in actual["status"]["channels"]:
        del channel["entries"]
    assert parse_package(actual).channel("v25.3") is not None
    available = choose(parse_package(actual), version="v25.10.1")
    assert isinstance(available, CatalogVersion)
    assert available.entry == ChannelEntry(NEW, "25.10.1")


STABLE = CERTIFIED.channel("stable")


def version(text: str) -> Version:
    parsed = parse_version(text)
    assert parsed
    return parsed


@pytest.mark.parametrize(
    ("installed", "desired", "steps"),
    [
        ("25.3.2", ChannelEntry(NEW, "25.10.1"), {NEW}),
        ("24.9.0", ChannelEntry(NEW, "25.10.1"), {OLD, NEW}),
        ("24.9.0", ChannelEntry(OLD, "25.3.2"), {OLD}),
        (None, ChannelEntry(OLD, "25.3.2"), {OLD}),
    ],
)
def test_steps_of_an_upgrade(installed: str | None, desired: ChannelEntry, steps: set[str]) -> None:
    assert STABLE
    assert allowed_steps(STABLE, version(installed) if installed else None, desired) == steps


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8, unique=True), st.integers(1, 40), st.data())
def test_steps_are_newer_than_the_installed_and_not_newer_than_the_desired_one(
    numbers: list[int], installed: int, data: st.DataObject
) -> None:
    entries = tuple(ChannelEntry(f"p.v1.{number}.0", f"1.{number}.0") for number in numbers)
    desired = data.draw(st.sampled_from(entries))
    steps = allowed_steps(Channel("c", entries[0].name, entries), Version((1, installed, 0)), desired)
    assert desired.name in steps
    for entry in entries:
        limit = desired.parsed
        assert entry.parsed
        assert limit
        if entry != desired:
            assert (entry.name in steps) is (Version((1, installed, 0)) < entry.parsed <= limit)


def test_a_skip_range_skips_the_desired_version() -> None:
    assert STABLE
    problem = skipped_version(STABLE, version("25.3.1"), ChannelEntry(OLD, "25.3.2"))
    assert problem
    assert problem.code == "upgrade_path"
    assert str(problem).startswith(f"ClusterServiceVersion {NEW} of channel stable: olm.skipRange is >=1.9.0 <25.10.1.")
    for installed, desired in (("25.3.2", ChannelEntry(NEW, "25.10.1")), ("25.3.2", ChannelEntry(OLD, "25.3.2"))):
        assert skipped_version(STABLE, version(installed), desired) is None
    assert skipped_version(STABLE, None, ChannelEntry(OLD, "25.3.2")) is None
    assert skipped_version(STABLE, version("1.0.0"), ChannelEntry(OLD, "25.3.2")) is None


def test_a_downgrade_is_refused() -> None:
    problem = downgrade(NEW, version("25.10.1"), ChannelEntry(OLD, "25.3.2"))
    assert problem
    assert problem.code == "downgrade"
    assert "Set version to 25.10.1" in problem.remedy
    assert downgrade(OLD, version("25.3.2"), ChannelEntry(NEW, "25.10.1")) is None
    assert downgrade(NEW, version("25.10.1"), ChannelEntry(NEW, "25.10.1")) is None
