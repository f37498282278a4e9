# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Divides rectangles into the parts that the template of a drawing requires."""

from __future__ import annotations

import typing as t

_MAX_STROKES = 12


class Place(t.NamedTuple):
    """A rectangle in the units of the drawing."""

    x: float
    y: float
    width: float
    height: float

    def inset(self, amount: float) -> Place:
        """Return the space inside a frame. The frame takes at most half of the width and height."""
        across, down = min(amount, self.width / 4), min(amount, self.height / 4)
        return Place(self.x + across, self.y + down, self.width - 2 * across, self.height - 2 * down)

    def divide(
        self, sizes: t.Sequence[float], *, gap: float = 0, least: float = 0, upright: bool = False
    ) -> t.Iterator[Place]:
        """Yield parts in proportion to the sizes, from left to right or from top to bottom. No part is shorter than `least`."""
        length, total, start = self.height if upright else self.width, sum(sizes), 0.0
        space = length - gap * (len(sizes) - 1) - least * len(sizes)
        for size in sizes:
            each = least + space * size / total
            if upright:
                yield Place(self.x, self.y + start, self.width, each)
            else:
                yield Place(self.x + start, self.y, each, self.height)
            start += each + gap

    def cells(self, sizes: t.Sequence[float], *, upright: bool = False) -> t.Iterator[Place]:
        """Return parts with gaps that are small compared to the parts."""
        length = self.height if upright else self.width
        return self.divide(sizes, gap=min(1.0, length / len(sizes) / 5), upright=upright)

    def sections(self, sizes: t.Sequence[float], *, least: float, upright: bool = False) -> t.Iterator[Place]:
        """Return parts without gaps. If there is enough space, no part is shorter than `least`."""
        length = self.height if upright else self.width
        return self.divide(sizes, least=min(least, length / len(sizes) / 2), upright=upright)

    def grid(self, count: int) -> list[Place]:
        """Return equal cells in two or four columns, column by column."""
        columns = 2 if count <= 8 else 4
        rows = -(-count // columns)
        return [cell for column in self.cells([1] * columns) for cell in column.cells([1] * rows, upright=True)][:count]

    def squares(self) -> t.Iterator[Place]:
        """Yield approximately square parts that fill the rectangle. The number of parts is limited."""
        across = max(1, min(_MAX_STROKES, round(self.width / self.height)))
        down = max(1, min(_MAX_STROKES, round(self.height / self.width)))
        for row in self.divide([1] * down, upright=True):
            yield from row.divide([1] * across)


def coordinate(value: float) -> str:
    """Format a number with at most two decimal places."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
