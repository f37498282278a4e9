# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes a run is for, and what it is to do with them (pure)."""

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
    """The nodes of some pools (None: of all, and those of none), of them those that meet every selector."""

    state: str = PRESENT
    pools: frozenset[str] | None = None
    selectors: tuple[Selector, ...] = ()

    @property
    def repairs(self) -> bool:
        """Whether nothing is changed, and only what is stuck is mended."""
        return self.state == REPAIRED

    def holds(self, node: Node, pool: PoolPlan | None) -> bool:
        """Whether the run is for this node; only PRESENT releases nodes of no pool, and REPAIRED mends what a release has left."""
        if pool is None and (self.pools is not None or self.state in (RESET, NEW_NODES)):
            return False
        if pool is None and self.repairs and not (is_abandoned(node) or is_being_repaired(node)):
            return False
        if pool is not None and self.pools is not None and pool.name not in self.pools:
            return False
        if not all(wanted.matches(node.labels) for wanted in self.selectors):
            return False
        return self.state != NEW_NODES or is_marked(node) or bool(pool and node.labels.get(POOL_LABEL) != pool.name)


EVERYTHING = Scope()


def read(
    state: str, only: t.Sequence[str] | None, label_selectors: t.Sequence[str], declared: t.Collection[str]
) -> tuple[Scope, list[str]]:
    """The scope that options ask for, and what is wrong with them."""
    problems = [
        f"pool_names: {name} is no declared pool; declared are {', '.join(sorted(declared))}"
        for name in only or ()
        if name not in declared
    ]
    selectors: list[Selector] = []
    for text in label_selectors:
        try:
            selectors.append(label_selector.parse(text))
        except ValueError as error:
            problems.append(f"label_selectors: {text!r} {error}")
    return Scope(state, frozenset(only) if only else None, tuple(selectors)), problems


def reset(defaults: t.Any, pools: t.Any, only: t.Collection[str] | None) -> tuple[t.Any, t.Any]:
    """The documents with whole GPUs in the pools in question; the others keep what they share, said outright."""
    common = (defaults or {}).get("sharing")
    changed = []
    for pool in pools:
        asked = only is None or pool.get("name") in only
        rest = {key: value for key, value in pool.items() if key not in ("sharing", "startup_taint")}
        if asked:
            changed.append(rest)
        else:
            sharing = merge(common, pool.get("sharing"))
            changed.append({**pool, "sharing": sharing} if sharing else pool)
    return {key: value for key, value in (defaults or {}).items() if key not in ("sharing", "startup_taint")}, changed
