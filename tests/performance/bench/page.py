# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/performance.md, as a run of the benchmark writes it (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_high

from .rows import Row, Run, flat, seconds, spelled

_HEAD = """# Performance

Written by `make bench`, which says here, and by its exit code, when a limit is missed. Nothing is edited by hand.
"""


@dataclass(frozen=True)
class Setting:
    """When, where and with what it was measured."""

    date: str
    machine: str
    versions: str
    commands: tuple[tuple[str, str], ...]
    words: tuple[str, ...] = ()


def page(setting: Setting, rows: Sequence[Row]) -> str:
    """The whole page."""
    missed = [f"{row.what}, {row.count:,} {row.of}: {limit}" for row in rows for limit in row.missed]
    parts = [
        _HEAD,
        f"- **Date**: {setting.date}\n- **Machine**: {setting.machine}\n- **Versions**: {setting.versions}\n",
        "\n\n".join(setting.words) + "\n",
        _verdict(len([limit for row in rows for limit in row.limits]), missed),
        "\n".join([_row(_TITLES), _row(["---", *["--:"] * 8, "---"]), *map(_line, rows)]),
        _notes(rows),
        "## Commands\n",
        "\n".join(f"{name}:\n\n```console\n$ {command}\n```\n" for name, command in setting.commands),
    ]
    return "\n".join(part for part in parts if part).rstrip() + "\n"


_TITLES = (
    "what",
    "how many",
    "seconds",
    "module's process: seconds",
    "MiB",
    "servers' processor seconds",
    "requests (writes)",
    "beside it: seconds",
    "ratio, by round",
    "limits",
)


def _line(row: Row) -> str:
    runs = flat(row.ours)
    module = [run.module_seconds for run in runs if run.module_seconds is not None]
    memory = [run.module_mib for run in runs if run.module_mib is not None]
    served = [run.server_seconds for run in runs if run.server_seconds is not None]
    other = f"{row.other}: {_spread(row.others)}" if row.others else ""
    return _row(
        [
            row.what,
            f"{row.count:,} {row.of}",
            _spread(row.ours),
            spelled(median_high(module)) if module else "",
            f"{max(memory):.0f}" if memory else "",
            spelled(median_high(served)) if served else "",
            _requests(runs),
            other,
            ", ".join(f"{ratio:.2f}" for ratio in row.ratios),
            "; ".join(map(str, row.limits)),
        ]
    )


def _requests(runs: Sequence[Run]) -> str:
    most = max(runs, key=lambda run: run.requests)
    return f"{most.requests:,} ({most.writes:,})" if most.requests else ""


def _spread(rounds: Sequence[Sequence[Run]]) -> str:
    """The median, and between which it lies where there are several."""
    found = sorted(run.seconds for run in flat(rounds))
    told = spelled(seconds(rounds))
    return told if len(found) == 1 else f"{told} ({spelled(found[0])} to {spelled(found[-1])})"


def _verdict(limits: int, missed: Sequence[str]) -> str:
    if not missed:
        return f"All {limits} limits are kept.\n"
    return "\n".join([f"**{len(missed)} of {limits} limits are missed:**\n", *(f"- {text}" for text in missed), ""])


def _notes(rows: Sequence[Row]) -> str:
    notes = dict.fromkeys(row.note for row in rows if row.note)
    return "".join(f"\n{note}\n" for note in notes)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
