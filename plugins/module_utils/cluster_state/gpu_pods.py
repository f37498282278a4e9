# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pods use a GPU of their node, by any way that leads to one, and what a drain may do with them (pure).

A resource of the device plugin is only one way. Whoever has an open device file keeps the MIG manager from its change ("In use by
another client"), whatever the pod's requests say (NVIDIA/gpu-operator#1704, #2570).
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.names import CLIENT_LABEL
from .gpu_access import RUNTIME_CLASSES, gpu_access, privileged
from .gpu_requests import Pod, bound, requests
from .operand_pods import DISCOVERY

# The DRA driver for GPUs, and its device classes that stand for one (dra-driver-nvidia-gpu, deployments/helm).
DRA_DRIVER = "gpu.nvidia.com"
DEVICE_CLASSES = (DRA_DRIVER, "mig.nvidia.com", "vfio.gpu.nvidia.com")
# From this priority on a pod is a part of the cluster itself (kubernetes scheduling.SystemCriticalPriority).
_SYSTEM_CRITICAL = 2_000_000_000
# Written by the kubelet on the API's image of a pod that it reads from a file of its own.
_MIRROR = "kubernetes.io/config.mirror"

Claim = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class PodOnNode:
    """One pod on a node, and what a drain must know of it.

    resources: as cluster_state.gpu_requests.requests() counts them. ways: how it comes to a GPU, in words; none for a pod that uses no GPU.
    kept: why a drain leaves it alone ("DaemonSet exporter", "static pod"), else empty. bare: no controller makes it again.
    priority: the scheduler's number. created: RFC 3339, so that later ones sort last.
    possible: why a pod of the cluster itself may hold a GPU although nothing says that it does: it is privileged, as CNI plugins,
    CSI drivers and node exporters are. pausable: a DaemonSet's pod that leaves the node while nvidia.com/gpu.deploy.client is not true.
    """

    node: str
    namespace: str
    name: str
    uid: str
    resources: t.Mapping[str, int] = field(default_factory=dict)
    ways: tuple[str, ...] = ()
    kept: str = ""
    bare: bool = False
    priority: int = 0
    created: str = ""
    possible: tuple[str, ...] = ()
    pausable: bool = False

    @property
    def shown(self) -> str:
        """As kubectl names a pod."""
        return f"{self.namespace}/{self.name}"


def gpu_pods(
    pods: t.Iterable[Pod],
    claims: t.Iterable[Claim] = (),
    *,
    operator_namespace: str,
    runtime_classes: t.Collection[str] = RUNTIME_CLASSES,
) -> dict[str, list[PodOnNode]]:
    """Every pod that uses a GPU, by node, each node's by namespace and name.

    `claims` are the ResourceClaims of the cluster (resource.k8s.io, v1 or a beta); without them no pod counts as a user by DRA.
    `runtime_classes` are those with a handler of NVIDIA's, by name.
    NVIDIA's own operands in the operator's namespace are none: the operator stops those itself.
    """
    return _by_node(user for user in _pods(pods, claims, operator_namespace, runtime_classes) if user.ways)


def possible_holders(
    pods: t.Iterable[Pod], *, operator_namespace: str, runtime_classes: t.Collection[str] = RUNTIME_CLASSES
) -> dict[str, list[PodOnNode]]:
    """The pods of the cluster itself that may hold a GPU although nothing says that they do, by node; no drain evicts them."""
    return _by_node(user for user in _pods(pods, (), operator_namespace, runtime_classes) if user.possible)


def other_pods(
    pods: t.Iterable[Pod],
    claims: t.Iterable[Claim] = (),
    *,
    operator_namespace: str,
    runtime_classes: t.Collection[str] = RUNTIME_CLASSES,
) -> dict[str, list[PodOnNode]]:
    """What a drain of everything evicts beside the users, by node: no DaemonSet's pods, no static ones, no operands."""
    found = _pods(pods, claims, operator_namespace, runtime_classes)
    return _by_node(user for user in found if not user.ways and not user.kept)


def all_pods(pods: t.Iterable[Pod], claims: t.Iterable[Claim] = ()) -> dict[str, list[PodOnNode]]:
    """Every pod that is on a node, by node, whatever it uses and whoever has made it."""
    return _by_node(_pods(pods, claims, "", RUNTIME_CLASSES))


def _by_node(found: t.Iterable[PodOnNode]) -> dict[str, list[PodOnNode]]:
    by_node: dict[str, list[PodOnNode]] = {}
    for user in sorted(found, key=lambda user: (user.node, user.namespace, user.name)):
        by_node.setdefault(user.node, []).append(user)
    return by_node


def _pods(
    pods: t.Iterable[Pod], claims: t.Iterable[Claim], operator_namespace: str, runtime_classes: t.Collection[str]
) -> t.Iterator[PodOnNode]:
    claimed = {(claim["metadata"].get("namespace", ""), claim["metadata"]["name"]): _claimed(claim) for claim in claims}
    for node, pod in bound(pods):
        if _is_operand(pod, operator_namespace):
            continue
        metadata = pod["metadata"]
        resources = requests(pod)
        ways = [*_requested(pod, resources, claimed), *gpu_access(pod, runtime_classes)]
        kept, sees_all = _kept(pod), tuple(privileged(pod))
        of_the_cluster = bool(kept) or int(pod["spec"].get("priority") or 0) >= _SYSTEM_CRITICAL
        if not of_the_cluster:
            ways += sees_all
        yield PodOnNode(
            node=node,
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            resources=resources,
            ways=tuple(dict.fromkeys(ways)),
            kept=kept,
            bare=_controller(pod) is None,
            priority=int(pod["spec"].get("priority") or 0),
            created=metadata.get("creationTimestamp") or "",
            possible=sees_all if of_the_cluster and not ways else (),
            pausable=bool(kept) and (pod["spec"].get("nodeSelector") or {}).get(CLIENT_LABEL) == "true",
        )


def _requested(
    pod: Pod, resources: t.Mapping[str, int], claimed: t.Mapping[tuple[str, str], t.Sequence[str]]
) -> t.Iterator[str]:
    for resource in sorted(resources):
        yield f"requests {resource}"
    for name in _claim_names(pod):
        for source in claimed.get((pod["metadata"].get("namespace", ""), name), ()):
            yield f"claims a device of {source}"


def _claim_names(pod: Pod) -> list[str]:
    """The ResourceClaims of a pod: those it names, and those that were made for it from a template."""
    named = [claim.get("resourceClaimName") for claim in pod["spec"].get("resourceClaims") or ()]
    made = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    return [name for name in (*named, *(claim.get("resourceClaimName") for claim in made)) if name]


def _claimed(claim: Claim) -> list[str]:
    """The driver that has allocated a GPU for a claim; while none has, the device class that asks for one."""
    allocation = (claim.get("status") or {}).get("allocation")
    if allocation:
        results = (allocation.get("devices") or {}).get("results") or ()
        return [DRA_DRIVER] if any(result.get("driver") == DRA_DRIVER for result in results) else []
    asked: list[str] = []
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        # v1 and v1beta2 have `exactly` or `firstAvailable`, v1beta1 has the class in the request itself.
        for one in (request, request.get("exactly") or {}, *(request.get("firstAvailable") or ())):
            asked += [one["deviceClassName"]] if one.get("deviceClassName") in DEVICE_CLASSES else []
    return asked


def _controller(pod: Pod) -> t.Mapping[str, t.Any] | None:
    owners: t.Iterable[t.Mapping[str, t.Any]] = pod["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def _kept(pod: Pod) -> str:
    owner = _controller(pod) or {}
    if owner.get("kind") == "DaemonSet":
        return f"DaemonSet {owner['name']}"
    return "static pod" if _MIRROR in (pod["metadata"].get("annotations") or {}) else ""


def _is_operand(pod: Pod, operator_namespace: str) -> bool:
    """Whether the operator has made it: all that it makes has such a label (gpu-operator assets), its validators' pods too."""
    metadata = pod["metadata"]
    app = str((metadata.get("labels") or {}).get("app") or "")
    return metadata.get("namespace") == operator_namespace and (app == DISCOVERY or app.startswith("nvidia-"))
