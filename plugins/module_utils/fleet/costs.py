# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run would cost the nodes of a pool: drivers rolled, GPUs taken from pods, agents started anew, resets (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.mig import RESET_FAMILIES
from ..catalog.names import FAMILY_LABEL, MIG_CONFIG_LABEL
from . import agents, expect
from .holders import Holder, holders

if t.TYPE_CHECKING:
    from ..pools.membership import Membership
    from ..pools.plan import PoolPlan
    from .node import Node
    from .ownership import NodeEdit

# No pool has this name.
OUTSIDE = ""
COUNTS = ("drivers", "pods", "agent_pods", "cut_nodes", "resets")


@dataclass(frozen=True)
class Roll:
    """Whose pods the operator starts anew on every node that has them: `every` operand, the driver's too, or some `apps`."""

    apps: frozenset[str] = frozenset()
    every: bool = False

    @property
    def driver(self) -> bool:
        """Whether the driver is among them."""
        return self.every or agents.DRIVER in self.apps

    @property
    def any(self) -> bool:
        """Whether it starts anything anew."""
        return self.every or bool(self.apps)


@dataclass(frozen=True)
class Running:
    """What runs on the nodes: the apps of NVIDIA's pods, one for each pod, and who holds GPUs."""

    operands: t.Mapping[str, t.Sequence[str]]
    holders: t.Mapping[str, t.Sequence[Holder]]


def costs(
    pool: PoolPlan | None, nodes: t.Iterable[Node], edits: t.Mapping[str, NodeEdit], roll: Roll, running: Running
) -> dict[str, int]:
    """The counts of COUNTS for the nodes of one pool, or of none.

    `drivers`: nodes on which the driver is rolled. `pods`: pods that lose a GPU, because the driver is rolled under them or
    their GPU is cut anew. `agent_pods`: NVIDIA's pods that start anew. `cut_nodes`: nodes whose GPUs are cut anew.
    `resets`: those of them whose MIG mode is switched on GPUs that have to be reset for it. A change of shares costs nothing
    of this: the agents read it without starting anew, and pods keep the GPU that they have.
    """
    found = dict.fromkeys(COUNTS, 0)
    for node in nodes:
        apps = running.operands.get(node.name, ())
        rolled = roll.driver and agents.DRIVER in apps
        cut = pool is not None and _is_cut_anew(node, pool, edits.get(node.name))
        found["drivers"] += rolled
        found["cut_nodes"] += cut
        reset = node.labels.get(FAMILY_LABEL) in RESET_FAMILIES
        found["resets"] += reset and cut and pool is not None and _switches_mode(node, pool)
        found["agent_pods"] += sum(
            1 for app in apps if roll.every or app in roll.apps or (cut and app in agents.STOPPED_FOR_MIG)
        )
        if rolled or cut:
            found["pods"] += len({(holder.namespace, holder.pod) for holder in running.holders.get(node.name, ())})
    return found


def of_pools(
    pools: t.Iterable[PoolPlan],
    nodes: t.Iterable[Node],
    membership: Membership,
    changing: t.Iterable[NodeEdit],
    roll: Roll,
    pods: t.Sequence[t.Mapping[str, t.Any]],
) -> dict[str, dict[str, int]]:
    """The costs of each pool by its name, and under OUTSIDE those of nodes of no pool; `pods` are all that have not ended."""
    running = Running(agents.operands(pods), holders(pods))
    by_name = {node.name: node for node in nodes}
    edits = {change.name: change for change in changing}
    found = {
        pool.name: costs(pool, [by_name.pop(name) for name in membership.by_pool[pool.name]], edits, roll, running)
        for pool in pools
    }
    return {**found, OUTSIDE: costs(None, by_name.values(), edits, roll, running)}


def total(of_pools: t.Iterable[t.Mapping[str, int]]) -> dict[str, int]:
    """The counts of all pools together."""
    listed = list(of_pools)
    return {name: sum(counts[name] for counts in listed) for name in COUNTS}


def _is_cut_anew(node: Node, pool: PoolPlan, change: NodeEdit | None) -> bool:
    """Whether the MIG manager is told to make other devices than there are; where they are right already it does nothing."""
    told = change is not None and change.labels.get(MIG_CONFIG_LABEL)
    return bool(told) and _named(node.mig_devices) != _named(expect.devices(node, pool))


def _switches_mode(node: Node, pool: PoolPlan) -> bool:
    return bool(node.mig_devices) != bool(_named(expect.devices(node, pool)))


def _named(devices: t.Mapping[str, int]) -> dict[str, int]:
    """As GFD writes them."""
    return {name.replace("+", "."): count for name, count in devices.items() if count}
