# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the pools of an existing cluster as variables (pure)."""

from __future__ import annotations

import functools
import itertools
import json
import re
import typing as t
from collections import defaultdict
from dataclasses import dataclass, field

from ..catalog import mig as geometries
from ..catalog import models
from ..catalog.names import (
    CONFIG_LABEL,
    DISCOVERY_DEPLOY_LABEL,
    DRIVER_ANNOTATION,
    GPU_RESOURCE,
    INSTANCE_TYPE_LABELS,
    MIG_CONFIG_LABEL,
    MIG_INFIX,
    NODE_GROUP_LABELS,
    OPERANDS_LABEL,
    POOL_LABEL,
    PRODUCT_LABEL,
    VOLATILE_LABELS,
    WORKLOAD_LABEL,
    ZONE_LABELS,
)
from ..catalog.taints import STARTUP_TAINT, format_taint, toleration_of
from ..core import yaml_text
from ..core.messages import abbreviate, field_path, is_whole
from ..core.values import Document, Object, get_nested, parse_json, set_nested
from ..gpu_operator.cluster_policy import is_managed_driver, plugin_configmap, recorded_tolerations
from ..nodes.node_check import is_gpu_resource
from ..nodes.ownership import POOL_OWNER, recorded
from ..nodes.pool_edit import recorded_rollout_settings
from ..schema import validators
from ..schema.pool import plugin_setting_field
from ..schema.validators import is_for_users, reason_without_discovery
from ..schema.variables import merge, validate
from ..sharing_modes import mig, mig_parted
from ..sharing_modes.modes import (
    MODES,
    SETTINGS,
    TIME_SLICING,
    Sharing,
    device_plugin_config,
    effective_flags,
    find_mode,
    setting_paths,
    sharing_of,
)

if t.TYPE_CHECKING:
    from ..nodes.node import Node
    from ..sharing_modes.modes import SharingMode

# Converts a node's labels, the ClusterPolicy and two ConfigMaps to the `sharing` of a pool; fails if no exact equivalent exists (pure).

# The `sharing` of a pool, and `gpus_per_node` if the layout depends on this number.
NodeSharing = tuple[Object, "int | None"]

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

    policy: Document | None = None
    plugin: Document | None = None
    mig: Document | None = None

    @property
    def tolerations(self) -> list[dict[str, t.Any]]:
        """The tolerations that this collection has added to the ClusterPolicy for pools."""
        return (recorded_tolerations(self.policy) if self.policy else None) or []

    def node_sharing(self, node: Node) -> NodeSharing:
        """The `sharing` that a pool must declare for this node, and the node's number of GPUs if the layout depends on it; raises Inexpressible."""
        exported = self._layout(node)
        strategy = str(get_nested(self.policy, "spec", "mig", "strategy") or "")
        override = "" if strategy == "none" else strategy
        sharing = export_sharing(self._plugin_config(node), exported.layout, override, exported.gpus_per_node or 0)
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
        return {} if yaml_text.is_empty_yaml(data[name]) else yaml_text.parse_yaml(data[name])

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


def export_sharing(content: t.Any, layout: t.Any = None, strategy: str = "", gpus: int = 0) -> Object:
    """The `sharing` that results in this device plugin configuration and MIG layout; raises Inexpressible.

    `content` is the plugin's configuration as parsed YAML, `layout` the layout of the node's GPUs in the format of a pool (None: whole GPUs),
    and `strategy` the ClusterPolicy's strategy, which overrides the strategies in all configurations. `gpus` is the node's number of GPUs if the layout
    depends on it.
    """
    _check_structure(content)
    content = _with_effective_shares(content, _shareable(content, layout, strategy, gpus))
    plugin_key, shares = _export_shares(content)
    mode = find_mode(plugin_key, partitioned=layout is not None)
    if mode is None:
        raise Inexpressible(f"it has {_MODES[plugin_key].name} on MIG devices, which NVIDIA's device plugin rejects")
    partitioning = {} if layout is None else {"layout": layout, **_export_strategy(content, layout, strategy)}
    sharing: Object = {"mode": mode.name, **partitioning, **shares, **_export_settings(content, mode, plugin_key)}
    declared = sharing_of(sharing)
    derived = device_plugin_config(declared)
    if strategy and mode.partitions_gpus:
        # The ClusterPolicy's strategy overrides the file's strategy, and is removed once the pool declares it.
        content = {**content, "flags": {**(content.get("flags") or {}), "migStrategy": strategy}}
    if _normalize(content, declared) != _normalize(derived, declared):
        differing = _differences(content, _normalize(content, declared), _normalize(derived, declared))
        raise Inexpressible(f"no pool can declare its device plugin configuration {differing}")
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


def _shareable(content: Object, layout: t.Any, strategy: str, gpus: int) -> set[str]:
    """The resources of a node with this layout, under the names in the plugin's configuration; the arguments are those of export_sharing()."""
    strategy = strategy or (content.get("flags") or {}).get("migStrategy") or ""
    if layout is None or strategy != mig.MIXED:
        return {GPU_RESOURCE}
    parts = mig.parse_layout(layout)
    partitioned = {index for part in parts if part.profiles for index in part.devices}
    has_whole_gpus = all(part.devices for part in parts) and len(partitioned) < gpus
    # The plugin offers the devices of a profile with extras under the name of the plain profile if the device's name lacks the extras.
    names = {mig.resource(name) for profile in mig.profiles(parts) for name in (profile, mig.plain(profile))}
    return {*names, *([GPU_RESOURCE] if has_whole_gpus else [])}


def _with_effective_shares(content: Object, shareable: t.Collection[str]) -> Object:
    """The configuration without time-slicing of resources that the node does not have, such as whole GPUs if all of them are partitioned.

    Guides list all resources of a cluster in one configuration, and the plugin ignores those that a node does not have.
    """
    sections = content.get("sharing") or {}
    part = sections.get(TIME_SLICING.plugin_key) or {}
    entries = part.get("resources") or []
    kept = [entry for entry in entries if _full_name(entry) in shareable]
    if len(kept) == len(entries):
        return content
    others = {key: value for key, value in sections.items() if key != TIME_SLICING.plugin_key}
    return {
        **content,
        "sharing": {**others, **({TIME_SLICING.plugin_key: {**part, "resources": kept}} if kept else {})},
    }


def _full_name(entry: Object) -> str:
    """The name of the shared resource; the plugin adds the prefix if it is missing."""
    return f"{_PREFIX}{entry['name'].removeprefix(_PREFIX)}"


def _export_shares(content: Object) -> tuple[str, Object]:
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


def _export_settings(content: Object, mode: SharingMode, plugin_key: str) -> Object:
    """The plugin's settings that differ from the defaults of `sharing`, without values that no pool can declare."""
    exported: Object = {}
    for key, path in setting_paths(mode.name, plugin_key).items():
        value, setting, plugin_default = get_nested(content, *path), SETTINGS[key], mode.plugin_default(key)
        value = plugin_default if value is None else value
        # If the default of a setting is None, the setting is not written by default, so the plugin's own default applies.
        unset = plugin_default if setting.default is None else setting.default
        if key in mode.options and value != unset and not any(plugin_setting_field(setting).problems(value, key)):
            exported[key] = value
    return exported


def _export_strategy(content: Object, layout: t.Any, override: str) -> Object:
    """The MIG strategy in the format of `sharing`; empty if it is the layout's default, and the ClusterPolicy sets none.

    With the ClusterPolicy's strategy in each pool, another layout keeps the names of the resources, and the ClusterPolicy keeps its strategy.
    """
    strategy = override or (content.get("flags") or {}).get("migStrategy") or ""
    if strategy not in mig.STRATEGIES:
        raise Inexpressible("its GPUs are partitioned, but its device plugin has no MIG strategy")
    is_default = strategy == mig.strategy_for(mig.parse_layout(layout))
    return {} if is_default and not override else {"strategy": strategy}


def _normalize(content: Object, declared: Sharing) -> Object:
    """The configuration with explicit defaults and full resource names, for comparisons."""
    flags = {
        key: value for key, value in effective_flags(content.get("flags") or {}).items() if value not in ("none", "")
    }
    if not declared.definition.partitions_gpus:
        # The strategy has no effect on whole GPUs.
        flags.pop("migStrategy", None)
    mode = declared.definition
    defaults: Object = {}
    for key, path in setting_paths(mode.name, mode.plugin_key if declared.shared else "").items():
        set_nested(defaults, path, mode.plugin_default(key))
    explicit: Object = {
        **{key: value for key, value in _effective_sections(content).items() if key not in ("flags", "sharing")},
        "version": content.get("version") or "v1",
        "flags": flags,
        "sharing": {
            key: _normalize_part(part) if key in _MODES else part
            for key, part in (content.get("sharing") or {}).items()
            if part
        },
    }
    return t.cast("Object", merge(defaults, explicit))


def _effective_sections(content: Object) -> Object:
    """The sections of a configuration without those that have no effect on the plugin."""
    imex = content.get("imex")
    # The plugin ignores `resources` (k8s-device-plugin api/config/v1/config.go, DisableResourceNamingInConfig), and without channels nothing is injected.
    without_effect = {"resources", *(["imex"] if isinstance(imex, dict) and not any(imex.values()) else [])}
    return {key: value for key, value in content.items() if value and key not in without_effect}


def _normalize_part(part: Object) -> Object:
    resources = [
        {
            **{key: value for key, value in entry.items() if (key, value) != ("devices", "all")},
            "name": _full_name(entry),
        }
        for entry in part.get("resources") or ()
    ]
    return {
        **{key: value for key, value in part.items() if value is not None},
        "resources": sorted(resources, key=lambda entry: entry["name"]),
    }


def _differences(content: Object, actual: Object, derived: Object) -> str:
    """The names of the differing parts in parentheses, or "exactly" if there are none; the text is part of a sentence.

    `content` is the configuration; `actual` and `derived` are the normalized configurations.
    """
    names = sorted({*_effective_sections(content)} - {"version", "flags", "sharing"})
    flags = effective_flags(content.get("flags") or {})
    names += [f"flags.{flag}" for flag in sorted({*flags} - {"migStrategy"})]
    sections, declarable = actual.get("sharing") or {}, derived.get("sharing") or {}
    for key in sorted({*sections, *declarable}) if not names else ():
        names += _differing_shares(f"sharing.{key}", sections.get(key), declarable.get(key))
    return f"({', '.join(names)})" if names else "exactly"


def _differing_shares(path: str, actual: t.Any, derived: t.Any) -> list[str]:
    """The options and resources that differ between two normalized sections of `sharing`."""
    if actual == derived:
        return []
    if not isinstance(actual, dict) or not isinstance(derived, dict):
        return [path]
    options = [key for key in sorted({*actual, *derived} - {"resources"}) if actual.get(key) != derived.get(key)]
    listed, declarable = actual.get("resources") or [], derived.get("resources") or []
    resources = {item["name"] for item in (*listed, *declarable) if item not in listed or item not in declarable}
    return [
        *(f"{path}.{key}" for key in options),
        *([f"{path}.resources of {', '.join(sorted(resources))}"] if resources else []),
    ]


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


# Converts the GPU nodes of a cluster to pools: one for each pool label, and one for each group of equal nodes without a pool label (pure).

Tolerations = t.Sequence[t.Mapping[str, t.Any]]

_SEPARATORS = re.compile(r"[^a-z0-9]+")
_MAX_NAME = 40
# A problem of a pool: its path begins with the index of the pool and a key.
_POOL_PROBLEM = re.compile(
    r"gpu_pools\[(?P<index>\d+)\](?:\.(?P<path>(?P<key>\w+)(?:\['.*?'\]|[^\s:'])*))?(?P<reason>.*)", re.DOTALL
)
# The keys without which the nodes of a pool and their sharing are the same.
_OPTIONAL = ("labels", "taints", "rollout", "driver", "startup_taint", "gpus_per_node")
# The keys of a pool, in their order in the exported file.
_KEYS = ("match", "gpus_per_node", "labels", "taints", "rollout", "sharing")


@dataclass
class ExportedPools:
    """Pools in the format of gpu_pools, and remarks about settings that are not exported."""

    pools: list[Object] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    # The names of the pools that this collection has set on nodes. A run with variables that lack one of them would release its nodes.
    managed: set[str] = field(default_factory=set, compare=False)


@dataclass(frozen=True)
class _Member:
    """A node; if its sharing is unknown, `sharing` is None and `problem` contains the reason."""

    node: Node
    sharing: NodeSharing | None
    taints: tuple[Object, ...]
    problem: str = ""

    @property
    def group_key(self) -> str:
        """A key that is the same for all nodes that can be in one pool."""
        return json.dumps([self.sharing, sorted(map(format_taint, self.taints))], sort_keys=True)

    @property
    def sharing_fields(self) -> Object:
        """The keys of a pool that declare the node's sharing; empty if the sharing is unknown."""
        if self.sharing is None:
            return {}
        sharing, gpus = self.sharing
        return {**({"gpus_per_node": gpus} if gpus else {}), "sharing": sharing}


def add_drivers(exported: ExportedPools, drivers: t.Iterable[t.Mapping[str, t.Any]]) -> None:
    """Add to each pool the driver that is recorded in its NVIDIADriver object; foreign objects are reported in remarks."""
    by_name = {pool["name"]: pool for pool in exported.pools}
    for item in drivers:
        name = item["metadata"]["name"]
        if not is_managed_driver(item):
            exported.remarks.append(
                f"NVIDIADriver {name}: not exported, because this collection did not create it; it is not changed"
            )
            continue
        pool = by_name.get(get_nested(item, "spec", "nodeSelector", POOL_LABEL))
        driver = parse_json((item["metadata"].get("annotations") or {}).get(DRIVER_ANNOTATION), dict)
        if pool is not None and driver is not None:
            pool["driver"] = driver


def export_pools(
    nodes: t.Sequence[Node], node_sharing: t.Callable[[Node], NodeSharing], tolerations: Tolerations
) -> ExportedPools:
    """Convert the GPU nodes to pools. `node_sharing` returns a node's sharing or raises Inexpressible.

    `tolerations` contains the ClusterPolicy's tolerations for the pools' taints.
    """
    exported = ExportedPools()
    labeled: dict[str, list[_Member]] = defaultdict(list)
    grouped: dict[tuple[str, str], list[_Member]] = defaultdict(list)
    left_out: dict[str, list[str]] = defaultdict(list)
    # By model, the pool labels of its nodes; the empty string stands for a node without the label, and None for a node that is not exported.
    pools_of_model: dict[str, set[str | None]] = defaultdict(set)
    for node in nodes:
        if node.discovered:
            pools_of_model[_model(node)].add(node.labels.get(POOL_LABEL, ""))
    # A node with a pool label is exported even if it is currently not recognized as a GPU node, because a run releases the nodes of undeclared pools.
    # The same applies to a node that offers GPUs without a label of NVIDIA: it is named in a remark.
    for node in sorted(
        (node for node in nodes if node.has_gpu or node.pin or _offers_gpus(node)), key=lambda node: node.name
    ):
        member = _member(node, node_sharing, tolerations)
        if node.pin:
            labeled[node.pin].append(member)
        elif member.problem:
            left_out[member.problem].append(node.name)
            if node.discovered:
                pools_of_model[_model(node)].add(None)
        else:
            grouped[_model(node), member.group_key].append(member)
    exported.remarks += [
        f"{abbreviate(names)}: not exported, because {reason}" for reason, names in sorted(left_out.items())
    ]
    for pool, members in sorted(labeled.items()):
        discovered = [member for member in members if member.node.discovered]
        pool_models = {_model(member.node) for member in discovered}
        only = len(pool_models) == 1 and all(pools_of_model[model] == {pool} for model in pool_models)
        managed = any(map(_is_managed, members))
        _add_labeled_pool(exported, pool, discovered or members, managed=managed, only_pool_of_model=only)
    exported.managed = {pool for pool, members in labeled.items() if any(_is_managed(each) for each in members)}
    taken = set(labeled)
    for (model, key), members in sorted(grouped.items()):
        rivals = [
            member.node
            for (other, other_key), group in grouped.items()
            if other == model and other_key != key
            for member in group
        ]
        name = _pool_name(model, members[0], taken, several=bool(rivals))
        _add_group(exported, name, members, rivals, without_labeled_nodes=pools_of_model[model] == {""})
    _add_startup_taint(exported, tolerations)
    return exported


def _member(node: Node, node_sharing: t.Callable[[Node], NodeSharing], tolerations: Tolerations) -> _Member:
    taints = _pool_taints(node, tolerations, labeled=bool(node.pin))
    if not node.discovered:
        return _Member(node, None, taints, _undiscovered_reason(node))
    try:
        member = _Member(node, node_sharing(node), taints)
    except Inexpressible as reason:
        return _Member(node, None, taints, str(reason))
    if problem := _rejection(json.dumps({"match": _match(node), **member.sharing_fields})):
        return _Member(node, None, taints, f"the variables do not allow its sharing: {problem}")
    return member


def _undiscovered_reason(node: Node) -> str:
    """Why gpu-feature-discovery has not labeled the node, so that its GPUs are unknown, and how to include the node if a label is the cause."""
    reason = reason_without_discovery(node.labels)
    if not reason:
        return "gpu-feature-discovery has not labeled it"
    key = next((key for key in (OPERANDS_LABEL, DISCOVERY_DEPLOY_LABEL) if node.labels.get(key) == "false"), "")
    if key == OPERANDS_LABEL:
        reason = f"label {key}=false stops all operands of the GPU operator there, so its GPUs are unknown"
    if not key and node.labels.get(WORKLOAD_LABEL):
        key = WORKLOAD_LABEL
    if not key:
        return reason
    return (
        f"{reason}. To include it, remove the label (kubectl label node NODE {key}-), wait until gpu-feature-discovery has labeled the node, and "
        "export again"
    )


def _offers_gpus(node: Node) -> bool:
    return any(count and is_gpu_resource(name) for name, count in node.capacity.items())


def _is_managed(member: _Member) -> bool:
    return bool(recorded(member.node, POOL_OWNER))


@functools.lru_cache(maxsize=1024)
def _rejection(fields: str) -> str:
    """The reason why the plan rejects a pool with these fields (JSON); empty if it accepts the pool."""
    # In JSON, the indices of the GPUs in a layout are strings, which the variables allow, too.
    problems = validate({"name": "any"}, {}, [{"name": "any", **json.loads(fields)}])
    return problems[0].removeprefix("gpu_pools[0].") if problems else ""


def leave_out_rejected(cluster: Object, exported: ExportedPools) -> None:
    """Remove from the pools everything that the plan rejects, with the reason as a remark. Problems of `cluster` remain.

    The name, and what determines the nodes of a pool without a label, cannot be removed, so the pool is not exported. A managed pool is kept whenever this is
    possible, because a run would release its nodes.
    """
    order = [pool["name"] for pool in exported.pools]
    # Managed pools are read first, so that a contradiction between two pools is reported for the other pool.
    exported.pools.sort(key=lambda pool: pool["name"] not in exported.managed)
    # Each pool is first validated alone, so that the other pools are not validated again for each of its rejected entries.
    for checked in [*([pool] for pool in exported.pools), exported.pools]:
        while match := next(filter(None, map(_POOL_PROBLEM.match, validate(cluster, {}, checked))), None):
            _leave_out(exported, checked[int(match["index"])], match)
            checked[:] = [pool for pool in checked if pool in exported.pools]
    exported.pools.sort(key=lambda pool: order.index(pool["name"]))


def _leave_out(exported: ExportedPools, pool: Object, match: re.Match[str]) -> None:
    """Remove from the pool what a problem concerns, or the pool from the export."""
    key, reason = match["key"], match["path"] + match["reason"]
    if key in ("labels", "taints") and (rejected := _rejected_entry(pool, key, match["path"])) is not None:
        del pool[key][rejected]
        _remove_empty(pool, key)
        effect = f"a value of {key} is not exported"
    elif key in pool and (key in _OPTIONAL or (key in ("match", "sharing") and pool["name"] in exported.managed)):
        del pool[key]
        effect = f"without {key}"
    else:
        exported.pools.remove(pool)
        effect = "not exported"
    exported.remarks.append(f"pool {pool['name']}: {effect}, because the variables do not allow it: {reason}")


def _rejected_entry(pool: Object, key: str, path: str) -> t.Any:
    """The key of the label, or the index of the taint, that a problem with this path concerns; None if it concerns all of them."""
    entries = pool.get(key)
    paths = {
        each: field_path(key, each) for each in (entries if isinstance(entries, dict) else range(len(entries or ())))
    }
    matching = [each for each, text in paths.items() if path == text or path.startswith((f"{text}.", f"{text}["))]
    return max(matching, key=lambda each: len(paths[each]), default=None)


def _remove_empty(pool: Object, key: str) -> None:
    if not pool[key]:
        del pool[key]


def _add_startup_taint(exported: ExportedPools, tolerations: Tolerations) -> None:
    """Add the startup taint if the ClusterPolicy tolerates it, because verified nodes no longer have this taint."""
    if toleration_of(STARTUP_TAINT) not in tolerations:
        return
    unclear = [pool["name"] for pool in exported.pools if "sharing" not in pool]
    if unclear:
        exported.remarks.append(
            f"startup_taint: it is unknown whether the pools without sharing declare it: {abbreviate(unclear)}"
        )
    mig_pools = [
        pool for pool in exported.pools if "sharing" in pool and MODES[pool["sharing"]["mode"]].partitions_gpus
    ]
    for pool in mig_pools:
        pool["startup_taint"] = True
    if len(mig_pools) > 1:
        names = abbreviate([pool["name"] for pool in mig_pools])
        exported.remarks.append(
            f"startup_taint: it is unknown which of the pools {names} declare it, so it is exported for all of them"
        )


def _add_labeled_pool(
    exported: ExportedPools, name: str, members: list[_Member], *, managed: bool, only_pool_of_model: bool
) -> None:
    if validators.dns_label(name):
        exported.remarks.append(f"pool {name}: not exported, because its name is not a DNS label")
        return
    unclear = _unclear_sharing(members)
    # If a managed pool were not exported, a run would release its nodes. Without `sharing`, a run refuses to change the sharing of the pool's nodes.
    if unclear:
        exported.remarks.append(f"pool {name}: {'without sharing' if managed else 'not exported'}, because {unclear}")
        if not managed:
            return
    match = _match(members[0].node) if only_pool_of_model else {}
    if not match:
        exported.remarks.append(
            f"pool {name}: without match, because no GPU model distinguishes its nodes; the label {POOL_LABEL} assigns them"
        )
    labels = _common(exported, name, "labels", [_pool_labels(member.node) for member in members])
    taints = _common(
        exported, name, "taints", [{format_taint(taint): taint for taint in member.taints} for member in members]
    )
    rollout = _rollout(exported, name, [member.node for member in members])
    sharing = {} if unclear else members[0].sharing_fields
    metadata = {"match": match, "labels": labels, "taints": list(taints.values()), "rollout": rollout}
    exported.pools.append(_pool(name, {**metadata, **sharing}))


def _unclear_sharing(members: list[_Member]) -> str:
    """The reason why one declaration cannot describe all nodes, with the sharing of each node; empty if all nodes are shared in the same way."""
    ways: dict[str, list[str]] = defaultdict(list)
    texts: dict[str, str] = {}
    problems: dict[str, list[str]] = defaultdict(list)
    for member in members:
        if member.problem:
            problems[member.problem].append(member.node.name)
        else:
            way = json.dumps(member.sharing_fields, sort_keys=True)
            ways[way].append(member.node.name)
            # The text is valid YAML, because no key or value needs quotes.
            texts.setdefault(way, json.dumps(member.sharing_fields).replace('"', "")[1:-1])
    if len(ways) == 1 and not problems:
        return ""
    reason = (
        f"its nodes are shared in {len(ways)} different ways"
        if len(ways) > 1
        else "the sharing of some of its nodes is not known"
    )
    reasons = [
        f"{abbreviate(names)} {'has' if len(names) == 1 else 'have'} {texts[way]}" for way, names in ways.items()
    ]
    reasons += [f"{abbreviate(names)} cannot be described, because {problem}" for problem, names in problems.items()]
    return f"{reason}: {'; '.join(reasons)}"


def _rollout(exported: ExportedPools, pool: str, nodes: list[Node]) -> Object:
    """The settings of `rollout` that are recorded on the nodes of the pool; if the records differ, the result is empty and a remark is added."""
    recorded_settings = [recorded_rollout_settings(node) for node in nodes]
    if all(settings == recorded_settings[0] for settings in recorded_settings):
        return recorded_settings[0]
    exported.remarks.append(f"pool {pool}: without rollout, because its nodes have different records of it")
    return {}


def _add_group(
    exported: ExportedPools, name: str, members: list[_Member], rivals: list[Node], *, without_labeled_nodes: bool
) -> None:
    nodes = [member.node for member in members]
    label = _distinguishing_label(nodes, rivals) if rivals else {}
    match: Object = {}
    if without_labeled_nodes and (label or not rivals):
        match = merge(_match(nodes[0]), {"labels": label} if label else {})
    else:
        exported.remarks.append(
            f"pool {name}: only a pool label can distinguish its nodes from others of their model: "
            f"kubectl label nodes {' '.join(node.name for node in nodes)} {POOL_LABEL}={name}"
        )
    metadata = {"match": match, "taints": list(members[0].taints)}
    exported.pools.append(_pool(name, {**metadata, **members[0].sharing_fields}))


def _pool(name: str, fields: Object) -> Object:
    """A pool with the fields that are not empty."""
    return {"name": name, **{key: fields[key] for key in _KEYS if fields.get(key)}}


def _model(node: Node) -> str:
    """The catalog's key of the node's GPU model, or GFD's product name if the catalog does not contain the model."""
    model = models.find(node.product)
    return model.key if model else models.bare_product(node.product)


def _match(node: Node) -> Object:
    model = _model(node)
    return {"model": model} if models.find(model) else {"labels": {PRODUCT_LABEL: model}}


def _pool_labels(node: Node) -> dict[str, str]:
    """The labels that the node's pool has set, except those that are derived from the pool."""
    return {
        key: node.labels[key]
        for key in sorted(recorded(node, POOL_OWNER).labels)
        if key in node.labels and key not in (POOL_LABEL, CONFIG_LABEL, MIG_CONFIG_LABEL)
    }


def _pool_taints(node: Node, tolerations: Tolerations, *, labeled: bool) -> tuple[Object, ...]:
    """The taints that the node's pool declares: recorded and tolerated taints on a labeled node, otherwise all taints except those of controllers."""
    owned = recorded(node, POOL_OWNER).taints
    taints = []
    for live in node.taints:
        if validators.unowned_taint(live["key"]):
            continue
        taint = {key: live[key] for key in ("key", "value", "effect") if live.get(key)}
        if not labeled or format_taint(taint) in owned or toleration_of(taint) in tolerations:
            taints.append(taint)
    return tuple(sorted(taints, key=format_taint))


def _distinguishing_label(nodes: t.Sequence[Node], others: t.Sequence[Node]) -> dict[str, str]:
    """A label that all nodes in `nodes` and none in `others` have, and that no agent writes; empty if there is none.

    A label that the node's group sets comes first, so that later nodes of the group match, too. A label that identifies one node is not used.
    """
    candidates = [
        (_label_rank(key), key, value)
        for key, value in nodes[0].labels.items()
        if not (validators.unowned_label(key) or validators.not_the_pool_label(key) or is_for_users(key))
        and not _is_volatile(key)
        and all(node.labels.get(key) == value and value not in _identities(node) for node in nodes)
        and all(node.labels.get(key) != value for node in others)
    ]
    return {key: value for dummy, key, value in sorted(candidates)[:1]}


def _is_volatile(key: str) -> bool:
    return any(key == start or (start.endswith("/") and key.startswith(start)) for start in VOLATILE_LABELS)


def _label_rank(key: str) -> int:
    """Lower for labels that describe a node's group: its name, then the type of its machine; zones come last, because they contain other nodes, too."""
    if key in NODE_GROUP_LABELS:
        return 0
    if key in INSTANCE_TYPE_LABELS:
        return 1
    return 3 if key.startswith(ZONE_LABELS) else 2


def _identities(node: Node) -> set[str]:
    """The values that identify this node: its name, with and without domain, its addresses, and the id of its machine."""
    return {node.name, node.name.partition(".")[0], *node.addresses, node.provider_id.rpartition("/")[2]} - {""}


def _common(exported: ExportedPools, pool: str, kind: str, entries: list[Object]) -> Object:
    """The entries that all nodes have; a remark lists the entries that only some nodes have."""
    common = {key: value for key, value in entries[0].items() if all(item.get(key) == value for item in entries)}
    partial = sorted({key for item in entries for key in item} - set(common))
    if partial:
        exported.remarks.append(
            f"pool {pool}: {kind} that only some of its nodes have are not exported: {', '.join(partial)}"
        )
    return common


def _pool_name(model: str, member: _Member, taken: set[str], *, several: bool) -> str:
    text = f"{model}-{member.sharing_fields['sharing']['mode']}" if several else model
    base = _SEPARATORS.sub("-", text.lower()).strip("-")[:_MAX_NAME].strip("-")
    base = base or "gpu"
    candidates = itertools.chain([base], (f"{base}-{number}" for number in itertools.count(2)))
    name = next(candidate for candidate in candidates if candidate not in taken)
    taken.add(name)
    return name
