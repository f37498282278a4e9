# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All layouts of a GPU: which there are, which can take no more, what each leaves unused, which are like a wanted one (pure)."""

from __future__ import annotations

import functools
import typing as t
from collections import Counter

from ..catalog.mig import MEDIA_BESIDE, Geometry, Profile
from .layout import PROFILE, Counts, nominal_gb, without_memory
from .placement import in_order, mask

# A layout as how many there are of each profile, in the order in which devices are made.
Vector = tuple[int, ...]


class Unused(t.NamedTuple):
    """What no device of a layout has."""

    compute: int
    """Compute slices, of as many as the largest profile has."""
    memory: int
    """Memory slices, also those that no profile could reach any more."""
    media: bool
    """True when nobody has the engines of which a GPU has one, and which come with +me, +me.all or the whole GPU."""


def all_layouts(geometry: Geometry) -> tuple[Counts, ...]:
    """Every multiset of profiles that one GPU has room for, but for none at all; the largest profiles first."""
    return tuple(_counts(geometry, vector) for vector in _vectors(geometry))


def maximal(geometry: Geometry) -> tuple[Counts, ...]:
    """The layouts to which no device can be added; the largest profiles first.

    Whatever fits is a part of one of these, and every part of one of these fits.
    """
    return tuple(_counts(geometry, vector) for vector in _maximal(geometry))


def unused(geometry: Geometry, counts: Counts) -> Unused:
    """What a layout that fits leaves unused.

    Decoders and encoders come with the slices. What a layout can leave to nobody is the engine of which a GPU has just one,
    the OFA: 1 of it have profiles with +me or +me.all and the whole GPU, every other has 0 (MIG user guide, "Supported MIG
    Profiles"; `nvidia-smi mig -lgip` on an H200, driver 580.159.04).
    """
    devices = [(profile, counts[profile.name]) for profile in geometry.profiles if counts.get(profile.name)]
    return Unused(
        compute=max(profile.compute for profile in geometry.profiles) - sum(one.compute * n for one, n in devices),
        memory=geometry.slices - sum(one.size * n for one, n in devices),
        media=not any(one.media in ("one", "all") or one.size == geometry.slices for one, dummy in devices),
    )


def nearest(geometry: Geometry, counts: Counts, limit: int = 3) -> tuple[Counts, ...]:
    """The layouts that fit and differ least from the wanted one, nearest first; one that fits is its own nearest.

    Near is what needs the fewest changes, each of which adds a device, takes one out, or puts one of another profile into
    its place. Of equally near ones those come first that keep more of the wanted devices, then those that use as many
    memory slices as are wanted, or nearly, then those with the larger profiles. A profile that the GPU does not have stands for the one most like it.
    """
    order = in_order(geometry)
    meant = _meant(geometry, counts)
    wanted = tuple(meant.get(profile.name, 0) for profile in order)
    strange = sum(meant.values()) - sum(wanted)
    size = sum(want * profile.size for want, profile in zip(wanted, order, strict=True))

    def rank(vector: Vector) -> tuple[int, int, int]:
        lost = strange + sum(max(0, want - has) for want, has in zip(wanted, vector, strict=True))
        added = sum(max(0, has - want) for want, has in zip(wanted, vector, strict=True))
        used = sum(has * profile.size for has, profile in zip(vector, order, strict=True))
        return max(lost, added), lost, abs(size - used)

    return tuple(_counts(geometry, vector) for vector in sorted(_vectors(geometry), key=rank)[:limit])


@functools.lru_cache(maxsize=128)
def _vectors(geometry: Geometry) -> tuple[Vector, ...]:
    """Every layout but the empty one, built device after device, with all sets of slices that it can come to lie on."""
    order = in_order(geometry)
    reached: dict[Vector, set[int]] = {(0,) * len(order): {0}}
    for at, profile in enumerate(order):
        layer = dict(reached)
        for dummy in range(profile.max_count):
            layer = {
                (*vector[:at], vector[at] + 1, *vector[at + 1 :]): more
                for vector, taken in layer.items()
                if _bears(order, vector, profile) and (more := _with_one_more(profile, taken))
            }
            reached.update(layer)
    return tuple(sorted((vector for vector in reached if any(vector)), reverse=True))


@functools.lru_cache(maxsize=128)
def _maximal(geometry: Geometry) -> tuple[Vector, ...]:
    there = set(_vectors(geometry))
    return tuple(
        vector
        for vector in _vectors(geometry)
        if not any((*vector[:at], vector[at] + 1, *vector[at + 1 :]) in there for at in range(len(vector)))
    )


def _bears(order: t.Sequence[Profile], vector: Vector, profile: Profile) -> bool:
    """Whether the media engines suffice for one more of a profile."""
    return all(profile.media in MEDIA_BESIDE[one.media] for one, n in zip(order, vector, strict=True) if n)


def _with_one_more(profile: Profile, taken: t.Iterable[int]) -> set[int]:
    places = [mask(start, profile.size) for start in profile.starts]
    return {before | place for before in taken for place in places if not before & place}


def _meant(geometry: Geometry, counts: Counts) -> Counter[str]:
    """The wanted devices by the geometry's own names, where it has a profile with as much compute and the same extras."""
    meant: Counter[str] = Counter()
    for name, count in counts.items():
        meant[_likest(geometry, name)] += count
    return meant


def _likest(geometry: Geometry, name: str) -> str:
    if geometry.profile(name) or not PROFILE.fullmatch(name):
        return name
    alike = [profile.name for profile in geometry.profiles if without_memory(profile.name) == without_memory(name)]
    return min(alike, key=lambda other: abs(nominal_gb(other) - nominal_gb(name)), default=name)


def _counts(geometry: Geometry, vector: Vector) -> dict[str, int]:
    return {profile.name: n for profile, n in zip(in_order(geometry), vector, strict=True) if n}
