# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entries of our device plugin ConfigMap: which to add before they are named, which to collect after (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.names import FIELD_MANAGER
from ..nvidia_config.device_plugin import Sharing, config, entry_name
from ..nvidia_config.yaml_text import render

ConfigMap = t.Mapping[str, t.Any]

# Whole GPUs. It stays when no other entry is left: NVIDIA's agents do not start with a ConfigMap that has none ("no configuration files
# available", k8s-device-plugin cmd/config-manager).
WHOLE: t.Final = {entry_name(Sharing()): render(config(Sharing()))}


@dataclass(frozen=True)
class DevicePluginEntries:
    """What becomes of the ConfigMap: `added` before any label names it, `collected` when no label names it any more."""

    live: t.Mapping[str, str]
    added: t.Mapping[str, str]
    ours: t.Mapping[str, str]
    collected: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether anything is to be written."""
        return bool(self.added or self.collected)

    @property
    def applied(self) -> dict[str, str]:
        """What our field manager applies before the labels change: all that it owns already, and what is new."""
        return {**self.ours, **self.added}

    @property
    def after(self) -> dict[str, str]:
        """The whole data at the end."""
        return {key: text for key, text in {**self.live, **self.added}.items() if key not in self.collected}


def device_plugin_entries(
    wanted: t.Mapping[str, str], named: t.Collection[str], configmap: ConfigMap | None
) -> DevicePluginEntries:
    """Compare the ConfigMap with the entries wanted and those that node labels will name at the end.

    An entry of another field manager, or one that a node still names, stays. A ConfigMap that is there never gets empty.
    """
    live: dict[str, str] = dict((configmap or {}).get("data") or {})
    owned = _owned(configmap) & set(live)
    if configmap is not None and not wanted and not any(key in named or key not in owned for key in live):
        wanted = WHOLE
    return DevicePluginEntries(
        live=live,
        added={key: text for key, text in sorted(wanted.items()) if live.get(key) != text},
        ours={key: live[key] for key in sorted(owned)},
        collected=tuple(sorted(key for key in owned if key not in wanted and key not in named)),
    )


def _owned(configmap: ConfigMap | None) -> set[str]:
    """The keys that our field manager has written and no other has."""
    ours: set[str] = set()
    others: set[str] = set()
    for entry in ((configmap or {}).get("metadata") or {}).get("managedFields") or ():
        keys = {field[2:] for field in ((entry.get("fieldsV1") or {}).get("f:data") or {}) if field.startswith("f:")}
        (ours if entry.get("manager") == FIELD_MANAGER else others).update(keys)
    return ours - others
