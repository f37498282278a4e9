# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pods that validate a pool, and the choice of the node (pure)."""

from __future__ import annotations

import hashlib
import typing as t
from dataclasses import dataclass, field

from ..catalog.taints import STARTUP_TAINT_KEY
from ..cluster_state import expected_state
from ..cluster_state.gpu_pods import GpuRequest
from ..cluster_state.node import Node
from .images import choose_image
from .programs import LIST_DEVICES, kernel_command, load_command

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan, ValidationPlan

POOL_LABEL = "accel.gpu/validation"
RUN_LABEL = "accel.gpu/run"
UNPRIVILEGED_UID = 65534
SURPLUS, PAIR = "surplus", "pair"
# The containers of a pod: the load is an init container, which ends before the kernel starts. Both use the same device (kubelet,
# device manager: devices of init containers are reused), so that a quota counts it once.
KERNEL, LOAD = "kernel", "load"


@dataclass(frozen=True)
class Workload:
    """The settings that the pods of all pools share."""

    namespace: str
    images: t.Mapping[str, str]
    run_id: str
    hold_seconds: int
    deadline: int
    kernel_timeout: int = 60
    load_images: t.Mapping[str, str] = field(default_factory=dict)
    burn_seconds: int = 0
    image_pull_secrets: tuple[str, ...] = ()
    run_as_user: int | None = UNPRIVILEGED_UID

    @classmethod
    def from_params(cls, params: t.Mapping[str, t.Any], plan: ValidationPlan, run_id: str) -> Workload:
        """The module's options, with images and namespace of the plan."""
        return cls(
            namespace=plan.namespace,
            images=plan.images,
            load_images=plan.load_images,
            run_id=run_id,
            hold_seconds=params["hold_seconds"],
            deadline=params["wait_timeout"] + params["hold_seconds"] + params["burn_seconds"],
            kernel_timeout=params["kernel_timeout"],
            burn_seconds=params["burn_seconds"],
            image_pull_secrets=tuple(params["image_pull_secrets"]),
            run_as_user=params["run_as_user"] or None,
        )


@dataclass(frozen=True)
class PodRequest:
    """One pod: the end of its name, its requested resource and count, and whether it holds them for some seconds."""

    name: str
    resource: str
    count: int = 1
    holds: bool = True


@dataclass(frozen=True)
class ValidationSite:
    """The node on which a pool is validated, and the resource that each pod requests.

    `surplus`: the resource that these pods exhaust, so one more pod must wait. `pair`: the resource
    for which a request for two shares must be refused. If empty, the check cannot be run here.
    """

    node: Node
    resources: tuple[str, ...]
    surplus: str = ""
    pair: str = ""

    @property
    def pods(self) -> int:
        """The number of pods that run together."""
        return len(self.resources)

    @property
    def holders(self) -> tuple[PodRequest, ...]:
        """The pods that run together."""
        return tuple(PodRequest(str(index), resource) for index, resource in enumerate(self.resources))

    @property
    def negative_checks(self) -> tuple[PodRequest, ...]:
        """The pods that the node must not serve at the same time; if they run nevertheless, they end immediately."""
        requests = (PodRequest(SURPLUS, self.surplus, holds=False), PodRequest(PAIR, self.pair, count=2, holds=False))
        return tuple(request for request in requests if request.resource)


@dataclass(frozen=True)
class NotTestable:
    """The reason why a pool cannot be validated now; busy: its GPUs are in use, which is not a failure."""

    reason: str
    busy: bool = False


def choose_node(
    pool: PoolPlan, nodes: t.Sequence[Node], used: t.Mapping[str, t.Sequence[GpuRequest]], limit: int
) -> ValidationSite | NotTestable:
    """The node with the most free shares (then by name) and its pods, or the reason why there is none."""
    # The startup taint keeps workloads away until the node is verified.
    schedulable = [
        node for node in nodes if node.ready and not node.unschedulable and not node.has_taint(STARTUP_TAINT_KEY)
    ]
    if not schedulable:
        return NotTestable("no node of the pool is ready and schedulable")
    allocatable = {node.name: {name: node.allocatable.get(name, 0) for name in pool.resources} for node in schedulable}
    candidates = [node for node in schedulable if any(allocatable[node.name].values())]
    if not candidates:
        return NotTestable(f"no node of the pool has allocatable {' or '.join(pool.resources)}")
    free = {
        node.name: {
            name: count - sum(request.count for request in used.get(node.name, ()) if request.resource == name)
            for name, count in allocatable[node.name].items()
        }
        for node in candidates
    }
    best = min(candidates, key=lambda node: (-sum(max(0, count) for count in free[node.name].values()), node.name))
    # Fewer pods than devices and one more cannot verify sharing.
    pods = max(limit, expected_state.device_count(best, pool) + 1) if pool.sharing.shared else limit
    # All resources in turn while one is free.
    turns = range(max(free[best.name].values()))
    resources = tuple(name for turn in turns for name, count in free[best.name].items() if count > turn)[:pods]
    if not resources:
        total = sum(sum(allocatable[node.name].values()) for node in candidates)
        return NotTestable(f"all {total} {' or '.join(pool.resources)} of the pool are in use", busy=True)
    return ValidationSite(best, resources, *_negative_checks(pool, allocatable[best.name], free[best.name], resources))


def _negative_checks(
    pool: PoolPlan, allocatable: t.Mapping[str, int], free: t.Mapping[str, int], resources: t.Sequence[str]
) -> tuple[str, str]:
    """The resources of the negative checks that can be run (surplus, pair).

    For a waiting pod the scheduler may evict workloads of a lower priority, so none waits where other pods hold a share.
    """
    alone = free == allocatable
    surplus = next(
        (name for name, count in allocatable.items() if alone and count and resources.count(name) == count), ""
    )
    pair = ""
    if pool.sharing.shared and pool.sharing.fail_requests:
        name = resources[0]
        if free[name] - resources.count(name) > 1 or (alone and allocatable[name] > 1):
            pair = name
    return surplus, pair


def pod_name(pool: PoolPlan, request: PodRequest, workload: Workload) -> str:
    """The name of the pod, unique for its pool, run and request."""
    return f"accel-gpu-validation-{pool.name}-{run_label(workload.run_id)}-{request.name}"


def manifest(pool: PoolPlan, site: ValidationSite, request: PodRequest, workload: Workload) -> dict[str, t.Any]:
    """A pod that lists its device, runs the kernel on it, holds it for some seconds and ends."""
    kernel = kernel_command(workload.kernel_timeout, workload.hold_seconds) if request.holds else LIST_DEVICES
    pod = device_pod(
        pool, site.node, workload, [container(KERNEL, choose_image(workload.images, site.node), kernel, request)]
    )
    pod["metadata"]["name"] = pod_name(pool, request, workload)
    if request.holds and workload.burn_seconds:
        image, load = (
            choose_image(workload.load_images, site.node),
            load_command(workload.burn_seconds, workload.kernel_timeout),
        )
        pod["spec"]["initContainers"] = [container(LOAD, image, load, request)]
    return pod


def container(name: str, image: str, script: str, request: PodRequest) -> dict[str, t.Any]:
    """A container that runs a shell script with the requested devices."""
    return {
        "name": name,
        "image": image,
        "command": ["sh", "-c", script],
        "resources": {"limits": {request.resource: str(request.count)}, "requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def device_pod(pool: PoolPlan, node: Node, workload: Workload, containers: list[dict[str, t.Any]]) -> dict[str, t.Any]:
    """A pod without a name, for one node of a pool, with the settings that all validation pods share."""
    security: dict[str, t.Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if workload.run_as_user is not None:
        security.update(runAsUser=workload.run_as_user, runAsGroup=workload.run_as_user)
    spec: dict[str, t.Any] = {
        "restartPolicy": "Never",
        "containers": containers,
        "securityContext": security,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        # Pods of a killed run release their GPUs.
        "activeDeadlineSeconds": workload.deadline,
        "tolerations": [dict(toleration) for toleration in pool.tolerations],
        # The scheduler places the pod, so that its decisions are tested; DaemonSets use the same field.
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]}
                    ]
                }
            }
        },
    }
    if workload.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in workload.image_pull_secrets]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": workload.namespace,
            "labels": {
                POOL_LABEL: pool.name,
                RUN_LABEL: run_label(workload.run_id),
                "app.kubernetes.io/managed-by": "accel.gpu",
            },
        },
        "spec": spec,
    }


def run_label(run_id: str) -> str:
    """A run id as a short label value."""
    return hashlib.sha256(run_id.encode()).hexdigest()[:8]
