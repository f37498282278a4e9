# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mistakes in the inventory file's option `clouds` are reported with their paths, all at once."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.plugin_utils.clusters.entries import problems


@pytest.mark.parametrize(
    "clouds",
    [
        [{"magnum": {"cloud": "cern"}}],
        [{"magnum": {"cloud": "cern", "region_names": ["a"], "gpu_aliases": {"x": "Tesla-T4"}}}, {"vks": {}}],
        [{"vks": None}],
        [{"vks": {"region": "HAN", "client_id_env": "A", "client_secret_env": "B", "validate_certs": False}}],
    ],
)
def test_valid_entries(clouds: Any) -> None:
    assert problems(clouds) == []


@pytest.mark.parametrize(
    ("clouds", "words"),
    [
        ([], ["clouds: needs a list"]),
        ("cern", ["clouds: needs a list"]),
        (["cern"], ["clouds[0]: needs exactly one of magnum or vks"]),
        ([{"magnum": {"cloud": "a"}, "vks": {}}], ["clouds[0]: needs exactly one of"]),
        ([{"vks": {}}, {"magnum": {}}], ["clouds[1].magnum.cloud: is missing"]),
        (
            [{"magnum": {"cloud": "a", "region_name": "b"}}],
            ["clouds[0].magnum.region_name: is unknown; did you mean region_names?"],
        ),
        (
            [{"vks": {"client_secret": "x"}}],
            ["clouds[0].vks.client_secret: is unknown; did you mean client_secret_env?"],
        ),
        ([{"vks": "HAN"}], ["clouds[0].vks: is not a map"]),
        (
            [{"vks": {"region": 3, "validate_certs": "no"}}],
            ["clouds[0].vks.region: is not text", "validate_certs: is not true or false"],
        ),
    ],
)
def test_invalid_entries(clouds: Any, words: list[str]) -> None:
    found = problems(clouds)
    assert len(found) == len(words)
    for word, line in zip(words, found, strict=True):
        assert word in line
