# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/mig-layouts.md: the maximal MIG layouts of every model, with the memory slices drawn."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.accel.gpu.plugins.module_utils.catalog import mig
from ansible_collections.accel.gpu.plugins.module_utils.catalog.mig import Geometry
from ansible_collections.accel.gpu.plugins.module_utils.catalog.models import MODELS
from ansible_collections.accel.gpu.plugins.module_utils.mig.drawing import draw_gpu
from ansible_collections.accel.gpu.plugins.module_utils.mig.enumerate import all_layouts, maximal, unused
from ansible_collections.accel.gpu.plugins.module_utils.mig.layout import format_layout
from ansible_collections.accel.gpu.plugins.module_utils.mig.placement import place
from tests.programs import REPO

PAGE = REPO / "docs" / "mig-layouts.md"

# The most characters of a drawing, so that a row of the table is no wider than a screen.
_NARROW = 60

_HEAD = """# MIG layouts

Written by `make docs` from [the catalog](catalog.md); nothing is edited by hand.

Every way to cut a GPU as far as it goes: to none of these layouts can a device be added, every part of one of them fits as
well, and nothing else does. A `sharing.layout` of [a pool](pools.md#gpu_pools) is one of them or a part of one. Playbooks ask the
same with filters: `'A100-SXM4-80GB' | accel.gpu.mig_layouts` lists them, `['3g.40gb', '2g.20gb'] |
accel.gpu.mig_fit('A100-SXM4-80GB')` says whether some devices fit, where they come to lie, and which layouts are nearest where they
do not.

Each drawing is the GPU's memory, slice by slice from 0; a device is named by its profile, without the memory where that does not fit, and
lines are slices that no device has. *Left* is what no device has: compute slices, memory slices, and the engine of which a GPU has one (OFA), which comes
with `+me`, `+me.all` or the whole GPU.

| models | layouts | maximal |
|---|--:|--:|
"""


def page() -> str:
    """The whole page."""
    groups = _groups()
    contents = "".join(
        f"| [{', '.join(keys)}](#{_anchor(_title(keys))}) | {len(all_layouts(of))} | {len(maximal(of))} |\n"
        for of, keys in groups.items()
    )
    return _HEAD + contents + "".join(_section(of, keys) for of, keys in groups.items())


def _groups() -> dict[Geometry, list[str]]:
    """The models that are cut alike, by their geometry."""
    groups: dict[Geometry, list[str]] = {}
    for model in MODELS:
        geometry = mig.geometry(model.key)
        if geometry:
            groups.setdefault(geometry, []).append(model.key)
    return groups


def _section(geometry: Geometry, keys: list[str]) -> str:
    lines = [
        f"\n## {_title(keys)}\n",
        f"{geometry.slices} memory slices. {geometry.note}".rstrip() + "\n",
        "| profile | compute slices | memory slices | may begin at | at most |",
        "|---|--:|--:|---|--:|",
        *_profiles(geometry),
        "",
        "| layout | memory slices | compute left | memory left | OFA left |",
        "|---|---|--:|--:|---|",
        *_rows(geometry),
    ]
    return "\n".join(lines) + "\n"


def _profiles(geometry: Geometry) -> Iterator[str]:
    for profile in geometry.profiles:
        starts = ", ".join(map(str, profile.starts))
        yield f"| `{profile.name}` | {profile.compute} | {profile.size} | {starts} | {profile.most} |"


def _rows(geometry: Geometry) -> Iterator[str]:
    layouts = maximal(geometry)
    bars = draw_gpu([(geometry.slices, place(geometry, counts) or ()) for counts in layouts], _NARROW)
    for counts, drawing in zip(layouts, bars, strict=True):
        left = unused(geometry, counts)
        ofa = "yes" if left.media else "no"
        yield f"| {format_layout(counts)} | `{drawing.replace('|', '│')}` | {left.compute} | {left.memory} | {ofa} |"


def _title(keys: list[str]) -> str:
    return ", ".join(keys)


def _anchor(title: str) -> str:
    return title.lower().replace(",", "").replace(" ", "-")
