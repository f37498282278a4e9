# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares the makespan of a rolling update with the shortest one that its window allows."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """The start and end of the work on a node, in seconds after a common start time."""

    node: str
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """The duration of the work on the node."""
        return self.end - self.begin


@dataclass(frozen=True)
class RolloutResult:
    """The result of a rolling update of `nodes` with a window; all times in seconds."""

    nodes: int
    window: int
    makespan: float
    bound: float
    scheduled: float
    overlap: int

    @property
    def ratio(self) -> float:
        """The makespan divided by the bound, which no schedule can beat."""
        return self.makespan / self.bound


def evaluate(spans: Sequence[Span], window: int) -> RolloutResult:
    """Compare the makespan with a bound that no schedule can beat: all work divided by the window, or the longest node.

    `scheduled` is the makespan of a list schedule with the longest node first (Graham: at most 4/3 of the optimum), so the
    optimum is between `bound` and `scheduled`. `overlap` is the maximum number of nodes at the same time.
    """
    if not spans:
        raise ValueError("no node was changed")
    lengths = sorted((span.seconds for span in spans), reverse=True)
    return RolloutResult(
        nodes=len(spans),
        window=window,
        makespan=max(span.end for span in spans) - min(span.begin for span in spans),
        bound=max(sum(lengths) / window, lengths[0]),
        scheduled=list_schedule(lengths, window),
        overlap=max_overlap(spans),
    )


def list_schedule(lengths: Iterable[float], window: int) -> float:
    """Return the makespan if nodes start in the given order, each as soon as one of `window` places is free."""
    free = [0.0] * window
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def max_overlap(spans: Iterable[Span]) -> int:
    """Return the largest number of overlapping spans; spans that only touch do not overlap."""
    moments = sorted((moment, step) for span in spans for moment, step in ((span.begin, 1), (span.end, -1)))
    now = most = 0
    for _moment, step in moments:
        now += step
        most = max(most, now)
    return most


def lanes(spans: Iterable[Span]) -> list[list[Span]]:
    """Assign the spans, sorted by their start, to the smallest number of lanes without overlaps."""
    actual: list[list[Span]] = []
    free: list[tuple[float, int]] = []
    for span in sorted(spans, key=lambda span: (span.begin, span.end, span.node)):
        if free and free[0][0] <= span.begin:
            _end, lane = heapq.heappop(free)
        else:
            lane = len(actual)
            actual.append([])
        actual[lane].append(span)
        heapq.heappush(free, (span.end, lane))
    return actual
