# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run would cost the nodes of a pool: drivers rolled, GPUs taken from pods, agents started anew, resets (pure)."""

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

# No pool has this name.
OUTSIDE = ""
COUNTS = ("drivers", "pods", "agent_pods", "cut_nodes", "resets")


@dataclass(frozen=True)
class OperandRestart:
    """Whose pods the operator starts anew on every node that has them: `every` operand, the driver's too, or some `apps`."""

    apps: frozenset[str] = frozenset()
    every: bool = False

    @property
    def driver(self) -> bool:
        """Whether the driver is among them."""
        return self.every or operand_pods.DRIVER in self.apps

    @property
    def any(self) -> bool:
        """Whether it starts anything anew."""
        return self.every or bool(self.apps)


class NodeImpact(t.NamedTuple):
    """What becomes of one node, and which users of its GPUs cannot stay."""

    transition: Transition
    goes: t.Sequence[PodOnNode]


class RunningPods(t.NamedTuple):
    """What runs on the nodes: the apps of NVIDIA's pods, one for each pod, and who uses GPUs."""

    operands: t.Mapping[str, t.Sequence[str]]
    users: t.Mapping[str, t.Sequence[PodOnNode]]


def impact(
    nodes: t.Iterable[Node], changes: t.Mapping[str, NodeImpact], roll: OperandRestart, running: RunningPods
) -> dict[str, int]:
    """The counts of COUNTS for some nodes.

    `drivers`: nodes on which the driver is rolled. `pods`: pods that lose a GPU, because the driver is rolled under them or
    they cannot stay with what becomes of it. `agent_pods`: NVIDIA's pods that start anew. `cut_nodes`: nodes whose GPUs are cut
    anew. `resets`: those of them whose GPUs have to be reset for it.
    """
    found = dict.fromkeys(COUNTS, 0)
    for node in nodes:
        apps = running.operands.get(node.name, ())
        change = changes.get(node.name)
        rolled = roll.driver and operand_pods.DRIVER in apps
        cut = change is not None and change.transition.cuts
        found["drivers"] += rolled
        found["cut_nodes"] += cut
        found["resets"] += change is not None and change.transition.resets
        found["agent_pods"] += sum(
            1 for app in apps if roll.every or app in roll.apps or (cut and app in operand_pods.STOPPED_FOR_MIG)
        )
        found["pods"] += len(running.users.get(node.name, ()) if rolled else change.goes if change else ())
    return found


def of_pools(
    pools: t.Iterable[PoolPlan],
    nodes: t.Iterable[Node],
    membership: Membership,
    changes: t.Mapping[str, NodeImpact],
    roll: OperandRestart,
    running: RunningPods,
) -> dict[str, dict[str, int]]:
    """The costs of each pool by its name, and under OUTSIDE those of nodes of no pool."""
    by_name = {node.name: node for node in nodes}
    found = {
        pool.name: impact([by_name.pop(name) for name in membership.by_pool[pool.name]], changes, roll, running)
        for pool in pools
    }
    return {**found, OUTSIDE: impact(by_name.values(), changes, roll, running)}


def total(of_pools: t.Iterable[t.Mapping[str, int]]) -> dict[str, int]:
    """The counts of all pools together."""
    listed = list(of_pools)
    return {name: sum(counts[name] for counts in listed) for name in COUNTS}
