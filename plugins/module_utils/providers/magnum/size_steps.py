# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order in which a group's size and bounds are changed, so that Magnum refuses no request on the way (pure).

Magnum refuses a patch after which min <= count <= max does not hold for the current count, and a resize to a number outside of the current
bounds; and one request changes either the bounds or the count.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """The number of nodes of a group and its bounds; high: None without a limit."""

    count: int
    low: int
    high: int | None

    @property
    def legal(self) -> bool:
        """Whether Magnum accepts it."""
        return 0 <= self.low <= self.count and (self.high is None or self.count <= self.high)


def next_size(current: Size, desired: Size) -> Size:
    """The size after the next request: other bounds, or another count, never both; `current` when nothing remains.

    Both must be legal. Bounds that exclude the desired count are widened first, then the count is changed, then the bounds get their
    final values.
    """
    if current.count == desired.count:
        return desired
    if current.low <= desired.count and (current.high is None or desired.count <= current.high):
        return Size(desired.count, current.low, current.high)
    high = None if current.high is None or desired.high is None else max(current.high, desired.high)
    return Size(current.count, min(current.low, desired.low), high)
