# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renders docs/performance.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, median_high

from .results import Measurement, Row, all_runs, format_number, seconds

_HEAD = """# Performance

Use this page to estimate how long a run takes and how many requests it sends. `make bench` generates this page and fails if a limit is exceeded. Do not
edit this page manually.
"""


@dataclass(frozen=True)
class BenchEnvironment:
    """Date, machine, versions and commands of a benchmark run."""

    date: str
    machine: str
    versions: str
    commands: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()


def page(environment: BenchEnvironment, rows: Sequence[Row]) -> str:
    """Return the page."""
    missed = [f"{row.title}, {row.count:,} {row.items}: {limit}" for row in rows for limit in row.missed]
    parts = [
        _HEAD,
        f"- **Date**: {environment.date}\n- **Machine**: {environment.machine}\n- **Versions**: {environment.versions}\n",
        "\n\n".join(environment.notes) + "\n",
        _summary(len([limit for row in rows for limit in row.limits]), missed),
        "\n".join([_row(_TITLES), _row(["---", *["--:"] * 9, "---"]), *map(_line, rows)]),
        _notes(rows),
        "## Commands\n",
        "\n".join(f"{name}:\n\n```console\n$ {command}\n```\n" for name, command in environment.commands),
    ]
    return "\n".join(part for part in parts if part).rstrip() + "\n"


_TITLES = (
    "benchmark",
    "number",
    "seconds",
    "in modules",
    "CPU seconds",
    "MiB",
    "servers' CPU seconds",
    "requests (writes)",
    "compared with: seconds",
    "ratio per round",
    "limits",
)


def _line(row: Row) -> str:
    runs = all_runs(row.own_runs)
    modules = [run.module_seconds for run in runs if run.module_seconds is not None]
    processor = [run.cpu_seconds for run in runs if run.cpu_seconds is not None]
    memory = [run.mib for run in runs if run.mib is not None]
    served = [run.server_seconds for run in runs if run.server_seconds is not None]
    other = f"{row.other}: {_spread(row.other_runs)}" if row.other_runs else ""
    return _row(
        [
            row.title,
            f"{row.count:,} {row.items}",
            _spread(row.own_runs),
            format_number(median(modules)) if modules else "",
            format_number(median_high(processor)) if processor else "",
            f"{max(memory):.0f}" if memory else "",
            format_number(median_high(served)) if served else "",
            _requests(runs),
            other,
            ", ".join(f"{ratio:.2f}" for ratio in row.ratios),
            "; ".join(map(str, row.limits)),
        ]
    )


def _requests(runs: Sequence[Measurement]) -> str:
    most = max(runs, key=lambda run: run.requests)
    return f"{most.requests:,} ({most.writes:,})" if most.requests else ""


def _spread(rounds: Sequence[Sequence[Measurement]]) -> str:
    """Return the median, with the range where there are several runs."""
    actual = sorted(run.seconds for run in all_runs(rounds))
    middle = format_number(seconds(rounds))
    return middle if len(actual) == 1 else f"{middle} ({format_number(actual[0])} to {format_number(actual[-1])})"


def _summary(limits: int, missed: Sequence[str]) -> str:
    if not missed:
        return f"All {limits} limits are met.\n"
    return "\n".join([f"**Limits exceeded: {len(missed)} of {limits}**\n", *(f"- {text}" for text in missed), ""])


def _notes(rows: Sequence[Row]) -> str:
    notes = dict.fromkeys(row.note for row in rows if row.note)
    return "".join(f"\n{note}\n" for note in notes)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
