# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads, compares and writes the entries of the two ConfigMaps for NVIDIA's device plugin and MIG manager.

Entries are added before a label selects them, and are removed once no label selects them.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..catalog.names import (
    CONFIG_LABEL,
    DEVICE_PLUGIN_CONFIGMAP,
    FIELD_MANAGER,
    GENERATED_SELECTOR,
    MIG_CONFIG_LABEL,
    MIG_CONFIGMAP,
)
from ..cluster_state.generated_mig_config import (
    NO_CAPACITY,
    NO_GENERATED_CONFIG,
    GeneratedMigConfig,
    MigCapacity,
    merge_generated,
    mig_capacity,
    parse_generated,
)
from ..kube.errors import ApiError
from ..kube.paths import NODES, collection_path, object_path
from ..nvidia_config import mig_parted
from ..nvidia_config.device_plugin import config, entry_name
from ..nvidia_config.yaml_text import render
from ..sharing_modes.sharing import Sharing

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..pools.plan import MigPlan, Plan
    from .change_plan import ChangePlan

ConfigMap = t.Mapping[str, t.Any]
EntriesByNode = dict[str, dict[str, mig_parted.Entry]]

# The entry for whole GPUs. It is kept even if there is no other entry, because NVIDIA's agents do not start with an empty
# ConfigMap ("no configuration files available", k8s-device-plugin cmd/config-manager).
WHOLE: t.Final = {entry_name(Sharing()): render(config(Sharing()))}


@dataclass(frozen=True)
class ConfigMaps:
    """The ConfigMaps of the device plugin and of the MIG manager. A ConfigMap that does not exist or was not read is None.

    generated: the entries that the MIG manager has generated for the nodes. capacity: the MIG profiles of the nodes' GPUs.
    """

    device_plugin: ConfigMap | None = None
    mig: ConfigMap | None = None
    generated: GeneratedMigConfig = NO_GENERATED_CONFIG
    capacity: MigCapacity = NO_CAPACITY


@dataclass(frozen=True)
class ConfigMapEntries:
    """The changes to one ConfigMap. The entries in `added` are written before any label selects them.

    The entries in `removed` are removed once no label selects them. `applied` is the content that is written before the labels change. For the
    device plugin's ConfigMap, it contains only the keys of this field manager; for the MIG manager's file, it contains all entries.
    """

    actual: t.Mapping[str, t.Any]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    applied: t.Mapping[str, t.Any]

    @property
    def changed(self) -> bool:
        """Whether the ConfigMap changes."""
        return bool(self.added or self.removed)

    @property
    def after(self) -> dict[str, t.Any]:
        """All entries at the end of the run."""
        return {name: entry for name, entry in {**self.actual, **self.applied}.items() if name not in self.removed}


def device_plugin_entries(
    desired: t.Mapping[str, str], named: t.Collection[str], configmap: ConfigMap | None
) -> ConfigMapEntries:
    """Compare the device plugin's ConfigMap with the desired entries and with the entries (`named`) that node labels select after the run.

    Entries of other field managers, and entries that a node label still selects, are kept. An existing ConfigMap never becomes empty.
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
    """Compare the MIG manager's file with the desired entries and with the entries (`named`) that node labels select after the run.

    The collection's entries have names from mig_parted.entry_name(). Entries of NVIDIA's file and entries that the MIG manager has generated
    on the nodes are added if they are missing. Existing entries with other names are never changed.
    """
    actual = mig_parted.parse_configmap(configmap)
    # A released node gets the entry that disables MIG, even if no pool uses MIG any longer.
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
    )


def _owned_keys(configmap: ConfigMap | None) -> set[str]:
    """The keys that only this field manager has written."""
    owned: set[str] = set()
    foreign: set[str] = set()
    for entry in ((configmap or {}).get("metadata") or {}).get("managedFields") or ():
        keys = {field[2:] for field in ((entry.get("fieldsV1") or {}).get("f:data") or {}) if field.startswith("f:")}
        (owned if entry.get("manager") == FIELD_MANAGER else foreign).update(keys)
    return owned - foreign


class SharingConfigMaps:
    """The device plugin's ConfigMap with one key per entry, and the MIG manager's ConfigMap with one file for all entries.

    If another manager owns the device plugin's ConfigMap, only this collection's entries in it are changed.
    """

    def __init__(self, client: Client, plan: Plan, expected: t.Iterable[t.Mapping[str, t.Any]] = ()) -> None:
        """Store the arguments; no request is sent yet. The `expected` ConfigMaps (whole objects) count as present even if they do not exist yet."""
        self._client = client
        self._plan = plan
        self._device_plugin = object_path("v1", "ConfigMap", plan.config.name, plan.config.namespace)
        self._mig = object_path("v1", "ConfigMap", plan.mig.name, plan.mig.namespace)
        self._existing: set[str] = set()
        self._published: EntriesByNode | None = None
        self._expected = {
            object_path("v1", "ConfigMap", item["metadata"]["name"], item["metadata"]["namespace"]): item
            for item in expected
        }

    def read(self, nodes: t.Collection[Node], *, to_write: bool = True) -> ConfigMaps:
        """Read both ConfigMaps; the MIG manager's ConfigMap is read only if a pool or a node needs it.

        The data that the MIG manager has published about the nodes is read only once. If the user is not allowed to list this data, a warning is
        added to the result, unless `to_write` is set; in that case, the server's error is raised.
        """
        uses_mig = self._plan.mig.needed or any(mig_parted.is_managed(node.mig_config) for node in nodes)
        configmaps = ConfigMaps(self._get(self._device_plugin), self._get(self._mig) if uses_mig else None)
        if not self._plan.mig.needed:
            return configmaps
        published, warnings = self._published_entries(to_write)
        capacity = mig_capacity(nodes, published)
        return replace(
            configmaps,
            generated=merge_generated(self._plan, published, nodes, mig_parted.parse_configmap(configmaps.mig)),
            capacity=replace(capacity, warnings=(*warnings, *capacity.warnings)),
        )

    def _published_entries(self, to_write: bool) -> tuple[EntriesByNode, list[str]]:
        """The entries that the MIG manager has published for each node, and a warning if they cannot be read."""
        if self._published is None:
            path = collection_path("v1", "ConfigMap", self._plan.mig.namespace)
            try:
                self._published = parse_generated(self._client.list(path, label_selector=GENERATED_SELECTOR))
            except ApiError as error:
                if to_write or not error.forbidden:
                    raise
                return {}, [
                    "This user is not allowed to read the data that the nodes publish about their GPUs (operator v26.3 and later), so the "
                    f"catalog is used: {error.message}"
                ]
        return self._published, []

    def _get(self, path: str) -> ConfigMap | None:
        actual = self._client.get(path)
        if actual is None:
            return self._expected.get(path)
        self._existing.add(path)
        return actual

    def add_entries(self, changes: ChangePlan, lease: Lease | None = None, *, dry_run: bool = False) -> list[str]:
        """Write the entries that node labels will select and return their names; a dry run skips ConfigMaps that do not exist."""
        written: list[str] = []
        for path, entries in ((self._device_plugin, changes.device_plugin), (self._mig, changes.mig)):
            if entries.added and (path in self._existing or not dry_run):
                self._apply(path, entries.applied, lease, dry_run=dry_run)
                written += entries.added
        return written

    def remove_entries(self, changes: ChangePlan, lease: Lease) -> list[str]:
        """Read the nodes again, remove the entries that no node label selects any longer, and return their names.

        An agent crashes if its entry is missing. The nodes are read again because, in the meantime, some may have been labeled and changes may have failed.
        """
        device_plugin, mig = changes.device_plugin.removed, changes.mig.removed
        if not device_plugin and not mig:
            return []
        lease.check()
        device_plugin = self._unused(CONFIG_LABEL, device_plugin)
        mig = self._unused(MIG_CONFIG_LABEL, mig)
        if device_plugin:
            self._client.patch(self._device_plugin, {"data": dict.fromkeys(sorted(device_plugin))})
        if mig:
            kept = {name: entry for name, entry in changes.mig.applied.items() if name not in mig}
            self._apply(self._mig, kept, lease)
        return sorted([*device_plugin, *mig])

    def _unused(self, label: str, entries: tuple[str, ...]) -> tuple[str, ...]:
        """The entries that no node label selects. The request lists only nodes whose label selects one of the entries; usually, there are none."""
        if not entries:
            return ()
        nodes = self._client.list(NODES, label_selector=f"{label} in ({','.join(entries)})", metadata_only=True)
        return tuple(set(entries) - {node["metadata"]["labels"][label] for node in nodes})

    def _apply(self, path: str, entries: t.Mapping[str, t.Any], lease: Lease | None, *, dry_run: bool = False) -> None:
        if lease is not None:
            lease.check()
        name = path.rpartition("/")[2]
        metadata: dict[str, t.Any] = {"name": name, "namespace": self._plan.config.namespace}
        if name in (DEVICE_PLUGIN_CONFIGMAP, MIG_CONFIGMAP):
            metadata["labels"] = {"app.kubernetes.io/managed-by": FIELD_MANAGER}
        data = {mig_parted.KEY: mig_parted.render_configuration(entries)} if path == self._mig else dict(entries)
        self._client.apply(
            path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}, dry_run=dry_run
        )
