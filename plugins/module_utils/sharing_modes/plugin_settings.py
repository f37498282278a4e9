# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the keys of `sharing` that are settings of the device plugin's configuration. To add a key, add one field to PluginSettings (pure).

The schema (schema/pool.py), the modes (base.py), the configuration (nvidia_config/device_plugin.py) and the export (export/sharing.py) use every
field. Code that acts on a setting reads it from Sharing, which inherits the fields.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, fields

_SECTION = "*"
# Like Rule in schema/types.py: returns what is wrong with a value and how to correct it, as the end of a sentence; None for a valid value.
Rule = t.Callable[[t.Any], "str | None"]


@dataclass(frozen=True)
class PluginSetting:
    """The definition of a setting.

    `path`: the path in the device plugin's configuration (k8s-device-plugin api/config/v1); `*` is the section that shares a resource.
    A setting with `*` applies only to modes that share a resource; other settings apply to all modes. `modes` restricts a setting to the named modes. If a
    mode allows only one value, its `fixed_options` contains the value. `default`: the value if a pool does not set one; a setting that is None is not
    written. `plugin_default`: the value that the plugin uses if the setting is not written; if `default` is None, the export omits this value.
    `choices`: the valid values of a string with fixed choices. `kind`: the type of all other settings (bool, int, str, or a list or dict of strings).
    `rules`: other checks.
    """

    path: str
    default: t.Any
    plugin_default: t.Any = None
    choices: tuple[str, ...] = ()
    kind: type = bool
    rules: tuple[Rule, ...] = ()
    modes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PluginSettings:
    """The settings, named as in `sharing`; the metadata contains the other fields of PluginSetting.

    Give a new setting the default None: if it were always written, the name of every configuration would change.
    """

    rename: bool = field(default=False, metadata={"path": "sharing.*.renameByDefault", "plugin_default": False})
    fail_requests_greater_than_one: bool = field(
        default=True, metadata={"path": "sharing.*.failRequestsGreaterThanOne", "plugin_default": False}
    )


SETTINGS: dict[str, PluginSetting] = {
    each.name: PluginSetting(default=each.default, **each.metadata) for each in fields(PluginSettings)
}


def setting_paths(mode: str, plugin_key: str) -> dict[str, list[str]]:
    """The path of each setting that applies to a mode. `plugin_key` is the section that shares a resource, or empty if nothing is shared."""
    return {
        key: setting.path.replace(_SECTION, plugin_key).split(".")
        for key, setting in SETTINGS.items()
        if (plugin_key or _SECTION not in setting.path) and (not setting.modes or mode in setting.modes)
    }
