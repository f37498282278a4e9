# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Selects the GPUs to repartition: for a solution of the search, or by first fit decreasing (pure)."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import operator
import typing as t
from collections import Counter, defaultdict

from .cover_search import Cost, GpuKind, Vector

# A GPU: its node's name and its index.
Key = tuple[str, int]
# The number of GPUs that get a pattern, by the index of the group of GPUs that can have it.
NewPatterns = t.Mapping[tuple[int, Vector], int]
Category = t.TypeVar("Category", bound=t.Hashable)

# Up to this number of sets of GPUs, each set is tried; if there are more, one set is composed node by node.
_MAX_SETS = 3000


class GpuSlot(t.NamedTuple):
    """A GPU that may be changed, with its kind in the search."""

    key: Key
    kind: GpuKind


def fewest_nodes(places: t.Sequence[GpuSlot], numbers: t.Mapping[GpuKind, int], allowed: Vector) -> tuple[GpuSlot, ...]:
    """Select the given number of GPUs of each kind, on as few nodes as possible.

    A kind can replace another kind with the same patterns and use, as long as no more than `allowed` is lost in total. If this is not possible,
    the kinds are used as given.
    """
    by_use: Counter[tuple[int, bool]] = Counter()
    for kind, number in numbers.items():
        by_use[kind.group, kind.used] += number
    lost = [sum(kind.now[at] * number for kind, number in numbers.items()) for at in range(len(allowed))]
    exact = _node_by_node(places, numbers, lambda place: place.kind, tuple(lost))
    other = _node_by_node(places, by_use, lambda place: (place.kind.group, place.kind.used), allowed)
    return min((selection for selection in (exact, other) if len(selection) == len(exact)), key=_preference)


def candidate_sets(places: t.Sequence[GpuSlot], cost: Cost) -> list[tuple[GpuSlot, ...]]:
    """All sets with the numbers of used and changed GPUs in `cost`, sorted by their number of nodes, then by keys; empty if there are too many sets."""
    dummy, used, touched = cost
    busy = [place for place in places if place.kind.used]
    idle = [place for place in places if not place.kind.used]
    if math.comb(len(busy), used) * math.comb(len(idle), touched - used) > _MAX_SETS:
        return []
    both = itertools.product(itertools.combinations(busy, used), itertools.combinations(idle, touched - used))
    return sorted((tuple(sorted(one + other, key=_key)) for one, other in both), key=_preference)


def assign_patterns(places: t.Sequence[GpuSlot], new: NewPatterns) -> dict[Key, Vector]:
    """Assign the patterns so that GPUs keep as many of their devices as possible; some GPUs may get no pattern."""
    rest = Counter(dict(new))
    waiting: dict[tuple[int, Vector], list[Key]] = defaultdict(list)
    for place in sorted(places, key=_key, reverse=True):
        waiting[place.kind.group, place.kind.now].append(place.key)
    pairs = [(group, pattern, now) for group, pattern in new for own_group, now in waiting if own_group == group]
    assigned: dict[Key, Vector] = {}
    for group, pattern, now in sorted(pairs, key=lambda pair: (-sum(map(min, pair[1], pair[2])), pair)):
        while rest[group, pattern] and waiting[group, now]:
            rest[group, pattern] -= 1
            assigned[waiting[group, now].pop()] = pattern
    return assigned


def first_fit(
    places: t.Iterable[GpuSlot], patterns: t.Sequence[tuple[Vector, ...]], offered: Vector, demand: Vector
) -> dict[Key, Vector]:
    """The new patterns if each missing device, the largest first, is placed on the first GPU with room for it.

    GPUs are repartitioned one after another: unused GPUs first, each group sorted by key. The devices of a repartitioned GPU are lost and become missing.
    `patterns` contains the patterns of each group of GPUs, and `offered` contains the demanded devices of all GPUs.
    """

    @functools.cache
    def has_room(group: int, vector: Vector) -> bool:
        return any(all(map(operator.le, vector, pattern)) for pattern in patterns[group])

    order = sorted(places, key=lambda place: (place.kind.used, place.key))
    have, cut = list(offered), list[list[int]]()
    # For each profile, the first repartitioned GPU that may have room; once a profile was refused, no other GPU is
    # tried.
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


def _node_by_node(
    places: t.Sequence[GpuSlot],
    numbers: t.Mapping[Category, int],
    category: t.Callable[[GpuSlot], Category],
    allowed: Vector,
) -> tuple[GpuSlot, ...]:
    """Select the given number of GPUs of each category, always from the node with the most GPUs that are still needed, within the allowed losses.

    A node's count never grows, so it is only updated when the node seems to be the best.
    """
    demanded, room = Counter(dict(numbers)), list(allowed)
    nodes: dict[str, list[GpuSlot]] = defaultdict(list)
    for place in sorted(places, key=lambda place: (sum(place.kind.now), place.key)):
        nodes[place.key[0]].append(place)

    def usable(node: str) -> list[GpuSlot]:
        usable_gpus, unmet, free = [], Counter(demanded), room
        for place in nodes[node]:
            if unmet[category(place)] > 0 and all(map(operator.le, place.kind.now, free)):
                unmet[category(place)] -= 1
                free = list(map(operator.sub, free, place.kind.now))
                usable_gpus.append(place)
        return usable_gpus

    chosen: list[GpuSlot] = []
    queue = [(-len(members), node) for node, members in nodes.items()]
    heapq.heapify(queue)
    while queue and demanded.total():
        seemed, node = heapq.heappop(queue)
        candidate = usable(node)
        if len(candidate) < -seemed:
            if candidate:
                heapq.heappush(queue, (-len(candidate), node))
            continue
        chosen += candidate
        for place in candidate:
            demanded[category(place)] -= 1
            room = list(map(operator.sub, room, place.kind.now))
    return tuple(sorted(chosen, key=_key))


def _preference(some: tuple[GpuSlot, ...]) -> tuple[int, list[Key]]:
    return len({place.key[0] for place in some}), [place.key for place in some]


def _key(place: GpuSlot) -> Key:
    return place.key
