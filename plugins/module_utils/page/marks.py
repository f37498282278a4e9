# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a node needs a look, as far as gpu_info tells it of single nodes (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..cluster_state.node import whole
from .cuts import DONE, cuts

Document = t.Mapping[str, t.Any]

WEIGHTS = BAD, WARN, NOTE = ("bad", "warn", "note")
DIFFERS = "differs"


@dataclass(frozen=True)
class Mark:
    """Why a node needs a look: a word or two for its tile, and what these do not say."""

    word: str
    story: str
    weight: str = WARN


def marks(row: Document, declared: Document | None, info: Document) -> t.Iterator[Mark]:
    """The marks of a row of gpu_info."""
    name = str(row.get("name") or "")
    if not row.get("ready"):
        yield Mark("not ready", "", BAD)
    if not row.get("schedulable"):
        yield Mark("cordoned", "takes no new pods", NOTE)
    mig: Document = row.get("mig") or {}
    state = mig.get("state")
    if state and state != "success":
        yield Mark(f"MIG {state}", "", BAD if state == "failed" else WARN)
    claiming = (info.get("overlaps") or {}).get(name)
    if claiming:
        yield Mark("several pools", f"matches the pools {', '.join(map(str, claiming))}; it is left as it is")
    if name in (info.get("released") or ()):
        yield Mark("left its pool", "belongs to no pool any more and gives the labels back", NOTE)
    if not row.get("model"):
        yield Mark("not discovered", "gpu-feature-discovery has not labelled it yet")
    elif declared is not None:
        stories = list(_differences(row, name, declared))
        if stories:
            yield Mark(DIFFERS, "; ".join(stories))


def _differences(row: Document, name: str, declared: Document) -> t.Iterator[str]:
    """What of a node is not as its pool declares, as far as gpu_info tells it of single nodes."""
    head = f"{name} (pool {row.get('pool')}): "
    told = [str(text).removeprefix(head) for text in declared.get("differs") or () if str(text).startswith(head)]
    if told:
        yield from told
        return
    if declared.get("mode") == "mig":
        state = (row.get("mig") or {}).get("state") or DONE
        if (row.get("layout") or declared.get("layout")) and state == DONE and not cuts(row, declared):
            yield "its MIG devices are not those of the layout"
        return
    gpus, per_node = whole(row.get("gpus")), declared.get("gpus_per_node")
    if per_node is not None and gpus != per_node:
        yield f"has {gpus} GPU(s), gpus_per_node says {per_node}"
    shares, resource = declared.get("shares_per_gpu"), declared.get("resource")
    if shares and resource:
        offered = whole((row.get("allocatable") or {}).get(resource))
        if offered != gpus * shares:
            yield f"allocatable {resource} is {offered}, {gpus * shares} is expected"
