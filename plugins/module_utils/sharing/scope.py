# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes a run changes: the options `state`, `pool_names` and `label_selectors`."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.names import POOL_LABEL
from ..cluster_state import label_selector
from ..cluster_state.pool_release import is_abandoned, is_being_repaired
from ..pools.merge import merge
from .node_change import is_marked

if t.TYPE_CHECKING:
    from ..cluster_state.label_selector import Selector
    from ..cluster_state.node import Node
    from ..pools.plan import PoolPlan

PRESENT, RESET, REPAIRED, NEW_NODES = "present", "reset", "repaired", "new_nodes"
STATES = (PRESENT, RESET, REPAIRED, NEW_NODES)


@dataclass(frozen=True)
class Scope:
    """The nodes of some pools (None: of all pools and of none) that match every selector."""

    state: str = PRESENT
    pools: frozenset[str] | None = None
    selectors: tuple[Selector, ...] = ()

    @property
    def repairs(self) -> bool:
        """Whether the run only repairs nodes that are stuck."""
        return self.state == REPAIRED

    def contains(self, node: Node, pool: PoolPlan | None) -> bool:
        """Whether the run may change this node. Only PRESENT releases nodes; REPAIRED continues releases that failed."""
        if pool is None and (self.pools is not None or self.state in (RESET, NEW_NODES)):
            return False
        if pool is None and self.repairs and not (is_abandoned(node) or is_being_repaired(node)):
            return False
        if pool is not None and self.pools is not None and pool.name not in self.pools:
            return False
        if not all(selector.matches(node.labels) for selector in self.selectors):
            return False
        return self.state != NEW_NODES or is_marked(node) or bool(pool and node.labels.get(POOL_LABEL) != pool.name)


EVERYTHING = Scope()


def parse_scope(
    state: str, pool_names: t.Sequence[str] | None, label_selectors: t.Sequence[str], declared: t.Collection[str]
) -> tuple[Scope, list[str]]:
    """The scope that the options define, and what is wrong with them."""
    problems = [
        f"pool_names: {name} is not a declared pool; declared are {', '.join(sorted(declared))}"
        for name in pool_names or ()
        if name not in declared
    ]
    selectors: list[Selector] = []
    for text in label_selectors:
        try:
            selectors.append(label_selector.parse_selector(text))
        except ValueError as error:
            problems.append(f"label_selectors: {text!r} {error}")
    return Scope(state, frozenset(pool_names) if pool_names else None, tuple(selectors)), problems


def without_sharing(defaults: t.Any, pools: t.Any, pool_names: t.Collection[str] | None) -> tuple[t.Any, t.Any]:
    """gpu_defaults and gpu_pools with whole GPUs in these pools (None: in all); the other pools keep their sharing explicitly."""
    dropped = ("sharing", "startup_taint")
    changed = []
    for pool in pools:
        if pool_names is None or pool.get("name") in pool_names:
            changed.append({key: value for key, value in pool.items() if key not in dropped})
        else:
            sharing = merge((defaults or {}).get("sharing"), pool.get("sharing"))
            changed.append({**pool, "sharing": sharing} if sharing else pool)
    return {key: value for key, value in (defaults or {}).items() if key not in dropped}, changed
