# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Selects the nodes that a run changes, by the options `state`, `pool_names` and `label_selectors`."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.names import POOL_LABEL
from ..cluster_state.label_selector import Requirement, parse_selector
from ..cluster_state.pool_release import is_abandoned, is_being_repaired
from ..common.errors import InvalidOptions
from ..pools.derive import derive
from ..pools.variables import merge
from ..schema.messages import option_of_role
from .node_change import is_marked

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..kube.plan_module import PlanModule
    from ..pools.plan import PoolPlan

PRESENT, RESET, REPAIRED, NEW_NODES = "present", "reset", "repaired", "new_nodes"
STATES = (PRESENT, RESET, REPAIRED, NEW_NODES)
POOL_NAMES = option_of_role("gpu_sharing_pool_names", "pool_names")
_LABEL_SELECTORS = option_of_role("gpu_sharing_label_selectors", "label_selectors")


@dataclass(frozen=True)
class Scope:
    """The nodes of the given pools whose labels meet all requirements; if `pools` is None, all pools and nodes without a pool are included.

    excluded: the nodes that the run skips. The run adds a node once it has reported that the node's change failed or is left for another run.
    """

    state: str = PRESENT
    pools: frozenset[str] | None = None
    requirements: tuple[Requirement, ...] = ()
    excluded: set[str] = field(default_factory=set)

    @property
    def repairs(self) -> bool:
        """Whether the run only repairs nodes that are stuck."""
        return self.state == REPAIRED

    def warnings(self, nodes: t.Iterable[Node]) -> t.Iterator[str]:
        """Yield a warning if the label selectors select no GPU node, because a mistake in them is likely."""
        gpu_nodes = [node for node in nodes if node.has_gpu]
        selected = (all(each.is_met(node.labels) for each in self.requirements) for node in gpu_nodes)
        if self.requirements and gpu_nodes and not any(selected):
            yield f"{_LABEL_SELECTORS} selects none of the {len(gpu_nodes)} GPU nodes, so no node is changed."

    def contains(self, node: Node, pool: PoolPlan | None) -> bool:
        """Whether the run may change this node. Only PRESENT releases nodes; REPAIRED continues releases that failed."""
        if node.name in self.excluded:
            return False
        if pool is None and (self.pools is not None or self.state in (RESET, NEW_NODES)):
            return False
        if pool is None and self.repairs and not (is_abandoned(node) or is_being_repaired(node)):
            return False
        if pool is not None and self.pools is not None and pool.name not in self.pools:
            return False
        if not all(requirement.is_met(node.labels) for requirement in self.requirements):
            return False
        return self.state != NEW_NODES or is_marked(node) or bool(pool and node.labels.get(POOL_LABEL) != pool.name)


EVERYTHING = Scope()


def scope_of(module: PlanModule) -> Scope:
    """The scope that the options define. `state: reset` also replaces the module's plan with one in which the selected pools have whole GPUs."""
    params = module.params
    state, pool_names = params["state"], params["pool_names"]
    declared = {pool.name for pool in module.plan.pools}
    problems = [
        f"{POOL_NAMES}: {name} is not a declared pool; declared pools: {', '.join(sorted(declared))}"
        for name in pool_names or ()
        if name not in declared
    ]
    requirements: list[Requirement] = []
    for text in params["label_selectors"]:
        try:
            requirements += parse_selector(text)
        except ValueError as error:
            problems.append(f"{_LABEL_SELECTORS}: {text!r} {error}")
    if state == RESET and pool_names is not None and not pool_names:
        problems.append(f"{POOL_NAMES}: names no pool; list the pools to reset, or omit the option to reset all pools")
    if problems:
        raise InvalidOptions(problems)
    if state == RESET:
        defaults, pools = _without_sharing(params["gpu_defaults"], params["gpu_pools"], pool_names)
        module.plan = derive(params["gpu_cluster"], defaults, pools)
    return Scope(state, frozenset(pool_names) if pool_names else None, tuple(requirements))


def _without_sharing(defaults: t.Any, pools: t.Any, pool_names: t.Collection[str] | None) -> tuple[t.Any, t.Any]:
    """Return gpu_defaults and gpu_pools with whole GPUs in these pools, or in all pools if `pool_names` is None.

    The other pools get their own copy of the sharing in gpu_defaults.
    """
    dropped = ("sharing", "startup_taint")
    changed = []
    for pool in pools:
        if pool_names is None or pool.get("name") in pool_names:
            changed.append({key: value for key, value in pool.items() if key not in dropped})
        else:
            sharing = merge((defaults or {}).get("sharing"), pool.get("sharing"))
            changed.append({**pool, "sharing": sharing} if sharing else pool)
    return {key: value for key, value in (defaults or {}).items() if key not in dropped}, changed
