# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU resources that pods request, by node (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from .node import to_count

PREFIX = "nvidia.com/"

Pod = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class GpuRequest:
    """One pod and its amount of one resource on its node."""

    node: str
    namespace: str
    pod: str
    resource: str
    count: int


def gpu_requests(pods: t.Iterable[Pod]) -> dict[str, list[GpuRequest]]:
    """The requests of every pod on a node for NVIDIA resources, by node."""
    requests: dict[str, list[GpuRequest]] = {}
    for node, pod in active_pods(pods):
        metadata = pod["metadata"]
        for resource, count in requested_resources(pod).items():
            request = GpuRequest(node, metadata.get("namespace", ""), metadata["name"], resource, count)
            requests.setdefault(node, []).append(request)
    return requests


def active_pods(pods: t.Iterable[Pod]) -> t.Iterator[tuple[str, Pod]]:
    """Each pod that is on a node and has not ended, with the node's name; pods that are being deleted count until they are gone."""
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName")
        if node and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            yield node, pod


def requested_count(requests: t.Iterable[GpuRequest], resource: str) -> int:
    """The sum of these requests for a resource."""
    return sum(request.count for request in requests if request.resource == resource)


def requested_resources(pod: Pod) -> dict[str, int]:
    """The NVIDIA resources that the scheduler counts for a pod: the sum of its containers, or its largest init container."""
    spec = pod.get("spec") or {}
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for resource, count in _container_resources(container):
            total[resource] = total.get(resource, 0) + count
    for container in spec.get("initContainers") or ():
        for resource, count in _container_resources(container):
            total[resource] = max(total.get(resource, 0), count)
    return {resource: count for resource, count in total.items() if count}


def _container_resources(container: t.Mapping[str, t.Any]) -> t.Iterator[tuple[str, int]]:
    resources = container.get("resources") or {}
    # An extended resource's request equals its limit; the API server derives the request from the limit.
    for resource, value in (resources.get("requests") or resources.get("limits") or {}).items():
        if resource.startswith(PREFIX):
            yield resource, to_count(value)
