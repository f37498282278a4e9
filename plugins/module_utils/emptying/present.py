# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is on a node, or on all: the pods that have not ended, and the claims of those that have some."""

from __future__ import annotations

import typing as t

from ..catalog.names import LIVE_PODS
from ..fleet.gpu_access import RUNTIME_CLASSES as KNOWN_CLASSES
from ..fleet.gpu_access import nvidia_runtime_classes
from ..kube.paths import PODS, RESOURCE_CLAIMS, RUNTIME_CLASSES

if t.TYPE_CHECKING:
    from ..kube.client import Client

Object = t.Mapping[str, t.Any]


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
