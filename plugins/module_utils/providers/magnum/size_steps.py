# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which order a group's size and its bounds are changed, so that no request is refused on the way (pure).

Magnum refuses a patch after which min <= count <= max would not hold with the count that there is, and a resize to a number outside
of the bounds that there are; and it changes either the bounds or the count in one request.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """How many nodes a group has and may have; high: None without a limit."""

    count: int
    low: int
    high: int | None

    @property
    def legal(self) -> bool:
        """Whether Magnum takes it."""
        return 0 <= self.low <= self.count and (self.high is None or self.count <= self.high)


def next_size(now: Size, wanted: Size) -> Size:
    """What the next request is to make of it: other bounds, or another count, never both; `now` when nothing remains.

    Both must be legal. Bounds that the new count would break are widened first, then the count is changed, then they get their
    final values.
    """
    if now.count == wanted.count:
        return wanted
    if now.low <= wanted.count and (now.high is None or wanted.count <= now.high):
        return Size(wanted.count, now.low, now.high)
    return Size(now.count, min(now.low, wanted.low), _higher(now.high, wanted.high))


def path(now: Size, wanted: Size) -> t.Iterator[Size]:
    """All sizes on the way, the wanted one last."""
    while now != wanted:
        now = next_size(now, wanted)
        yield now


def _higher(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)
