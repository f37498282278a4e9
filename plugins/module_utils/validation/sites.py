# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses the nodes on which a pool is validated, and the resources that the pods request there (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.cluster_autoscaler import MACHINE_ANNOTATION
from ..catalog.taints import STARTUP_TAINT_KEY, format_taint, untolerated_taints
from ..cluster_state import expected_state
from ..cluster_state.gpu_pods import GpuRequest
from ..cluster_state.node import Node
from ..schema.messages import abbreviate

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan
    from ..validation_programs.program import NodeProgram, Options

# The names of the negative checks in the results: one pod more than there are units, and a request for two shares.
ONE_MORE, TWO_SHARES = "one_more", "two_shares"

UsedGpus = t.Mapping[str, t.Sequence[GpuRequest]]


@dataclass(frozen=True)
class PodRequest:
    """One pod: its name within the test, its requested resource and count, and whether it holds the resource for a few seconds."""

    name: str
    resource: str
    count: int = 1
    holds: bool = True


@dataclass(frozen=True)
class ValidationSite:
    """The node on which a pool is validated, and the resource that each pod requests.

    `one_more`: the resource that these pods exhaust, so an additional pod must wait. `two_shares`: the resource
    for which a request for two shares must be rejected. If one of these is empty, its check cannot be run on this node.
    """

    node: Node
    resources: tuple[str, ...]
    one_more: str = ""
    two_shares: str = ""

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
        """The pods that the node must not run at the same time; if they run anyway, they end immediately."""
        requests = (
            PodRequest(ONE_MORE, self.one_more, holds=False),
            PodRequest(TWO_SHARES, self.two_shares, count=2, holds=False),
        )
        return tuple(request for request in requests if request.resource)


@dataclass(frozen=True)
class NodeProgramSite:
    """The nodes of one run of a program, in the order of their ranks, and the number of GPUs on each."""

    program: NodeProgram
    pool: PoolPlan
    nodes: tuple[Node, ...]
    gpus: int

    def __str__(self) -> str:
        return f"{self.program.title} over {self.gpus * len(self.nodes)} GPUs of {', '.join(node.name for node in self.nodes)}"


@dataclass(frozen=True)
class NotTestable:
    """The reason why a pool cannot be validated now; busy: whether the pool's GPUs are in use, which is not a failure."""

    reason: str
    busy: bool = False


def schedulable_nodes(pool: PoolPlan, nodes: t.Iterable[Node]) -> list[Node] | NotTestable:
    """The nodes to which the pool's validation pods can be scheduled, or the reason why there are none.

    The startup taint keeps workloads away until a node is verified; other taints may indicate maintenance.
    """
    ready = [node for node in nodes if node.ready and not node.unschedulable and not node.has_taint(STARTUP_TAINT_KEY)]
    if not ready:
        return NotTestable("no node of the pool is ready and schedulable")
    taints = {node.name: untolerated_taints(pool.tolerations, node.taints) for node in ready}
    if not all(taints.values()):
        return [node for node in ready if not taints[node.name]]
    texts = [f"{', '.join(map(format_taint, taints[name]))} on {name}" for name in sorted(taints)]
    machine = next(
        (node.annotations[MACHINE_ANNOTATION] for node in ready if MACHINE_ANNOTATION in node.annotations), ""
    )
    first = (
        f"first from spec.taints of their Machines ({machine}), because the Machine API restores them, then "
        if machine
        else ""
    )
    return NotTestable(
        f"all nodes have taints that the pool does not declare: {abbreviate(texts, separator='; ')}. Remove them {first}with kubectl taint, "
        "or declare them in taints of the pool"
    )


def free_resources(pool: PoolPlan, node: Node, used: UsedGpus) -> dict[str, int]:
    """The number of units on the node that no pod holds, for each of the pool's resources."""
    return {
        name: node.allocatable.get(name, 0)
        - sum(request.count for request in used.get(node.name, ()) if request.resource == name)
        for name in pool.resources
    }


def choose_node(pool: PoolPlan, nodes: t.Sequence[Node], used: UsedGpus, limit: int) -> ValidationSite | NotTestable:
    """The node with the most free shares (then by name) and its pods, or the reason why there is none."""
    schedulable = schedulable_nodes(pool, nodes)
    if isinstance(schedulable, NotTestable):
        return schedulable
    allocatable = {node.name: {name: node.allocatable.get(name, 0) for name in pool.resources} for node in schedulable}
    candidates = [node for node in schedulable if any(allocatable[node.name].values())]
    if not candidates:
        return NotTestable(f"no node of the pool has allocatable {' or '.join(pool.resources)}")
    free = {node.name: free_resources(pool, node, used) for node in candidates}
    best = min(candidates, key=lambda node: (-sum(max(0, count) for count in free[node.name].values()), node.name))
    # Sharing can only be verified with at least one pod more than there are devices.
    pods = max(limit, expected_state.device_count(best, pool) + 1) if pool.sharing.shared else limit
    # Takes one free unit of each resource in turn.
    turns = range(max(free[best.name].values()))
    resources = tuple(name for turn in turns for name, count in free[best.name].items() if count > turn)[:pods]
    if not resources:
        total = sum(sum(allocatable[node.name].values()) for node in candidates)
        return NotTestable(f"all {total} {' or '.join(pool.resources)} of the pool are in use", busy=True)
    return ValidationSite(best, resources, *_negative_checks(pool, allocatable[best.name], free[best.name], resources))


def _negative_checks(
    pool: PoolPlan, allocatable: t.Mapping[str, int], free: t.Mapping[str, int], resources: t.Sequence[str]
) -> tuple[str, str]:
    """The resources of the negative checks that can be run (one more pod, two shares).

    The scheduler may evict workloads with a lower priority in favor of a waiting pod, so no pod waits on a node where other pods hold a share.
    """
    alone = free == allocatable
    one_more = next(
        (name for name, count in allocatable.items() if alone and count and resources.count(name) == count), ""
    )
    two_shares = ""
    if pool.sharing.shared and pool.sharing.fail_requests_greater_than_one:
        name = resources[0]
        if free[name] - resources.count(name) > 1 or (alone and allocatable[name] > 1):
            two_shares = name
    return one_more, two_shares


def choose_nodes(
    program: NodeProgram, pool: PoolPlan, nodes: t.Sequence[Node], used: UsedGpus, options: Options
) -> NodeProgramSite | str:
    """The schedulable nodes with the most free GPUs for a program, or the reason why the program cannot run."""
    if pool.sharing.shared or pool.sharing.layout or pool.sharing.demand:
        return f"its GPUs are shared or partitioned, and {program.title} needs whole GPUs"
    count = program.node_count(options)
    free = {node.name: free_resources(pool, node, used)[pool.resource] for node in nodes}
    schedulable = schedulable_nodes(pool, nodes)
    if isinstance(schedulable, NotTestable):
        return schedulable.reason
    best = sorted(schedulable, key=lambda node: (-free[node.name], node.name))[:count]
    gpus = min((free[node.name] for node in best), default=0)
    if len(best) < count or gpus < program.min_gpus:
        return f"fewer than {count} of its nodes have {program.min_gpus} or more free GPUs"
    return NodeProgramSite(program, pool, tuple(best), gpus)
