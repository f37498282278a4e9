# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mistakes in the inventory file's option `clouds` are reported with their paths, all at once."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.plugin_utils.clusters.query import cloud_entries


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
    assert cloud_entries(clouds) == [(key, settings or {}) for entry in clouds for key, settings in entry.items()]


@pytest.mark.parametrize(
    ("clouds", "words"),
    [
        ([], ["clouds: is empty"]),
        (["cern"], ['clouds[0]: "cern" is a string, not a map']),
        ([{}], ["clouds[0]: needs exactly one of magnum or vks"]),
        ([{"openstack": {}}], ["clouds[0].openstack: is not a known key"]),
        ([{"magnum": {"cloud": "a"}, "vks": {}}], ["clouds[0]: needs exactly one of"]),
        ([{"vks": {}}, {"magnum": {}}], ["clouds[1].magnum.cloud: is missing"]),
        (
            [{"magnum": {"cloud": "a", "region_name": "b"}}],
            ["clouds[0].magnum.region_name: is not a known key; did you mean region_names?"],
        ),
        (
            [{"vks": {"client_secret": "x"}}],
            ["clouds[0].vks.client_secret: is not a known key; did you mean client_secret_env?"],
        ),
        ([{"vks": "HAN"}], ['clouds[0].vks: "HAN" is a string, not a map']),
        (
            [{"vks": {"region": 3, "validate_certs": "never"}}],
            ["clouds[0].vks.region: 3 is a number, not a string", "is a string, not a boolean"],
        ),
    ],
)
def test_invalid_entries(clouds: Any, words: list[str]) -> None:
    with pytest.raises(InvalidOptions) as caught:
        cloud_entries(clouds)
    for word, line in zip(words, caught.value.problems, strict=True):
        assert word in line
