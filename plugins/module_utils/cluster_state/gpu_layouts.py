# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the GPUs of a pool are cut into once it is as declared: the layouts that there are, and where the devices lie (pure)."""

from __future__ import annotations

import typing as t
from collections import Counter

from ..catalog import mig as geometries
from ..mig import layout as layouts
from ..mig.drawing import draw_gpu
from ..mig.enumerate import unused as wasted
from ..mig.placement import Placement, place
from ..schema.messages import join_words
from . import expected_state

if t.TYPE_CHECKING:
    from ..catalog.mig import Geometry
    from ..pools.plan import PoolPlan
    from .node import Node

Document = t.Mapping[str, t.Any]


def of_model(pool: PoolPlan) -> list[dict[str, t.Any]]:
    """The layouts of a pool whose model is declared, without any node: nobody knows how many GPUs have each (None)."""
    geometry = geometries.geometry(pool.model) if pool.model else None
    return [_cut(geometry, part.profiles, None) for part in pool.sharing.layout] if geometry else []


def of_nodes(pool: PoolPlan, nodes: t.Iterable[Node], known: t.Mapping[str, Geometry]) -> list[dict[str, t.Any]]:
    """The layouts of all GPUs of these nodes of the pool, the most frequent first; a GPU whose geometry nobody knows is left out."""
    layouts_of: dict[int, layouts.Layout] = {}
    alike: Counter[tuple[int, int, Geometry]] = Counter()
    for node in nodes:
        if node.name in known and node.discovered:
            layout = pool.on(node.name).sharing.layout
            layouts_of[id(layout)] = layout
            alike[id(layout), expected_state.expected_gpus(node, pool), known[node.name]] += 1
    found: Counter[tuple[tuple[tuple[str, int], ...], Geometry]] = Counter()
    for (key, gpus, geometry), count in alike.items():
        for index in range(gpus):
            found[tuple(sorted(layouts.on_gpu(layouts_of[key], index).items())), geometry] += count
    ordered = sorted(found.items(), key=lambda of: (not of[0][0], -of[1], of[0][0]))
    return [_cut(geometry, dict(profiles), gpus) for (profiles, geometry), gpus in ordered]


def lines(pools: Document, width: int) -> list[str]:
    """The layouts for a terminal: of each pool a head, and under it a bar for each layout with what it leaves unused."""
    told: list[str] = []
    for name, pool in pools.items():
        cuts: t.Sequence[Document] = pool.get("cuts") or ()
        if any(cut["devices"] for cut in cuts):
            told.append(f"memory slices of the GPUs of {name}:")
            bars = draw_gpu([(cut["slices"], [Placement(**of) for of in cut["devices"]]) for cut in cuts], width - 4)
            for cut, shown in zip(cuts, bars, strict=True):
                told += _lines(cut, shown)
    return told


def _cut(geometry: Geometry, profiles: t.Mapping[str, int], gpus: int | None) -> dict[str, t.Any]:
    # A layout that the GPU has no room for is refused elsewhere, in words.
    placed = place(geometry, profiles) or ()
    rest = wasted(geometry, profiles)
    return {
        "gpus": gpus,
        "profiles": dict(profiles),
        "slices": geometry.slices,
        "devices": [of._asdict() for of in placed],
        "wasted": rest._asdict() if placed else {},
    }


def _lines(cut: Document, shown: str) -> list[str]:
    gpus = "each GPU" if cut["gpus"] is None else f"{cut['gpus']} GPU(s)"
    return [f"  {gpus}{_unused(cut['wasted'])}", f"    {shown}"] if cut["devices"] else [f"  {gpus} whole"]


def _unused(wasted: Document) -> str:
    counts = [f"{wasted[what]} {what} slice(s)" for what in ("compute", "memory") if wasted[what]]
    return f", {join_words(counts, 'and')} unused" if counts else ""
