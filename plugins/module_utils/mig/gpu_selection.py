# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs are touched once it is known how many and for what, and which of the new patterns each of them gets (pure)."""

from __future__ import annotations

import heapq
import itertools
import math
import operator
import typing as t
from collections import Counter, defaultdict

from .cover_search import Cost, GpuKind, Vector

# A GPU among all: its node's name and its index there.
Key = tuple[str, int]
# How many GPUs get a pattern, by the number of the group of GPUs that can have it.
New = t.Mapping[tuple[int, Vector], int]
Sort = t.TypeVar("Sort", bound=t.Hashable)

# Of so many sets of GPUs each is looked at; of more, one is put together node by node.
_MOST_SETS = 3000


class GpuSlot(t.NamedTuple):
    """A GPU that may be touched, as the search sees it."""

    key: Key
    kind: GpuKind


def fewest_nodes(places: t.Sequence[GpuSlot], numbers: t.Mapping[GpuKind, int], allowed: Vector) -> tuple[GpuSlot, ...]:
    """GPUs that can stand for so many of each kind, on few nodes.

    Another kind can stand for one that is as much used and can be cut into the same, as long as no more than `allowed` is lost
    in all. Where that leads nowhere, the kinds are as given.
    """
    alike: Counter[tuple[int, bool]] = Counter()
    for kind, number in numbers.items():
        alike[kind.group, kind.used] += number
    lost = [sum(kind.now[at] * number for kind, number in numbers.items()) for at in range(len(allowed))]
    exact = _node_by_node(places, numbers, lambda place: place.kind, tuple(lost))
    other = _node_by_node(places, alike, lambda place: (place.kind.group, place.kind.used), allowed)
    return min((found for found in (exact, other) if len(found) == len(exact)), key=_preference)


def sets(places: t.Sequence[GpuSlot], cost: Cost) -> list[tuple[GpuSlot, ...]]:
    """All sets with as many GPUs, used and in all, as the cost says: fewest nodes first, then by keys; none if too many."""
    dummy, used, touched = cost
    busy = [place for place in places if place.kind.used]
    idle = [place for place in places if not place.kind.used]
    if math.comb(len(busy), used) * math.comb(len(idle), touched - used) > _MOST_SETS:
        return []
    both = itertools.product(itertools.combinations(busy, used), itertools.combinations(idle, touched - used))
    return sorted((tuple(sorted(one + other, key=_key)) for one, other in both), key=_preference)


def assign_patterns(places: t.Sequence[GpuSlot], new: New) -> dict[Key, Vector]:
    """The patterns given to the GPUs so that each keeps as much as can be of what it has; one may go away empty-handed."""
    rest = Counter(dict(new))
    waiting: dict[tuple[int, Vector], list[Key]] = defaultdict(list)
    for place in sorted(places, key=_key, reverse=True):
        waiting[place.kind.group, place.kind.now].append(place.key)
    pairs = [(group, pattern, now) for group, pattern in new for of, now in waiting if of == group]
    given: dict[Key, Vector] = {}
    for group, pattern, now in sorted(pairs, key=lambda pair: (-sum(map(min, pair[1], pair[2])), pair)):
        while rest[group, pattern] and waiting[group, now]:
            rest[group, pattern] -= 1
            given[waiting[group, now].pop()] = pattern
    return given


def _node_by_node(
    places: t.Sequence[GpuSlot], numbers: t.Mapping[Sort, int], sort: t.Callable[[GpuSlot], Sort], allowed: Vector
) -> tuple[GpuSlot, ...]:
    """So many GPUs of each sort, each time from the node that has most of those still wanted; what they lose is allowed.

    A node never gets more to give, so it is counted anew only when it seems to be the best.
    """
    wanted, room = Counter(dict(numbers)), list(allowed)
    nodes: dict[str, list[GpuSlot]] = defaultdict(list)
    for place in sorted(places, key=lambda place: (sum(place.kind.now), place.key)):
        nodes[place.key[0]].append(place)

    def to_give(node: str) -> list[GpuSlot]:
        found, left, free = [], Counter(wanted), room
        for place in nodes[node]:
            if left[sort(place)] > 0 and all(map(operator.le, place.kind.now, free)):
                left[sort(place)] -= 1
                free = list(map(operator.sub, free, place.kind.now))
                found.append(place)
        return found

    chosen: list[GpuSlot] = []
    queue = [(-len(members), node) for node, members in nodes.items()]
    heapq.heapify(queue)
    while queue and wanted.total():
        seemed, node = heapq.heappop(queue)
        found = to_give(node)
        if len(found) < -seemed:
            if found:
                heapq.heappush(queue, (-len(found), node))
            continue
        chosen += found
        for place in found:
            wanted[sort(place)] -= 1
            room = list(map(operator.sub, room, place.kind.now))
    return tuple(sorted(chosen, key=_key))


def _preference(some: tuple[GpuSlot, ...]) -> tuple[int, list[Key]]:
    return len({place.key[0] for place in some}), [place.key for place in some]


def _key(place: GpuSlot) -> Key:
    return place.key
