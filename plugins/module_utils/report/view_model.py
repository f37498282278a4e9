# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The content of the report page (pure)."""

from __future__ import annotations

import functools
import re
import typing as t
from collections import Counter, defaultdict
from dataclasses import dataclass

from ..core.messages import abbreviate
from ..nodes.node import to_count
from ..nodes.node_check import NOT_READY
from .facts import (
    DOT,
    SUCCESS,
    GpuLayout,
    ScalingSummary,
    compute_slices,
    format_number,
    gpu_layouts,
    has_failed_validation,
    is_idle,
    node_facts,
    page_facts,
    pending_changes,
    plural,
    scaling_summaries,
    short_resource,
    totals_title,
)

if t.TYPE_CHECKING:
    from ..core.values import Document

# Represents the GPU nodes on the page, with the content of their tiles (pure).

# The most severe value comes first.
SEVERITIES = BAD, WARN, NOTE = ("bad", "warn", "note")
OK = "ok"
DRIFT = "differs"
_MAX_PODS = 64


@dataclass(frozen=True)
class Badge:
    """A short note with a severity; `detail` contains additional information."""

    text: str
    severity: str
    detail: str = ""


@dataclass(frozen=True)
class GpuNode:
    """One GPU node. `key` is the node's id on the page, and `facts` contains the values of NODE_FACTS, which do not depend on pods."""

    key: str
    name: str
    pool: str | None
    facts: t.Mapping[str, str]
    gpus: int
    replicas: int
    schedulable: bool
    usage: tuple[ResourceUsage, ...]
    pods: tuple[PodUsage, ...] | None
    gpu_layouts: tuple[GpuLayout, ...]
    badges: tuple[Badge, ...]

    @property
    def free(self) -> int:
        """The free units of all resources."""
        return sum(usage.free for usage in self.usage)

    @property
    def allocatable(self) -> int:
        """The allocatable units of all resources."""
        return sum(usage.allocatable for usage in self.usage)

    @property
    def available(self) -> int:
        """The units that new pods can get."""
        return self.free if self.schedulable else 0

    @property
    def severity(self) -> str | None:
        """The severity of the worst badge."""
        return min((badge.severity for badge in self.badges), key=SEVERITIES.index, default=None)

    @property
    def appearance(self) -> t.Hashable:
        """A key for the drawing; nodes with the same appearance share a drawing."""
        return self.gpus, self.replicas, self.usage, self.gpu_layouts

    def unusual_facts(self, common: t.Mapping[str, str]) -> str:
        """The facts in which the node differs from the facts that are common in its pool."""
        return DOT.join(text for kind, text in self.facts.items() if common.get(kind) != text)

    @property
    def namespaces(self) -> list[tuple[str, int]]:
        """The namespaces of the pods with their total requests, sorted by request, largest first."""
        counts: Counter[str] = Counter()
        for pod in self.pods or ():
            counts[pod.namespace] += pod.units
        return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))

    @property
    def pods_by_namespace(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """The pods with the largest requests, by namespace. Each pod is listed with its request, unless the request is a single unit."""
        pods = self.pods or ()
        several = len({pod.resource for pod in pods} | {usage.resource for usage in self.usage}) > 1
        groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for pod in _by_request(pods)[:_MAX_PODS]:
            groups[pod.namespace].append((pod.pod, _request(pod, several)))
        return sorted(groups.items())

    @property
    def further_pods(self) -> str:
        """A sentence about the pods that are not listed."""
        further = _by_request(self.pods or ())[_MAX_PODS:]
        return (
            f"{plural(len(further), 'more pod')} request {format_number(sum(pod.units for pod in further))}."
            if further
            else ""
        )

    @property
    def description(self) -> str:
        """A description of the drawing in words."""
        parts = [plural(self.gpus, "GPU")] if self.gpus else []
        for usage in self.usage:
            counts = [f"{usage.allocatable} {usage.resource} allocatable"]
            if usage.known:
                counts += [f"{usage.requested} requested", f"{usage.free} free"]
            if usage.missing:
                counts.append(f"{usage.missing} not allocatable")
            if usage.lost:
                counts.append(f"{usage.lost} requested but no longer allocatable")
            parts.append(", ".join(counts))
        if not self.usage:
            parts.append("nothing is allocatable")
        elif self.gpus > 1 and not cells_per_gpu(self):
            parts.append("it is not known which GPU has which share")
        return f"{self.name}: {'; '.join(parts)}"


def read_node(key: str, row: Document, pools: Document, info: Document) -> GpuNode:
    """Create the node from a row of gpu_info."""
    pool = row.get("pool")
    declared: Document | None = pools.get(pool) if pool else None
    pods = read_pods(row)
    usage = read_usage(row, pods)
    layouts = gpu_layouts(row, declared or {})
    gpus = len(layouts) or _gpus(row, usage)
    replicas = max(0, to_count(row.get("replicas")))
    memory_mib = max(0, to_count(row.get("memory_mib")))
    return GpuNode(
        key=key,
        name=str(row.get("name") or ""),
        pool=str(pool) if pool else None,
        facts=node_facts({**row, "gpus": gpus, "memory_mib": memory_mib, "replicas": replicas}),
        gpus=gpus,
        replicas=replicas,
        schedulable=bool(row.get("ready") and row.get("schedulable")),
        usage=usage,
        pods=pods,
        gpu_layouts=layouts,
        badges=tuple(_badges(row, info)),
    )


def _badges(row: Document, info: Document) -> t.Iterator[Badge]:
    """The reasons why a node needs attention, from its row in gpu_info; none if it needs no attention."""
    name = str(row.get("name") or "")
    if not row.get("ready"):
        yield Badge("not ready", BAD)
    if not row.get("schedulable"):
        yield Badge("cordoned", NOTE, "accepts no new pods")
    mig: Document = row.get("mig") or {}
    state = mig.get("state")
    if state and state != SUCCESS:
        yield Badge(f"MIG {state}", BAD if state == "failed" else WARN)
    if not row.get("model"):
        yield Badge("not discovered", WARN, "gpu-feature-discovery has not labeled it yet")
    pools = (info.get("overlaps") or {}).get(name)
    drift = [str(text) for text in row.get("drift") or () if text != NOT_READY]
    if pools:
        yield Badge("several pools", WARN, f"matches the pools {', '.join(map(str, pools))}; the node is not changed")
    elif name in (info.get("released") or ()):
        yield Badge("released", NOTE, "no longer in a pool; the labels of the pool will be removed")
    elif drift:
        yield Badge(DRIFT, WARN, "; ".join(drift))
    # The list of unclaimed nodes has a limited length, but the number of rows is not limited. The list excludes nodes whose model is unknown, because these
    # may still match a pool.
    elif row.get("pool") is None and row.get("model") and info.get("unclaimed"):
        yield Badge("in no pool", NOTE, "no pool matches it; the node is not changed")


def natural_order(name: str) -> tuple[t.Any, ...]:
    """The sort key that puts node-2 before node-10."""
    return (*map(_rank, re.findall(r"[0-9]+|[^0-9]+", name)), (2, 0, name))


def _rank(part: str) -> tuple[int, int, str]:
    """The rank of a part of a name: digits come before letters, and are compared by value (there may be thousands of digits)."""
    digits = part.lstrip("0")
    return (0, len(digits), digits) if part[0] in "0123456789" else (1, 0, part)


def _gpus(row: Document, usage: t.Sequence[ResourceUsage]) -> int:
    """The number of GPUs according to gpu-feature-discovery; 0 if it counts MIG devices instead (strategy single)."""
    gpus = max(0, to_count(row.get("gpus")))
    devices: Document = (row.get("mig") or {}).get("devices") or {}
    single = usage and not any("/mig-" in entry.resource for entry in usage)
    return 0 if single and gpus and sum(map(to_count, devices.values())) == gpus else gpus


def _by_request(pods: t.Iterable[PodUsage]) -> list[PodUsage]:
    return sorted(pods, key=lambda pod: (-pod.units, pod.namespace, pod.pod, pod.resource))


def _request(pod: PodUsage, several: bool) -> str:
    """The pod's request as text: the count unless it is one, and the resource if the node has several resources."""
    count = f"\u00d7{format_number(pod.units)}" if pod.units != 1 else ""
    resource = short_resource(pod.resource).removeprefix("mig-") if several else ""
    return "\u00a0".join(filter(None, [count, resource]))


# Computes the usage of the nodes' GPU resources: requested, free and not allocatable units (pure).


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


# Computes the content of a node's drawing: the GPUs, and the states of their shares (pure).
#
# Kubernetes reports how many of a node's shares a pod requests, but not on which GPU these shares are. A GPU is therefore drawn with its own
# shares only if their states are certain: the node has one GPU, or all units of each resource are in the same state. Otherwise, one bar for each
# resource shows the node's shares, below a row of empty frames for the GPUs.

# The maximum widths of a node's drawing and of a GPU, and the minimum width of a cell. Because of the second value, one or two GPUs do not fill a drawing.
_MAX_WIDTH, _MAX_GPU_WIDTH, _MIN_CELL_WIDTH = 150, 36, 5
_GAP = 2
# Above these numbers, units are not drawn individually.
_MAX_GPUS, _MAX_SHARES, _MAX_CELLS = 16, 16, 64

# The state of a unit and its width; for merged units, the sum of their widths.
Cell = tuple[str, float]


class Units(t.NamedTuple):
    """The units of a GPU or of a resource. If they are `merged`, each cell represents all units in one state."""

    cells: list[Cell]
    merged: bool = False

    @property
    def width(self) -> float:
        """The width of all cells together."""
        return sum(width for dummy, width in self.cells)

    @property
    def is_uniform(self) -> bool:
        """Whether all cells have the same width."""
        return len({width for dummy, width in self.cells}) == 1


class NodeDrawing(t.NamedTuple):
    """The drawing of a node. `gpus` contains the GPUs with their own shares. If it is empty, `frames` contains the GPUs with the widths of their MIG devices,
    and `bars` contains the resources.
    """

    width: float
    gpus: t.Sequence[Units] = ()
    frames: t.Sequence[t.Sequence[int]] = ()
    bars: t.Sequence[Units] = ()


def node_drawing(node: GpuNode) -> NodeDrawing:
    """The GPUs of a node and the states of their shares."""
    gpus = min(node.gpus, _MAX_GPUS)
    width = min(_MAX_WIDTH, max(1, gpus) * (_MAX_GPU_WIDTH + _GAP) - _GAP)
    per_gpu = cells_per_gpu(node)
    if per_gpu:
        crowded = gpus == 1 and is_crowded(node)
        return NodeDrawing(width, gpus=[_gpu_units(cells, crowded) for cells in per_gpu])
    bars = _cells_per_resource(node)
    width = max(width, min(_MAX_WIDTH, _MIN_CELL_WIDTH * sum(map(len, bars))))
    frames = [
        [compute_slices(name) or 1 for name, count in layout for dummy in range(min(count, _MAX_SHARES))]
        for layout in (node.gpu_layouts or [()] * gpus)[:gpus]
    ]
    # If each unit is a whole GPU, the bar already shows the GPUs.
    if [node.gpus] == [usage.total for usage in node.usage if not compute_slices(usage.resource)]:
        frames = []
    return NodeDrawing(width, frames=frames, bars=[Units(cells, is_crowded(node)) for cells in bars])


def _gpu_units(cells: list[Cell], crowded: bool) -> Units:
    if not crowded and len(cells) <= _MAX_SHARES:
        return Units(cells)
    widths: dict[str, float] = defaultdict(float)
    for state, width in cells:
        widths[state] += width
    return Units(list(widths.items()), merged=True)


def cells_per_gpu(node: GpuNode) -> list[list[Cell]]:
    """The cells of each GPU if they are certain for every GPU; otherwise, an empty list."""
    if not node.usage or not 0 < node.gpus <= _MAX_GPUS:
        return []
    if node.gpus == 1:
        return [[cell for cells in _cells_per_resource(node) for cell in cells]]
    states = [usage.states for usage in node.usage]
    if any(len(of_resource) > 1 for of_resource in states):
        return []
    state_of = {usage.resource: of_resource[0][0] for usage, of_resource in zip(node.usage, states, strict=True)}
    if node.gpu_layouts:
        return _cells_of_mig_gpus(node, state_of)
    shares, (usage, *others) = max(1, node.replicas), node.usage
    if others or compute_slices(usage.resource) or usage.total != node.gpus * shares:
        return []  # MIG may partition each GPU of a node differently
    return [[(states[0][0][0], 1)] * min(shares, _MAX_SHARES)] * node.gpus


def is_crowded(node: GpuNode) -> bool:
    """Whether a node has too many units to draw them individually."""
    return sum(usage.total for usage in node.usage) > _MAX_CELLS


def _cells_of_mig_gpus(node: GpuNode, state_of: t.Mapping[str, str]) -> list[list[Cell]]:
    """The MIG devices of each GPU; all devices of a profile are in the same state."""
    result: list[list[Cell]] = []
    for layout in node.gpu_layouts:
        cells: list[Cell] = []
        for profile, count in layout or (("gpu", 1),):
            resource = f"nvidia.com/mig-{profile}"
            names = (resource, f"{resource}.shared", "nvidia.com/gpu", "nvidia.com/gpu.shared")
            state = next((state_of[name] for name in names if name in state_of), None)
            if state is None:
                return []
            cells += [(state, compute_slices(profile) or 1)] * count
        result.append(cells)
    return result


def _cells_per_resource(node: GpuNode) -> list[list[Cell]]:
    """One cell for each unit, as wide as its compute slices; on a crowded node, one cell for each state."""
    merged = is_crowded(node)
    result: list[list[Cell]] = []
    for usage in node.usage:
        width = compute_slices(usage.resource) or 1
        if merged:
            result.append([(state, count * width) for state, count in usage.states])
        else:
            result.append([(state, width) for state, count in usage.states for dummy in range(count)])
    return result


# Builds the view model of the HTML page from the result of gpu_info (pure).

# Up to this number of nodes, the tiles are large and initially open; with more nodes, the tiles are small and initially closed.
MAX_EXPANDED = 40
_MAX_EXPANDED_PODS = 10
# The maximum number of namespaces or drivers on a tile, and the maximum number of rows in the table of namespaces.
MAX_IN_TILE, MAX_ROWS = 3, 200
# Names of nodes up to this length are shown unchanged.
MAX_NAME_LENGTH = 18
_ELLIPSIS = "\u2026"


@dataclass(frozen=True)
class PoolView:
    """The nodes of one pool, or the nodes without a pool (name is None).

    `declared` is the pool in the result of gpu_info; None for an undeclared pool. `prefix` and `domain` are common to the
    names of all nodes. `scaling` explains whether OpenShift's autoscaler scales the pool.
    """

    key: str
    name: str | None
    declared: Document | None
    reachable: bool
    nodes: tuple[GpuNode, ...]
    prefix: str = ""
    domain: str = ""
    scaling: tuple[ScalingSummary, ...] = ()

    @property
    def info(self) -> Document:
        """The pool in the result of gpu_info."""
        return self.declared or {}

    @property
    def is_idle(self) -> bool:
        """Whether the pool has no nodes at the moment, which its node group allows; this needs no attention."""
        return not self.nodes and is_idle(self.info) and not self.cannot_scale

    @property
    def cannot_scale(self) -> list[str]:
        """The reasons why the autoscaler adds no node to the pool, although the pool declares autoscaling; empty if it does, or if this is unknown."""
        return [summary.text for summary in self.scaling if summary.scales is False and not summary.at_maximum]

    @property
    def as_declared(self) -> bool:
        """Whether all nodes match the pool's declaration."""
        return bool(self.info.get("as_declared"))

    @property
    def node_count(self) -> int:
        """The pool's number of nodes in the cluster, even if the page does not show all of them."""
        return self.info.get("nodes") or 0

    @property
    def drifted_nodes(self) -> int:
        """The number of nodes that are not as declared, even if the page does not show all of them."""
        return self.info.get("drifted_nodes") or 0

    @property
    def unlisted_drifted_nodes(self) -> int:
        """The number of nodes that are not as declared and whose tiles do not show this."""
        return self.drifted_nodes - sum(badge.text == DRIFT for node in self.nodes for badge in node.badges)

    @property
    def badge(self) -> Badge:
        """The state of the pool."""
        if self.declared is None:
            return Badge("not declared", NOTE)
        if not self.reachable:
            return Badge("not reachable", NOTE)
        if self.cannot_scale:
            return Badge("cannot scale", BAD if not self.node_count else WARN)
        if self.is_idle:
            return Badge("idle", NOTE)
        if not self.node_count:
            return Badge("no nodes", WARN)
        if has_failed_validation(self.info):
            return Badge("validation failed", BAD)
        return Badge("as declared", OK) if self.as_declared else Badge(DRIFT, WARN)

    @functools.cached_property
    def usage(self) -> tuple[ResourceUsage, ...]:
        """The resources of all nodes of the pool."""
        return total_usage(self.nodes)

    @property
    def declared_facts(self) -> str:
        """The facts that the pool declares, such as its sharing mode."""
        return DOT.join(page_facts(self.info, observed=False))

    @property
    def observed_facts(self) -> str:
        """The facts that are known from the nodes of the pool, such as their number."""
        return DOT.join(page_facts(self.info, observed=True))

    def expected_units(self, resource: str) -> int | None:
        """The number of units of a resource that the pool declares; None for a resource that it does not declare."""
        resources: Document = self.info.get("resources") or {self.info.get("resource"): self.info}
        return (resources.get(resource) or {}).get("expected")

    @property
    def drift(self) -> list[str]:
        """The differences between the pool and its declaration, and the changes that a run would make."""
        reported = self.info.get("drift") or ()
        lines = [*map(str, reported), *pending_changes(self.info)]
        if self.reachable and not self.node_count and not self.is_idle:
            lines.append("no node of the cluster belongs to the pool")
        if reported and self.drifted_nodes > len(reported):
            lines.append(f"and {plural(self.drifted_nodes - len(reported), 'more node')}")
        return lines

    @functools.cached_property
    def common_facts(self) -> dict[str, str]:
        """The facts that more than half of the nodes have in common."""
        counts = Counter(entry for node in self.nodes for entry in node.facts.items())
        return {kind: text for (kind, text), count in counts.items() if count * 2 > len(self.nodes)}

    @property
    def common_text(self) -> str:
        """The common facts of the nodes, as text."""
        parts = list(self.common_facts.values())
        parts += [f"names begin with {self.prefix}"] if self.prefix else []
        parts += [f"names end with {self.domain}"] if self.domain else []
        uniform = all(node.facts == self.common_facts for node in self.nodes)
        return DOT.join(parts) + ("" if uniform or not parts else ". Nodes that differ show their own values.")

    def label(self, node: GpuNode) -> str:
        """The name of a node on its tile, without the domain; an ellipsis replaces the prefix."""
        host = node.name.removesuffix(self.domain)
        return f"{_ELLIPSIS}{host.removeprefix(self.prefix)}" if self.prefix else host

    def is_cut_off(self, node: GpuNode) -> bool:
        """Whether the tile may show only a part of the name."""
        label = self.label(node)
        return label != node.name or len(label) > MAX_NAME_LENGTH


@dataclass(frozen=True)
class Page:
    """The content of the page. `usage_known` shows whether the pods were read."""

    cluster: str
    reachable: bool
    info: Document
    pools: tuple[PoolView, ...]
    usage_known: bool

    @functools.cached_property
    def nodes(self) -> tuple[GpuNode, ...]:
        """All nodes in the order of the page."""
        return tuple(node for pool in self.pools for node in pool.nodes)

    @functools.cached_property
    def node_keys(self) -> dict[str, str]:
        """The id of each node by its name."""
        return {node.name: node.key for node in self.nodes}

    @functools.cached_property
    def declared_pools(self) -> tuple[PoolView, ...]:
        """The pools that are declared."""
        return tuple(pool for pool in self.pools if pool.declared is not None)

    @property
    def is_dense(self) -> bool:
        """Whether the tiles are small."""
        return len(self.nodes) > MAX_EXPANDED

    def is_expanded(self, node: GpuNode) -> bool:
        """Whether the tile of a node is initially open."""
        return not self.is_dense and len(node.pods or ()) <= _MAX_EXPANDED_PODS

    @property
    def summary(self) -> str:
        """The state of the cluster as one sentence."""
        if not self.reachable:
            return f"Cannot reach the cluster: {self.info.get('reason') or 'the reason is not known'}"
        pools = self.declared_pools
        if not pools:
            return "No pools are declared."
        good = sum(pool.as_declared and bool(pool.node_count) for pool in pools)
        idle = sum(pool.is_idle for pool in pools)
        empty = sum(not pool.node_count for pool in pools) - idle
        drifted = len(pools) - good - empty - idle
        failed = sum(has_failed_validation(pool.info) for pool in pools)
        failure = [f"the validation of {plural(failed, 'pool')} failed"] if failed else []
        stuck = sum(bool(pool.cannot_scale) for pool in pools)
        failure += [f"{plural(stuck, 'pool')} cannot scale"] if stuck else []
        if good == len(pools):
            text = "The pool is as declared" if good == 1 else f"All {good} pools are as declared"
            return "; ".join([text, *failure]) + "."
        parts = [f"{good} of {plural(len(pools), 'pool')} {'is' if good == 1 else 'are'} as declared"]
        parts += [f"{drifted} differ{'s' if drifted == 1 else ''}"] if drifted else []
        parts += [f"{empty} {'has' if empty == 1 else 'have'} no nodes"] if empty else []
        parts += [f"{idle} {'is' if idle == 1 else 'are'} idle"] if idle else []
        parts += failure
        return "; ".join(parts) + "."

    @property
    def origin(self) -> str:
        """When the data was read, the versions of the cluster's components and the licenses of vGPU nodes, as far as they are known."""
        info = self.info
        installed: Document = info.get("installed") or {}
        drivers = sorted(
            {str(item) for row in (info.get("models") or {}).values() for item in row.get("driver_versions") or ()}
        )
        versions = (
            ("Kubernetes", [str(item) for item in info.get("kubelet_versions") or ()]),
            ("OpenShift", [str((info.get("autoscaling") or {}).get("version") or "")]),
            ("GPU operator", [str((installed.get("operator") or {}).get("version") or "")]),
            ("NFD", [str((installed.get("nfd") or {}).get("version") or "")]),
            ("driver", drivers),
        )
        shown = [
            f"{name} {abbreviate(known)}" for name, all_known in versions if (known := list(filter(None, all_known)))
        ]
        licenses = str((info.get("licenses") or {}).get("summary") or "")
        return DOT.join([*([f"Read {info['time']}"] if info.get("time") else []), *shown, *filter(None, [licenses])])

    @property
    def warnings(self) -> list[str]:
        """The warnings about the variables and the cluster."""
        return [str(text) for text in self.info.get("warnings") or ()]

    @property
    def totals_title(self) -> str:
        """The number of GPUs and nodes of the cluster."""
        return totals_title(self.info.get("totals") or {})

    @functools.cached_property
    def usage(self) -> tuple[ResourceUsage, ...]:
        """The resources of all nodes, or of the whole cluster if gpu_info returned no nodes."""
        if self.nodes:
            return total_usage(self.nodes)
        totals: Document = (self.info.get("totals") or {}).get("allocatable") or {}
        return tuple(ResourceUsage(name, 0, count, 0, 0, False) for name, count in totals.items() if count)

    @property
    def flagged_nodes(self) -> list[tuple[Badge, list[str]]]:
        """The names of the nodes with each badge, the most severe badge first."""
        nodes: dict[tuple[int, str], list[str]] = defaultdict(list)
        for node in self.nodes:
            for badge in node.badges:
                nodes[SEVERITIES.index(badge.severity), badge.text].append(node.name)
        return [(Badge(text, SEVERITIES[rank]), names) for (rank, text), names in sorted(nodes.items())]

    @functools.cached_property
    def namespaces(self) -> tuple[list[str], list[NamespaceUsage]]:
        """All requested resources, and the requests of each namespace."""
        return namespace_usage(self.nodes)

    @functools.cached_property
    def drawings(self) -> dict[t.Hashable, tuple[str, NodeDrawing]]:
        """The id and the drawing for each appearance. Nodes with the same appearance refer to the same drawing."""
        drawings: dict[t.Hashable, tuple[str, NodeDrawing]] = {}
        for node in self.nodes:
            if node.appearance not in drawings:
                drawings[node.appearance] = f"d{len(drawings)}", node_drawing(node)
        return drawings


def build_page(info: Document) -> Page:
    """Build the view model from the result of gpu_info, or from a JSON file that contains this result."""
    declared: Document = info.get("pools") or {}
    rows: t.Sequence[Document] = info.get("nodes") or ()
    nodes: dict[str | None, list[GpuNode]] = defaultdict(list)
    for at, row in enumerate(rows):
        node = read_node(f"n{at}", row, declared, info)
        nodes[node.pool].append(node)
    undeclared = sorted(name for name in nodes if name is not None and name not in declared)
    names: list[str | None] = [*declared, *undeclared, *([None] if None in nodes else [])]
    domain = common_domain([node.name for members in nodes.values() for node in members])
    reachable = bool(info.get("reachable"))
    scaling = scaling_summaries(info, "report")
    pools = []
    for at, name in enumerate(names):
        members = sorted(nodes[name], key=lambda node: natural_order(node.name))
        hosts = [node.name.removesuffix(domain) for node in members]
        prefix = common_prefix(hosts) if len(rows) > MAX_EXPANDED else ""
        pool = declared.get(name) if name else None
        explained = tuple(summary for summary in scaling if summary.pool == name)
        pools.append(PoolView(f"g{at}", name, pool, reachable, tuple(members), prefix, domain, explained))
    return Page(
        cluster=str(info.get("cluster") or "(unnamed)"),
        reachable=reachable,
        info=info,
        pools=tuple(pools),
        usage_known=any("workloads" in row for row in rows),
    )


def common_domain(names: t.Sequence[str]) -> str:
    """The end of the names, starting at the first dot, if it is the same for all names and not part of an IP address; otherwise empty."""
    domains = {name.partition(".")[2] for name in names}
    (domain,) = domains if len(domains) == 1 else ("",)
    return f".{domain}" if len(names) > 1 and any(char.isalpha() for char in domain) else ""


def common_prefix(names: t.Sequence[str]) -> str:
    """The common beginning of all names, up to a hyphen, if at least one name is too long for a small tile; otherwise empty."""
    if len(names) < 2 or max(map(len, names)) <= MAX_NAME_LENGTH:
        return ""
    first, last = min(names), max(names)  # the prefix of these two is the prefix of all
    differ = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    prefix = first[: first.rfind("-", 0, differ) + 1]
    return prefix if len(prefix) > len(_ELLIPSIS) + 1 else ""
