# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG layouts of a plan as lines for a terminal (pure)."""

from __future__ import annotations

import typing as t

from ..mig.drawing import draw_gpu
from ..mig.placement import Placement
from ..schema.messages import join_words

Document = t.Mapping[str, t.Any]


def layout_lines(pools: Document, width: int) -> list[str]:
    """A heading for each pool with MIG devices, and under it a bar for each layout with its unused slices."""
    lines: list[str] = []
    for name, pool in pools.items():
        layouts: t.Sequence[Document] = pool.get("gpu_layouts") or ()
        if not any(layout["devices"] for layout in layouts):
            continue
        lines.append(f"memory slices of the GPUs of {name}:")
        gpus = [(layout["slices"], [Placement(**device) for device in layout["devices"]]) for layout in layouts]
        for layout, drawing in zip(layouts, draw_gpu(gpus, width - 4), strict=True):
            title = "each GPU" if layout["gpus"] is None else f"{layout['gpus']} GPU(s)"
            if layout["devices"]:
                lines += [f"  {title}{_unused(layout['unused'])}", f"    {drawing}"]
            else:
                lines.append(f"  {title} whole")
    return lines


def _unused(unused: Document) -> str:
    counts = [f"{unused[kind]} {kind} slice(s)" for kind in ("compute", "memory") if unused[kind]]
    return f", {join_words(counts)} unused" if counts else ""
