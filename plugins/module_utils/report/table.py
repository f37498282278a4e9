# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Formats tables and paragraphs of text for a terminal (pure)."""

from __future__ import annotations

import textwrap
import typing as t

WIDTH = 100
_GAP = "  "
_CUT = ".."

# A heading and its text.
Paragraph = tuple[str, str]


class Column(t.NamedTuple):
    """A column's title, and a function that returns the value for a row. A `number` is right-aligned, and a text that `cuts` may be shortened."""

    head: str
    value: t.Callable[[t.Any], t.Any]
    number: bool = False
    cuts: bool = False


def table(columns: t.Sequence[Column], rows: t.Iterable[t.Any], width: int = WIDTH) -> list[str]:
    """The titles, and one line for each row. No line is longer than `width`, provided that shortening columns is sufficient."""
    cells = [[str(column.value(row)) for column in columns] for row in rows]
    sizes = [max(len(column.head), *(len(row[at]) for row in cells), 0) for at, column in enumerate(columns)]
    sizes = _fitted(columns, sizes, width)
    lines = [[column.head for column in columns], *cells]
    return [
        _GAP.join(_cell(cell, size, column) for cell, size, column in zip(line, sizes, columns, strict=True)).rstrip()
        for line in lines
    ]


def wrap(paragraphs: t.Iterable[Paragraph], width: int = WIDTH) -> list[str]:
    """Each heading with its text, wrapped; continuation lines are indented by two spaces, and long names are not broken."""
    return [
        line
        for head, text in paragraphs
        for line in textwrap.wrap(
            f"{head}: {text}", width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
    ]


def _fitted(columns: t.Sequence[Column], sizes: list[int], width: int) -> list[int]:
    """Shorten the widest of the columns that may be shortened, until the line fits. The first column, which identifies the row, is shortened last."""
    sizes = list(sizes)
    smallest = [
        len(column.head) + len(_CUT) if column.cuts else size for column, size in zip(columns, sizes, strict=True)
    ]
    while sum(sizes) + len(_GAP) * (len(sizes) - 1) > width:
        shortenable = [at for at, size in enumerate(sizes) if size > smallest[at]]
        if not shortenable:
            break
        sizes[max(shortenable, key=lambda at: (at > 0, sizes[at] - smallest[at]))] -= 1
    return sizes


def _cell(cell: str, size: int, column: Column) -> str:
    if len(cell) > size:
        cell = cell[: size - len(_CUT)] + _CUT
    return cell.rjust(size) if column.number else cell.ljust(size)
