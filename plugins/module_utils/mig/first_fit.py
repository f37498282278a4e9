# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""First fit decreasing: the simple packing that a search which ended early must not be worse than (pure)."""

from __future__ import annotations

import functools
import operator
import typing as t

from .cover_search import Vector
from .gpu_selection import GpuSlot, Key


def first_fit(
    places: t.Iterable[GpuSlot], patterns: t.Sequence[tuple[Vector, ...]], offered: Vector, demand: Vector
) -> dict[Key, Vector]:
    """The new patterns if each missing device, the largest first, is placed on the first GPU with room for it.

    GPUs are repartitioned one after the other, unused ones first, then by their keys; their devices are lost and become missing.
    `patterns` are those of each group of GPUs, `offered` are the demanded devices of all GPUs.
    """

    @functools.cache
    def has_room(group: int, vector: Vector) -> bool:
        return any(all(map(operator.le, vector, pattern)) for pattern in patterns[group])

    order = sorted(places, key=lambda place: (place.kind.used, place.key))
    have, cut = list(offered), list[list[int]]()
    # For each profile: the first repartitioned GPU that may have room; none is tried any more once the profile was refused.
    first, refused = [0] * len(demand), set[int]()
    opened: list[GpuSlot] = []
    waiting = dict.fromkeys(range(len(order)))

    def opens(at: int) -> bool:
        alone = tuple(int(other == at) for other in range(len(demand)))
        number = next((number for number in waiting if has_room(order[number].kind.group, alone)), None)
        if number is None:
            return False
        del waiting[number]
        opened.append(order[number])
        cut.append([0] * len(demand))
        for other, lost in enumerate(order[number].kind.now):
            have[other] -= lost
        return True

    while True:
        missing = (at for at, want in enumerate(demand) if have[at] < want and at not in refused)
        at = next(missing, None)
        if at is None:
            return {place.key: tuple(vector) for place, vector in zip(opened, cut, strict=True)}
        while first[at] < len(cut):
            vector = cut[first[at]]
            more = (*vector[:at], vector[at] + 1, *vector[at + 1 :])
            if has_room(opened[first[at]].kind.group, more):
                vector[at] += 1
                have[at] += 1
                break
            first[at] += 1
        else:
            if not opens(at):
                refused.add(at)
