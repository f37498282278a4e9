# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pods that have access to a GPU of their node, and what a drain may do with them (pure).

Requesting a resource of the device plugin is only one kind of access. Any process with an open device file blocks changes of the MIG manager
("In use by another client"), regardless of its pod's requests (NVIDIA/gpu-operator#1704, #2570).
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.names import CLIENT_LABEL
from .gpu_access import RUNTIME_CLASSES, gpu_access, privileged_containers
from .gpu_requests import Pod, active_pods, requested_resources
from .operand_pods import DISCOVERY

# The DRA driver for GPUs, and its device classes (dra-driver-nvidia-gpu, deployments/helm).
DRA_DRIVER = "gpu.nvidia.com"
DEVICE_CLASSES = (DRA_DRIVER, "mig.nvidia.com", "vfio.gpu.nvidia.com")
# Pods with this priority or a higher one are parts of the cluster itself (kubernetes scheduling.SystemCriticalPriority).
_SYSTEM_CRITICAL = 2_000_000_000
# The kubelet sets it on the API's copy of a static pod.
_MIRROR = "kubernetes.io/config.mirror"

Claim = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class PodOnNode:
    """One pod on a node.

    resources: see gpu_requests.requested_resources(). access: descriptions of its access to GPUs; empty for a pod without.
    keep_reason: why a drain does not evict it ("DaemonSet exporter", "static pod"), else empty. unmanaged: no controller recreates it.
    priority: the scheduler's number. created: RFC 3339, so that later ones are sorted last.
    possible_access: why a pod of the cluster itself may use a GPU although nothing shows that it does: it is privileged, like CNI plugins,
    CSI drivers and node exporters. pausable: a DaemonSet's pod that leaves the node while nvidia.com/gpu.deploy.client is not true.
    """

    node: str
    namespace: str
    name: str
    uid: str
    resources: t.Mapping[str, int] = field(default_factory=dict)
    access: tuple[str, ...] = ()
    keep_reason: str = ""
    unmanaged: bool = False
    priority: int = 0
    created: str = ""
    possible_access: tuple[str, ...] = ()
    pausable: bool = False

    @property
    def full_name(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


def gpu_pods(
    pods: t.Iterable[Pod],
    claims: t.Iterable[Claim] = (),
    *,
    operator_namespace: str,
    runtime_classes: t.Collection[str] = RUNTIME_CLASSES,
) -> dict[str, list[PodOnNode]]:
    """The pods with access to a GPU, by node, sorted by namespace and name.

    `claims` are the ResourceClaims of the cluster (resource.k8s.io, v1 or a beta); without them access by DRA does not count.
    `runtime_classes` are the names of those with a handler of NVIDIA.
    NVIDIA's operands in the operator's namespace do not count: the operator stops them itself.
    """
    return _by_node(pod for pod in _pods(pods, claims, operator_namespace, runtime_classes) if pod.access)


def possible_gpu_pods(
    pods: t.Iterable[Pod], *, operator_namespace: str, runtime_classes: t.Collection[str] = RUNTIME_CLASSES
) -> dict[str, list[PodOnNode]]:
    """The pods of the cluster itself that may use a GPU although nothing shows that they do, by node; no drain evicts them."""
    return _by_node(pod for pod in _pods(pods, (), operator_namespace, runtime_classes) if pod.possible_access)


def other_pods(
    pods: t.Iterable[Pod],
    claims: t.Iterable[Claim] = (),
    *,
    operator_namespace: str,
    runtime_classes: t.Collection[str] = RUNTIME_CLASSES,
) -> dict[str, list[PodOnNode]]:
    """The pods without access to a GPU that a drain of all pods evicts, by node: no DaemonSet's pods, static pods or operands."""
    found = _pods(pods, claims, operator_namespace, runtime_classes)
    return _by_node(pod for pod in found if not pod.access and not pod.keep_reason)


def all_pods(pods: t.Iterable[Pod], claims: t.Iterable[Claim] = ()) -> dict[str, list[PodOnNode]]:
    """All pods on nodes, by node."""
    return _by_node(_pods(pods, claims, "", RUNTIME_CLASSES))


def _by_node(pods: t.Iterable[PodOnNode]) -> dict[str, list[PodOnNode]]:
    by_node: dict[str, list[PodOnNode]] = {}
    for pod in sorted(pods, key=lambda pod: (pod.node, pod.namespace, pod.name)):
        by_node.setdefault(pod.node, []).append(pod)
    return by_node


def _pods(
    pods: t.Iterable[Pod], claims: t.Iterable[Claim], operator_namespace: str, runtime_classes: t.Collection[str]
) -> t.Iterator[PodOnNode]:
    sources = {(claim["metadata"].get("namespace", ""), claim["metadata"]["name"]): _claimed(claim) for claim in claims}
    for node, pod in active_pods(pods):
        if _is_operand(pod, operator_namespace):
            continue
        metadata, priority = pod["metadata"], int(pod["spec"].get("priority") or 0)
        resources = requested_resources(pod)
        access = [*_requests(pod, resources, sources), *gpu_access(pod, runtime_classes)]
        keep_reason, privileged = _keep_reason(pod), tuple(privileged_containers(pod))
        is_cluster_pod = bool(keep_reason) or priority >= _SYSTEM_CRITICAL
        if not is_cluster_pod:
            access += privileged
        yield PodOnNode(
            node=node,
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            resources=resources,
            access=tuple(dict.fromkeys(access)),
            keep_reason=keep_reason,
            unmanaged=_controller(pod) is None,
            priority=priority,
            created=metadata.get("creationTimestamp") or "",
            possible_access=privileged if is_cluster_pod and not access else (),
            pausable=bool(keep_reason) and (pod["spec"].get("nodeSelector") or {}).get(CLIENT_LABEL) == "true",
        )


def _requests(
    pod: Pod, resources: t.Mapping[str, int], sources: t.Mapping[tuple[str, str], t.Sequence[str]]
) -> t.Iterator[str]:
    for resource in sorted(resources):
        yield f"requests {resource}"
    for name in _claim_names(pod):
        for source in sources.get((pod["metadata"].get("namespace", ""), name), ()):
            yield f"claims a device of {source}"


def _claim_names(pod: Pod) -> list[str]:
    """The ResourceClaims of a pod: those in its spec, and those that were created for it from a template."""
    claims = [
        *(pod["spec"].get("resourceClaims") or ()),
        *((pod.get("status") or {}).get("resourceClaimStatuses") or ()),
    ]
    return [claim["resourceClaimName"] for claim in claims if claim.get("resourceClaimName")]


def _claimed(claim: Claim) -> list[str]:
    """The driver that has allocated a GPU for a claim; before the allocation, the requested device classes."""
    allocation = (claim.get("status") or {}).get("allocation")
    if allocation:
        results = (allocation.get("devices") or {}).get("results") or ()
        return [DRA_DRIVER] if any(result.get("driver") == DRA_DRIVER for result in results) else []
    classes: list[str] = []
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        # v1 and v1beta2 have `exactly` or `firstAvailable`, v1beta1 has the class in the request itself.
        for option in (request, request.get("exactly") or {}, *(request.get("firstAvailable") or ())):
            classes += [option["deviceClassName"]] if option.get("deviceClassName") in DEVICE_CLASSES else []
    return classes


def _controller(pod: Pod) -> t.Mapping[str, t.Any] | None:
    owners: t.Iterable[t.Mapping[str, t.Any]] = pod["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def _keep_reason(pod: Pod) -> str:
    owner = _controller(pod) or {}
    if owner.get("kind") == "DaemonSet":
        return f"DaemonSet {owner['name']}"
    return "static pod" if _MIRROR in (pod["metadata"].get("annotations") or {}) else ""


def _is_operand(pod: Pod, operator_namespace: str) -> bool:
    """Whether the operator has created it: all its pods have such a label (gpu-operator assets), those of its validators, too."""
    metadata = pod["metadata"]
    app = str((metadata.get("labels") or {}).get("app") or "")
    return metadata.get("namespace") == operator_namespace and (app == DISCOVERY or app.startswith("nvidia-"))
