# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Computes the usage of the nodes' GPU resources: requested, free and not allocatable units (pure)."""

from __future__ import annotations

import typing as t
from collections import Counter, defaultdict
from dataclasses import dataclass

from ..cluster_state.node import to_count

if t.TYPE_CHECKING:
    from .node_view import GpuNode

Document = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class ResourceUsage:
    """One resource, in the units that pods request. The numbers used, free, lost and missing do not overlap.

    used: allocatable and requested by a pod. free: allocatable and not requested. lost: requested, but no longer allocatable.
    missing: in the node's capacity, but neither allocatable nor requested. If the pods were not read (known is false),
    all allocatable units count as free. unschedulable: the free units on nodes that accept no new pods; set only in totals.
    """

    resource: str
    used: int
    free: int
    lost: int
    missing: int
    known: bool
    unschedulable: int = 0

    @property
    def allocatable(self) -> int:
        """The allocatable units, requested or not."""
        return self.used + self.free

    @property
    def requested(self) -> int:
        """The units that pods request, allocatable or not."""
        return self.used + self.lost

    @property
    def available(self) -> int:
        """The units that new pods can get."""
        return self.free - self.unschedulable

    @property
    def total(self) -> int:
        """The units in any state."""
        return self.used + self.free + self.lost + self.missing

    @property
    def states(self) -> list[tuple[str, int]]:
        """The number of units in each state that occurs. The states have the names that the style sheet uses."""
        free = "free" if self.known else "unknown"
        counts = [("used", self.used), ("lost", self.lost), (free, self.free), ("missing", self.missing)]
        return [(state, count) for state, count in counts if count]


class PodUsage(t.NamedTuple):
    """One pod's request for one resource of the node."""

    namespace: str
    pod: str
    resource: str
    units: int


class NamespaceUsage(t.NamedTuple):
    """The requests of the pods in one namespace. `counts` has the order of the resources that namespace_usage() returns."""

    namespace: str
    pods: int
    nodes: int
    counts: tuple[int, ...]


def read_pods(row: Document) -> tuple[PodUsage, ...] | None:
    """The pods in a row of gpu_info; None if they were not read."""
    workloads = row.get("workloads")
    if workloads is None:
        return None
    return tuple(
        PodUsage(
            str(entry.get("namespace") or ""),
            str(entry.get("pod") or ""),
            str(entry.get("resource") or ""),
            max(0, to_count(entry.get("count"))),
        )
        for entry in workloads
    )


def read_usage(row: Document, pods: t.Sequence[PodUsage] | None) -> tuple[ResourceUsage, ...]:
    """The resources in a row of gpu_info, sorted by name; resources without any units are omitted."""
    allocatables: Document = row.get("allocatable") or {}
    capacities: Document = row.get("capacity") or {}
    requests: Counter[str] = Counter()
    for pod in pods or ():
        requests[pod.resource] += pod.units
    result = []
    as_declared = bool(row.get("pool")) and row.get("drift") == []
    for name in sorted({*allocatables, *capacities, *requests}):
        allocatable, capacity = max(0, to_count(allocatables.get(name))), max(0, to_count(capacities.get(name)))
        requested = requests[name]
        used = min(allocatable, requested)
        # After sharing has replaced a resource, the kubelet keeps its capacity for five minutes (kubelet devicemanager,
        # endpointStopGracePeriod). No units are missing on a node that has everything that its pool declares.
        missing = 0 if as_declared else max(0, capacity - max(allocatable, requested))
        result.append(ResourceUsage(name, used, allocatable - used, requested - used, missing, pods is not None))
    # After these five minutes, the capacity stays at 0 until the kubelet restarts.
    return tuple(usage for usage in result if usage.total)


def total_usage(nodes: t.Iterable[GpuNode]) -> tuple[ResourceUsage, ...]:
    """The totals of all given nodes, sorted by resource."""
    by_resource: dict[str, list[tuple[bool, ResourceUsage]]] = defaultdict(list)
    for node in nodes:
        for usage in node.usage:
            by_resource[usage.resource].append((node.schedulable, usage))
    return tuple(
        ResourceUsage(
            resource,
            used=sum(usage.used for dummy, usage in entries),
            free=sum(usage.free for dummy, usage in entries),
            lost=sum(usage.lost for dummy, usage in entries),
            missing=sum(usage.missing for dummy, usage in entries),
            known=any(usage.known for dummy, usage in entries),
            unschedulable=sum(usage.free for schedulable, usage in entries if not schedulable),
        )
        for resource, entries in sorted(by_resource.items())
    )


def namespace_usage(nodes: t.Iterable[GpuNode]) -> tuple[list[str], list[NamespaceUsage]]:
    """All requested resources, and the usage of each namespace, sorted by the number of requested units, largest first."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    pods: dict[str, set[str]] = defaultdict(set)
    names: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        for pod in node.pods or ():
            counts[pod.namespace][pod.resource] += pod.units
            pods[pod.namespace].add(pod.pod)
            names[pod.namespace].add(node.name)
    resources = sorted({resource for of_one in counts.values() for resource in of_one})
    ordered = sorted(counts, key=lambda namespace: (-sum(counts[namespace].values()), namespace))
    return resources, [
        NamespaceUsage(name, len(pods[name]), len(names[name]), tuple(counts[name][resource] for resource in resources))
        for name in ordered
    ]
