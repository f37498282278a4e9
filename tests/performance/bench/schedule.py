# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How good a rolling change was: its makespan beside the best one that its window allows (pure)."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """When a node was worked on, in seconds after some moment that is the same for all."""

    node: str
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it was worked on."""
        return self.end - self.begin


@dataclass(frozen=True)
class Verdict:
    """A rolling change of `nodes` with a window; all times in seconds."""

    nodes: int
    window: int
    makespan: float
    bound: float
    scheduled: float
    overlap: int

    @property
    def ratio(self) -> float:
        """How many times as long as the best schedule it took; the bound is at most the best schedule's length."""
        return self.makespan / self.bound


def judge(spans: Sequence[Span], window: int) -> Verdict:
    """Compare what happened with what no schedule can beat: work spread evenly over the window, and the longest node.

    `scheduled` is what a list schedule with the longest first takes (Graham: at most 4/3 of the best), so the best
    one lies between `bound` and it. `overlap` is how many nodes at most were worked on at once.
    """
    if not spans:
        raise ValueError("no node was worked on")
    lengths = sorted((span.seconds for span in spans), reverse=True)
    return Verdict(
        nodes=len(spans),
        window=window,
        makespan=max(span.end for span in spans) - min(span.begin for span in spans),
        bound=max(sum(lengths) / window, lengths[0]),
        scheduled=list_schedule(lengths, window),
        overlap=most_at_once(spans),
    )


def list_schedule(lengths: Iterable[float], window: int) -> float:
    """The makespan when the next one begins as soon as one of `window` places is free, in the order given."""
    free = [0.0] * window
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def most_at_once(spans: Iterable[Span]) -> int:
    """The largest number of spans that overlap; one that ends when another begins does not overlap it."""
    moments = sorted((moment, step) for span in spans for moment, step in ((span.begin, 1), (span.end, -1)))
    now = most = 0
    for _moment, step in moments:
        now += step
        most = max(most, now)
    return most


def lanes(spans: Iterable[Span]) -> list[list[Span]]:
    """The spans on as few lanes as they need, so that none overlaps another on its lane; by their beginning."""
    found: list[list[Span]] = []
    free: list[tuple[float, int]] = []
    for span in sorted(spans, key=lambda span: (span.begin, span.end, span.node)):
        if free and free[0][0] <= span.begin:
            _end, lane = heapq.heappop(free)
        else:
            lane = len(found)
            found.append([])
        found[lane].append(span)
        heapq.heappush(free, (span.end, lane))
    return found
