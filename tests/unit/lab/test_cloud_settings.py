# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults and settings of a lab's clouds, which several processes read and change."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.cloud_settings import CloudFault, CloudSettings, Setting
from lab.layout import Lab

SETTINGS = {"sky.color": Setting("blue", "of the sky", ("blue", "gray"))}


@pytest.fixture
def settings(tmp_path: Path) -> CloudSettings:
    return CloudSettings(Lab.named("own", tmp_path), SETTINGS)


def test_fault_of_one_group_and_of_all(settings: CloudSettings) -> None:
    settings.inject(CloudFault("sky.falls", "a", "1"))
    assert settings.fault("sky.falls") is None
    assert settings.fault("sky.falls", "b") is None
    assert settings.fault("sky.falls", "a") == CloudFault("sky.falls", "a", "1")
    settings.inject(CloudFault("sky.falls"))
    assert settings.fault("sky.falls", "b") == settings.fault("sky.falls") == CloudFault("sky.falls")
    assert settings.fault("sky.burns", "a") is None


def test_inject_replaces_and_clear_returns_the_cleared_faults(settings: CloudSettings) -> None:
    settings.inject(CloudFault("sky.falls", "a", "1"))
    settings.inject(CloudFault("sky.falls", "a", "2"))
    settings.inject(CloudFault("sky.burns"))
    assert settings.faults() == [CloudFault("sky.falls", "a", "2"), CloudFault("sky.burns")]
    assert settings.clear("sky.falls") == [CloudFault("sky.falls", "a", "2")]
    assert settings.clear() == [CloudFault("sky.burns")]
    assert settings.faults() == settings.clear() == []


def test_consume_counts_down(settings: CloudSettings) -> None:
    settings.inject(CloudFault("sky.falls", value="20"))
    with ThreadPoolExecutor(8) as pool:
        consumed = list(pool.map(lambda dummy: settings.consume("sky.falls"), range(30)))
    assert consumed.count(True) == 20
    assert settings.faults() == []
    settings.inject(CloudFault("sky.falls"))
    assert all(settings.consume("sky.falls") for dummy in range(3)), "no limit"


def test_setting_has_a_default(settings: CloudSettings) -> None:
    assert settings.setting("sky.color") == "blue"
    settings.set("sky.color", "gray")
    assert settings.setting("sky.color") == "gray"
