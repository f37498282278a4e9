# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG layouts: devices per GPU, where NVIDIA's driver can place them, and why a layout does not fit."""

from __future__ import annotations

import functools
import itertools
import re
import typing as t
from collections import Counter
from dataclasses import dataclass

from ..catalog import mig, models
from ..catalog.mig import MEDIA_BESIDE, RESOURCE_PREFIX, Geometry, Profile
from ..catalog.names import LABEL_LENGTH, MIG_INFIX

# MIG layouts: their notations, and the values that are derived from profiles' names (pure).

SINGLE, MIXED = "single", "mixed"
STRATEGIES = (SINGLE, MIXED)

# A profile in nvidia-smi and mig-parted (go-nvlib pkg/nvlib/device/mig_profile.go), without compute instances.
PROFILE = re.compile(r"[1-9][0-9]{0,2}g\.[1-9][0-9]{0,4}gb([+-][a-z][a-z0-9.]{0,30})?", re.ASCII)
# A GPU's index as the key of a layout.
INDEX = re.compile(r"[0-9]{1,6}", re.ASCII)

# The MIG devices of one GPU: the count of each profile, by its name in nvidia-smi.
Counts = t.Mapping[str, int]


@dataclass(frozen=True)
class Part:
    """The MIG devices of some GPUs of a node as {profile: count}. Empty `devices` stand for every GPU, and empty `profiles` for whole GPUs."""

    devices: tuple[int, ...]
    profiles: dict[str, int]


Layout = tuple[Part, ...]


def parse_layout(written: t.Any) -> Layout:
    """Parse a valid layout: one layout for every GPU, or one for each GPU by its index.

    The notation is {profile: count}, a list of profiles, or a map or list of these by GPU index.
    """
    if isinstance(written, dict) and not any(_is_index(key) for key in written):
        return (Part((), _counts(written)),)
    if isinstance(written, list) and all(isinstance(item, str) for item in written):
        return (Part((), _counts(written)),)
    by_index = written.items() if isinstance(written, dict) else enumerate(written)
    alike: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for index, of_gpu in by_index:
        alike.setdefault(tuple(sorted(_counts(of_gpu or {}).items())), []).append(int(index))
    return tuple(Part(tuple(sorted(indices)), dict(profiles)) for profiles, indices in alike.items())


def on_gpu(layout: Layout, index: int) -> Counts:
    """The MIG devices of the GPU with this index; a GPU that is not in the layout stays whole."""
    return next((part.profiles for part in layout if not part.devices or index in part.devices), {})


def uniform(layout: Layout) -> str | None:
    """The only profile of all MIG devices on all GPUs; None if there are several profiles, or whole GPUs."""
    if len(layout) == 1 and not layout[0].devices and len(layout[0].profiles) == 1:
        return next(iter(layout[0].profiles))
    return None


def single_product(product: str, profile: str, suffix: str = "") -> str:
    """GFD's product label under the strategy single (k8s-device-plugin internal/lm); `suffix` is the suffix of shared devices."""
    return f"{product}{MIG_INFIX}{profile.replace('+', '.')}{suffix}"


def strategy_for(layout: Layout, product: str = "", suffix: str = "") -> str:
    """The strategy that a layout needs: single if all devices have one profile, so that workloads need no change.

    It is mixed if the product label would be too long, because NFD would drop the label and the node's model would be unknown.
    """
    profile = uniform(layout)
    fits_in_label = profile is not None and len(single_product(product, profile, suffix)) <= LABEL_LENGTH
    return SINGLE if fits_in_label else MIXED


def profiles(layout: Layout) -> tuple[str, ...]:
    """Every profile of the layout, sorted."""
    return tuple(sorted({name for part in layout for name in part.profiles}))


def nominal_gb(profile: str) -> int:
    """The memory in a profile's name, in GB; slightly less is usable."""
    return int(profile.partition("g.")[2].partition("gb")[0])


@functools.lru_cache(maxsize=1024)
def plain(profile: str) -> str:
    """The profile without its extras: `1g.5gb+me` -> `1g.5gb`."""
    return re.split("[+-]", profile, maxsplit=1)[0]


def without_memory(profile: str) -> str:
    """A profile's compute slices and extras: `1g.24gb+me.all` -> `1g+me.all`."""
    compute, dummy, rest = profile.partition(".")
    return compute + rest.partition("gb")[2]


def resource(profile: str) -> str:
    """The extended resource under the strategy mixed (k8s-device-plugin internal/rm: a name cannot contain `+`)."""
    return RESOURCE_PREFIX + profile.replace("+", ".")


def format_devices(counts: Counts) -> list[str]:
    """A layout of one GPU as the sorted list of its devices' profiles."""
    return [name for name, count in sorted(counts.items()) for dummy in range(count)]


def format_layout(counts: Counts) -> str:
    """A layout of one GPU as text: `2 x 1g.5gb + 1 x 3g.20gb`."""
    return " + ".join(f"{count} x {name}" for name, count in sorted(counts.items()) if count) or "nothing"


def _counts(of_gpu: t.Any) -> dict[str, int]:
    counts = of_gpu if isinstance(of_gpu, dict) else Counter(of_gpu)
    return {name: counts[name] for name in sorted(counts) if counts[name] > 0}


def _is_index(key: t.Any) -> bool:
    return isinstance(key, int) or (isinstance(key, str) and INDEX.fullmatch(key) is not None)


# Places MIG devices on one GPU: geometries, placements on memory slices, all and maximal layouts, and the layouts nearest to a requested one (pure).

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
    return tuple(_profile_counts(geometry, vector) for vector in _vectors(geometry))


def maximal(geometry: Geometry) -> tuple[Counts, ...]:
    """The layouts to which no device can be added; the largest profiles first.

    Every layout that fits is a part of one of these layouts, and every part of one of these layouts fits.
    """
    return tuple(_profile_counts(geometry, vector) for vector in _maximal(geometry))


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

    return tuple(_profile_counts(geometry, vector) for vector in sorted(_vectors(geometry), key=rank)[:limit])


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


def _profile_counts(geometry: Geometry, vector: Vector) -> dict[str, int]:
    return {profile.name: n for profile, n in zip(in_order(geometry), vector, strict=True) if n}


# Explains why a MIG layout does not fit on a GPU, and finds the nearest layouts that fit (pure).


def fit_error(geometry: Geometry, counts: Counts) -> str | None:
    """The reason why these profiles do not fit and the three nearest layouts that do, as the continuation of `an A100 `; None if they fit.

    The reason lists as few devices as possible: without the last of them, the others would fit.
    """
    reason = _unknown(geometry, counts) or _too_many(geometry, counts) or _media(geometry, counts)
    if reason is None and fits(geometry, counts):
        return None
    alternatives = "; ".join(format_layout(layout) for layout in nearest(geometry, counts))
    return f"{reason or _overlap(geometry, counts)}; the nearest layouts that fit: {alternatives}"


def _unknown(geometry: Geometry, counts: Counts) -> str | None:
    for name in counts:
        if geometry.profile(name) is None:
            return f"has no profile {name}; it has {', '.join(profile.name for profile in geometry.profiles)}"
    return None


def _too_many(geometry: Geometry, counts: Counts) -> str | None:
    for profile in geometry.profiles:
        if counts.get(profile.name, 0) > profile.max_count:
            return f"has room for {profile.max_count} x {profile.name}, not for {counts[profile.name]}"
    return None


def _media(geometry: Geometry, counts: Counts) -> str | None:
    pair = media_conflict(profile for profile in in_order(geometry) if counts.get(profile.name))
    if pair is None:
        return None
    for greedy, other in (pair, pair[::-1]):
        if greedy.media == "all":
            return (
                f"has no media engines left for {other.name} next to {greedy.name}, which uses all of them: it can only "
                "be combined with profiles with -me"
            )
    return f"has the media extensions (+me) for one device, not for {pair[0].name} and {pair[1].name}"


def _overlap(geometry: Geometry, counts: Counts) -> str:
    """The devices that need the same memory slices, with their placements."""
    core = _minimal_conflict(geometry, counts)
    last = next(profile for profile in reversed(in_order(geometry)) if core.get(profile.name))
    rest = {**core, last.name: core[last.name] - 1}
    possible = 0
    for start in last.starts:
        possible |= mask(start, last.size)
    blocking = [placed for placed in place(geometry, rest) or () if placed.mask & possible]
    leave = "leave" if len(blocking) > 1 else "leaves"
    return (
        f"has no room for {format_layout(counts)} together: {_list([_placement(placed) for placed in blocking])} (memory slices) {leave} no "
        f"place for {last.name}, which needs {_places(last)}"
    )


def _minimal_conflict(geometry: Geometry, counts: Counts) -> dict[str, int]:
    """A minimal set of large devices that do not fit together; without any one of them, the rest fits."""
    core = {name: count for name, count in counts.items() if count}
    for profile in reversed(in_order(geometry)):
        while core.get(profile.name) and not fits(geometry, fewer := {**core, profile.name: core[profile.name] - 1}):
            core = fewer
    return {name: count for name, count in core.items() if count}


def _placement(placed: Placement) -> str:
    return f"{placed.profile} on {_span(placed.start, placed.size)}"


def _places(profile: Profile) -> str:
    if profile.size == 1:
        return f"one of {profile.starts[0]} to {profile.starts[-1]}"
    return " or ".join(_span(start, profile.size) for start in profile.starts)


def _span(start: int, size: int) -> str:
    return f"{start}" if size == 1 else f"{start}-{start + size - 1}"


def _list(items: list[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


# Draws GPUs as bars of memory slices for a terminal (pure).

# The frame of a field, and the filler of free slices.
_FRAME, _FREE = "|", "-"


def draw_gpu(gpus: t.Sequence[tuple[int, t.Sequence[Placement]]], width: int) -> list[str]:
    """Draw a bar for each GPU, which is given by its number of memory slices and its devices; all bars have the same scale.

    Each device is a field with its profile's name and a width in proportion to its slices; free slices are lines. If a bar would be wider than
    `width` characters, the names are shortened: without `gb`, then without the memory.
    """
    for named in (str, _without_unit, without_memory):
        each = max(
            (-(-(len(named(device.profile)) + 1) // device.size) for dummy, devices in gpus for device in devices),
            default=2,
        )
        if max((slices for slices, dummy in gpus), default=0) * each + 1 <= width:
            break
    return [
        _bar(slices, {device.start: (device.size, named(device.profile)) for device in devices}, each)
        for slices, devices in gpus
    ]


def _bar(slices: int, fields: t.Mapping[int, tuple[int, str]], each: int) -> str:
    drawing, at = [], 0
    while at < slices:
        if at in fields:
            size, name = fields[at]
            drawing.append(_FRAME + name.ljust(size * each - 1))
        else:
            size = min([start for start in fields if start > at], default=slices) - at
            drawing.append(_FRAME + _FREE * (size * each - 1))
        at += size
    return "".join(drawing) + _FRAME


def _without_unit(profile: str) -> str:
    return profile.replace("gb", "")
