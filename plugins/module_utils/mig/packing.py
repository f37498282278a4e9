# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Distributes a demand of MIG devices over GPUs so that as few GPUs as possible are repartitioned (pure)."""

from __future__ import annotations

import operator
import typing as t
from collections import Counter
from dataclasses import dataclass, replace

from ..catalog.mig import Geometry
from .cover_search import MAX_STATES, CoverChange, CoverProblem, GpuKind, Vector, search_cover
from .gpu_selection import GpuSlot, Key, NewPatterns, assign_patterns, candidate_sets, fewest_nodes, first_fit
from .layout import Counts
from .placement import maximal


@dataclass(frozen=True)
class PackedGpu:
    """One GPU that may be repartitioned."""

    node: str
    index: int
    now: Counts | None
    """The MIG devices; None if MIG is disabled and the GPU is whole."""
    used: bool
    """Whether pods use this GPU or another GPU of the node, which makes a change more costly."""
    geometry: Geometry

    @property
    def key(self) -> Key:
        """The node and the index of the GPU."""
        return self.node, self.index


@dataclass(frozen=True)
class PackingResult:
    """The layouts of the GPUs afterwards."""

    layouts: t.Mapping[Key, Counts]
    """The layout of every GPU with MIG devices afterwards, changed or not."""
    touched: tuple[Key, ...]
    """The GPUs whose layout changes, sorted."""
    missing: Counts
    """The devices that did not fit; empty if the demand is met."""


def pack(gpus: t.Sequence[PackedGpu], demand: Counts) -> PackingResult:
    """Find layouts that together provide at least the demanded devices.

    The priorities are the fewest missing devices (in memory slices), then the fewest changed GPUs in use, the fewest changed GPUs, the fewest nodes,
    and the first keys. An unchanged GPU keeps its layout, even beyond the demand; a changed GPU loses its devices, so they are placed
    again, and gets only demanded devices. The order of the GPUs does not matter, and packing the result again changes nothing.
    """
    order = sorted(gpus, key=lambda gpu: gpu.key)
    demanded = {name: count for name, count in demand.items() if count > 0}
    before = {gpu.key: gpu.now for gpu in order}
    packed = _Packing(order, demanded).packed()
    # A search that ended early may find room for missing devices when it starts from its own result.
    while packed.missing and packed.touched:
        order = [replace(gpu, now=packed.layouts.get(gpu.key)) for gpu in order]
        packed = _Packing(order, demanded).packed()
    return replace(packed, touched=tuple(key for key, now in before.items() if packed.layouts.get(key) != now))


class _Packing:
    """The GPUs and the demand as vectors with an element for each demanded profile, the largest first."""

    def __init__(self, gpus: t.Sequence[PackedGpu], demanded: Counts) -> None:
        self._gpus = gpus
        geometries = tuple(dict.fromkeys(gpu.geometry for gpu in gpus))
        sizes = {name: _size(name, geometries) for name in demanded}
        self._names = sorted(demanded, key=lambda name: (*(-slices for slices in sizes[name]), name))
        self._sizes = [sizes[name] for name in self._names]
        self._demand = tuple(demanded[name] for name in self._names)
        self._patterns = tuple(self._of_geometry(geometry) for geometry in geometries)
        groups = {geometry: number for number, geometry in enumerate(geometries)}
        nothing = self._vector({})
        self._places = [
            GpuSlot(gpu.key, GpuKind(groups[gpu.geometry], self._vector(gpu.now) if gpu.now else nothing, gpu.used))
            for gpu in gpus
        ]

    def packed(self) -> PackingResult:
        """The best layouts found; never worse than the layouts of first fit decreasing."""
        able = [place for place in self._places if self._patterns[place.kind.group]]
        plain = first_fit(able, self._patterns, self._offered({}), self._demand)
        assigned = self._without_surplus(assign_patterns(*self._choice()))
        return min((self._made(assigned), self._made(plain)), key=self._cost)

    def _made(self, new: t.Mapping[Key, Vector]) -> PackingResult:
        layouts = {gpu.key: dict(gpu.now) for gpu in self._gpus if gpu.now is not None}
        for key, pattern in new.items():
            layouts[key] = {name: n for name, n in sorted(zip(self._names, pattern, strict=True)) if n}
        missing = {name: -surplus for name, surplus in zip(self._names, self._surplus(new), strict=True) if surplus < 0}
        return PackingResult(dict(sorted(layouts.items())), tuple(sorted(new)), dict(sorted(missing.items())))

    def _choice(self) -> tuple[tuple[GpuSlot, ...], NewPatterns]:
        """The GPUs to change, and their new patterns."""
        problem = self._problem({place.key for place in self._places})
        solution = search_cover(problem)
        new = _new(problem, solution.changes)
        if not solution.changes:
            return (), new
        able = [place for place in self._places if self._patterns[place.kind.group]]
        numbers: Counter[GpuKind] = Counter()
        for change in solution.changes:
            numbers[problem.kinds[change.kind]] += change.gpus
        known: dict[frozenset[tuple[GpuKind, int]], tuple[int, NewPatterns]] = {}
        states = MAX_STATES
        for some in candidate_sets(able, solution.cost):
            alike = frozenset(Counter(place.kind for place in some).items())
            if alike not in known:
                whole = self._problem({place.key for place in some}, whole=True)
                missing, changes, states = search_cover(whole, states)
                known[alike] = missing[0], _new(whole, changes)
            if known[alike][0] <= solution.cost[0]:
                return some, known[alike][1]
            if not states:
                break
        return fewest_nodes(able, numbers, self._allowed(numbers, new)), new

    def _allowed(self, numbers: t.Mapping[GpuKind, int], new: NewPatterns) -> Vector:
        """How many devices of each profile GPUs may lose without more missing devices than if GPUs of these kinds were changed."""
        return tuple(
            max(
                sum(kind.now[at] * number for kind, number in numbers.items()),
                sum(place.kind.now[at] for place in self._places)
                + sum(pattern[at] * times for (dummy, pattern), times in new.items())
                - want,
            )
            for at, want in enumerate(self._demand)
        )

    def _problem(self, free: t.Container[Key], whole: bool = False) -> CoverProblem:
        """The problem in which these GPUs may be changed, with their current devices or as if they were whole."""
        kinds: Counter[GpuKind] = Counter()
        kept = [0] * len(self._names)
        for place in self._places:
            if place.key in free and self._patterns[place.kind.group]:
                kinds[place.kind._replace(now=(0,) * len(kept)) if whole else place.kind] += 1
            else:
                kept = [have + more for have, more in zip(kept, place.kind.now, strict=True)]
        return CoverProblem(
            memory=tuple(memory for memory, dummy in self._sizes),
            worth=tuple(memory + compute for memory, compute in self._sizes),
            demand=self._demand,
            kept=tuple(kept),
            patterns=self._patterns,
            kinds=tuple(kinds),
            numbers=tuple(kinds.values()),
        )

    def _without_surplus(self, new: t.Mapping[Key, Vector]) -> dict[Key, Vector]:
        """The new patterns without surplus devices. These are removed from the last GPUs first; devices that a GPU already has are removed last."""
        surplus = self._surplus(new)
        now = {place.key: place.kind.now for place in self._places}
        lean = {key: list(pattern) for key, pattern in new.items()}
        for spared in (now, {key: (0,) * len(surplus) for key in now}):
            for key, at in ((key, at) for key in sorted(lean, reverse=True) for at in range(len(surplus))):
                less = max(0, min(surplus[at], lean[key][at] - spared[key][at]))
                lean[key][at] -= less
                surplus[at] -= less
        needed = {key: tuple(pattern) for key, pattern in lean.items() if any(pattern)}
        # A GPU without a new pattern keeps its devices, which may create new surplus.
        return needed if len(needed) == len(new) else self._without_surplus(needed)

    def _cost(self, packed: PackingResult) -> tuple[int, int, int, int]:
        """The missing memory slices, the changed GPUs in use, all changed GPUs, and their nodes."""
        memory = {name: size for name, (size, dummy) in zip(self._names, self._sizes, strict=True)}
        touched = [gpu for gpu in self._gpus if packed.layouts.get(gpu.key) != gpu.now]
        return (
            sum(memory[name] * count for name, count in packed.missing.items()),
            sum(gpu.used for gpu in touched),
            len(touched),
            len({gpu.node for gpu in touched}),
        )

    def _offered(self, new: t.Mapping[Key, Vector]) -> Vector:
        """The demanded devices with these patterns."""
        each = [new.get(place.key, place.kind.now) for place in self._places]
        return tuple(map(sum, zip(*each, strict=True))) or (0,) * len(self._demand)

    def _surplus(self, new: t.Mapping[Key, Vector]) -> list[int]:
        """The surplus of each profile with these patterns; negative if devices are missing."""
        return list(map(operator.sub, self._offered(new), self._demand))

    def _of_geometry(self, geometry: Geometry) -> tuple[Vector, ...]:
        """The maximal sets of demanded devices on one GPU."""
        patterns = {self._vector(layout) for layout in maximal(geometry)}
        return tuple(
            sorted(
                one
                for one in patterns
                if any(one) and not any(one != other and all(map(operator.le, one, other)) for other in patterns)
            )
        )

    def _vector(self, counts: Counts) -> Vector:
        return tuple(min(counts.get(name, 0), want) for name, want in zip(self._names, self._demand, strict=True))


def _size(name: str, geometries: t.Sequence[Geometry]) -> tuple[int, int]:
    """The memory and compute slices of a profile; the maximum if models differ. Both are 1 if no GPU has the profile."""
    sizes = [(one.size, one.compute) for geometry in geometries if (one := geometry.profile(name))]
    return max(sizes, default=(1, 1))


def _new(problem: CoverProblem, changes: t.Iterable[CoverChange]) -> NewPatterns:
    new: Counter[tuple[int, Vector]] = Counter()
    for change in changes:
        new[problem.kinds[change.kind].group, change.pattern] += change.gpus
    return new
