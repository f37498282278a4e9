# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG configurations that the MIG manager generates on each node (pure).

From operator v26.3 on (mig-parted v0.14, cmd/nvidia-mig-manager, pkg/mig/builder) the MIG manager queries the driver, and writes the layouts
that the node's GPUs support into a ConfigMap of the node. A configuration that the ClusterPolicy names replaces all of them, so their entries
are merged into it. An entry `all-<profile>` has the maximal count of the profile on one GPU. Placements are not published: they follow from
the table of placements that has the model's other profiles.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, field, replace

from ..catalog import mig, models
from ..catalog.names import GENERATED_NODE_LABEL
from ..mig.layout import Counts, without_memory
from ..nvidia_config import mig_parted
from ..schema.messages import abbreviate, join_words
from ..schema.validators import label_value

if t.TYPE_CHECKING:
    from ..nvidia_config.mig_parted import Entry
    from ..pools.plan import Plan
    from .node import Node

_PREFIX, _BALANCED = "all-", "all-balanced"
_KEYS = {"device-filter", "devices", "mig-enabled", "mig-devices"}


class GeneratedMigConfig(t.NamedTuple):
    """Entries by name, and a warning for each problem."""

    entries: t.Mapping[str, Entry] = {}
    warnings: tuple[str, ...] = ()


NO_GENERATED_CONFIG: t.Final = GeneratedMigConfig()


class _Source(t.NamedTuple):
    """An entry that one node's MIG manager has generated, and the device ids of the node's model; empty where it is not in the catalog."""

    node: str
    content: Entry
    devices: tuple[str, ...]


def parse_generated(configmaps: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, dict[str, Entry]]:
    """The entries that NVIDIA's parser accepts, by node and name."""
    return {
        _node(configmap): {
            name: content for name, content in mig_parted.parse_configmap(configmap).items() if _is_valid(name, content)
        }
        for configmap in sorted(configmaps, key=_node)
    }


def merge_generated(
    plan: Plan,
    generated: t.Mapping[str, t.Mapping[str, Entry]],
    nodes: t.Iterable[Node],
    live: t.Mapping[str, t.Any],
) -> GeneratedMigConfig:
    """The generated entries that are missing among the `live` ones and those of the plan, or are there for other models only.

    `generated` are the entries by node, from parse_generated(). Where nodes have different layouts of one name, each model gets its own by the
    PCI ids of the catalog. Where models cannot be distinguished, or a live entry of that name has another layout on a node, nothing is
    changed, with a warning.
    """
    devices_of = {node.name: tuple(device_ids(node)) for node in nodes}
    by_name: dict[str, list[_Source]] = {}
    for node, content_of in generated.items():
        for name, content in content_of.items():
            by_name.setdefault(name, []).append(_Source(node, content, devices_of.get(node, ())))
    defaults, plan_devices = plan.mig.default_entries, _plan_devices(plan)
    existing = {**live, **plan.mig.entries}
    entries: dict[str, Entry] = {}
    differing: dict[str, list[str]] = {}
    ambiguous: dict[str, list[str]] = {}
    for name, sources in sorted(by_name.items()):
        kept = existing.get(name)
        if kept is None:
            own = [_Source("", defaults[name], plan_devices)] if name in defaults else []
            merged = _merge([*own, *sources])
            if merged is not None:
                if merged != defaults.get(name):
                    entries[name] = merged
                continue
            kept = defaults.get(name)
        if kept is None:
            ambiguous[name] = [source.node for source in sources]
        elif others := [source.node for source in sources if not _is_equivalent(kept, source)]:
            differing[name] = others
    return GeneratedMigConfig(
        entries,
        (
            *_warnings(differing, "differs from what the MIG manager has generated, and is kept"),
            *_warnings(
                ambiguous,
                "is generated differently for GPUs that no PCI id of the catalog distinguishes, and is left out",
            ),
        ),
    )


def device_ids(node: Node) -> list[str]:
    """The ids of the node's GPUs in the form of a device-filter; empty where its model is not in the catalog."""
    model = node.catalog_model
    return [mig_parted.device_id(pci_id) for pci_id in model.pci_ids] if model else []


def _plan_devices(plan: Plan) -> tuple[str, ...]:
    """The device ids for which the plan's default entries are."""
    known = [models.find(pool.model) for pool in plan.pools if pool.model]
    return tuple(dict.fromkeys(mig_parted.device_id(pci_id) for model in known if model for pci_id in model.pci_ids))


def _warnings(nodes_by_entry: t.Mapping[str, list[str]], text: str) -> t.Iterator[str]:
    if nodes_by_entry:
        nodes = sorted({node for names in nodes_by_entry.values() for node in names})
        yield f"MIG configuration {join_words(sorted(nodes_by_entry))} of {abbreviate(nodes)}: {text}."


def _node(configmap: t.Mapping[str, t.Any]) -> str:
    return str((configmap["metadata"].get("labels") or {}).get(GENERATED_NODE_LABEL) or "")


def _is_valid(name: t.Any, content: t.Any) -> bool:
    """Whether NVIDIA's parser accepts the entry: an invalid one would make the whole file unreadable."""
    if not isinstance(name, str) or not name or label_value(name) or mig_parted.is_managed(name):
        return False
    return (
        isinstance(content, list)
        and bool(content)
        and all(
            mig_parted.is_valid_part(part)
            and set(part) <= _KEYS
            and (isinstance(part.get("mig-devices"), dict) if part["mig-enabled"] else not part.get("mig-devices"))
            for part in content
        )
    )


def _is_equivalent(entry: t.Any, source: _Source) -> bool:
    """Whether the entry gives the node's GPUs the layout that was generated for them."""
    if entry == source.content:
        return True
    if not isinstance(entry, list) or not all(mig_parted.is_valid_part(part) for part in entry):
        return False
    if not source.devices:
        is_filtered = any(mig_parted.device_filter(part) for part in (*entry, *source.content))
        return not is_filtered and _parts_for(entry, "") == _parts_for(source.content, "")
    return all(_parts_for(entry, device) == _parts_for(source.content, device) for device in source.devices)


def _parts_for(content: Entry, device: str) -> Entry:
    """The parts of an entry that apply to a device, with all defaults."""
    return [
        {
            "devices": part["devices"],
            "mig-enabled": part["mig-enabled"],
            **({"mig-devices": dict(part.get("mig-devices") or {})} if part["mig-enabled"] else {}),
        }
        for part in content
        if device in (mig_parted.device_filter(part) or (device,))
    ]


def _merge(sources: t.Sequence[_Source]) -> Entry | None:
    """One entry that is right on every node; None where two nodes cannot be distinguished."""
    if all(source.content == sources[0].content for source in sources):
        return sources[0].content
    by_device: dict[str, str] = {}
    for source in sources:
        devices = {device for part in source.content for device in mig_parted.device_filter(part)}
        if not all(mig_parted.device_filter(part) for part in source.content):
            if not source.devices:
                return None
            devices.update(source.devices)
        for device in devices:
            content = json.dumps(_parts_for(source.content, device), sort_keys=True)
            if by_device.setdefault(device, content) != content:
                return None
    by_content: dict[str, list[str]] = {}
    for device, content in sorted(by_device.items()):
        by_content.setdefault(content, []).append(device)
    return [
        {"device-filter": devices, **part} for content, devices in by_content.items() for part in json.loads(content)
    ]


@dataclass(frozen=True)
class MigCapacity:
    """The known MIG profiles of each node's GPUs, and warnings about nodes that publish other profiles than the catalog has."""

    geometries: t.Mapping[str, mig.Geometry] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


NO_CAPACITY: t.Final = MigCapacity()


def mig_capacity(nodes: t.Iterable[Node], generated: t.Mapping[str, t.Mapping[str, Entry]]) -> MigCapacity:
    """The geometries of these nodes; `generated` are the entries by node, from parse_generated()."""
    geometries: dict[str, mig.Geometry] = {}
    differing: dict[str, list[str]] = {}
    for node in nodes:
        model = node.catalog_model
        known = mig.geometry(model.key) if model else None
        counts = generated_profiles(generated.get(node.name, {}))
        geometry = geometry_of(counts, known) if counts else known
        if geometry is None:
            continue
        geometries[node.name] = geometry
        if counts and model and geometry != known:
            differing.setdefault(_difference(geometry, known, model), []).append(node.name)
    return MigCapacity(
        geometries,
        tuple(
            f"{abbreviate(sorted(names))}: {difference}; the published profiles are used."
            for difference, names in differing.items()
        ),
    )


def generated_profiles(entries: t.Mapping[str, Entry]) -> dict[str, int]:
    """The profiles that a node publishes, with their maximal count on one GPU."""
    counts: dict[str, int] = {}
    for name, parts in entries.items():
        if not name.startswith(_PREFIX) or name == _BALANCED:
            continue
        for part in parts:
            devices = part.get("mig-devices") or {}
            if part.get("devices") == "all" and len(devices) == 1:
                counts.update(devices)
    return counts


def geometry_of(counts: Counts, known: mig.Geometry | None) -> mig.Geometry | None:
    """The geometry with exactly these profiles (the maximal count of each on one GPU); None where they are in no table of the catalog.

    For an unknown model it is based on the table with most of the profiles. Profiles that are not in the table are left out.
    """
    if known is not None and _max_counts(known) == dict(counts):
        return known
    tables = [known] if known is not None else mig.placement_tables()
    candidates = [(table, rows) for table in tables if (rows := _matching_rows(counts, table))]
    if not candidates:
        return None
    table, rows = max(candidates, key=lambda candidate: len(candidate[1]))
    return replace(table, profiles=tuple(rows), balanced=(), note="")


def _max_counts(geometry: mig.Geometry | None) -> dict[str, int]:
    return {profile.name: profile.max_count for profile in (geometry.profiles if geometry else ())}


def _matching_rows(counts: Counts, table: mig.Geometry) -> list[mig.Profile]:
    """The table's rows, renamed to the published profiles with the same compute slices, extras and count."""
    rows = []
    for row in table.profiles:
        for name, max_count in counts.items():
            if max_count == row.max_count and without_memory(name) == without_memory(row.name):
                rows.append(replace(row, name=name))
                break
    return rows


def _difference(geometry: mig.Geometry, known: mig.Geometry | None, model: models.Model) -> str:
    published, catalog = _max_counts(geometry), _max_counts(known)
    added = [f"{name} ({count} of it)" for name, count in published.items() if catalog.get(name) != count]
    missing = [name for name in catalog if name not in published]
    parts = [
        *([f"publish {', '.join(added)}"] if added else []),
        *([f"do not publish {', '.join(missing)}"] if missing else []),
    ]
    return f"the GPUs {' and '.join(parts)}, unlike the catalog's {model.key}"
