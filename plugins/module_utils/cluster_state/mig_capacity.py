# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the GPUs of each node can be cut into: as the node publishes it, else as the catalog knows its model (pure).

From operator v26.3 on (mig-parted v0.14, pkg/mig/builder) the MIG manager asks the driver, and writes an entry `all-<profile>` for each
profile into the node's own ConfigMap, with as many of it as one GPU holds. Where a profile may begin is not published: that follows
from the table of placements of which the model's others are.
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

# A profile's name, and how many of it one GPU holds.
Counts = t.Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class MigCapacity:
    """The geometry of each node of which one is known, and where nodes publish another one than the catalog has, a sentence each."""

    geometries: t.Mapping[str, mig.Geometry] = dataclasses.field(default_factory=dict)
    doubts: tuple[str, ...] = ()


NOTHING: t.Final = MigCapacity()


def model_of(node: Node) -> models.Model | None:
    """The catalog's model of a node's GPUs; of one with MIG devices under the strategy single the memory tells nothing."""
    if not node.product:
        return None
    return models.of_gpu(node.product, None if MIG_INFIX in node.product else node.memory_mib)


def mig_capacity(nodes: t.Iterable[Node], published: t.Mapping[str, t.Mapping[str, Entry]]) -> MigCapacity:
    """The geometries of these nodes; `published` are the generated entries by node."""
    found: dict[str, mig.Geometry] = {}
    differing: dict[str, list[str]] = {}
    for node in nodes:
        model = model_of(node)
        known = mig.geometry(model.key) if model else None
        counts = profiles(published.get(node.name, {}))
        geometry = shaped(counts, known) if counts else known
        if geometry is None:
            continue
        found[node.name] = geometry
        if counts and model and geometry != known:
            differing.setdefault(_difference(geometry, known, model), []).append(node.name)
    return MigCapacity(
        found,
        tuple(
            f"{abbreviate(sorted(names))}: {what}; what the nodes publish counts." for what, names in differing.items()
        ),
    )


def profiles(entries: t.Mapping[str, Entry]) -> dict[str, int]:
    """The profiles that a node publishes, each with as many of it as one GPU holds; none where it publishes nothing."""
    found: dict[str, int] = {}
    for name, parts in entries.items():
        if not name.startswith(_PREFIX) or name == _BALANCED:
            continue
        for part in parts:
            devices = part.get("mig-devices") or {}
            if part.get("devices") == "all" and len(devices) == 1:
                found.update(devices)
    return found


def shaped(counts: Counts, known: mig.Geometry | None) -> mig.Geometry | None:
    """The geometry with exactly these profiles; None where they are of no table that the catalog has.

    Of a model that is not `known` it is the table that has a place for most of them. A profile that has no place in it is left out.
    """
    if known is not None and {of.name: of.most for of in known.profiles} == dict(counts):
        return known
    tables = [known] if known is not None else mig.tables()
    placed = [(table, found) for table in tables if (found := _placed(counts, table))]
    if not placed:
        return None
    table, rows = max(placed, key=lambda of: len(of[1]))
    return dataclasses.replace(table, profiles=tuple(rows), balanced=(), note="")


def _placed(counts: Counts, table: mig.Geometry) -> list[mig.Profile]:
    """The table's rows under the names that are published: those of the same compute slices and extras, and as many of it."""
    found = []
    for row in table.profiles:
        name = next(
            (
                name
                for name, most in counts.items()
                if most == row.most and without_memory(name) == without_memory(row.name)
            ),
            None,
        )
        if name is not None:
            found.append(dataclasses.replace(row, name=name))
    return found


def _difference(geometry: mig.Geometry, known: mig.Geometry | None, model: models.Model) -> str:
    theirs, ours = ({of.name: of.most for of in (table.profiles if table else ())} for table in (geometry, known))
    told = [f"{name} ({most} of it)" for name, most in theirs.items() if ours.get(name) != most]
    lacking = [name for name in ours if name not in theirs]
    has = [f"publish {', '.join(told)}"] if told else []
    lacks = [f"do not publish {', '.join(lacking)}"] if lacking else []
    return f"the GPUs {' and '.join([*has, *lacks])}, unlike the catalog's {model.key}"
