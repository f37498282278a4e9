# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draws GPUs as bars of memory slices for a terminal (pure)."""

from __future__ import annotations

import typing as t

from .layout import without_memory

if t.TYPE_CHECKING:
    from .placement import Placement

# The frame of a field, and the filler of free slices.
_FRAME, _FREE = "|", "-"


def draw_gpu(gpus: t.Sequence[tuple[int, t.Sequence[Placement]]], width: int) -> list[str]:
    """Draw a bar for each GPU, which is given by its number of memory slices and its devices; all bars have the same scale.

    Each device is a field with its profile's name and a width in proportion to its slices; free slices are lines. If a bar would be wider than
    `width` characters, the names are shortened: without `gb`, then without the memory.
    """
    for named in (str, _without_unit, without_memory):
        each = max(
            (-(-(len(named(device.profile)) + 1) // device.size) for dummy, devices in gpus for device in devices),
            default=2,
        )
        if max((slices for slices, dummy in gpus), default=0) * each + 1 <= width:
            break
    return [
        _bar(slices, {device.start: (device.size, named(device.profile)) for device in devices}, each)
        for slices, devices in gpus
    ]


def _bar(slices: int, fields: t.Mapping[int, tuple[int, str]], each: int) -> str:
    drawing, at = [], 0
    while at < slices:
        if at in fields:
            size, name = fields[at]
            drawing.append(_FRAME + name.ljust(size * each - 1))
        else:
            size = min([start for start in fields if start > at], default=slices) - at
            drawing.append(_FRAME + _FREE * (size * each - 1))
        at += size
    return "".join(drawing) + _FRAME


def _without_unit(profile: str) -> str:
    return profile.replace("gb", "")
