# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shapes of the drawings: cells whose states differ in form as well as in colour, and how cells fill a place (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .html import Html, join, tag

HELD, FREE, MISSING, BEYOND, UNKNOWN = "held", "free", "missing", "beyond", "unknown"

# State and width of a cell; of a part of a level, state and how much of it there is.
Cell = tuple[str, float]
_MOST_STROKES = 12


@dataclass(frozen=True)
class Place:
    """A rectangle in the units of the drawing."""

    x: float
    y: float
    width: float
    height: float

    def within(self, inset: float) -> Place:
        """The place inside a frame, which never takes more than half of it."""
        across, down = min(inset, self.width / 4), min(inset, self.height / 4)
        return Place(self.x + across, self.y + down, self.width - 2 * across, self.height - 2 * down)


def rect(place: Place, kind: str, radius: float = 1) -> Html:
    """A rectangle that the style sheet knows by its kind."""
    return tag(
        "rect",
        class_=kind,
        x=short(place.x),
        y=short(place.y),
        width=short(place.width),
        height=short(place.height),
        rx=short(min(radius, place.height / 5, place.width / 5)),
    )


def cell(state: str, place: Place) -> Html:
    """Held is solid, free is hollow, missing is dashed with a cross, beyond is solid with a stroke, unknown is dotted."""
    outlined = state in (FREE, MISSING, UNKNOWN)
    drawn = rect(place.within(0.5) if outlined else place, state)
    if state not in (MISSING, BEYOND):
        return drawn
    return join([drawn, tag("path", class_=f"stroke {state}", d="".join(_strokes(place.within(1), state == MISSING)))])


def _strokes(place: Place, crossed: bool) -> t.Iterator[str]:
    """Strokes or crosses, as many as a long place has room for."""
    across = max(1, min(_MOST_STROKES, round(place.width / place.height)))
    down = max(1, min(_MOST_STROKES, round(place.height / place.width)))
    width, height = place.width / across, place.height / down
    for at in range(across * down):
        left, top = place.x + at % across * width, place.y + at // across * height
        yield f"M{short(left)} {short(top + height)}L{short(left + width)} {short(top)}"
        if crossed:
            yield f"M{short(left)} {short(top)}L{short(left + width)} {short(top + height)}"


def row(place: Place, cells: t.Sequence[Cell]) -> Html:
    """Cells side by side."""
    total, gap = sum(width for dummy, width in cells), _gap(place.width, len(cells))
    room, left, drawn = place.width - gap * (len(cells) - 1), place.x, []
    for state, width in cells:
        drawn.append(cell(state, Place(left, place.y, room * width / total, place.height)))
        left += room * width / total + gap
    return join(drawn)


def stack(place: Place, cells: t.Sequence[Cell]) -> Html:
    """Cells one above the other."""
    total, gap = sum(width for dummy, width in cells), _gap(place.height, len(cells))
    room, top, drawn = place.height - gap * (len(cells) - 1), place.y, []
    for state, width in cells:
        drawn.append(cell(state, Place(place.x, top, place.width, room * width / total)))
        top += room * width / total + gap
    return join(drawn)


def grid(place: Place, cells: t.Sequence[Cell], columns: int) -> Html:
    """Cells of one size in columns, filled one column after the other."""
    rows = -(-len(cells) // columns)
    across, down = _gap(place.width, columns), _gap(place.height, rows)
    width, height = (place.width + across) / columns - across, (place.height + down) / rows - down
    return join(
        cell(
            state, Place(place.x + at // rows * (width + across), place.y + at % rows * (height + down), width, height)
        )
        for at, (state, dummy) in enumerate(cells)
    )


def _gap(length: float, cells: int) -> float:
    return min(1.0, length / cells / 5)


def level(place: Place, parts: t.Sequence[Cell], least: float, upright: bool = False) -> Html:
    """Parts as long as their numbers, none too short to be seen; they lie, or stand on each other."""
    total = sum(number for dummy, number in parts)
    length = place.height if upright else place.width
    least = min(least, length / len(parts) / 2)
    room, done, drawn = length - least * len(parts), 0.0, []
    for state, number in parts:
        each = least + room * number / total
        at = (
            Place(place.x, place.y + done, place.width, each)
            if upright
            else Place(place.x + done, place.y, each, place.height)
        )
        drawn.append(cell(state, at))
        done += each
    return join(drawn)


def short(number: float) -> str:
    """A number of the drawing, with at most two digits behind the point."""
    return f"{number:.2f}".rstrip("0").rstrip(".")
