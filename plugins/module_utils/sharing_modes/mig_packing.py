# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses layouts for the GPUs of a pool so that demanded devices fit."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import operator
import typing as t
from collections import Counter, defaultdict
from dataclasses import dataclass, replace

from .mig import Counts, maximal

if t.TYPE_CHECKING:
    from ..catalog.mig import Geometry

# Finds how many GPUs of each kind must be repartitioned to cover a demand, and how they are repartitioned (pure).
#
# All vectors have one element for each demanded profile, the largest profile first.

Vector = tuple[int, ...]
# Missing devices (in memory slices), changed GPUs in use, and all changed GPUs. They are compared in this order; lower numbers are better.
Cost = tuple[int, int, int]

# The exact search changes at most this number of GPUs. For larger problems, a greedy search first makes equal changes to many GPUs.
_MAX_EXACT = 8
# After this number of states, a search ends with the best solution so far.
MAX_STATES = 3000
# Up to this number of profiles, all combinations are measured; if there are more, only single profiles and all profiles
# together are measured.
_MAX_COMBINED = 5


class GpuKind(t.NamedTuple):
    """GPUs that are equivalent for the search."""

    group: int
    """The index of the possible patterns in CoverProblem.patterns."""
    now: Vector
    """The demanded devices that each of these GPUs has, and loses when it is changed."""
    used: bool


@dataclass(frozen=True)
class CoverProblem:
    """A demand, the GPUs that may be changed, and the devices of all other GPUs."""

    memory: Vector
    """Memory slices of each profile."""
    worth: Vector
    """The sum of the memory and compute slices of each profile."""
    demand: Vector
    kept: Vector
    """The demanded devices on GPUs that must not be changed."""
    patterns: tuple[tuple[Vector, ...], ...]
    """For each group, the maximal sets of demanded devices on one GPU: layouts to which no demanded device can be added."""
    kinds: tuple[GpuKind, ...]
    numbers: tuple[int, ...]
    """The number of GPUs of each kind."""


class CoverChange(t.NamedTuple):
    """The change of a number of GPUs of a kind, given by its index, to a pattern."""

    kind: int
    pattern: Vector
    gpus: int


class CoverSolution(t.NamedTuple):
    """The best changes found, and their cost."""

    cost: Cost
    changes: tuple[CoverChange, ...]
    states: int
    """The number of additional states that the search could have visited; 0 if it ended early."""


def search_cover(problem: CoverProblem, states: int = MAX_STATES) -> CoverSolution:
    """The changes with the lowest cost; exact for a few changed GPUs, approximate for many."""
    return _Search(problem, states).run()


def dot(one: t.Iterable[int], other: t.Iterable[int]) -> int:
    """The dot product."""
    return sum(map(operator.mul, one, other))


class _State(t.NamedTuple):
    """A partial solution; no more devices of the `closed` profiles are added, even if some are missing."""

    offered: Vector
    remaining: Vector
    closed: frozenset[int] = frozenset()
    used: int = 0
    touched: int = 0
    changes: tuple[CoverChange, ...] = ()


class _Search:
    """A depth-first branch-and-bound search that tries the most promising change first.

    In each state, the search selects a profile with missing devices. It tries every change that adds a device of this profile, and then closes the
    profile. The search is therefore complete.
    """

    def __init__(self, problem: CoverProblem, states: int) -> None:
        self._problem = problem
        self._measures = _measures(problem)
        self._dominating = _dominating_kinds(problem.kinds)
        self._states = states
        self._visited: dict[tuple[Vector, Vector, frozenset[int]], tuple[int, int]] = {}
        current = [kind.now for kind in problem.kinds]
        offered = tuple(
            have + dot(problem.numbers, (now[at] for now in current)) for at, have in enumerate(problem.kept)
        )
        self._start = _State(offered, problem.numbers)
        self._best = CoverSolution(self._cost(self._start), (), states)

    def run(self) -> CoverSolution:
        """The best solution."""
        self._descend(self._greedy(self._start))
        return self._best._replace(states=self._states)

    def _greedy(self, state: _State) -> _State:
        """Make the best changes until few enough GPUs remain to be changed, and return that state. Each change is repeated while its gain stays the same.

        The best change has the largest gain by the measure that requires the most GPUs. Among equally good changes, the one with larger devices is best,
        because smaller devices are easier to place.
        """
        while sum(state.remaining) > _MAX_EXACT:
            opened = self._opened(state)
            remaining, measure = max(((self._by(one, opened), one[0]) for one in self._measures), default=(0, ()))
            if remaining <= _MAX_EXACT:
                break
            at = next(at for at, count in enumerate(opened) if count and measure[at])
            choices = [choice for choice in self._choices(state, at) if self._gain(state, *choice) > 0]
            if choices:
                used = [self._problem.kinds[number].used for number, dummy in choices]
                best = max(
                    (choice for choice, busy in zip(choices, used, strict=True) if busy == min(used)),
                    key=lambda choice: (
                        self._gain(state, choice[0], choice[1], measure),
                        self._gain(state, *choice),
                        choice[1],
                    ),
                )
                state = self._change(state, *best, self._repetitions(state, *best, remaining - _MAX_EXACT))
                self._note(state)
            else:
                state = state._replace(closed=state.closed | {at})
        return state

    def _descend(self, state: _State) -> None:
        at = self._first_missing(state)
        if at is None or not self._states:
            return
        self._states -= 1
        if self._lower_bound(state) >= self._best.cost:
            return
        key, paid = (state.offered, state.remaining, state.closed), (state.used, state.touched)
        if key in self._visited and self._visited[key] <= paid:
            return
        self._visited[key] = paid
        for choice in self._choices(state, at):
            after = self._change(state, *choice, 1)
            self._note(after)
            self._descend(after)
        self._descend(state._replace(closed=state.closed | {at}))

    def _choices(self, state: _State, at: int) -> list[tuple[int, Vector]]:
        """Pairs of a kind and a pattern that add a device of this profile, sorted: pairs with a gain first, then unused GPUs, then larger gains.

        A kind is skipped while a dominating kind is available, which can get the same patterns and loses less.
        """
        kinds = self._problem.kinds
        available = {number for number, count in enumerate(state.remaining) if count}
        choices = [
            (number, pattern)
            for number in sorted(available)
            if not self._dominating[number] & available
            for pattern in self._problem.patterns[kinds[number].group]
            if pattern[at]
        ]

        def rank(choice: tuple[int, Vector]) -> tuple[bool, bool, int]:
            gain = self._gain(state, *choice)
            return gain <= 0, kinds[choice[0]].used, -gain

        return sorted(choices, key=rank)

    def _change(self, state: _State, number: int, pattern: Vector, times: int) -> _State:
        kind = self._problem.kinds[number]
        return _State(
            tuple(have + (new - old) * times for have, new, old in zip(state.offered, pattern, kind.now, strict=True)),
            (*state.remaining[:number], state.remaining[number] - times, *state.remaining[number + 1 :]),
            state.closed,
            state.used + times * kind.used,
            state.touched + times,
            (*state.changes, CoverChange(number, pattern, times)),
        )

    def _repetitions(self, state: _State, number: int, pattern: Vector, most: int) -> int:
        """The number of times that the same change has the same gain as the first time."""
        times = min(state.remaining[number], most)
        for surplus, new, old in zip(self._surplus(state), pattern, self._problem.kinds[number].now, strict=True):
            if new > old and surplus < 0:
                times = min(times, -surplus // (new - old))
            elif new < old and surplus > 0:
                times = min(times, surplus // (old - new))
        return max(1, times)

    def _gain(self, state: _State, number: int, pattern: Vector, measure: Vector | None = None) -> int:
        """The number by which a change reduces missing devices, by a measure; the default measure is the sum of memory and compute slices."""
        now = self._problem.kinds[number].now
        return sum(
            (min(0, surplus + new - old) - min(0, surplus)) * worth
            for surplus, new, old, worth in zip(
                self._surplus(state), pattern, now, measure or self._problem.worth, strict=True
            )
            if new != old
        )

    def _surplus(self, state: _State) -> list[int]:
        return [have - want for have, want in zip(state.offered, self._problem.demand, strict=True)]

    def _gap(self, state: _State) -> list[int]:
        return [max(0, -surplus) for surplus in self._surplus(state)]

    def _opened(self, state: _State) -> list[int]:
        return [0 if at in state.closed else count for at, count in enumerate(self._gap(state))]

    def _first_missing(self, state: _State) -> int | None:
        return next((at for at, gap in enumerate(self._gap(state)) if gap and at not in state.closed), None)

    def _cost(self, state: _State) -> Cost:
        return dot(self._problem.memory, self._gap(state)), state.used, state.touched

    def _note(self, state: _State) -> None:
        cost = self._cost(state)
        if cost < self._best.cost:
            self._best = CoverSolution(cost, state.changes, self._states)

    def _lower_bound(self, state: _State) -> Cost:
        """A lower bound for the cost of solutions from this state that miss no more devices than the best solution so far."""
        memory, gap, best = self._problem.memory, self._gap(state), self._best.cost[0]
        opened = self._opened(state)
        closed = dot(memory, gap) - dot(memory, opened)
        room = self._measures[0][1] if self._measures else 0
        missing = closed + max(0, dot(memory, opened) - room * sum(state.remaining))
        if missing != best:
            return missing, state.used, state.touched
        to_fill = closed + dot(memory, opened) - best
        more = self._fewest(opened) if closed == best else -(-to_fill // room) if room else 0
        unused = sum(count for count, kind in zip(state.remaining, self._problem.kinds, strict=True) if not kind.used)
        return missing, state.used + max(0, more - unused), state.touched + more

    def _fewest(self, gap: t.Sequence[int]) -> int:
        """The minimum number of GPUs for these devices."""
        return max((self._by(measure, gap) for measure in self._measures), default=0)

    @staticmethod
    def _by(measure: tuple[Vector, int], gap: t.Sequence[int]) -> int:
        """The minimum number of GPUs for these devices by one measure."""
        return -(-dot(measure[0], gap) // measure[1])


def _measures(problem: CoverProblem) -> list[tuple[Vector, int]]:
    """Measures of devices, each with the maximum on one GPU; the first counts memory slices.

    Other measures count compute slices, or both kinds of slices, or the devices of some or all profiles.
    """
    places = range(len(problem.demand))
    sizes = places if len(places) <= _MAX_COMBINED else (0, len(places) - 1)
    several = [some for size in sizes for some in itertools.combinations(places, size + 1)]
    compute = tuple(map(operator.sub, problem.worth, problem.memory))
    counting = [tuple(int(at in some) for at in places) for some in several]
    patterns = {pattern for kind in problem.kinds for pattern in problem.patterns[kind.group]}
    each = [
        (measure, max((dot(measure, pattern) for pattern in patterns), default=0))
        for measure in (problem.memory, compute, problem.worth, *counting)
    ]
    return [(measure, most) for measure, most in each if most]


def _dominating_kinds(kinds: t.Sequence[GpuKind]) -> list[set[int]]:
    """For each kind, the other kinds that can get the same patterns, lose no more devices, and are not in use if this kind is not in use."""
    return [
        {
            other
            for other, poor in enumerate(kinds)
            if poor != rich
            and poor.group == rich.group
            and poor.used <= rich.used
            and all(map(operator.le, poor.now, rich.now))
        }
        for rich in kinds
    ]


# Selects the GPUs to repartition: for a solution of the search, or by first fit decreasing (pure).

# A GPU: its node's name and its index.
Key = tuple[str, int]
# The number of GPUs that get a pattern, by the index of the group of GPUs that can have it.
NewPatterns = t.Mapping[tuple[int, Vector], int]
Category = t.TypeVar("Category", bound=t.Hashable)

# Up to this number of sets of GPUs, each set is tried; if there are more, one set is composed node by node.
_MAX_SETS = 3000


class GpuSlot(t.NamedTuple):
    """A GPU that may be changed, with its kind in the search."""

    key: Key
    kind: GpuKind


def fewest_nodes(places: t.Sequence[GpuSlot], numbers: t.Mapping[GpuKind, int], allowed: Vector) -> tuple[GpuSlot, ...]:
    """Select the given number of GPUs of each kind, on as few nodes as possible.

    A kind can replace another kind with the same patterns and use, as long as no more than `allowed` is lost in total. If this is not possible,
    the kinds are used as given.
    """
    by_use: Counter[tuple[int, bool]] = Counter()
    for kind, number in numbers.items():
        by_use[kind.group, kind.used] += number
    lost = [sum(kind.now[at] * number for kind, number in numbers.items()) for at in range(len(allowed))]
    exact = _node_by_node(places, numbers, lambda place: place.kind, tuple(lost))
    other = _node_by_node(places, by_use, lambda place: (place.kind.group, place.kind.used), allowed)
    return min((selection for selection in (exact, other) if len(selection) == len(exact)), key=_preference)


def candidate_sets(places: t.Sequence[GpuSlot], cost: Cost) -> list[tuple[GpuSlot, ...]]:
    """All sets with the numbers of used and changed GPUs in `cost`, sorted by their number of nodes, then by keys; empty if there are too many sets."""
    dummy, used, touched = cost
    busy = [place for place in places if place.kind.used]
    idle = [place for place in places if not place.kind.used]
    if math.comb(len(busy), used) * math.comb(len(idle), touched - used) > _MAX_SETS:
        return []
    both = itertools.product(itertools.combinations(busy, used), itertools.combinations(idle, touched - used))
    return sorted((tuple(sorted(one + other, key=_key)) for one, other in both), key=_preference)


def assign_patterns(places: t.Sequence[GpuSlot], new: NewPatterns) -> dict[Key, Vector]:
    """Assign the patterns so that GPUs keep as many of their devices as possible; some GPUs may get no pattern."""
    rest = Counter(dict(new))
    waiting: dict[tuple[int, Vector], list[Key]] = defaultdict(list)
    for place in sorted(places, key=_key, reverse=True):
        waiting[place.kind.group, place.kind.now].append(place.key)
    pairs = [(group, pattern, now) for group, pattern in new for own_group, now in waiting if own_group == group]
    assigned: dict[Key, Vector] = {}
    for group, pattern, now in sorted(pairs, key=lambda pair: (-sum(map(min, pair[1], pair[2])), pair)):
        while rest[group, pattern] and waiting[group, now]:
            rest[group, pattern] -= 1
            assigned[waiting[group, now].pop()] = pattern
    return assigned


def first_fit(
    places: t.Iterable[GpuSlot], patterns: t.Sequence[tuple[Vector, ...]], offered: Vector, demand: Vector
) -> dict[Key, Vector]:
    """The new patterns if each missing device, the largest first, is placed on the first GPU with room for it.

    GPUs are repartitioned one after another: unused GPUs first, each group sorted by key. The devices of a repartitioned GPU are lost and become missing.
    `patterns` contains the patterns of each group of GPUs, and `offered` contains the demanded devices of all GPUs.
    """

    @functools.cache
    def has_room(group: int, vector: Vector) -> bool:
        return any(all(map(operator.le, vector, pattern)) for pattern in patterns[group])

    order = sorted(places, key=lambda place: (place.kind.used, place.key))
    have, cut = list(offered), list[list[int]]()
    # For each profile, the first repartitioned GPU that may have room; once a profile was refused, no other GPU is
    # tried.
    first, refused = [0] * len(demand), set[int]()
    opened: list[GpuSlot] = []
    waiting = dict.fromkeys(range(len(order)))

    def opens(at: int) -> bool:
        alone = tuple(int(other == at) for other in range(len(demand)))
        number = next((number for number in waiting if has_room(order[number].kind.group, alone)), None)
        if number is None:
            return False
        del waiting[number]
        opened.append(order[number])
        cut.append([0] * len(demand))
        for other, lost in enumerate(order[number].kind.now):
            have[other] -= lost
        return True

    while True:
        missing = (at for at, want in enumerate(demand) if have[at] < want and at not in refused)
        at = next(missing, None)
        if at is None:
            return {place.key: tuple(vector) for place, vector in zip(opened, cut, strict=True)}
        while first[at] < len(cut):
            vector = cut[first[at]]
            more = (*vector[:at], vector[at] + 1, *vector[at + 1 :])
            if has_room(opened[first[at]].kind.group, more):
                vector[at] += 1
                have[at] += 1
                break
            first[at] += 1
        else:
            if not opens(at):
                refused.add(at)


def _node_by_node(
    places: t.Sequence[GpuSlot],
    numbers: t.Mapping[Category, int],
    category: t.Callable[[GpuSlot], Category],
    allowed: Vector,
) -> tuple[GpuSlot, ...]:
    """Select the given number of GPUs of each category, always from the node with the most GPUs that are still needed, within the allowed losses.

    A node's count never grows, so it is only updated when the node seems to be the best.
    """
    demanded, room = Counter(dict(numbers)), list(allowed)
    nodes: dict[str, list[GpuSlot]] = defaultdict(list)
    for place in sorted(places, key=lambda place: (sum(place.kind.now), place.key)):
        nodes[place.key[0]].append(place)

    def usable(node: str) -> list[GpuSlot]:
        usable_gpus, unmet, free = [], Counter(demanded), room
        for place in nodes[node]:
            if unmet[category(place)] > 0 and all(map(operator.le, place.kind.now, free)):
                unmet[category(place)] -= 1
                free = list(map(operator.sub, free, place.kind.now))
                usable_gpus.append(place)
        return usable_gpus

    chosen: list[GpuSlot] = []
    queue = [(-len(members), node) for node, members in nodes.items()]
    heapq.heapify(queue)
    while queue and demanded.total():
        seemed, node = heapq.heappop(queue)
        candidate = usable(node)
        if len(candidate) < -seemed:
            if candidate:
                heapq.heappush(queue, (-len(candidate), node))
            continue
        chosen += candidate
        for place in candidate:
            demanded[category(place)] -= 1
            room = list(map(operator.sub, room, place.kind.now))
    return tuple(sorted(chosen, key=_key))


def _preference(some: tuple[GpuSlot, ...]) -> tuple[int, list[Key]]:
    return len({place.key[0] for place in some}), [place.key for place in some]


def _key(place: GpuSlot) -> Key:
    return place.key


# Distributes a demand of MIG devices over GPUs so that as few GPUs as possible are repartitioned (pure).


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
