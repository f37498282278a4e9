# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Represents the GPU nodes on the page, with the content of their tiles (pure)."""

from __future__ import annotations

import re
import typing as t
from collections import Counter, defaultdict
from dataclasses import dataclass

from ..cluster_state.node import to_count
from ..cluster_state.node_check import NOT_READY
from .drawing import cells_per_gpu
from .facts import node_facts
from .formatting import DOT, number, plural, short_resource
from .mig_devices import SUCCESS, GpuLayout, gpu_layouts
from .usage import PodUsage, ResourceUsage, read_pods, read_usage

Document = t.Mapping[str, t.Any]

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
            f"{plural(len(further), 'more pod')} request {number(sum(pod.units for pod in further))}."
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
    count = f"\u00d7{number(pod.units)}" if pod.units != 1 else ""
    resource = short_resource(pod.resource).removeprefix("mig-") if several else ""
    return "\u00a0".join(filter(None, [count, resource]))
