# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions and ranges as OLM compares them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.olm.observed import Version, in_range, parse_version

VERSIONS = st.builds(
    Version,
    st.tuples(*[st.integers(0, 30)] * 3),
    st.lists(st.from_regex(r"[0-9a-z]{1,4}", fullmatch=True), max_size=2).map(tuple),
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("v25.10.1", "25.10.1"),
        ("25.10.1", "25.10.1"),
        ("25.10", "25.10.0"),
        ("4.18.0-202501230000", "4.18.0-202501230000"),
        ("1.2.3-rc.1+build5", "1.2.3-rc.1"),
        ("gpu-operator-certified.v25.10.1", None),
        ("25", None),
        ("1.2.3-", None),
        ("1.2.3-a..b", None),
        ("", None),
    ],
)
def test_parse(text: str, shown: str | None) -> None:
    version = parse_version(text)
    assert (str(version) if version else None) == shown


def test_order_of_the_specification() -> None:
    texts = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0"]
    versions = [parse_version(text) for text in texts]
    assert all(one is not None and other is not None and one < other for one, other in itertools.pairwise(versions))


@pytest.mark.parametrize(
    ("version", "text", "matches"),
    [
        ("25.3.2", ">=1.9.0 <25.10.1", True),
        ("25.10.1", ">=1.9.0 <25.10.1", False),
        ("1.8.0", ">=1.9.0 <25.10.1", False),
        ("4.18.0-202501230000", ">=4.17.0-0 <4.18.0-202512310000", True),
        ("2.0.0", "<1.0.0 || >=2.0.0", True),
        ("1.5.0", "<1.0.0 || >=2.0.0", False),
        ("1.5.0", ">1.0.0 !=1.5.0", False),
        ("1.5.0", "1.5.0", True),
        ("1.5.0", ">= 1.0.0", True),
        ("1.5.0", "1.x", None),
        ("1.5.0", "", None),
        ("1.5.0", ">=1.0.0 ||", None),
    ],
)
def test_ranges(version: str, text: str, matches: bool | None) -> None:
    parsed = parse_version(version)
    assert parsed is not None
    assert in_range(parsed, text) is matches


@given(VERSIONS, VERSIONS)
def test_a_range_agrees_with_the_order(one: Version, other: Version) -> None:
    assert in_range(one, f"<{other}") is (one < other)
    assert in_range(one, f">={other}") is (one >= other)
    assert (one < other) + (one == other) + (one > other) >= 1
    assert parse_version(str(one)) == one
