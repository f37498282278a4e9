# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts a node's labels, the ClusterPolicy and two ConfigMaps to the `sharing` of a pool; fails if no exact equivalent exists (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog import mig as geometries
from ..catalog.names import CONFIG_LABEL, GPU_RESOURCE, MIG_CONFIG_LABEL, MIG_INFIX
from ..cluster_state.cluster_policy import plugin_configmap, recorded_tolerations
from ..common.nested import get_nested, set_nested
from ..mig import layout as mig
from ..nvidia_config import device_plugin, mig_parted, yaml_text
from ..pools.variables import merge
from ..schema.messages import is_whole
from ..schema.pool import plugin_setting_field
from ..sharing_modes.modes import MODES, find_mode
from ..sharing_modes.plugin_settings import SETTINGS, setting_paths
from ..sharing_modes.sharing import Sharing, sharing_of

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..sharing_modes.base import SharingMode

Document = dict[str, t.Any]
Object = t.Mapping[str, t.Any]
# The `sharing` of a pool, and `gpus_per_node` if the layout depends on this number.
NodeSharing = tuple[Document, "int | None"]

_PREFIX = "nvidia.com/"
# The modes that share whole GPUs, by section of the plugin's configuration. The sharing of MIG devices is configured in
# the time-slicing section.
_MODES = {mode.plugin_key: mode for mode in MODES.values() if mode.plugin_key and not mode.partitions_gpus}


class Inexpressible(Exception):
    """Raised for a configuration that no pool can declare; the message is the reason."""


class ExportedLayout(t.NamedTuple):
    """A layout in the format of a pool (None: whole GPUs), and the number of GPUs of a node if the layout depends on it."""

    layout: t.Any = None
    gpus_per_node: int | None = None


@dataclass(frozen=True)
class LiveConfig:
    """The active ClusterPolicy and the ConfigMaps that it refers to; None for an object that does not exist."""

    policy: Object | None = None
    plugin: Object | None = None
    mig: Object | None = None

    @property
    def tolerations(self) -> list[dict[str, t.Any]]:
        """The tolerations that this collection has added to the ClusterPolicy for pools."""
        return (recorded_tolerations(self.policy) if self.policy else None) or []

    def node_sharing(self, node: Node) -> NodeSharing:
        """The `sharing` that a pool must declare for this node, and the node's number of GPUs if the layout depends on it; raises Inexpressible."""
        exported = self._layout(node)
        strategy = str(get_nested(self.policy, "spec", "mig", "strategy") or "")
        sharing = export_sharing(self._plugin_config(node), exported.layout, "" if strategy == "none" else strategy)
        return sharing, exported.gpus_per_node

    def _plugin_config(self, node: Node) -> t.Any:
        """The device plugin's configuration of the node; without a ConfigMap, the node's label has no effect."""
        if not plugin_configmap(self.policy):
            return {"version": "v1"}
        name = node.labels.get(CONFIG_LABEL) or get_nested(self.policy, "spec", "devicePlugin", "config", "default")
        if not name:
            return {"version": "v1"}
        data = (self.plugin or {}).get("data") or {}
        if name not in data:
            raise Inexpressible(
                f"its label selects the configuration {name}, which the device plugin's ConfigMap does not contain"
            )
        # The plugin reads an empty file as a configuration without settings.
        return {} if yaml_text.is_empty(data[name]) else yaml_text.parse(data[name])

    def _layout(self, node: Node) -> ExportedLayout:
        name = node.mig_config
        if not name or name == mig_parted.DISABLED:
            if node.mig_devices:
                raise Inexpressible(f"its GPUs are partitioned, but not by its label {MIG_CONFIG_LABEL}")
            return ExportedLayout()
        model = node.catalog_model
        geometry = geometries.geometry(model.key) if model else None
        usual = mig_parted.default_entries([(model.pci_ids, geometry)] if model and geometry else [])
        entries = {**usual, **mig_parted.parse_configmap(self.mig)}
        if name not in entries:
            raise Inexpressible(
                f"its label selects the MIG configuration {name}, which the MIG manager's ConfigMap does not contain"
            )
        gpus = node.recorded_gpus or (0 if MIG_INFIX in node.product else node.gpus)
        return export_layout(entries[name], gpus, model.pci_ids if model else ())


def export_sharing(content: t.Any, layout: t.Any = None, strategy: str = "") -> Document:
    """The `sharing` that results in this device plugin configuration and MIG layout; raises Inexpressible.

    `content` is the plugin's configuration as parsed YAML, `layout` the layout of the node's GPUs in the format of a pool (None: whole GPUs),
    and `strategy` the ClusterPolicy's strategy, which overrides the strategies in all configurations.
    """
    _check_structure(content)
    plugin_key, shares = _export_shares(content)
    mode = find_mode(plugin_key, partitioned=layout is not None)
    if mode is None:
        raise Inexpressible(f"it has {_MODES[plugin_key].name} on MIG devices, which NVIDIA's device plugin rejects")
    partitioning = {} if layout is None else {"layout": layout, **_export_strategy(content, layout, strategy)}
    sharing: Document = {"mode": mode.name, **partitioning, **shares, **_export_settings(content, mode, plugin_key)}
    declared = sharing_of(sharing)
    derived = device_plugin.config(declared)
    if strategy and mode.partitions_gpus:
        # The ClusterPolicy's strategy overrides the file's strategy, and is removed once the pool declares it.
        content = {**content, "flags": {**(content.get("flags") or {}), "migStrategy": strategy}}
    if _normalize(content, declared) != _normalize(derived, declared):
        raise Inexpressible(f"no pool can declare its device plugin configuration {_differences(content, derived)}")
    return sharing


def _check_structure(content: t.Any) -> None:
    """Raise Inexpressible for content with which the plugin would not start; this check is necessary because a foreign file may contain anything."""
    maps: list[t.Any] = [content]
    if isinstance(content, dict):
        maps += [content.get(key) or {} for key in ("flags", "sharing")]
        maps += [part or {} for part in maps[-1].values()] if isinstance(maps[-1], dict) else []
    if any(not isinstance(item, dict) or not all(isinstance(key, str) for key in item) for item in maps):
        raise Inexpressible("its device plugin configuration, or a part of it, is not a map")
    for part in (content.get("sharing") or {}).values():
        resources = (part or {}).get("resources") or []
        if not isinstance(resources, list) or not all(
            isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in resources
        ):
            raise Inexpressible("the resources of its device plugin configuration are not a list of maps with names")


def _export_shares(content: Document) -> tuple[str, Document]:
    """The name of the section that shares the GPUs (empty if there is none), and its replicas in the format of `sharing`."""
    sections = content.get("sharing") or {}
    parts = {mode: sections[key] for key, mode in _MODES.items() if sections.get(key)}
    if not parts:
        return "", {}
    if len(parts) > 1:
        raise Inexpressible(f"its device plugin configuration has both {' and '.join(mode.name for mode in parts)}")
    ((mode, part),) = parts.items()
    counts = [entry.get("replicas") for entry in part.get("resources") or ()]
    if not counts or any(not is_whole(count) or count < 2 or count != counts[0] for count in counts):
        raise Inexpressible("its resources have different replicas, or none")
    return mode.plugin_key, {"replicas": counts[0]}


def _export_settings(content: Document, mode: SharingMode, plugin_key: str) -> Document:
    """The plugin's settings that differ from the defaults of `sharing`, without values that no pool can declare."""
    exported: Document = {}
    for key, path in setting_paths(mode.name, plugin_key).items():
        value, setting, plugin_default = get_nested(content, *path), SETTINGS[key], mode.plugin_default(key)
        value = plugin_default if value is None else value
        # If the default of a setting is None, the setting is not written by default, so the plugin's own default applies.
        unset = plugin_default if setting.default is None else setting.default
        if key in mode.options and value != unset and not any(plugin_setting_field(setting).problems(value, key)):
            exported[key] = value
    return exported


def _export_strategy(content: Document, layout: t.Any, override: str) -> Document:
    """The MIG strategy in the format of `sharing`; empty if it is the layout's default."""
    strategy = override or (content.get("flags") or {}).get("migStrategy") or ""
    if strategy not in mig.STRATEGIES:
        raise Inexpressible("its GPUs are partitioned, but its device plugin has no MIG strategy")
    return {} if strategy == mig.strategy_for(mig.parse_layout(layout)) else {"strategy": strategy}


def _normalize(content: Document, declared: Sharing) -> Document:
    """The configuration with explicit defaults and full resource names, for comparisons."""
    flags = {
        key: value
        for key, value in device_plugin.effective_flags(content.get("flags") or {}).items()
        if value not in ("none", "")
    }
    if not declared.definition.partitions_gpus:
        # The strategy has no effect on whole GPUs.
        flags.pop("migStrategy", None)
    mode = declared.definition
    defaults: Document = {}
    for key, path in setting_paths(mode.name, mode.plugin_key if declared.shared else "").items():
        set_nested(defaults, path, mode.plugin_default(key))
    explicit: Document = {
        **{key: value for key, value in _effective_sections(content).items() if key not in ("flags", "sharing")},
        "version": content.get("version") or "v1",
        "flags": flags,
        "sharing": {
            key: _normalize_part(part) if key in _MODES else part
            for key, part in (content.get("sharing") or {}).items()
            if part
        },
    }
    return t.cast("Document", merge(defaults, explicit))


def _effective_sections(content: Document) -> Document:
    """The sections of a configuration without those that have no effect on the plugin."""
    imex = content.get("imex")
    # The plugin ignores `resources` (k8s-device-plugin api/config/v1/config.go, DisableResourceNamingInConfig), and without channels nothing is injected.
    without_effect = {"resources", *(["imex"] if isinstance(imex, dict) and not any(imex.values()) else [])}
    return {key: value for key, value in content.items() if value and key not in without_effect}


def _normalize_part(part: Document) -> Document:
    resources = [
        {
            **{key: value for key, value in entry.items() if (key, value) != ("devices", "all")},
            "name": f"{_PREFIX}{entry['name'].removeprefix(_PREFIX)}",
        }
        for entry in part.get("resources") or ()
    ]
    return {
        **{key: value for key, value in part.items() if value is not None},
        "resources": sorted(resources, key=lambda entry: entry["name"]),
    }


def _differences(content: Document, derived: Document) -> str:
    """The names of the differing parts in parentheses, or "exactly" if there are none; the text is part of a sentence."""
    sections = content.get("sharing") or {}
    shared: Document = next((sections[key] for key in _MODES if sections.get(key)), {})
    resources = [entry["name"] for entry in shared.get("resources") or ()]
    names = sorted({*_effective_sections(content)} - {"version", "flags", "sharing"})
    flags = device_plugin.effective_flags(content.get("flags") or {})
    names += [f"flags.{flag}" for flag in sorted({*flags} - {"migStrategy"})]
    if not names and resources and resources != [GPU_RESOURCE] and "flags" not in derived:
        names = [f"sharing of {', '.join(resources)}"]
    return f"({', '.join(names)})" if names else "exactly"


def export_layout(entry: t.Any, gpus: int, pci_ids: t.Collection[str]) -> ExportedLayout:
    """Convert a MIG configuration to the layout of a node with this number of GPUs and these PCI ids; raises Inexpressible.

    If possible, the result is a layout from which the same entry is derived.
    """
    if not isinstance(entry, list) or not all(mig_parted.is_valid_part(part) for part in entry):
        raise Inexpressible("the MIG manager cannot read its MIG configuration")
    parts = [part for part in entry if _concerns(part, pci_ids)]
    if any(part.get("mig-enabled") and not part.get("mig-devices") for part in parts):
        raise Inexpressible("MIG is enabled without any device")
    if not any(part.get("mig-enabled") for part in parts):
        return ExportedLayout()
    if len(parts) == 1 and parts[0].get("devices") == "all":
        return ExportedLayout(dict(sorted(parts[0]["mig-devices"].items())))
    if not gpus:
        raise Inexpressible("its layout differs by GPU, and its number of GPUs before the partitioning is unknown")
    try:
        by_gpu = mig_parted.layouts_by_gpu(parts, gpus)
    except KeyError as error:
        raise Inexpressible(f"its MIG configuration contains GPU {error}, but the node has only {gpus}") from error
    layouts = list(by_gpu.values())
    if all(layout == layouts[0] for layout in layouts) and any(part["devices"] == "all" for part in parts):
        return ExportedLayout(by_gpu[0])
    # The entry that is derived from a layout depends on whether whole GPUs are listed or omitted, so all forms are compared
    # with the existing entry.
    partitioned = {index: layout for index, layout in by_gpu.items() if layout}
    before_last = {index: by_gpu[index] for part in parts[:-1] if part["devices"] != "all" for index in part["devices"]}
    for candidate in (partitioned, by_gpu, before_last):
        if mig_parted.entry(mig.parse_layout(candidate), gpus) == list(entry):
            return ExportedLayout(candidate, gpus)
    return ExportedLayout(partitioned, gpus)


def _concerns(part: t.Mapping[str, t.Any], pci_ids: t.Collection[str]) -> bool:
    if mig_parted.device_filter(part) and not pci_ids:
        raise Inexpressible("its MIG configuration filters by PCI ids, and the catalog does not contain its model")
    return mig_parted.applies_to(part, {mig_parted.device_id(pci_id) for pci_id in pci_ids})
