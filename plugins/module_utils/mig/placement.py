# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Places MIG devices on the memory slices of one GPU (pure)."""

from __future__ import annotations

import functools
import itertools
import typing as t

from ..catalog.mig import MEDIA_BESIDE, Geometry, Profile
from .layout import Counts


class Placement(t.NamedTuple):
    """One device on the memory slices `start` to `start + size - 1`."""

    profile: str
    start: int
    size: int

    @property
    def mask(self) -> int:
        """The memory slices that it occupies, one bit each."""
        return mask(self.start, self.size)


def place(geometry: Geometry, counts: Counts) -> tuple[Placement, ...] | None:
    """The placements on an empty GPU, the largest device first; None when not all of them fit.

    Of several possibilities it is the first: the largest device is created first, as far left as leaves room for all others; of equally large
    ones that with more compute slices, then by name.
    """
    wanted = _instances(geometry, counts)
    if wanted is None or media_conflict(wanted):
        return None
    starts = _starts(tuple((profile.size, profile.starts) for profile in wanted), 0)
    if starts is None:
        return None
    return tuple(Placement(one.name, start, one.size) for one, start in zip(wanted, starts, strict=True))


def fits(geometry: Geometry, counts: Counts) -> bool:
    """Whether all devices fit on one GPU: by placements, maximal counts and media engines."""
    return place(geometry, counts) is not None


def media_conflict(wanted: t.Iterable[Profile]) -> tuple[Profile, Profile] | None:
    """The first two profiles that cannot be combined because of their media engines (catalog/mig.py, MEDIA_BESIDE)."""
    pairs = itertools.combinations(wanted, 2)
    return next(((one, other) for one, other in pairs if other.media not in MEDIA_BESIDE[one.media]), None)


def in_order(geometry: Geometry) -> tuple[Profile, ...]:
    """The profiles in the order in which devices are created."""
    return tuple(sorted(geometry.profiles, key=lambda profile: (-profile.size, -profile.compute, profile.name)))


def mask(start: int, size: int) -> int:
    """The memory slices from `start` on, one bit each."""
    return ((1 << size) - 1) << start


def _instances(geometry: Geometry, counts: Counts) -> tuple[Profile, ...] | None:
    """A profile for each device, in the order of creation; None for an unknown profile or too many devices."""
    if any((profile := geometry.profile(name)) is None or count > profile.max_count for name, count in counts.items()):
        return None
    return tuple(profile for profile in in_order(geometry) for dummy in range(counts.get(profile.name, 0)))


@functools.lru_cache(maxsize=65536)
def _starts(wanted: tuple[tuple[int, tuple[int, ...]], ...], taken: int) -> tuple[int, ...] | None:
    """The start of each (size, starts) beside the occupied memory slices; None when they do not all fit."""
    if not wanted:
        return ()
    (size, starts), *others = wanted
    for start in starts:
        if not mask(start, size) & taken:
            rest = _starts(tuple(others), taken | mask(start, size))
            if rest is not None:
                return (start, *rest)
    return None
