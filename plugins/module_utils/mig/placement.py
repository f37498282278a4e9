# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where on one GPU MIG devices come to lie, and whether there is room for all of them (pure)."""

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
        """The memory slices that it takes, a bit each."""
        return mask(self.start, self.size)


def place(geometry: Geometry, counts: Counts) -> tuple[Placement, ...] | None:
    """The devices on an empty GPU, the largest first; None when there is no way to place all of them.

    Of several ways it is the first: the largest device is made first, as far left as leaves room for all others, and of
    equally large ones that with more compute slices, then that whose name comes first.
    """
    wanted = _instances(geometry, counts)
    if wanted is None or clash(wanted):
        return None
    starts = _starts(tuple((profile.size, profile.starts) for profile in wanted), 0)
    if starts is None:
        return None
    return tuple(Placement(one.name, start, one.size) for one, start in zip(wanted, starts, strict=True))


def fits(geometry: Geometry, counts: Counts) -> bool:
    """Whether one GPU has room: each device at one of its starts, none over another, none too often, media for all."""
    return place(geometry, counts) is not None


def clash(wanted: t.Iterable[Profile]) -> tuple[Profile, Profile] | None:
    """The first two that cannot stand beside each other for their media engines (catalog/mig.py, MEDIA_BESIDE)."""
    pairs = itertools.combinations(wanted, 2)
    return next(((one, other) for one, other in pairs if other.media not in MEDIA_BESIDE[one.media]), None)


def in_order(geometry: Geometry) -> tuple[Profile, ...]:
    """The profiles in the order in which devices are made."""
    return tuple(sorted(geometry.profiles, key=lambda profile: (-profile.size, -profile.compute, profile.name)))


def mask(start: int, size: int) -> int:
    """The memory slices from `start` on, a bit each."""
    return ((1 << size) - 1) << start


def _instances(geometry: Geometry, counts: Counts) -> tuple[Profile, ...] | None:
    """A profile for each device, in the order in which they are made; None when there is one too many, or none such."""
    if any((profile := geometry.profile(name)) is None or count > profile.max_count for name, count in counts.items()):
        return None
    return tuple(profile for profile in in_order(geometry) for dummy in range(counts.get(profile.name, 0)))


@functools.lru_cache(maxsize=65536)
def _starts(wanted: tuple[tuple[int, tuple[int, ...]], ...], taken: int) -> tuple[int, ...] | None:
    """Where each (size, starts) begins beside the memory slices that are taken; None when they do not all fit."""
    if not wanted:
        return ()
    (size, starts), *others = wanted
    for start in starts:
        if not mask(start, size) & taken:
            rest = _starts(tuple(others), taken | mask(start, size))
            if rest is not None:
                return (start, *rest)
    return None
