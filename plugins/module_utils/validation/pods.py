# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pods that prove a pool, and the node of the pool that they prove it on (pure)."""

from __future__ import annotations

import hashlib
import typing as t
from dataclasses import dataclass

from ..catalog.taints import STARTUP_TAINT_KEY
from ..cluster_state import expected_state
from ..cluster_state.gpu_requests import GpuRequest, held
from ..cluster_state.node import Node

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan

POOL_OF = "accel.gpu/validation"
RUN_OF = "accel.gpu/run"
NO_USER = 65534
SURPLUS, PAIR = "surplus", "pair"


@dataclass(frozen=True)
class Workload:
    """What the pods of every pool have in common."""

    namespace: str
    image: str
    run_id: str
    hold: int
    deadline: int
    image_pull_secrets: tuple[str, ...] = ()
    run_as_user: int | None = NO_USER


@dataclass(frozen=True)
class PodRequest:
    """One pod: the end of its name, how much it asks for of which resource, and whether it holds that for a while."""

    name: str
    resource: str
    count: int = 1
    holds: bool = True


@dataclass(frozen=True)
class ValidationSite:
    """The node on which a pool is proven, and the resource that each of the pods asks for.

    `surplus`: the resource of which these pods hold all there is, so that one pod more has to wait. `pair`: the resource
    of which nobody gets two shares in one request. Empty: not to be tried here.
    """

    node: Node
    asked: tuple[str, ...]
    surplus: str = ""
    pair: str = ""

    @property
    def pods(self) -> int:
        """How many pods run together."""
        return len(self.asked)

    @property
    def crowd(self) -> tuple[PodRequest, ...]:
        """The pods that run together."""
        return tuple(PodRequest(str(index), resource) for index, resource in enumerate(self.asked))

    @property
    def beyond(self) -> tuple[PodRequest, ...]:
        """The pods that the node must not serve beside them; what they are given in the end they give back at once."""
        asks = (PodRequest(SURPLUS, self.surplus, holds=False), PodRequest(PAIR, self.pair, count=2, holds=False))
        return tuple(ask for ask in asks if ask.resource)


@dataclass(frozen=True)
class NotTestable:
    """Why a pool cannot be proven now; busy: because its GPUs are at work, which is no fault."""

    reason: str
    busy: bool = False


def choose_node(
    pool: PoolPlan, nodes: t.Sequence[Node], used: t.Mapping[str, t.Sequence[GpuRequest]], limit: int
) -> ValidationSite | NotTestable:
    """The node with the most shares free (then by name) and how many pods run there, or why there is none."""
    # The startup taint keeps workloads away until the node is proven to be as its pool declares.
    open_nodes = [
        node for node in nodes if node.ready and not node.unschedulable and not node.tainted(STARTUP_TAINT_KEY)
    ]
    if not open_nodes:
        return NotTestable("no node of the pool is ready and schedulable")
    offered = {node.name: _counts(pool, node) for node in open_nodes}
    offering = [node for node in open_nodes if any(offered[node.name].values())]
    if not offering:
        return NotTestable(f"no node of the pool offers {' or '.join(pool.resources)}")
    free = {
        node.name: {name: count - held(used.get(node.name, ()), name) for name, count in offered[node.name].items()}
        for node in offering
    }
    best = min(offering, key=lambda node: (-sum(max(0, count) for count in free[node.name].values()), node.name))
    asked = _asked(free[best.name], enough(pool, best, limit))
    if not asked:
        total = sum(sum(offered[node.name].values()) for node in offering)
        return NotTestable(f"all {total} {' or '.join(pool.resources)} of the pool are in use", busy=True)
    return ValidationSite(best, asked, *_beyond(pool, offered[best.name], free[best.name], asked))


def enough(pool: PoolPlan, node: Node, limit: int) -> int:
    """How many pods prove the pool's mode: fewer than one more than there are devices prove nothing about sharing."""
    if not pool.sharing.shared:
        return limit
    return max(limit, expected_state.parts(node, pool) + 1)


def _beyond(
    pool: PoolPlan, offered: t.Mapping[str, int], free: t.Mapping[str, int], asked: t.Sequence[str]
) -> tuple[str, str]:
    """What can be tried beside those pods (surplus, pair).

    A pod that waits may have the scheduler evict workloads of a lower priority, so that none waits where somebody else
    holds a share.
    """
    alone = free == offered
    surplus = next((name for name, count in offered.items() if alone and count and asked.count(name) == count), "")
    pair = ""
    if pool.sharing.shared and pool.sharing.fail_requests:
        name = asked[0]
        if free[name] - asked.count(name) > 1 or (alone and offered[name] > 1):
            pair = name
    return surplus, pair


def _counts(pool: PoolPlan, node: Node) -> dict[str, int]:
    return {name: node.allocatable.get(name, 0) for name in pool.resources}


def _asked(free: t.Mapping[str, int], most: int) -> tuple[str, ...]:
    """One pod for each resource in turn, as long as there is one free."""
    left = dict(free)
    asked: list[str] = []
    while len(asked) < most and any(count > 0 for count in left.values()):
        for name, count in left.items():
            if count > 0 and len(asked) < most:
                asked.append(name)
                left[name] = count - 1
    return tuple(asked)


def pod_name(pool: PoolPlan, ask: PodRequest, workload: Workload) -> str:
    """The name of such a pod, the same however often it is asked."""
    return f"accel-gpu-validation-{pool.name}-{run_label(workload.run_id)}-{ask.name}"


def manifest(pool: PoolPlan, site: ValidationSite, ask: PodRequest, workload: Workload) -> dict[str, t.Any]:
    """One pod: it lists the device it was given, holds it for some seconds and ends."""
    container = {
        "name": "nvidia-smi",
        "image": workload.image,
        "command": ["sh", "-c", f"nvidia-smi -L && sleep {workload.hold}" if ask.holds else "nvidia-smi -L"],
        "resources": {"limits": {ask.resource: str(ask.count)}, "requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security: dict[str, t.Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if workload.run_as_user is not None:
        security.update(runAsUser=workload.run_as_user, runAsGroup=workload.run_as_user)
    spec: dict[str, t.Any] = {
        "restartPolicy": "Never",
        "containers": [container],
        "securityContext": security,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        # A run that was killed leaves no pod that holds a GPU for ever.
        "activeDeadlineSeconds": workload.deadline,
        "tolerations": [dict(toleration) for toleration in pool.tolerations],
        # The scheduler places the pod, so that its refusals are seen; by the field that DaemonSets use.
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [site.node.name]}]}
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
            "name": pod_name(pool, ask, workload),
            "namespace": workload.namespace,
            "labels": {
                POOL_OF: pool.name,
                RUN_OF: run_label(workload.run_id),
                "app.kubernetes.io/managed-by": "accel.gpu",
            },
        },
        "spec": spec,
    }


def run_label(run_id: str) -> str:
    """A run id as a short label value."""
    return hashlib.sha256(run_id.encode()).hexdigest()[:8]
