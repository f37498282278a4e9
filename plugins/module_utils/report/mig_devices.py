# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines the MIG devices on each GPU of a node if the pool's layout and the node's labels agree (pure)."""

from __future__ import annotations

import re
import typing as t
from collections import Counter

from ..cluster_state.node import to_count
from ..schema.mig_layout import MAX_GPUS

Document = t.Mapping[str, t.Any]

# The number of MIG devices on one GPU by profile, in the notation of GFD and of resource names (a dot instead of `+`);
# empty for a whole GPU.
GpuLayout = tuple[tuple[str, int], ...]

SUCCESS = "success"
_SLICES = re.compile(r"(?:nvidia\.com/mig-)?([0-9]{1,2})g\.")


def gpu_layouts(row: Document, declared: Document) -> tuple[GpuLayout, ...]:
    """The layout of each GPU; empty if the node is not partitioned in the way that its pool declares.

    In a pool with a demand, each node has its own layout.
    """
    mig: Document = row.get("mig") or {}
    actual = {
        str(profile): to_count(count) for profile, count in (mig.get("devices") or {}).items() if to_count(count) > 0
    }
    layout: t.Sequence[Document] = row.get("layout") or declared.get("layout") or ()
    if not actual or not layout or mig.get("state") != SUCCESS:
        return ()
    if len(layout) == 1 and not layout[0].get("devices"):
        # With one layout for every GPU, the number of GPUs is derived from the devices, because GFD may count devices
        # as GPUs.
        single = _layout_of(layout[0])
        per_gpu = sum(count for dummy, count in single)
        gpus = sum(actual.values()) // per_gpu if per_gpu else 0
        result = [single] * min(gpus, MAX_GPUS)
    else:
        gpus = min(max(0, to_count(row.get("gpus"))), MAX_GPUS)
        result = [_layout_of(next((part for part in layout if _applies(part, index)), {})) for index in range(gpus)]
    expected: Counter[str] = Counter()
    for of_gpu in result:
        expected.update(dict(of_gpu))
    return tuple(result) if expected == actual else ()


def compute_slices(name: str) -> int:
    """The number of compute slices in the name of a profile or of its resource; 0 for other names."""
    match = _SLICES.match(name)
    return max(1, int(match[1])) if match else 0


def _layout_of(part: Document) -> GpuLayout:
    profiles: Document = part.get("profiles") or {}
    return tuple(
        (str(name).replace("+", "."), to_count(count)) for name, count in profiles.items() if to_count(count) > 0
    )


def _applies(part: Document, index: int) -> bool:
    devices = part.get("devices")
    return not devices or index in devices
