# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the sharing of a plan's pools costs their pods, as lines for a terminal (pure)."""

from __future__ import annotations

import typing as t

from ..catalog import benchmarks
from ..schema.messages import abbreviate
from .table import paragraph

Document = t.Mapping[str, t.Any]

_SOURCE = f"the times are those of {benchmarks.MEASURED}; other GPUs and kernels differ, see docs/modes.md"


def sharing_lines(pools: Document, width: int) -> list[str]:
    """A sentence for each way of sharing, headed by the pools that share so; empty where all GPUs are whole."""
    told: dict[tuple[str, str], list[str]] = {}
    for name, pool in pools.items():
        sentence = _of(pool)
        if sentence:
            told.setdefault((mode_of(pool), sentence), []).append(name)
    found = [
        line
        for (mode, sentence), names in told.items()
        for line in paragraph(f"{abbreviate(names)} ({mode})", sentence, width)
    ]
    timed = any(
        pool["mode"] != benchmarks.MIG or (pool.get("replicas") or 1) > 1 for pool in pools.values() if _of(pool)
    )
    return [*found, *(paragraph("sharing", _SOURCE, width) if timed else [])]


def mode_of(pool: Document) -> str:
    """How a pool's GPUs are shared, as a table names it."""
    replicas = pool.get("replicas") or 1
    return f"{pool['mode']} x{replicas}" if replicas > 1 else str(pool["mode"])


def profiles_of(pool: Document) -> set[str]:
    """The MIG profiles that a pool declares, by its layout or its demand."""
    return {
        *(pool.get("demand") or ()),
        *(profile for part in pool.get("layout") or () for profile in part["profiles"]),
    }


def _of(pool: Document) -> str:
    seen = pool.get("models") or []
    return benchmarks.line(
        pool["mode"],
        pool.get("replicas") or 1,
        memory_mib_per_share=pool.get("memory_mib_per_share"),
        profiles=profiles_of(pool),
        model=seen[0] if len(seen) == 1 else pool.get("model"),
    )
