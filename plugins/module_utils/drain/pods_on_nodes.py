# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists the pods of one node or of all nodes, with the ResourceClaims and RuntimeClasses that the pods refer to."""

from __future__ import annotations

import typing as t

from ..catalog.names import LIVE_PODS
from ..cluster_state.gpu_access import RUNTIME_CLASSES as KNOWN_CLASSES
from ..cluster_state.gpu_access import nvidia_runtime_classes
from ..cluster_state.gpu_pods import PodsByNode, classify_pods, parse_pods
from ..kube.paths import PODS, RESOURCE_CLAIMS, RUNTIME_CLASSES

if t.TYPE_CHECKING:
    from ..kube.client import Client

Object = t.Mapping[str, t.Any]


def pods_by_node(client: Client, pods: t.Sequence[Object], operator_namespace: str) -> PodsByNode:
    """Classify these pods; ResourceClaims and RuntimeClasses are read only if a pod refers to one."""
    claims, classes = claims_of(client, pods), _runtime_classes_of(client, pods)
    return classify_pods(parse_pods(pods, claims, operator_namespace=operator_namespace, runtime_classes=classes))


def pods_on(client: Client, node: str | None = None) -> list[Object]:
    """The pods of one node, or of all nodes, that have not terminated."""
    return list(client.list(PODS, field_selector=LIVE_PODS + (f",spec.nodeName={node}" if node else "")))


def claims_of(client: Client, pods: t.Iterable[Object]) -> t.Sequence[Object]:
    """The ResourceClaims of the cluster; empty, without sending a request, if none of these pods has one."""
    claiming = any((pod.get("spec") or {}).get("resourceClaims") for pod in pods)
    return client.list_known(RESOURCE_CLAIMS) if claiming else ()


def _runtime_classes_of(client: Client, pods: t.Iterable[Object]) -> t.Collection[str]:
    """The names of the RuntimeClasses with an NVIDIA handler; they are read only if one of these pods has a class that the operator does not create."""
    named = {(pod.get("spec") or {}).get("runtimeClassName") for pod in pods}
    if named <= {None, *KNOWN_CLASSES}:
        return KNOWN_CLASSES
    return nvidia_runtime_classes(client.list_known(RUNTIME_CLASSES))
