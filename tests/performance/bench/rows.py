# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a benchmark found, and which limits it keeps (pure)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Run:
    """One timed command: seconds from its start to its end, and what its module's process took, where it has one.

    `server_seconds` is the processor time of the lab's services meanwhile.
    """

    seconds: float
    module_seconds: float | None = None
    module_mib: float | None = None
    requests: int = 0
    pages: int = 0
    writes: int = 0
    server_seconds: float | None = None


@dataclass(frozen=True)
class Limit:
    """A number that must not be larger than another one."""

    what: str
    found: float
    most: float
    unit: str = ""

    @property
    def kept(self) -> bool:
        """Whether it is not larger; a number that is not there is too large."""
        return self.found <= self.most

    def __str__(self) -> str:
        """The limit, and by how much it was missed if it was."""
        told = f"{self.what} ≤ {spelled(self.most)}{self.unit}"
        return told if self.kept else f"**MISSED** {told}: {spelled(self.found)}{self.unit}"


@dataclass(frozen=True)
class Row:
    """One line of the table: what was done, to how many of what, our runs and the others', by round."""

    what: str
    count: int
    ours: Sequence[Sequence[Run]]
    other: str = ""
    others: Sequence[Sequence[Run]] = ()
    limits: tuple[Limit, ...] = ()
    note: str = ""
    ratios: tuple[float, ...] = field(default=())
    of: str = "nodes"

    @property
    def missed(self) -> tuple[Limit, ...]:
        """The limits that are not kept."""
        return tuple(limit for limit in self.limits if not limit.kept)


def flat(rounds: Sequence[Sequence[Run]]) -> list[Run]:
    """The runs of all rounds."""
    return [run for of_round in rounds for run in of_round]


def seconds(rounds: Sequence[Sequence[Run]]) -> float:
    """The median over all rounds."""
    return statistics.median(run.seconds for run in flat(rounds))


def ratios(ours: Sequence[Sequence[Run]], others: Sequence[Sequence[Run]]) -> tuple[float, ...]:
    """By round, the median of ours / theirs pair by pair, so that a machine that gets slower slows both."""
    return tuple(
        statistics.median(mine.seconds / theirs.seconds for mine, theirs in zip(one, other, strict=True))
        for one, other in zip(ours, others, strict=True)
    )


def spelled(number: float) -> str:
    """A number as a person reads it: whole where it is large."""
    if number == int(number) or number >= 1000:
        return f"{number:,.0f}"
    return f"{number:.2f}" if number < 10 else f"{number:.1f}"
