# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of `sharing` that are settings of the device plugin: where they are written, and that the export reads them again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.common.nested import get_nested
from ansible_collections.accel.gpu.plugins.module_utils.export.sharing import Inexpressible, export_sharing
from ansible_collections.accel.gpu.plugins.module_utils.nvidia_config import device_plugin
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import sharing
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.modes import MODES
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.plugin_settings import (
    SETTINGS,
    PluginSetting,
    setting_paths,
)
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.sharing import sharing_of

SEVENTHS = {"1g.5gb": 7}
DECLARED: dict[str, dict[str, Any]] = {
    "none": {"mode": "none"},
    "time-slicing": {"mode": "time-slicing", "replicas": 4},
    "mps": {"mode": "mps", "replicas": 4},
    "mig": {"mode": "mig", "layout": SEVENTHS, "replicas": 4},
}
VALUES = [
    (name, key, value)
    for name, mode in MODES.items()
    for key, setting in SETTINGS.items()
    if key in mode.options
    for value in setting.choices or (False, True)
]


@pytest.mark.parametrize(("name", "key", "value"), VALUES)
def test_a_declared_value_is_written_and_exported(name: str, key: str, value: Any) -> None:
    declared = {**DECLARED[name], key: value}
    content = device_plugin.config(sharing_of(declared))
    assert get_nested(content, *setting_paths(MODES[name].plugin_key)[key]) == value
    exported = export_sharing(content, declared.get("layout"))
    assert exported == (declared if value != SETTINGS[key].default else DECLARED[name])


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("none", "none-f6586708"),
        ("time-slicing", "time-slicing-4-cba137d5"),
        ("mps", "mps-4-7657f174"),
        ("mig", "mig-single-4-99a2a200"),
    ],
)
def test_a_new_setting_does_not_rename_configurations(name: str, entry: str) -> None:
    """Otherwise, all nodes would get another label with the next release of the collection."""
    assert device_plugin.entry_name(sharing_of(DECLARED[name])) == entry


def test_a_mode_ignores_settings_of_a_section_that_it_does_not_have() -> None:
    """A pool without sharing inherits them from gpu_defaults."""
    assert sharing_of({"mode": "none", "replicas": 4, "rename": True}) == sharing_of({"mode": "none"})


@dataclass(frozen=True)
class _ExtendedSharing(sharing.Sharing):
    """Sharing with a setting that is not in the section that shares a resource, and whose value is not a boolean."""

    device_id_strategy: str | None = None


@pytest.fixture
def device_id_strategy(monkeypatch: pytest.MonkeyPatch) -> str:
    key = "device_id_strategy"
    setting = PluginSetting("flags.plugin.deviceIDStrategy", None, "uuid", ("uuid", "index"))
    monkeypatch.setitem(SETTINGS, key, setting)
    monkeypatch.setattr(sharing, "Sharing", _ExtendedSharing)
    return key


@pytest.mark.parametrize("name", DECLARED)
@pytest.mark.parametrize(
    ("flags", "exported"),
    [
        ({}, None),
        ({"plugin": None}, None),
        ({"plugin": {}}, None),
        ({"plugin": {"deviceIDStrategy": "uuid"}}, None),
        ({"plugin": {"deviceIDStrategy": "index"}}, "index"),
    ],
)
def test_the_plugins_own_default_is_not_exported(
    name: str, flags: dict[str, Any], exported: str | None, device_id_strategy: str
) -> None:
    """Otherwise, the pools of all existing nodes would declare the new setting, or could not be exported."""
    content = device_plugin.config(sharing_of(DECLARED[name]))
    content["flags"] = {**content.get("flags", {}), **flags}
    declared = {**DECLARED[name], **({device_id_strategy: exported} if exported else {})}
    assert export_sharing(content, declared.get("layout")) == declared


def test_an_invalid_value_of_a_setting_is_inexpressible(device_id_strategy: str) -> None:
    for plugin in ("text", {"deviceIDStrategy": "serial"}):
        with pytest.raises(Inexpressible, match=r"\(flags.plugin\)"):
            export_sharing({"version": "v1", "flags": {"plugin": plugin}})
