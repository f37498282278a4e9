# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines which GPUs each pod on a node requests, and how the pod accesses GPUs (pure).

Requesting a resource from the device plugin is only one kind of access. Any process with an open device file blocks changes by the MIG manager
("In use by another client"), regardless of its pod's requests (NVIDIA/gpu-operator#1704, #2570).
Other device plugins and schedulers also give GPUs to pods, under other resource names or without any (see catalog/device_plugins.py).
"""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass, field

from ..catalog.device_plugins import (
    FRACTION_ANNOTATIONS,
    FRACTION_SCHEDULERS,
    RESERVATION_APPS,
    DevicePlugin,
    is_foreign_gpu_resource,
    is_gpu_group_label,
    plugin_of_image,
)
from ..catalog.names import CLIENT_LABEL
from ..catalog.operands import DISCOVERY
from .gpu_access import RUNTIME_CLASSES, gpu_access, privileged_containers
from .node import to_count
from .operand_pods import app_of

Document = t.Mapping[str, t.Any]

PREFIX = "nvidia.com/"
# The DRA driver for GPUs, and its device classes (dra-driver-nvidia-gpu, deployments/helm).
DRA_DRIVER = "gpu.nvidia.com"
DEVICE_CLASSES = (DRA_DRIVER, "mig.nvidia.com", "vfio.gpu.nvidia.com")
# Pods with at least this priority are parts of the cluster itself (kubernetes scheduling.SystemCriticalPriority).
_SYSTEM_CRITICAL = 2_000_000_000
# The kubelet sets this annotation on the API's copy of a static pod.
_MIRROR = "kubernetes.io/config.mirror"

Pod = t.Mapping[str, t.Any]
Claim = t.Mapping[str, t.Any]
ByNode = t.Mapping[str, t.Sequence["PodOnNode"]]


@dataclass(frozen=True)
class GpuRequest:
    """The amount of one resource that a pod requests."""

    namespace: str
    pod: str
    resource: str
    count: int


def gpu_requests(pods: t.Iterable[Pod]) -> dict[str, list[GpuRequest]]:
    """The pods' requests for NVIDIA resources, by node."""
    requests: dict[str, list[GpuRequest]] = {}
    for node, pod in active_pods(pods):
        metadata = pod["metadata"]
        for resource, count in requested_resources(pod).items():
            request = GpuRequest(metadata.get("namespace", ""), metadata["name"], resource, count)
            requests.setdefault(node, []).append(request)
    return requests


def active_pods(pods: t.Iterable[Pod]) -> t.Iterator[tuple[str, Pod]]:
    """Each pod that is on a node and has not terminated, with the node's name; pods being deleted count until they are gone."""
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName")
        if node and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            yield node, pod


def requested_resources(pod: Pod) -> dict[str, int]:
    """The NVIDIA resources that the scheduler counts for a pod: those of its containers and sidecars, or those of its largest init container if higher.

    A sidecar is an init container that keeps running, even while later init containers run (kubernetes v1.36
    staging/src/k8s.io/component-helpers/resource/helpers.go).
    """
    spec = pod.get("spec") or {}
    sidecars, largest = Counter[str](), Counter[str]()
    for container in spec.get("initContainers") or ():
        resources = _container_resources(container)
        if container.get("restartPolicy") == "Always":
            sidecars += resources
        else:
            # The union has the larger of the two counts.
            largest |= sidecars + resources
    running = sum(map(_container_resources, spec.get("containers") or ()), sidecars)
    return dict(+(running | largest))


def foreign_resources(pod: Pod) -> tuple[str, ...]:
    """The resources of other device plugins, and of dynamic resource allocation, that the pod's containers request."""
    spec = pod.get("spec") or {}
    requested = {
        name
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        for kind in ("requests", "limits")
        for name, amount in ((container.get("resources") or {}).get(kind) or {}).items()
        if str(amount) != "0"
    }
    return tuple(sorted(filter(is_foreign_gpu_resource, requested)))


def is_reservation(pod: Pod) -> bool:
    """Whether KAI Scheduler or Run:ai has created the pod to reserve a GPU for pods that use a part of it."""
    return app_of(pod) in RESERVATION_APPS or pod["metadata"].get("namespace") in RESERVATION_APPS


def foreign_plugins(pods: t.Iterable[Pod], operator_namespace: str) -> dict[tuple[str, DevicePlugin], list[str]]:
    """The nodes with each device plugin that is not an operand, by the name of its DaemonSet or pod and the plugin."""
    nodes_of: dict[tuple[str, DevicePlugin], list[str]] = {}
    for node, pod in active_pods(pods):
        images = (str(container.get("image") or "") for container in pod["spec"].get("containers") or ())
        plugin = next(filter(None, map(plugin_of_image, images)), None)
        owner = _daemonset_of(pod)
        if plugin is not None and owner and not _is_operand(pod, operator_namespace):
            nodes_of.setdefault((f"DaemonSet {pod['metadata'].get('namespace', '')}/{owner}", plugin), []).append(node)
    return nodes_of


def _container_resources(container: t.Mapping[str, t.Any]) -> Counter[str]:
    resources = container.get("resources") or {}
    # An extended resource's request equals its limit; the API server derives the request from the limit.
    requested = resources.get("requests") or resources.get("limits") or {}
    return Counter({name: to_count(value) for name, value in requested.items() if name.startswith(PREFIX)})


@dataclass(frozen=True)
class PodOnNode:
    """One pod on a node.

    resources: see requested_resources(). access: descriptions of its access to GPUs; empty if it has none.
    keep_reason: the reason why a drain does not evict the pod ("DaemonSet exporter", "static pod"); empty if a drain evicts it.
    unmanaged: whether no controller or scheduler recreates the pod. priority: the pod's scheduling priority.
    created: the time in RFC 3339 format, in which alphabetical order is chronological.
    possible_access: the reason why a pod of the cluster itself may use a GPU although its spec does not show this. These pods are privileged; examples
    are CNI plugins, CSI drivers and node exporters.
    demands: what the pod requires of its node, if it requests resources or selects labels of NVIDIA.
    pausable: whether the pod belongs to a DaemonSet and terminates unless the label nvidia.com/gpu.deploy.client is true.
    """

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
    demands: Demands | None = field(default=None, compare=False, repr=False)

    @property
    def full_name(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


class PodsByNode(t.NamedTuple):
    """Maps by node: the pods that use its GPUs, the other pods that a drain of all pods evicts, the pods that may hold a GPU, and all demands.

    The pods in the third map belong to the cluster itself; no drain evicts them.
    """

    gpu_pods: ByNode = {}
    other_pods: ByNode = {}
    possible_holders: ByNode = {}
    demands: t.Mapping[str, t.Sequence[Demands]] = {}


def classify_pods(by_node: ByNode) -> PodsByNode:
    """Group the pods from parse_pods() by the effect that a change to their node has on them."""

    def select(accepts: t.Callable[[PodOnNode], bool]) -> ByNode:
        return {node: accepted for node, pods in by_node.items() if (accepted := list(filter(accepts, pods)))}

    return PodsByNode(
        gpu_pods=select(lambda pod: bool(pod.access)),
        other_pods=select(lambda pod: not pod.access and not pod.keep_reason),
        possible_holders=select(lambda pod: bool(pod.possible_access)),
        demands={
            node: demands for node, pods in by_node.items() if (demands := [pod.demands for pod in pods if pod.demands])
        },
    )


def parse_pods(
    pods: t.Iterable[Pod],
    claims: t.Iterable[Claim] = (),
    *,
    operator_namespace: str = "",
    runtime_classes: t.Collection[str] = RUNTIME_CLASSES,
) -> dict[str, list[PodOnNode]]:
    """The pods on nodes, by node, sorted by namespace and name.

    `claims` contains the ResourceClaims of the cluster (resource.k8s.io, v1 or a beta version); without them, access through DRA is not detected.
    `runtime_classes` contains the names of the RuntimeClasses with an NVIDIA handler.
    The result does not contain NVIDIA's operands in the operator's namespace, because the operator stops them itself.
    """
    sources = {(claim["metadata"].get("namespace", ""), claim["metadata"]["name"]): _claimed(claim) for claim in claims}
    by_node: dict[str, list[PodOnNode]] = {}
    for node, pod in active_pods(pods):
        if not _is_operand(pod, operator_namespace):
            by_node.setdefault(node, []).append(_parse_pod(pod, sources, runtime_classes))
    return {
        node: sorted(on_node, key=lambda pod: (pod.namespace, pod.name)) for node, on_node in sorted(by_node.items())
    }


def _parse_pod(
    pod: Pod, sources: t.Mapping[tuple[str, str], t.Sequence[str]], runtime_classes: t.Collection[str]
) -> PodOnNode:
    metadata, priority = pod["metadata"], int(pod["spec"].get("priority") or 0)
    resources = requested_resources(pod)
    access = [*_requests(pod, resources, sources), *gpu_access(pod, runtime_classes)]
    controllers = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    keep_reason, privileged = _keep_reason(pod, controllers), tuple(privileged_containers(pod))
    is_cluster_pod = bool(keep_reason) or priority >= _SYSTEM_CRITICAL
    if not is_cluster_pod:
        access += privileged
    return PodOnNode(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        resources=resources,
        access=tuple(dict.fromkeys(access)),
        keep_reason=keep_reason,
        unmanaged=not controllers and not is_reservation(pod),
        priority=priority,
        created=metadata.get("creationTimestamp") or "",
        possible_access=privileged if is_cluster_pod and not access else (),
        pausable=bool(keep_reason) and (pod["spec"].get("nodeSelector") or {}).get(CLIENT_LABEL) == "true",
        demands=demands_of(pod, resources),
    )


def _requests(
    pod: Pod, resources: t.Iterable[str], sources: t.Mapping[tuple[str, str], t.Sequence[str]]
) -> t.Iterator[str]:
    for resource in sorted(resources):
        yield f"requests {resource}"
    yield from _other_access(pod)
    # The pod's status lists the claims that were created for it from a template.
    status = pod.get("status") or {}
    for claim in (*(pod["spec"].get("resourceClaims") or ()), *(status.get("resourceClaimStatuses") or ())):
        for source in sources.get((pod["metadata"].get("namespace", ""), claim.get("resourceClaimName")), ()):
            yield f"claims a device of {source}"


def _other_access(pod: Pod) -> t.Iterator[str]:
    """Descriptions of the GPUs that the pod gets from other device plugins and schedulers."""
    for resource in foreign_resources(pod):
        yield f"requests {resource}"
    metadata = pod["metadata"]
    if is_reservation(pod):
        yield "reserves a GPU for pods that share it"
    elif group := next(filter(is_gpu_group_label, sorted(metadata.get("labels") or {})), ""):
        yield f"label {group}"
    elif pod["spec"].get("schedulerName") in FRACTION_SCHEDULERS:
        for key in FRACTION_ANNOTATIONS:
            if key in (metadata.get("annotations") or {}):
                yield f"annotation {key}"


def _claimed(claim: Claim) -> list[str]:
    """The driver that has allocated a GPU for a claim or, before the allocation, the requested device classes."""
    allocation = (claim.get("status") or {}).get("allocation")
    if allocation:
        results = (allocation.get("devices") or {}).get("results") or ()
        return [DRA_DRIVER] if any(result.get("driver") == DRA_DRIVER for result in results) else []
    classes: list[str] = []
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        # In v1 and v1beta2, the class is in `exactly` or `firstAvailable`; in v1beta1, it is in the request itself.
        for option in (request, request.get("exactly") or {}, *(request.get("firstAvailable") or ())):
            classes += [option["deviceClassName"]] if option.get("deviceClassName") in DEVICE_CLASSES else []
    return classes


def _keep_reason(pod: Pod, controllers: t.Iterable[t.Mapping[str, t.Any]]) -> str:
    for controller in controllers:
        if controller.get("kind") == "DaemonSet":
            return f"DaemonSet {controller['name']}"
    return "static pod" if _MIRROR in (pod["metadata"].get("annotations") or {}) else ""


def _daemonset_of(pod: Pod) -> str:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((str(owner["name"]) for owner in owners if owner.get("kind") == "DaemonSet"), "")


def _is_operand(pod: Pod, operator_namespace: str) -> bool:
    """Whether the operator has created the pod. All pods that it creates, including validators, have one of these labels (gpu-operator assets)."""
    app = app_of(pod)
    return pod["metadata"].get("namespace") == operator_namespace and (app == DISCOVERY or app.startswith("nvidia-"))


@dataclass(frozen=True)
class Demands:
    """The requirements that the pods of a workload have of a node. owner: the kind and the name of the workload, with the namespace."""

    owner: str
    selector: t.Mapping[str, str] = field(default_factory=dict)
    terms: tuple[Document, ...] = ()
    resources: t.Mapping[str, int] = field(default_factory=dict)


def demands_of(pod: Document, resources: t.Mapping[str, int]) -> Demands | None:
    """The requirements that a pod has of its node; None if it neither requests a resource of NVIDIA nor selects a label of NVIDIA."""
    spec = pod.get("spec") or {}
    selector = spec.get("nodeSelector") or {}
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    terms = tuple(affinity.get("nodeSelectorTerms") or ())
    keys = {*selector, *(item.get("key", "") for term in terms for item in term.get("matchExpressions") or ())}
    if not resources and not any(str(key).startswith(PREFIX) for key in keys):
        return None
    return Demands(_owner(pod), selector, terms, resources)


def _owner(pod: Document) -> str:
    metadata = pod["metadata"]
    namespace = metadata.get("namespace", "")
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            kind, name = str(owner.get("kind")), str(owner["name"])
            suffix = f"-{(metadata.get('labels') or {}).get('pod-template-hash')}"
            if kind == "ReplicaSet" and name.endswith(suffix):
                kind, name = "Deployment", name.removesuffix(suffix)
            return f"{kind} {namespace}/{name}"
    return f"Pod {namespace}/{metadata['name']}"
