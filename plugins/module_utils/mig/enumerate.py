# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Enumerates the layouts of a GPU: all, maximal ones, their unused slices, and those nearest to a requested one (pure)."""

from __future__ import annotations

import functools
import typing as t
from collections import Counter

from ..catalog.mig import MEDIA_BESIDE, Geometry, Profile
from .layout import PROFILE, Counts, nominal_gb, without_memory
from .placement import in_order, mask

# A layout as the count of each profile, in the order in which devices are created.
Vector = tuple[int, ...]


class Unused(t.NamedTuple):
    """The parts of a GPU that no device of a layout has."""

    compute: int
    """Compute slices, out of those of the largest profile."""
    memory: int
    """Memory slices, including those that no profile could use."""
    media: bool
    """True when no device has the media engines of which a GPU has only one; they belong to +me, +me.all or the whole GPU."""


def all_layouts(geometry: Geometry) -> tuple[Counts, ...]:
    """Every non-empty multiset of profiles that fits on one GPU; the largest profiles first."""
    return tuple(_counts(geometry, vector) for vector in _vectors(geometry))


def maximal(geometry: Geometry) -> tuple[Counts, ...]:
    """The layouts to which no device can be added; the largest profiles first.

    Every layout that fits is a part of one of these, and every part of one of these fits.
    """
    return tuple(_counts(geometry, vector) for vector in _maximal(geometry))


def unused(geometry: Geometry, counts: Counts) -> Unused:
    """What a layout that fits leaves unused.

    Decoders and encoders belong to the slices. The engine that can stay unused is the OFA, of which a GPU has only one: profiles with +me or
    +me.all and the whole GPU have it, all others do not (MIG user guide, "Supported MIG
    Profiles"; `nvidia-smi mig -lgip` on an H200, driver 580.159.04).
    """
    devices = [(profile, counts[profile.name]) for profile in geometry.profiles if counts.get(profile.name)]
    return Unused(
        compute=max(profile.compute for profile in geometry.profiles) - sum(one.compute * n for one, n in devices),
        memory=geometry.slices - sum(one.size * n for one, n in devices),
        media=not any(one.media in ("one", "all") or one.size == geometry.slices for one, dummy in devices),
    )


def nearest(geometry: Geometry, counts: Counts, limit: int = 3) -> tuple[Counts, ...]:
    """The layouts that fit and differ least from the requested one, nearest first; a layout that fits is its own nearest.

    The distance is the number of changes that add, remove or replace a device. Of equally near layouts those with more of the requested devices
    come first, then those with the most similar number of memory slices, then those with larger profiles. A profile that the GPU does not have
    counts as the most similar one.
    """
    order = in_order(geometry)
    requested = _with_known_names(geometry, counts)
    wanted = tuple(requested.get(profile.name, 0) for profile in order)
    unknown = sum(requested.values()) - sum(wanted)
    size = sum(want * profile.size for want, profile in zip(wanted, order, strict=True))

    def rank(vector: Vector) -> tuple[int, int, int]:
        lost = unknown + sum(max(0, want - has) for want, has in zip(wanted, vector, strict=True))
        added = sum(max(0, has - want) for want, has in zip(wanted, vector, strict=True))
        used = sum(has * profile.size for has, profile in zip(vector, order, strict=True))
        return max(lost, added), lost, abs(size - used)

    return tuple(_counts(geometry, vector) for vector in sorted(_vectors(geometry), key=rank)[:limit])


@functools.lru_cache(maxsize=128)
def _vectors(geometry: Geometry) -> tuple[Vector, ...]:
    """Every non-empty layout, built device by device, with all sets of slices that it can occupy."""
    order = in_order(geometry)
    reached: dict[Vector, set[int]] = {(0,) * len(order): {0}}
    for at, profile in enumerate(order):
        layer = dict(reached)
        for dummy in range(profile.max_count):
            layer = {
                (*vector[:at], vector[at] + 1, *vector[at + 1 :]): more
                for vector, taken in layer.items()
                if _media_suffice(order, vector, profile) and (more := _with_one_more(profile, taken))
            }
            reached.update(layer)
    return tuple(sorted((vector for vector in reached if any(vector)), reverse=True))


@functools.lru_cache(maxsize=128)
def _maximal(geometry: Geometry) -> tuple[Vector, ...]:
    fitting = set(_vectors(geometry))
    return tuple(
        vector
        for vector in _vectors(geometry)
        if not any((*vector[:at], vector[at] + 1, *vector[at + 1 :]) in fitting for at in range(len(vector)))
    )


def _media_suffice(order: t.Sequence[Profile], vector: Vector, profile: Profile) -> bool:
    """Whether the media engines suffice for one more device of a profile."""
    return all(profile.media in MEDIA_BESIDE[one.media] for one, n in zip(order, vector, strict=True) if n)


def _with_one_more(profile: Profile, taken: t.Iterable[int]) -> set[int]:
    places = [mask(start, profile.size) for start in profile.starts]
    return {before | place for before in taken for place in places if not before & place}


def _with_known_names(geometry: Geometry, counts: Counts) -> Counter[str]:
    """The requested devices by the geometry's own names, where it has a profile with the same compute slices and extras."""
    renamed: Counter[str] = Counter()
    for name, count in counts.items():
        renamed[_most_similar(geometry, name)] += count
    return renamed


def _most_similar(geometry: Geometry, name: str) -> str:
    if geometry.profile(name) or not PROFILE.fullmatch(name):
        return name
    similar = [profile.name for profile in geometry.profiles if without_memory(profile.name) == without_memory(name)]
    return min(similar, key=lambda other: abs(nominal_gb(other) - nominal_gb(name)), default=name)


def _counts(geometry: Geometry, vector: Vector) -> dict[str, int]:
    return {profile.name: n for profile, n in zip(in_order(geometry), vector, strict=True) if n}
