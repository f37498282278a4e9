# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A GPU as a bar of its memory slices, for a terminal (pure)."""

from __future__ import annotations

import typing as t

# A field's frame, and what fills slices on which nothing lies.
_FRAME, _FREE = "|", "-"


class Lying(t.Protocol):
    """A device on the slices `start` to `start + size - 1`."""

    @property
    def profile(self) -> str:
        """Its profile."""

    @property
    def start(self) -> int:
        """The first slice."""

    @property
    def size(self) -> int:
        """How many slices."""


def drawn(gpus: t.Sequence[tuple[int, t.Sequence[Lying]]], width: int = 80) -> list[str]:
    """A bar for each GPU, given as its number of memory slices and its devices; all in one scale.

    Each device is a field with its profile's name, as wide as it has slices; free slices are lines. `gb` is left out of the names where
    a bar would be wider than `width` characters with it.
    """
    for names in (_whole, _without_unit):
        each = max((-(-(len(names(of)) + 1) // of.size) for dummy, devices in gpus for of in devices), default=2)
        if max((slices for slices, dummy in gpus), default=0) * each + 1 <= width:
            break
    return [_bar(slices, {of.start: (of.size, names(of)) for of in devices}, each) for slices, devices in gpus]


def _bar(slices: int, fields: t.Mapping[int, tuple[int, str]], each: int) -> str:
    bar, at = [], 0
    while at < slices:
        if at in fields:
            size, name = fields[at]
            bar.append(_FRAME + name.ljust(size * each - 1))
        else:
            size = min([start for start in fields if start > at], default=slices) - at
            bar.append(_FRAME + _FREE * (size * each - 1))
        at += size
    return "".join(bar) + _FRAME


def _whole(of: Lying) -> str:
    return of.profile


def _without_unit(of: Lying) -> str:
    return of.profile.replace("gb", "")
