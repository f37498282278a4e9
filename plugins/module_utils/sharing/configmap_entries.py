# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entries of the two ConfigMaps: which are added before a label names them, and which are removed afterwards (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.names import FIELD_MANAGER
from ..cluster_state.generated_mig_config import NO_GENERATED_CONFIG, GeneratedMigConfig
from ..nvidia_config import mig_parted
from ..nvidia_config.device_plugin import config, entry_name
from ..nvidia_config.yaml_text import render
from ..sharing_modes.sharing import Sharing

if t.TYPE_CHECKING:
    from ..pools.plan import MigPlan

ConfigMap = t.Mapping[str, t.Any]

# Whole GPUs. This entry stays when no other is left: NVIDIA's agents do not start with an empty ConfigMap ("no configuration files
# available", k8s-device-plugin cmd/config-manager).
WHOLE: t.Final = {entry_name(Sharing()): render(config(Sharing()))}


@dataclass(frozen=True)
class ConfigMapEntries:
    """The changes of one ConfigMap: `added` before any label names them, `removed` when no label names them any more.

    `applied` is what the ConfigMap contains before the labels change: for the device plugin's ConfigMap only the keys of this field
    manager, for the MIG manager's file all entries. `generated_warnings`: why generated entries cannot be used.
    """

    actual: t.Mapping[str, t.Any]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    applied: t.Mapping[str, t.Any]
    generated_warnings: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything is written."""
        return bool(self.added or self.removed)

    @property
    def after(self) -> dict[str, t.Any]:
        """All entries at the end of the run."""
        return {name: entry for name, entry in {**self.actual, **self.applied}.items() if name not in self.removed}


def device_plugin_entries(
    desired: t.Mapping[str, str], named: t.Collection[str], configmap: ConfigMap | None
) -> ConfigMapEntries:
    """Compare the device plugin's ConfigMap with the desired entries and with those that node labels name at the end.

    Entries of other field managers and entries that a node still names stay. An existing ConfigMap never becomes empty.
    """
    actual: dict[str, str] = dict((configmap or {}).get("data") or {})
    owned = _owned_keys(configmap) & set(actual)
    if configmap is not None and not desired and not any(key in named or key not in owned for key in actual):
        desired = WHOLE
    added = {key: text for key, text in sorted(desired.items()) if actual.get(key) != text}
    return ConfigMapEntries(
        actual,
        added=tuple(added),
        removed=tuple(sorted(key for key in owned if key not in desired and key not in named)),
        applied={**{key: actual[key] for key in sorted(owned)}, **added},
    )


def mig_entries(
    plan: MigPlan,
    named: t.Collection[str],
    configmap: ConfigMap | None,
    generated: GeneratedMigConfig = NO_GENERATED_CONFIG,
) -> ConfigMapEntries:
    """Compare the MIG manager's file with the desired entries and with those that node labels name at the end.

    Own entries have names of mig_parted.entry_name(). Entries of NVIDIA's file, and those that its MIG manager has generated on the
    nodes, are added if they are missing; they and all others are never changed.
    """
    actual = mig_parted.parse_configmap(configmap)
    # A released node gets the entry that disables MIG, also if no pool uses MIG any more.
    disabled = {mig_parted.DISABLED: mig_parted.DISABLED_ENTRY} if configmap and mig_parted.DISABLED in named else {}
    desired = {**disabled, **plan.default_entries, **generated.entries, **plan.entries}
    added = [
        name
        for name, entry in desired.items()
        if name not in actual or (mig_parted.is_managed(name) and actual[name] != entry)
    ]
    unused = (name for name in actual if mig_parted.is_managed(name) and name not in desired and name not in named)
    return ConfigMapEntries(
        actual,
        added=tuple(sorted(added)),
        removed=tuple(sorted(unused)),
        applied={**actual, **{name: desired[name] for name in sorted(added)}},
        generated_warnings=generated.warnings,
    )


def _owned_keys(configmap: ConfigMap | None) -> set[str]:
    """The keys that this field manager has written and no other has."""
    owned: set[str] = set()
    foreign: set[str] = set()
    for entry in ((configmap or {}).get("metadata") or {}).get("managedFields") or ():
        keys = {field[2:] for field in ((entry.get("fieldsV1") or {}).get("f:data") or {}) if field.startswith("f:")}
        (owned if entry.get("manager") == FIELD_MANAGER else foreign).update(keys)
    return owned - foreign
