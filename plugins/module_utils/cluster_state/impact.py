# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The impact of a run on the nodes of a pool: driver restarts, pods that lose a GPU, restarted operands, GPU resets (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from . import operand_pods

if t.TYPE_CHECKING:
    from ..pools.membership import Membership
    from ..pools.plan import PoolPlan
    from .gpu_pods import PodOnNode
    from .node import Node
    from .transition import Transition

# The key for nodes of no pool; no pool has this name.
NO_POOL = ""
COUNTS = ("drivers", "pods", "operand_pods", "repartitioned_nodes", "resets")


@dataclass(frozen=True)
class OperandRestart:
    """The operands that the operator restarts on every node: `every` one, the driver included, or some `apps`."""

    apps: frozenset[str] = frozenset()
    every: bool = False

    @property
    def driver(self) -> bool:
        """Whether the driver is among them."""
        return self.every or operand_pods.DRIVER in self.apps

    @property
    def any(self) -> bool:
        """Whether anything is restarted."""
        return self.every or bool(self.apps)


class NodeImpact(t.NamedTuple):
    """The change of one node, and the pods that lose a GPU by it."""

    transition: Transition
    evicted: t.Sequence[PodOnNode]


class RunningPods(t.NamedTuple):
    """The pods on the nodes: the apps of NVIDIA's operands, one for each pod, and the pods that use GPUs."""

    operands: t.Mapping[str, t.Sequence[str]]
    gpu_pods: t.Mapping[str, t.Sequence[PodOnNode]]


def impact(
    nodes: t.Iterable[Node], changes: t.Mapping[str, NodeImpact], restart: OperandRestart, running: RunningPods
) -> dict[str, int]:
    """The counts of COUNTS for some nodes.

    `drivers`: nodes whose driver is restarted. `pods`: pods that lose a GPU, because of the driver or the new sharing.
    `operand_pods`: operands' pods that are restarted. `repartitioned_nodes`: nodes whose MIG layout changes. `resets`: those among them
    whose GPUs have to be reset.
    """
    counts = dict.fromkeys(COUNTS, 0)
    for node in nodes:
        apps = running.operands.get(node.name, ())
        change = changes.get(node.name)
        driver_restarts = restart.driver and operand_pods.DRIVER in apps
        repartitions = change is not None and change.transition.repartitions
        counts["drivers"] += driver_restarts
        counts["repartitioned_nodes"] += repartitions
        counts["resets"] += change is not None and change.transition.resets
        counts["operand_pods"] += sum(
            restart.every or app in restart.apps or (repartitions and app in operand_pods.STOPPED_FOR_MIG)
            for app in apps
        )
        evicted = running.gpu_pods.get(node.name, ()) if driver_restarts else change.evicted if change else ()
        counts["pods"] += len(evicted)
    return counts


def impact_by_pool(
    pools: t.Iterable[PoolPlan],
    nodes: t.Iterable[Node],
    membership: Membership,
    changes: t.Mapping[str, NodeImpact],
    restart: OperandRestart,
    running: RunningPods,
) -> dict[str, dict[str, int]]:
    """The impact on each pool by its name, and under NO_POOL that on the other nodes."""
    by_name = {node.name: node for node in nodes}
    counts = {
        pool.name: impact([by_name.pop(name) for name in membership.by_pool[pool.name]], changes, restart, running)
        for pool in pools
    }
    return {**counts, NO_POOL: impact(by_name.values(), changes, restart, running)}


def total_impact(pools: t.Iterable[t.Mapping[str, int]]) -> dict[str, int]:
    """The sum of the counts of all pools."""
    listed = list(pools)
    return {name: sum(counts[name] for counts in listed) for name in COUNTS}
