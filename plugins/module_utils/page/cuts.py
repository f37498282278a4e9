# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which MIG devices each GPU of a node has, where its pool's layout and what the node shows agree (pure)."""

from __future__ import annotations

import re
import typing as t
from collections import Counter

from ..cluster_state.node import whole

Document = t.Mapping[str, t.Any]

# The MIG devices of one GPU, by profile as GFD and the resources write it (`+` is a dot there); empty: not cut.
Cut = tuple[tuple[str, int], ...]

DONE = "success"
_SLICES = re.compile(r"(?:nvidia\.com/mig-)?([0-9]{1,2})g\.")
_MOST_GPUS = 64


def cuts(row: Document, declared: Document) -> tuple[Cut, ...]:
    """The cut of each GPU; nothing where the node is not, or not yet, cut as its pool declares.

    Of a pool with a demand each node has a layout of its own.
    """
    mig: Document = row.get("mig") or {}
    live = {str(profile): whole(count) for profile, count in (mig.get("devices") or {}).items() if whole(count) > 0}
    layout: t.Sequence[Document] = row.get("layout") or declared.get("layout") or ()
    if not live or not layout or mig.get("state") != DONE:
        return ()
    if len(layout) == 1 and not layout[0].get("devices"):
        # One layout for every GPU: how many there are follows from the devices (GFD may count these instead).
        cut = _cut(layout[0])
        of_one = sum(count for dummy, count in cut)
        gpus = sum(live.values()) // of_one if of_one else 0
        found = [cut] * min(gpus, _MOST_GPUS)
    else:
        gpus = min(max(0, whole(row.get("gpus"))), _MOST_GPUS)
        found = [_cut(next((part for part in layout if _is_of(part, index)), {})) for index in range(gpus)]
    seen: Counter[str] = Counter()
    for cut in found:
        seen.update(dict(cut))
    return tuple(found) if seen == live else ()


def slices(name: str) -> int:
    """The compute slices in the name of a profile, or of its resource; 0 where it is none."""
    found = _SLICES.match(name)
    return max(1, int(found[1])) if found else 0


def _cut(part: Document) -> Cut:
    profiles: Document = part.get("profiles") or {}
    return tuple((str(name).replace("+", "."), whole(count)) for name, count in profiles.items() if whole(count) > 0)


def _is_of(part: Document, index: int) -> bool:
    devices = part.get("devices")
    return not devices or index in devices
