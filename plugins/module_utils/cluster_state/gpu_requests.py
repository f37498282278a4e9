# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds which GPU resources on which node (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .node import whole

PREFIX = "nvidia.com/"

Pod = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class GpuRequest:
    """One pod and what it holds of one resource on its node."""

    node: str
    namespace: str
    pod: str
    resource: str
    count: int


def gpu_requests(pods: t.Iterable[Pod]) -> dict[str, list[GpuRequest]]:
    """Every pod that is bound to a node and asks for NVIDIA resources, by node."""
    found: dict[str, list[GpuRequest]] = {}
    for node, pod in bound(pods):
        metadata = pod["metadata"]
        for resource, count in requests(pod).items():
            holder = GpuRequest(node, metadata.get("namespace", ""), metadata["name"], resource, count)
            found.setdefault(node, []).append(holder)
    return found


def bound(pods: t.Iterable[Pod]) -> t.Iterator[tuple[str, Pod]]:
    """Each pod that is on a node and has not ended, with the node's name; one that is being deleted is there until it is gone."""
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName")
        if node and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            yield node, pod


def held(of_node: t.Iterable[GpuRequest], resource: str) -> int:
    """How many of a resource the holders have together."""
    return sum(holder.count for holder in of_node if holder.resource == resource)


def requests(pod: Pod) -> dict[str, int]:
    """The NVIDIA resources that the scheduler counts for a pod: the sum of its containers, or its largest init one."""
    spec = pod.get("spec") or {}
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for resource, count in _limits(container):
            total[resource] = total.get(resource, 0) + count
    for container in spec.get("initContainers") or ():
        for resource, count in _limits(container):
            total[resource] = max(total.get(resource, 0), count)
    return {resource: count for resource, count in total.items() if count}


def _limits(container: t.Mapping[str, t.Any]) -> t.Iterator[tuple[str, int]]:
    resources = container.get("resources") or {}
    # An extended resource's request equals its limit; the API server fills in the request from the limit.
    for resource, value in (resources.get("requests") or resources.get("limits") or {}).items():
        if resource.startswith(PREFIX):
            yield resource, whole(value)
