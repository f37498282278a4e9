# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults and switches of a lab's clouds, as several processes read and change them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.cloud_settings import CloudFault, CloudSettings, Setting
from lab.layout import Lab

SETTINGS = {"sky.colour": Setting("blue", "of the sky", ("blue", "grey"))}


@pytest.fixture
def switches(tmp_path: Path) -> CloudSettings:
    return CloudSettings(Lab.named("own", tmp_path), SETTINGS)


def test_a_fault_on_one_group_and_one_on_all(switches: CloudSettings) -> None:
    switches.inject(CloudFault("sky.falls", "a", "1"))
    assert switches.fault("sky.falls") is None
    assert switches.fault("sky.falls", "b") is None
    assert switches.fault("sky.falls", "a") == CloudFault("sky.falls", "a", "1")
    switches.inject(CloudFault("sky.falls"))
    assert switches.fault("sky.falls", "b") == switches.fault("sky.falls") == CloudFault("sky.falls")
    assert switches.fault("sky.burns", "a") is None


def test_one_put_again_is_replaced_and_what_is_cleared_is_said(switches: CloudSettings) -> None:
    switches.inject(CloudFault("sky.falls", "a", "1"))
    switches.inject(CloudFault("sky.falls", "a", "2"))
    switches.inject(CloudFault("sky.burns"))
    assert switches.faults() == [CloudFault("sky.falls", "a", "2"), CloudFault("sky.burns")]
    assert switches.clear("sky.falls") == [CloudFault("sky.falls", "a", "2")]
    assert switches.clear() == [CloudFault("sky.burns")]
    assert switches.faults() == switches.clear() == []


def test_a_fault_strikes_as_often_as_it_says(switches: CloudSettings) -> None:
    switches.inject(CloudFault("sky.falls", value="20"))
    with ThreadPoolExecutor(8) as pool:
        struck = list(pool.map(lambda dummy: switches.consume("sky.falls"), range(30)))
    assert struck.count(True) == 20
    assert switches.faults() == []
    switches.inject(CloudFault("sky.falls"))
    assert all(switches.consume("sky.falls") for dummy in range(3)), "for ever"


def test_a_switch_is_at_its_default_until_it_is_set(switches: CloudSettings) -> None:
    assert switches.setting("sky.colour") == "blue"
    switches.set("sky.colour", "grey")
    assert switches.setting("sky.colour") == "grey"
