# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layouts of a pool's GPUs once it is as declared, and the placement of the MIG devices (pure)."""

from __future__ import annotations

import typing as t
from collections import Counter

from ..catalog import mig as geometries
from ..mig import layout as layouts
from ..mig.enumerate import unused
from ..mig.placement import place
from . import expected_state

if t.TYPE_CHECKING:
    from ..catalog.mig import Geometry
    from ..pools.plan import PoolPlan
    from .node import Node


def declared_layouts(pool: PoolPlan) -> list[dict[str, t.Any]]:
    """The layouts of a pool with a declared model, without nodes: the number of GPUs with each is unknown (None)."""
    geometry = geometries.geometry(pool.model) if pool.model else None
    return [_result(geometry, part.profiles, None) for part in pool.sharing.layout] if geometry else []


def node_layouts(pool: PoolPlan, nodes: t.Iterable[Node], known: t.Mapping[str, Geometry]) -> list[dict[str, t.Any]]:
    """The layouts of all GPUs of these nodes, the most frequent first; nodes whose geometry is not `known` are left out."""
    layout_of: dict[int, layouts.Layout] = {}
    nodes_with: Counter[tuple[int, int, Geometry]] = Counter()
    for node in nodes:
        if node.name in known and node.discovered:
            layout = pool.for_node(node.name).sharing.layout
            layout_of[id(layout)] = layout
            nodes_with[id(layout), expected_state.expected_gpus(node, pool), known[node.name]] += 1
    gpus_with: Counter[tuple[tuple[tuple[str, int], ...], Geometry]] = Counter()
    for (key, gpus, geometry), count in nodes_with.items():
        for index in range(gpus):
            gpus_with[tuple(sorted(layouts.on_gpu(layout_of[key], index).items())), geometry] += count
    ordered = sorted(gpus_with.items(), key=lambda entry: (not entry[0][0], -entry[1], entry[0][0]))
    return [_result(geometry, dict(profiles), gpus) for (profiles, geometry), gpus in ordered]


def _result(geometry: Geometry, profiles: t.Mapping[str, int], gpus: int | None) -> dict[str, t.Any]:
    # A layout that does not fit is refused elsewhere, with a reason.
    placed = place(geometry, profiles) or ()
    return {
        "gpus": gpus,
        "profiles": dict(profiles),
        "slices": geometry.slices,
        "devices": [placement._asdict() for placement in placed],
        "unused": unused(geometry, profiles)._asdict() if placed else {},
    }
