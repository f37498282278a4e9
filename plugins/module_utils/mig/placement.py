# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Places MIG devices on one GPU: geometries, placements on memory slices, all and maximal layouts, and the layouts nearest to a requested one (pure)."""

from __future__ import annotations

import functools
import itertools
import typing as t
from collections import Counter

from ..catalog import mig, models
from ..catalog.mig import MEDIA_BESIDE, Geometry, Profile
from .layout import PROFILE, Counts, nominal_gb, without_memory

# A layout as the count of each profile, in the order in which devices are created.
Vector = tuple[int, ...]


class Placement(t.NamedTuple):
    """One device on the memory slices `start` to `start + size - 1`."""

    profile: str
    start: int
    size: int

    @property
    def mask(self) -> int:
        """The occupied memory slices, one bit each."""
        return mask(self.start, self.size)


class Unused(t.NamedTuple):
    """The parts of a GPU that no device of a layout uses."""

    compute: int
    """Compute slices: those of the largest profile minus those of the layout's devices."""
    memory: int
    """Memory slices, including slices that no profile could use."""
    media: bool
    """Whether no device has the media engines that exist only once on a GPU; they belong to +me, +me.all or the whole GPU."""


def geometry_of(name: t.Any) -> Geometry:
    """The MIG profiles of the model with this name (see models.find).

    Raises ValueError with similar models for an unknown name, and with all models that support MIG for a model without MIG.
    """
    model = models.find(name) if isinstance(name, str) else None
    if model is None:
        similar = models.nearest(name) if isinstance(name, str) else ()
        raise ValueError(f"{name!r} is not a GPU model in the catalog; {_hint(similar)}")
    geometry = mig.geometry(model.key)
    if geometry is None:
        raise ValueError(f"{model.key} does not support MIG; {_hint(())}")
    return geometry


def _hint(keys: t.Sequence[str]) -> str:
    if keys:
        return f"did you mean {', '.join(keys)}?"
    return f"models with MIG: {', '.join(model.key for model in models.MODELS if model.mig_capable)}"


def place(geometry: Geometry, counts: Counts) -> tuple[Placement, ...] | None:
    """The placements on an empty GPU, the largest device first; None if not all devices fit.

    If there are several possibilities, the first one is returned: the largest device is placed first, as far left as possible while leaving room
    for all other devices. Equally large devices are sorted by compute slices, then by name.
    """
    instances = _instances(geometry, counts)
    if instances is None or media_conflict(instances):
        return None
    starts = _starts(tuple((profile.size, profile.starts) for profile in instances), 0)
    if starts is None:
        return None
    return tuple(Placement(one.name, start, one.size) for one, start in zip(instances, starts, strict=True))


def fits(geometry: Geometry, counts: Counts) -> bool:
    """Whether all devices fit on one GPU: by placements, maximal counts and media engines."""
    return place(geometry, counts) is not None


def media_conflict(profiles: t.Iterable[Profile]) -> tuple[Profile, Profile] | None:
    """The first two profiles that cannot be combined because of their media engines (catalog/mig.py, MEDIA_BESIDE)."""
    pairs = itertools.combinations(profiles, 2)
    return next(((one, other) for one, other in pairs if other.media not in MEDIA_BESIDE[one.media]), None)


def in_order(geometry: Geometry) -> tuple[Profile, ...]:
    """The profiles in the order in which devices are created."""
    return tuple(sorted(geometry.profiles, key=lambda profile: (-profile.size, -profile.compute, profile.name)))


def mask(start: int, size: int) -> int:
    """The `size` memory slices that begin with `start`, one bit each."""
    return ((1 << size) - 1) << start


def _instances(geometry: Geometry, counts: Counts) -> tuple[Profile, ...] | None:
    """A profile for each device, in the order of creation; None for an unknown profile or for too many devices."""
    if any((profile := geometry.profile(name)) is None or count > profile.max_count for name, count in counts.items()):
        return None
    return tuple(profile for profile in in_order(geometry) for dummy in range(counts.get(profile.name, 0)))


@functools.lru_cache(maxsize=65536)
def _starts(instances: tuple[tuple[int, tuple[int, ...]], ...], taken: int) -> tuple[int, ...] | None:
    """The start of each (size, starts) outside the occupied memory slices; None if not all of them fit."""
    if not instances:
        return ()
    (size, starts), *others = instances
    for start in starts:
        if not mask(start, size) & taken:
            rest = _starts(tuple(others), taken | mask(start, size))
            if rest is not None:
                return (start, *rest)
    return None


def all_layouts(geometry: Geometry) -> tuple[Counts, ...]:
    """Every non-empty multiset of profiles that fits on one GPU; the largest profiles first."""
    return tuple(_counts(geometry, vector) for vector in _vectors(geometry))


def maximal(geometry: Geometry) -> tuple[Counts, ...]:
    """The layouts to which no device can be added; the largest profiles first.

    Every layout that fits is a part of one of these layouts, and every part of one of these layouts fits.
    """
    return tuple(_counts(geometry, vector) for vector in _maximal(geometry))


def unused(geometry: Geometry, counts: Counts) -> Unused:
    """The parts of the GPU that a layout leaves unused; the layout must fit.

    Decoders and encoders belong to the slices. The only engine that can remain unused is the OFA. A GPU has only one OFA: profiles with +me or
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
    """The fitting layouts that differ least from the requested one, nearest first; a layout that fits is its own nearest layout.

    The distance is the number of changes that add, remove or replace a device. Equally near layouts are sorted by the number of requested
    devices, then by the similarity of their number of memory slices, then by larger profiles. A profile that the GPU does not have
    counts as the most similar profile.
    """
    order = in_order(geometry)
    requested = _with_known_names(geometry, counts)
    desired = tuple(requested.get(profile.name, 0) for profile in order)
    unknown = sum(requested.values()) - sum(desired)
    size = sum(want * profile.size for want, profile in zip(desired, order, strict=True))

    def rank(vector: Vector) -> tuple[int, int, int]:
        lost = unknown + sum(max(0, want - has) for want, has in zip(desired, vector, strict=True))
        added = sum(max(0, has - want) for want, has in zip(desired, vector, strict=True))
        used = sum(has * profile.size for has, profile in zip(vector, order, strict=True))
        return max(lost, added), lost, abs(size - used)

    return tuple(_counts(geometry, vector) for vector in sorted(_vectors(geometry), key=rank)[:limit])


@functools.lru_cache(maxsize=128)
def _vectors(geometry: Geometry) -> tuple[Vector, ...]:
    """All non-empty layouts, built device by device, with all sets of slices that they can occupy."""
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
    """The requested devices, with the geometry's own names if it has a profile with the same compute slices and extras."""
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
