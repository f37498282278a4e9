# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Differences between the simulator and NVIDIA's agents."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from lab.agents import AgentCase, AgentOutput

SHOWN = 5


def differences(
    cases: Sequence[AgentCase], simulator: Sequence[AgentOutput], nvidia: Sequence[AgentOutput]
) -> list[str]:
    """Return a text for each case with differences: the case, and the different values of both sides."""
    return [
        f"{_named(case)}\n{text}"
        for case, one, other in zip(cases, simulator, nvidia, strict=True)
        if (text := _difference(dataclasses.asdict(one), dataclasses.asdict(other)))
    ]


def summary(actual: list[str]) -> str:
    """Return the first few differences and the number of the others."""
    more = f"\n... and {len(actual) - SHOWN} more" if len(actual) > SHOWN else ""
    return "\n".join(actual[:SHOWN]) + more


def _difference(simulator: Mapping[str, Any], nvidia: Mapping[str, Any]) -> str:
    lines = []
    for key in sorted({*simulator, *nvidia}):
        one, other = simulator.get(key), nvidia.get(key)
        error = f"{key}_error"
        if simulator.get(error) != nvidia.get(error):
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
