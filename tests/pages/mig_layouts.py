# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/mig-layouts.md: the maximal MIG layouts of every model, with drawings of the memory slices."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.accel.gpu.plugins.module_utils.catalog import mig
from ansible_collections.accel.gpu.plugins.module_utils.catalog.mig import Geometry
from ansible_collections.accel.gpu.plugins.module_utils.catalog.models import MODELS
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.mig import (
    all_layouts,
    draw_gpu,
    format_layout,
    maximal,
    place,
    unused,
)
from tests.programs import REPO

PAGE = REPO / "docs" / "mig-layouts.md"

# Maximum width of a drawing in characters, so that a row of the table fits a screen.
_NARROW = 60

_HEAD = """# MIG layouts

Use this page to choose a `sharing.layout` for [a pool](pools.md#mig-layouts). `make docs` generates this page from [the catalog](catalog.md). Do not edit
the page.

The tables list the *maximal* layouts of each model, to which no device can be added. A layout fits if and only if it is a maximal layout or a subset of
one. In a playbook, two filters return the same information:

- `'A100-SXM4-80GB' | accel.gpu.mig_layouts` lists the layouts of a model.
- `['3g.40gb', '2g.20gb'] | accel.gpu.mig_fit('A100-SXM4-80GB')` checks whether these devices fit. If they fit, the filter returns their placement;
  otherwise, it returns the most similar layouts that fit.

Each drawing shows the GPU's memory slices from left to right, starting with slice 0. Each device is labeled with its profile; the memory size is omitted
if the name is too long. Dashes mark unused slices. The last columns show the unused resources: compute slices, memory slices, and the OFA engine. A GPU
has one OFA engine. Only a device with `+me` or `+me.all`, or a device that occupies the whole GPU, can use this engine.

| models | layouts | maximal layouts |
|---|--:|--:|
"""


def page() -> str:
    """The whole page."""
    groups = _groups()
    contents = "".join(
        f"| [{', '.join(keys)}](#{_anchor(_title(keys))}) | {len(all_layouts(item))} | {len(maximal(item))} |\n"
        for item, keys in groups.items()
    )
    return _HEAD + contents + "".join(_section(item, keys) for item, keys in groups.items())


def _groups() -> dict[Geometry, list[str]]:
    """The models that share a geometry, by geometry."""
    groups: dict[Geometry, list[str]] = {}
    for model in MODELS:
        geometry = mig.geometry(model.key)
        if geometry:
            groups.setdefault(geometry, []).append(model.key)
    return groups


def _section(geometry: Geometry, keys: list[str]) -> str:
    lines = [
        f"\n## {_title(keys)}\n",
        f"The GPU has {geometry.slices} memory slices. {geometry.note}".rstrip() + "\n",
        "| profile | compute slices | memory slices | possible starts | maximum |",
        "|---|--:|--:|---|--:|",
        *_profiles(geometry),
        "",
        "| layout | memory slices | unused compute | unused memory | unused OFA |",
        "|---|---|--:|--:|---|",
        *_rows(geometry),
    ]
    return "\n".join(lines) + "\n"


def _profiles(geometry: Geometry) -> Iterator[str]:
    for profile in geometry.profiles:
        starts = ", ".join(map(str, profile.starts))
        yield f"| `{profile.name}` | {profile.compute} | {profile.size} | {starts} | {profile.max_count} |"


def _rows(geometry: Geometry) -> Iterator[str]:
    layouts = maximal(geometry)
    bars = draw_gpu([(geometry.slices, place(geometry, counts) or ()) for counts in layouts], _NARROW)
    for counts, drawing in zip(layouts, bars, strict=True):
        remaining = unused(geometry, counts)
        ofa = "yes" if remaining.media else "no"
        yield f"| {format_layout(counts)} | `{drawing.replace('|', '│')}` | {remaining.compute} | {remaining.memory} | {ofa} |"


def _title(keys: list[str]) -> str:
    return ", ".join(keys)


def _anchor(title: str) -> str:
    return title.lower().replace(",", "").replace(" ", "-")
