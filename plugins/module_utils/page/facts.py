# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the page tells of each node and pool, read from what gpu_info returned; what is not known stays None (pure)."""

from __future__ import annotations

import functools
import re
import typing as t
from collections import Counter, defaultdict
from dataclasses import dataclass

from ..cluster_state.node import whole
from .cuts import Cut, cuts
from .marks import Mark, marks

Document = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Count:
    """How much of one resource is in which state, in the units in which it is requested.

    Free is offered and not held, beyond is held but not offered any more, missing is in the node's capacity but neither offered
    nor held. When nobody asked who holds what, all that is offered is free.
    """

    resource: str
    used: int
    free: int
    beyond: int
    missing: int
    asked: bool

    @property
    def offered(self) -> int:
        """What the node can allocate, held or not."""
        return self.used + self.free

    @property
    def held(self) -> int:
        """What pods hold, whether it is still offered or not."""
        return self.used + self.beyond

    @property
    def total(self) -> int:
        """All there is."""
        return self.used + self.free + self.beyond + self.missing


@dataclass(frozen=True)
class Hold:
    """What one pod holds of one resource of its node."""

    namespace: str
    pod: str
    resource: str
    count: int


@dataclass(frozen=True)
class NodeFacts:
    """One GPU node; key is its place in the page, cuts are its GPUs' MIG devices where they are known for each GPU."""

    key: str
    name: str
    pool: str | None
    model: str | None
    gpus: int
    memory_mib: int
    driver: str | None
    mode: str | None
    replicas: int
    takes_pods: bool
    counts: tuple[Count, ...]
    holds: tuple[Hold, ...] | None
    mig: Document | None
    cuts: tuple[Cut, ...]
    marks: tuple[Mark, ...]

    @property
    def room(self) -> int:
        """What a new pod could get here."""
        return sum(count.free for count in self.counts) if self.takes_pods else 0


@dataclass(frozen=True)
class Group:
    """The nodes of one pool, or those of none; declared is what gpu_info says of the pool."""

    name: str | None
    declared: Document | None
    nodes: tuple[NodeFacts, ...]


@dataclass(frozen=True)
class Fleet:
    """The whole page's facts; asked is whether it is known who holds what."""

    cluster: str
    reachable: bool
    info: Document
    groups: tuple[Group, ...]
    asked: bool

    @functools.cached_property
    def nodes(self) -> tuple[NodeFacts, ...]:
        """All nodes in the order of the page."""
        return tuple(node for group in self.groups for node in group.nodes)

    @functools.cached_property
    def keys_of(self) -> dict[str, str]:
        """The place of each node by its name."""
        return {node.name: node.key for node in self.nodes}

    @property
    def pools(self) -> tuple[Group, ...]:
        """The groups that are declared pools."""
        return tuple(group for group in self.groups if group.declared is not None)


def fleet(info: Document) -> Fleet:
    """The facts in what gpu_info returned, or in the JSON file that it wrote."""
    pools: Document = info.get("pools") or {}
    rows: t.Sequence[Document] = info.get("nodes") or ()
    found: dict[str | None, list[NodeFacts]] = defaultdict(list)
    for at, row in enumerate(rows):
        node = _node(f"n{at}", row, pools, info)
        found[node.pool].append(node)
    others = sorted(name for name in found if name is not None and name not in pools)
    names: list[str | None] = [*pools, *others, *([None] if None in found else [])]
    groups = (Group(name, pools.get(name) if name else None, tuple(_sorted(found[name]))) for name in names)
    return Fleet(
        cluster=str(info.get("cluster") or "(unnamed)"),
        reachable=bool(info.get("reachable")),
        info=info,
        groups=tuple(groups),
        asked=any("workloads" in row for row in rows),
    )


def added(nodes: t.Iterable[NodeFacts]) -> tuple[Count, ...]:
    """What the nodes have together, by resource."""
    sums: dict[str, Count] = {}
    for node in nodes:
        for count in node.counts:
            sums[count.resource] = _plus(sums[count.resource], count) if count.resource in sums else count
    return tuple(sums[name] for name in sorted(sums))


def _plus(one: Count, other: Count) -> Count:
    return Count(
        one.resource,
        one.used + other.used,
        one.free + other.free,
        one.beyond + other.beyond,
        one.missing + other.missing,
        one.asked or other.asked,
    )


def closed(nodes: t.Iterable[NodeFacts], resource: str) -> int:
    """How much of a resource is free where no new pod can go."""
    return sum(
        count.free for node in nodes if not node.takes_pods for count in node.counts if count.resource == resource
    )


def _sorted(nodes: t.Iterable[NodeFacts]) -> list[NodeFacts]:
    """By name as people count: node-2 before node-10."""
    return sorted(nodes, key=lambda node: (*map(_rank, re.findall(r"[0-9]+|[^0-9]+", node.name)), (2, 0, node.name)))


def _rank(part: str) -> tuple[int, int, str]:
    """Digits by their value (however many there are), before letters."""
    digits = part.lstrip("0")
    return (0, len(digits), digits) if part[0] in "0123456789" else (1, 0, part)


def _node(key: str, row: Document, pools: Document, info: Document) -> NodeFacts:
    name, pool = str(row.get("name") or ""), row.get("pool")
    declared: Document | None = pools.get(pool) if pool else None
    holds = _holds(row)
    counts = _counts(row, holds)
    cut = cuts(row, declared or {})
    return NodeFacts(
        key=key,
        name=name,
        pool=str(pool) if pool else None,
        model=row.get("model"),
        gpus=len(cut) or _gpus(row, counts),
        memory_mib=max(0, whole(row.get("memory_mib"))),
        driver=row.get("driver"),
        mode=row.get("mode"),
        replicas=max(0, whole(row.get("replicas"))),
        takes_pods=bool(row.get("ready") and row.get("schedulable")),
        counts=counts,
        holds=holds,
        mig=row.get("mig") or None,
        cuts=cut,
        marks=tuple(marks(row, declared, info)),
    )


def _gpus(row: Document, counts: t.Sequence[Count]) -> int:
    """The GPUs, as gpu-feature-discovery counts them; 0 where it counts MIG devices (strategy single) instead."""
    gpus = max(0, whole(row.get("gpus")))
    devices: Document = (row.get("mig") or {}).get("devices") or {}
    single = counts and not any("/mig-" in count.resource for count in counts)
    return 0 if single and gpus and sum(map(whole, devices.values())) == gpus else gpus


def _counts(row: Document, holds: t.Sequence[Hold] | None) -> tuple[Count, ...]:
    offers: Document = row.get("allocatable") or {}
    capacities: Document = row.get("capacity") or {}
    held: Counter[str] = Counter()
    for hold in holds or ():
        held[hold.resource] += hold.count
    found = []
    as_declared = bool(row.get("pool")) and row.get("differs") == []
    for name in sorted({*offers, *capacities, *held}):
        offered, capacity = max(0, whole(offers.get(name))), max(0, whole(capacities.get(name)))
        used = min(offered, held[name])
        # For five minutes the kubelet counts the capacity of a resource that sharing has replaced (kubelet devicemanager,
        # endpointStopGracePeriod): nothing is missing on a node that offers all that its pool declares.
        missing = 0 if as_declared else max(0, capacity - max(offered, held[name]))
        found.append(Count(name, used, offered - used, held[name] - used, missing, holds is not None))
    # After that it stays at 0 for as long as the kubelet lives.
    return tuple(count for count in found if count.total)


def _holds(row: Document) -> tuple[Hold, ...] | None:
    workloads = row.get("workloads")
    if workloads is None:
        return None
    return tuple(
        Hold(
            str(entry.get("namespace") or ""),
            str(entry.get("pod") or ""),
            str(entry.get("resource") or ""),
            max(0, whole(entry.get("count"))),
        )
        for entry in workloads
    )
