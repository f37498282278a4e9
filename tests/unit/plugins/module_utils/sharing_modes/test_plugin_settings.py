# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of `sharing` that are settings of the device plugin: where they are written, and that the export reads them again."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.types import Field, Section
from ansible_collections.accel.gpu.plugins.module_utils.core.values import get_nested
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.report.export_pools import Inexpressible, export_sharing
from ansible_collections.accel.gpu.plugins.module_utils.schema.pool import DEFAULTS, POOL, plugin_setting_field
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import InvalidVariables
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import modes
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.modes import (
    MODES,
    SETTINGS,
    PluginSetting,
    setting_paths,
    sharing_of,
)

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
    content = modes.device_plugin_config(sharing_of(declared))
    assert get_nested(content, *setting_paths(name, MODES[name].plugin_key)[key]) == value
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
    assert modes.plugin_entry_name(sharing_of(DECLARED[name])) == entry


def test_a_mode_ignores_settings_of_a_section_that_it_does_not_have() -> None:
    """A pool without sharing inherits them from gpu_defaults."""
    assert sharing_of({"mode": "none", "replicas": 4, "rename": True}) == sharing_of({"mode": "none"})


@dataclass(frozen=True)
class _ExtendedSharing(modes.Sharing):
    """Sharing with a setting that is not in the section that shares a resource, and one of a single mode; their values are not booleans."""

    device_id_strategy: str | None = None
    pinned_memory: str | None = None


@pytest.fixture
def device_id_strategy(monkeypatch: pytest.MonkeyPatch) -> str:
    key = "device_id_strategy"
    setting = PluginSetting("flags.plugin.deviceIDStrategy", None, "uuid", ("uuid", "index"))
    monkeypatch.setitem(SETTINGS, key, setting)
    monkeypatch.setattr(modes, "Sharing", _ExtendedSharing)
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
    content = modes.device_plugin_config(sharing_of(DECLARED[name]))
    content["flags"] = {**content.get("flags", {}), **flags}
    declared = {**DECLARED[name], **({device_id_strategy: exported} if exported else {})}
    assert export_sharing(content, declared.get("layout")) == declared


def test_an_invalid_value_of_a_setting_is_inexpressible(device_id_strategy: str) -> None:
    for plugin in ("text", {"deviceIDStrategy": "serial"}):
        with pytest.raises(Inexpressible, match=r"\(flags.plugin\)"):
            export_sharing({"version": "v1", "flags": {"plugin": plugin}})


QUANTITY = re.compile(r"\d+[KMG]i")


def not_a_quantity(value: str) -> str | None:
    return None if QUANTITY.fullmatch(value) else "is not a quantity; write one such as 4Gi"


@pytest.fixture
def pinned_memory(monkeypatch: pytest.MonkeyPatch) -> str:
    key = "pinned_memory"
    setting = PluginSetting("sharing.*.pinnedMemory", None, kind=str, rules=(not_a_quantity,), modes=("mps",))
    monkeypatch.setitem(SETTINGS, key, setting)
    for section in (POOL, DEFAULTS):
        own = section.fields["sharing"]
        assert isinstance(own, Section)
        monkeypatch.setitem(t.cast("dict[str, Field]", own.fields), key, plugin_setting_field(setting))
    monkeypatch.setattr(modes, "Sharing", _ExtendedSharing)
    return key


def pools_with(declared: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": "train", "match": {"model": "A100-SXM4-40GB"}, "sharing": declared}]


def problems_of(declared: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidVariables) as refused:
        derive({"name": "prod"}, {}, pools_with(declared))
    return refused.value.problems


def test_a_text_of_one_mode_is_checked_written_and_exported(pinned_memory: str) -> None:
    declared = {**DECLARED["mps"], pinned_memory: "4Gi"}
    [pool] = derive({"name": "prod"}, {}, pools_with(declared)).pools
    content = modes.device_plugin_config(pool.sharing)
    assert content["sharing"]["mps"]["pinnedMemory"] == "4Gi"
    assert export_sharing(content, None) == declared
    with pytest.raises(Inexpressible):
        export_sharing({**content, "sharing": {"mps": {**content["sharing"]["mps"], "pinnedMemory": "much"}}}, None)
    assert problems_of({**declared, pinned_memory: "much"}) == [
        'gpu_pools[0].sharing.pinned_memory: "much" is not a quantity; write one such as 4Gi'
    ]


@pytest.mark.parametrize("name", ["none", "time-slicing", "mig"])
def test_other_modes_do_not_have_it(name: str, pinned_memory: str) -> None:
    assert problems_of({**DECLARED[name], pinned_memory: "4Gi"}) == [
        f"gpu_pools[0].sharing.pinned_memory: has no effect with mode: {name}; remove it, or set mode: mps"
    ]
    [pool] = derive({"name": "prod"}, {"sharing": {pinned_memory: "4Gi"}}, pools_with(DECLARED[name])).pools
    assert modes.device_plugin_config(pool.sharing) == modes.device_plugin_config(sharing_of(DECLARED[name]))
