# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of a plan about the performance of shared GPUs (pure)."""

from __future__ import annotations

import typing as t

from ..catalog import benchmarks
from ..schema.messages import abbreviate
from ..sharing_modes.base import PodExpectation
from ..sharing_modes.registry import MODES, mode_title
from .table import paragraph

Document = t.Mapping[str, t.Any]

_SOURCE = f"times were measured on {benchmarks.MEASURED}; other GPUs and kernels differ, see docs/modes.md"


def sharing_lines(pools: Document, width: int) -> list[str]:
    """A sentence for each kind of sharing, with its pools; empty where no GPU is shared."""
    pools_of: dict[tuple[str, str], list[str]] = {}
    has_times = False
    for name, pool in pools.items():
        mode, replicas = MODES[pool["mode"]], pool.get("replicas") or 1
        sentence = _performance(pool, replicas)
        if sentence:
            pools_of.setdefault((mode_title(mode.name, replicas), sentence), []).append(name)
            has_times = has_times or mode.has_measured_times(replicas)
    lines = [
        line
        for (title, sentence), names in pools_of.items()
        for line in paragraph(f"{abbreviate(names)} ({title})", sentence, width)
    ]
    return [*lines, *(paragraph("sharing", _SOURCE, width) if has_times else [])]


def profiles_of(pool: Document) -> set[str]:
    """The MIG profiles that a pool declares, by its layout or its demand."""
    return {
        *(pool.get("demand") or ()),
        *(profile for part in pool.get("layout") or () for profile in part["profiles"]),
    }


def _performance(pool: Document, replicas: int) -> str:
    models = pool.get("models") or []
    model = models[0] if len(models) == 1 else pool.get("model")
    pods = PodExpectation(replicas, pool.get("memory_mib_per_share"), profiles_of(pool), model)
    return MODES[pool["mode"]].performance(pods)
