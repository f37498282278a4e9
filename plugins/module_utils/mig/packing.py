# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A demand of MIG devices spread over GPUs, so that as few as possible of them are cut anew (pure)."""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass

from ..catalog.mig import Geometry
from .layout import Counts
from .layouts import maximal

# A GPU among all: its node's name and its index there.
Key = tuple[str, int]


@dataclass(frozen=True)
class Gpu:
    """One GPU that may be cut."""

    node: str
    index: int
    now: Counts | None
    """What it is cut into; None: it is whole, MIG is off."""
    used: bool
    """True when somebody uses it or its node is in use, so that touching it costs more."""
    geometry: Geometry

    @property
    def key(self) -> Key:
        """Its place among all GPUs."""
        return self.node, self.index


@dataclass(frozen=True)
class Packed:
    """How the GPUs are cut afterwards."""

    layouts: t.Mapping[Key, Counts]
    """The layout of every GPU that is cut afterwards, touched or not."""
    touched: tuple[Key, ...]
    """The GPUs whose layout changes, sorted."""
    missing: Counts
    """The devices for which there was no room; empty when the demand is met."""


def pack(gpus: t.Sequence[Gpu], demand: Counts) -> Packed:
    """Layouts with which the GPUs together have at least the demanded devices.

    Least is missing (in memory slices), then the fewest used GPUs are touched, then the fewest GPUs. A GPU that is not touched
    keeps its layout, with whatever it has beyond the demand; one that is touched loses its devices, so that what it served is
    placed again, and gets no more than what is demanded. The order of the GPUs does not matter, and packing the result
    again touches nothing.
    """
    order = sorted(gpus, key=lambda gpu: gpu.key)
    wanted = {name: count for name, count in demand.items() if count > 0}
    patterns = {gpu.geometry: _patterns(gpu.geometry, wanted) for gpu in order}
    weights = _weights(list(patterns), wanted)
    offered: Counter[str] = Counter()
    for gpu in order:
        offered.update(_useful(gpu.now, wanted))
    cut: dict[Key, Counts] = {}
    while step := _best(order, cut, patterns, weights, Counter(wanted), offered):
        gpu, layout = step
        offered.subtract(_useful(gpu.now, wanted))
        offered.update(layout)
        cut[gpu.key] = layout
    return _packed(order, wanted, offered, cut)


def _best(
    order: t.Sequence[Gpu],
    cut: t.Mapping[Key, Counts],
    patterns: t.Mapping[Geometry, t.Sequence[Counts]],
    weights: Counts,
    wanted: Counter[str],
    offered: Counter[str],
) -> tuple[Gpu, Counts] | None:
    """The next GPU to touch and its layout: an unused one that brings the most missing memory slices, else a used one."""
    before = _missed(wanted - offered, weights)
    found: tuple[tuple[bool, int], Gpu, Counts] | None = None
    seen: set[tuple[Geometry, bool, tuple[tuple[str, int], ...]]] = set()
    for gpu in order:
        loss = _useful(gpu.now, wanted)
        alike = (gpu.geometry, gpu.used, tuple(sorted(loss.items())))
        if not before or gpu.key in cut or alike in seen:
            continue
        seen.add(alike)
        for layout in patterns[gpu.geometry]:
            after = Counter(offered)
            after.subtract(loss)
            after.update(layout)
            gain = before - _missed(wanted - after, weights)
            rank = (gpu.used, -gain)
            if gain > 0 and (found is None or rank < found[0]):
                found = rank, gpu, layout
    return found[1:] if found else None


def _packed(order: t.Sequence[Gpu], wanted: Counts, offered: Counter[str], cut: dict[Key, Counts]) -> Packed:
    missing = Counter(wanted) - offered
    spare = offered - Counter(wanted)
    layouts = {gpu.key: dict(gpu.now) for gpu in order if gpu.now is not None and gpu.key not in cut}
    for gpu in (gpu for gpu in order if gpu.key in cut):
        kept = dict(cut[gpu.key])
        for name in sorted(kept):
            less = min(kept[name], spare[name])
            spare[name] -= less
            kept[name] -= less
        layouts[gpu.key] = {name: count for name, count in sorted(kept.items()) if count}
    touched = tuple(key for key in sorted(cut))
    return Packed(layouts, touched, dict(sorted(missing.items())))


def _patterns(geometry: Geometry, wanted: Counts) -> tuple[Counts, ...]:
    """The demanded parts of the geometry's maximal layouts."""
    parts = [{name: n for name, n in layout.items() if name in wanted} for layout in maximal(geometry)]
    return tuple({tuple(part.items()): part for part in parts if part}.values())


def _weights(geometries: t.Sequence[Geometry], wanted: Counts) -> dict[str, int]:
    """The memory slices of each demanded profile, the most of them where models differ; 1 where no GPU has it."""
    return {
        name: max((one.size for geometry in geometries if (one := geometry.profile(name))), default=1)
        for name in wanted
    }


def _useful(now: Counts | None, wanted: t.Container[str]) -> dict[str, int]:
    return {name: count for name, count in (now or {}).items() if name in wanted}


def _missed(missing: t.Mapping[str, int], weights: Counts) -> int:
    return sum(weights[name] * count for name, count in missing.items())
