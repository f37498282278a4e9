# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of `sharing` that are settings of the device plugin's configuration. To add a key, add one field to PluginSettings (pure).

The schema (schema/pool.py), the modes (base.py), the configuration (nvidia_config/device_plugin.py) and the export (export/sharing.py) use every
field. Code that acts on a setting reads it from Sharing, which inherits the fields.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, fields

_SECTION = "*"
# As in schema/types.py: the problem of a value and the remedy, as the end of a sentence; None for a valid value.
Rule = t.Callable[[t.Any], "str | None"]


@dataclass(frozen=True)
class PluginSetting:
    """The definition of a setting.

    `path`: the path in the device plugin's configuration (k8s-device-plugin api/config/v1); `*` is the section that shares a resource.
    A setting with `*` has an effect in the modes that share a resource, other settings in all modes; `modes` are the names of the modes that have the
    setting, if not all of these modes have it; a mode that allows only one value lists it in `fixed_options`. `default`: the value if a pool sets none; None is
    not written. `plugin_default`: the value that the plugin uses for a setting that is not written; with the default None, the export leaves this value
    out. `choices`: the valid values of a text. `kind`: the type of other values (bool, int, str, or a list or dict of text). `rules`: other checks.
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
    """The settings, named as in `sharing`; the metadata are the other fields of PluginSetting.

    A new setting has the default None: if it were always written, the name of every configuration would change.
    """

    rename: bool = field(default=False, metadata={"path": "sharing.*.renameByDefault", "plugin_default": False})
    fail_requests_greater_than_one: bool = field(
        default=True, metadata={"path": "sharing.*.failRequestsGreaterThanOne", "plugin_default": False}
    )


SETTINGS: dict[str, PluginSetting] = {
    each.name: PluginSetting(default=each.default, **each.metadata) for each in fields(PluginSettings)
}


def setting_paths(mode: str, plugin_key: str) -> dict[str, list[str]]:
    """The path of each setting that has an effect in a mode if this section shares a resource (empty: if nothing is shared)."""
    return {
        key: setting.path.replace(_SECTION, plugin_key).split(".")
        for key, setting in SETTINGS.items()
        if (plugin_key or _SECTION not in setting.path) and (not setting.modes or mode in setting.modes)
    }
