# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where what the simulator says of a case differs from what NVIDIA's agents say."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from lab.agents import AgentCase, AgentOutput

SHOWN = 5


def differences(
    cases: Sequence[AgentCase], simulated: Sequence[AgentOutput], nvidia: Sequence[AgentOutput]
) -> list[str]:
    """A text for each case in which they differ: the case, and by what was said of it the simulator's and NVIDIA's."""
    return [
        f"{_named(case)}\n{said}"
        for case, ours, theirs in zip(cases, simulated, nvidia, strict=True)
        if (said := _difference(dataclasses.asdict(ours), dataclasses.asdict(theirs)))
    ]


def told(found: list[str]) -> str:
    """The first few of many differences."""
    more = f"\n... and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return "\n".join(found[:SHOWN]) + more


def _difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    lines = []
    for key in sorted({*ours, *theirs}):
        one, other = ours.get(key), theirs.get(key)
        error = f"{key}_error"
        if ours.get(error) != theirs.get(error):
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            below = _difference({str(k): v for k, v in one.items()}, {str(k): v for k, v in other.items()})
            lines += [f"  {key}.{line.strip()}" for line in below.splitlines()]
        elif one != other:
            lines.append(f"  {key}: simulator {one!r}, NVIDIA {other!r}")
    return "\n".join(lines)


def _named(case: AgentCase) -> str:
    machine = f"{case.hardware['gpus']} x {case.hardware['product']}"
    return f"{machine}, MIG {dict(case.mig)}, strategy {case.strategy!r}, config {case.config!r}"
