# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG profiles of each node's GPUs: as the node publishes them, else by the catalog's model (pure).

From operator v26.3 on (mig-parted v0.14, pkg/mig/builder) the MIG manager queries the driver, and writes an entry `all-<profile>` for each
profile into the node's own ConfigMap, with the maximal count on one GPU. Placements are not published: they follow from the table of
placements that has the model's other profiles.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ..catalog import mig, models
from ..catalog.names import MIG_INFIX
from ..mig.layout import without_memory
from ..schema.messages import abbreviate

if t.TYPE_CHECKING:
    from ..nvidia_config.mig_parted import Entry
    from .node import Node

_PREFIX, _BALANCED = "all-", "all-balanced"

# The maximal count of each profile on one GPU.
Counts = t.Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class MigCapacity:
    """The known geometries by node, and warnings about nodes that publish other profiles than the catalog has."""

    geometries: t.Mapping[str, mig.Geometry] = dataclasses.field(default_factory=dict)
    warnings: tuple[str, ...] = ()


NO_CAPACITY: t.Final = MigCapacity()


def model_of(node: Node) -> models.Model | None:
    """The catalog's model of a node's GPUs. Under the MIG strategy single the node's memory is that of a device and is not used."""
    if not node.product:
        return None
    return models.of_gpu(node.product, None if MIG_INFIX in node.product else node.memory_mib)


def mig_capacity(nodes: t.Iterable[Node], published: t.Mapping[str, t.Mapping[str, Entry]]) -> MigCapacity:
    """The geometries of these nodes; `published` are the generated entries by node."""
    geometries: dict[str, mig.Geometry] = {}
    differing: dict[str, list[str]] = {}
    for node in nodes:
        model = model_of(node)
        known = mig.geometry(model.key) if model else None
        counts = published_profiles(published.get(node.name, {}))
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


def published_profiles(entries: t.Mapping[str, Entry]) -> dict[str, int]:
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
    """The geometry with exactly these profiles; None where they are in no table of the catalog.

    For an unknown model it is based on the table with most of the profiles. Profiles that are not in the table are left out.
    """
    if known is not None and _max_counts(known) == dict(counts):
        return known
    tables = [known] if known is not None else mig.placement_tables()
    candidates = [(table, rows) for table in tables if (rows := _matching_rows(counts, table))]
    if not candidates:
        return None
    table, rows = max(candidates, key=lambda candidate: len(candidate[1]))
    return dataclasses.replace(table, profiles=tuple(rows), balanced=(), note="")


def _max_counts(geometry: mig.Geometry | None) -> dict[str, int]:
    return {profile.name: profile.max_count for profile in (geometry.profiles if geometry else ())}


def _matching_rows(counts: Counts, table: mig.Geometry) -> list[mig.Profile]:
    """The table's rows, renamed to the published profiles with the same compute slices, extras and count."""
    rows = []
    for row in table.profiles:
        for name, max_count in counts.items():
            if max_count == row.max_count and without_memory(name) == without_memory(row.name):
                rows.append(dataclasses.replace(row, name=name))
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
