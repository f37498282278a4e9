# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is on a node, or on all: the pods that have not ended, and the claims of those that have some."""

from __future__ import annotations

import typing as t

from ..catalog.names import LIVE_PODS
from ..cluster_state.gpu_access import RUNTIME_CLASSES as KNOWN_CLASSES
from ..cluster_state.gpu_access import nvidia_runtime_classes
from ..cluster_state.gpu_pods import PodOnNode, possible_holders
from ..cluster_state.gpu_pods import gpu_pods as users
from ..cluster_state.gpu_pods import other_pods as others
from ..kube.paths import PODS, RESOURCE_CLAIMS, RUNTIME_CLASSES

if t.TYPE_CHECKING:
    from ..kube.client import Client

Object = t.Mapping[str, t.Any]
ByNode = t.Mapping[str, t.Sequence[PodOnNode]]


class GpuPods(t.NamedTuple):
    """By node: the pods that use its GPUs, the other pods that a drain of everything evicts, and those that may hold a GPU."""

    users: ByNode
    others: ByNode
    possible: ByNode


def gpu_pods(client: Client, pods: t.Sequence[Object], operator_namespace: str) -> GpuPods:
    """Which of these pods use GPUs; ResourceClaims and RuntimeClasses are read only where a pod has one."""
    claims, classes = claims_of(client, pods), runtime_classes_of(client, pods)
    return GpuPods(
        users(pods, claims, operator_namespace=operator_namespace, runtime_classes=classes),
        others(pods, claims, operator_namespace=operator_namespace, runtime_classes=classes),
        possible_holders(pods, operator_namespace=operator_namespace, runtime_classes=classes),
    )


def pods_on(client: Client, node: str | None = None) -> list[Object]:
    """The pods of one node, or of all, that have not ended."""
    return list(client.list(PODS, field_selector=LIVE_PODS + (f",spec.nodeName={node}" if node else "")))


def claims_of(client: Client, pods: t.Iterable[Object]) -> t.Sequence[Object]:
    """The ResourceClaims of the cluster; not read unless one of these pods has one."""
    claiming = any((pod.get("spec") or {}).get("resourceClaims") for pod in pods)
    return client.list_known(RESOURCE_CLAIMS) if claiming else ()


def runtime_classes_of(client: Client, pods: t.Iterable[Object]) -> t.Collection[str]:
    """The RuntimeClasses with a handler of NVIDIA's; not read unless one of these pods has a class that the operator does not make."""
    named = {(pod.get("spec") or {}).get("runtimeClassName") for pod in pods}
    if named <= {None, *KNOWN_CLASSES}:
        return KNOWN_CLASSES
    return nvidia_runtime_classes(client.list_known(RUNTIME_CLASSES))
