# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds, for packing.py, how many GPUs of each kind must be repartitioned to cover a demand, and how they are repartitioned (pure).

All vectors have one element for each demanded profile, the largest profile first.
"""

from __future__ import annotations

import itertools
import operator
import typing as t
from dataclasses import dataclass

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
