# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The results of a benchmark and their limits."""

from __future__ import annotations

import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Measurement:
    """A measured command: seconds from its start to its end, CPU seconds of all its processes, and MiB of the largest one.

    `server_seconds` is the CPU time of the lab's services during this time, `modules` the seconds in each of the collection's modules, and
    `further_pages` the number of requests for a page of a list after its first one.
    """

    seconds: float
    cpu_seconds: float | None = None
    mib: float | None = None
    requests: int = 0
    pages: int = 0
    writes: int = 0
    server_seconds: float | None = None
    further_pages: int = 0
    modules: Mapping[str, float] = field(default_factory=dict)

    @property
    def module_seconds(self) -> float | None:
        """The seconds in all of the collection's modules; None if none has run."""
        return sum(self.modules.values()) if self.modules else None


@dataclass(frozen=True)
class Limit:
    """A value and its maximum."""

    name: str
    value: float
    maximum: float
    unit: str = ""

    @property
    def kept(self) -> bool:
        """Whether the value is at most the maximum; False for NaN."""
        return self.value <= self.maximum

    def __str__(self) -> str:
        """Return the limit, and the value if it is too large."""
        text = f"{self.name} ≤ {format_number(self.maximum)}{self.unit}"
        return text if self.kept else f"**MISSED** {text}: {format_number(self.value)}{self.unit}"


@dataclass(frozen=True)
class Row:
    """A row of the table: the benchmark, the number of items, and by round the runs of the module and of the other command."""

    title: str
    count: int
    own_runs: Sequence[Sequence[Measurement]]
    other: str = ""
    other_runs: Sequence[Sequence[Measurement]] = ()
    limits: tuple[Limit, ...] = ()
    note: str = ""
    ratios: tuple[float, ...] = field(default=())
    items: str = "nodes"

    @property
    def missed(self) -> tuple[Limit, ...]:
        """The limits that are not met."""
        return tuple(limit for limit in self.limits if not limit.kept)


def all_runs(rounds: Sequence[Sequence[Measurement]]) -> list[Measurement]:
    """Return the runs of all rounds."""
    return [run for one_round in rounds for run in one_round]


def seconds(rounds: Sequence[Sequence[Measurement]]) -> float:
    """Return the median over all rounds."""
    return statistics.median(run.seconds for run in all_runs(rounds))


def ratios(
    own_runs: Sequence[Sequence[Measurement]],
    other_runs: Sequence[Sequence[Measurement]],
    seconds: Callable[[Measurement], float] = operator.attrgetter("seconds"),
) -> tuple[float, ...]:
    """Return by round the median of the ratios of each pair, so that a change of the machine's speed affects both.

    `seconds`: the time of an own run that is compared.
    """
    return tuple(
        statistics.median(seconds(own) / foreign.seconds for own, foreign in zip(one, other, strict=True))
        for one, other in zip(own_runs, other_runs, strict=True)
    )


def format_number(number: float) -> str:
    """Return a number as text with few digits."""
    if number == int(number) or number >= 1000:
        return f"{number:,.0f}"
    return f"{number:.2f}" if number < 10 else f"{number:.1f}"
