# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many GPUs of which kind are cut anew, and into what, so that a demand is covered: the search behind packing.py (pure).

Everything here is a vector with a place for each demanded profile, the largest profile first.
"""

from __future__ import annotations

import itertools
import operator
import typing as t
from dataclasses import dataclass

Vector = tuple[int, ...]
# What is missing (in memory slices), used GPUs that are touched, all that are touched; less is better, the first decides.
Cost = tuple[int, int, int]

# How many GPUs at most the exact search adds to a solution; what is larger begins with as many alike as fit best.
_TAIL = 8
# After so many states a search ends with the best that it has seen.
STATES = 3000
# Of so many profiles all combinations are counted, of more each alone and all together.
_MANY_PROFILES = 5


class GpuKind(t.NamedTuple):
    """GPUs that differ in nothing that matters here."""

    group: int
    """The number of the patterns that it can be cut into, in Problem.patterns."""
    now: Vector
    """What of the demand it has, and loses when it is touched."""
    used: bool


@dataclass(frozen=True)
class CoverProblem:
    """A demand, the GPUs that may be touched, and what the others have."""

    memory: Vector
    """Memory slices of each profile."""
    worth: Vector
    """Memory and compute slices of each profile, added."""
    demand: Vector
    kept: Vector
    """What is there of the demand on GPUs that are not touched in any case."""
    patterns: tuple[tuple[Vector, ...], ...]
    """What of the demand one GPU of each group can have at most, each a layout to which nothing demanded can be added."""
    kinds: tuple[GpuKind, ...]
    numbers: tuple[int, ...]
    """How many GPUs there are of each kind."""


class CoverCut(t.NamedTuple):
    """So many GPUs of a kind, by its number, get a pattern."""

    kind: int
    pattern: Vector
    times: int


class CoverSolution(t.NamedTuple):
    """The best cuts that were found, and what they cost."""

    cost: Cost
    cuts: tuple[CoverCut, ...]
    states: int
    """How many states the search may still have looked at: 0 when it was broken off."""


def search_cover(problem: CoverProblem, states: int = STATES) -> CoverSolution:
    """The cuts that cost least: certainly so where a few GPUs have to be touched, near it where they are many."""
    return _Search(problem, states).run()


def dot(one: t.Iterable[int], other: t.Iterable[int]) -> int:
    """The sum of the products, place by place."""
    return sum(map(operator.mul, one, other))


class _State(t.NamedTuple):
    """A part of a solution; `closed` are the profiles of which nothing more is made although some are missing."""

    offered: Vector
    left: Vector
    closed: frozenset[int] = frozenset()
    used: int = 0
    touched: int = 0
    cuts: tuple[CoverCut, ...] = ()


class _Search:
    """Depth first, the most promising cut first, without what cannot be better than the best seen so far.

    In every state some profile is missing. Either a cut that is still to come makes a device of it, and every such cut is
    tried, or none does, and it is closed: so nothing is left out.
    """

    def __init__(self, problem: CoverProblem, states: int) -> None:
        self._problem = problem
        self._measures = _measures(problem)
        self._poorer = _poorer(problem.kinds)
        self._states = states
        self._seen: dict[tuple[Vector, Vector, frozenset[int]], tuple[int, int]] = {}
        whole = [kind.now for kind in problem.kinds]
        offered = tuple(have + dot(problem.numbers, (now[at] for now in whole)) for at, have in enumerate(problem.kept))
        self._start = _State(offered, problem.numbers)
        self._best = CoverSolution(self._cost(self._start), (), states)

    def run(self) -> CoverSolution:
        """The best solution."""
        self._descend(self._in_bulk(self._start))
        return self._best._replace(states=self._states)

    def _in_bulk(self, state: _State) -> _State:
        """The state from which few enough GPUs remain to be touched: until then the best cut, as often as it stays as good.

        Best is what brings most of that for which the most GPUs are needed, and of equally good cuts that with the larger
        devices, since the smaller ones find a place more easily.
        """
        while sum(state.left) > _TAIL:
            opened = self._opened(state)
            remaining, measure = max(((self._by(one, opened), one[0]) for one in self._measures), default=(0, ()))
            if remaining <= _TAIL:
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
                state = self._cut(state, *best, self._times(state, *best, remaining - _TAIL))
                self._note(state)
            else:
                state = state._replace(closed=state.closed | {at})
        return state

    def _descend(self, state: _State) -> None:
        at = self._first_missing(state)
        if at is None or not self._states:
            return
        self._states -= 1
        if self._at_least(state) >= self._best.cost:
            return
        key, paid = (state.offered, state.left, state.closed), (state.used, state.touched)
        if key in self._seen and self._seen[key] <= paid:
            return
        self._seen[key] = paid
        for choice in self._choices(state, at):
            after = self._cut(state, *choice, 1)
            self._note(after)
            self._descend(after)
        self._descend(state._replace(closed=state.closed | {at}))

    def _choices(self, state: _State, at: int) -> list[tuple[int, Vector]]:
        """Kinds and patterns that make a device of this profile: unused GPUs, and those that gain most, first.

        A kind is no choice as long as there is a poorer one: whatever it can do, the other can, and loses less.
        """
        kinds = self._problem.kinds
        there = {number for number, left in enumerate(state.left) if left}
        choices = [
            (number, pattern)
            for number in sorted(there)
            if not self._poorer[number] & there
            for pattern in self._problem.patterns[kinds[number].group]
            if pattern[at]
        ]

        def rank(choice: tuple[int, Vector]) -> tuple[bool, bool, int]:
            gain = self._gain(state, *choice)
            return gain <= 0, kinds[choice[0]].used, -gain

        return sorted(choices, key=rank)

    def _cut(self, state: _State, number: int, pattern: Vector, times: int) -> _State:
        kind = self._problem.kinds[number]
        return _State(
            tuple(have + (new - old) * times for have, new, old in zip(state.offered, pattern, kind.now, strict=True)),
            (*state.left[:number], state.left[number] - times, *state.left[number + 1 :]),
            state.closed,
            state.used + times * kind.used,
            state.touched + times,
            (*state.cuts, CoverCut(number, pattern, times)),
        )

    def _times(self, state: _State, number: int, pattern: Vector, most: int) -> int:
        """How often the same cut brings as much as it does the first time."""
        times = min(state.left[number], most)
        for surplus, new, old in zip(self._surplus(state), pattern, self._problem.kinds[number].now, strict=True):
            if new > old and surplus < 0:
                times = min(times, -surplus // (new - old))
            elif new < old and surplus > 0:
                times = min(times, surplus // (old - new))
        return max(1, times)

    def _gain(self, state: _State, number: int, pattern: Vector, measure: Vector | None = None) -> int:
        """What a cut brings of what is missing, by a measure; without one in memory and compute slices, added."""
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
            self._best = CoverSolution(cost, state.cuts, self._states)

    def _at_least(self, state: _State) -> Cost:
        """What any solution costs that goes on from here, makes nothing of what is closed, and misses no more than the best."""
        memory, gap, best = self._problem.memory, self._gap(state), self._best.cost[0]
        opened = self._opened(state)
        closed = dot(memory, gap) - dot(memory, opened)
        room = self._measures[0][1] if self._measures else 0
        missing = closed + max(0, dot(memory, opened) - room * sum(state.left))
        if missing != best:
            return missing, state.used, state.touched
        to_fill = closed + dot(memory, opened) - best
        more = self._fewest(opened) if closed == best else -(-to_fill // room) if room else 0
        unused = sum(left for left, kind in zip(state.left, self._problem.kinds, strict=True) if not kind.used)
        return missing, state.used + max(0, more - unused), state.touched + more

    def _fewest(self, gap: t.Sequence[int]) -> int:
        """How many GPUs at least have to be touched for so many devices."""
        return max((self._by(measure, gap) for measure in self._measures), default=0)

    @staticmethod
    def _by(measure: tuple[Vector, int], gap: t.Sequence[int]) -> int:
        """How many GPUs at least hold so many devices, by one measure."""
        return -(-dot(measure[0], gap) // measure[1])


def _measures(problem: CoverProblem) -> list[tuple[Vector, int]]:
    """Ways to weigh devices, each with the most that one GPU holds by it; the first weighs memory slices.

    Others weigh compute slices, or both, or count the devices of some profiles, whichever few or all of them.
    """
    places = range(len(problem.demand))
    sizes = places if len(places) <= _MANY_PROFILES else (0, len(places) - 1)
    several = [some for size in sizes for some in itertools.combinations(places, size + 1)]
    compute = tuple(map(operator.sub, problem.worth, problem.memory))
    counting = [tuple(int(at in some) for at in places) for some in several]
    patterns = {pattern for kind in problem.kinds for pattern in problem.patterns[kind.group]}
    each = [
        (measure, max((dot(measure, pattern) for pattern in patterns), default=0))
        for measure in (problem.memory, compute, problem.worth, *counting)
    ]
    return [(measure, most) for measure, most in each if most]


def _poorer(kinds: t.Sequence[GpuKind]) -> list[set[int]]:
    """For each kind the others that can be cut into the same, lose no more of anything, and are no more in use."""
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
