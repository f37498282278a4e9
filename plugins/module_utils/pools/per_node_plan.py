# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan once it is decided which node is cut into what: each node of a pool with a demand has values of its own (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from .derive import config_of, entries_of, mig_entries_of, node_labels_of

if t.TYPE_CHECKING:
    from ..mig.layout import Layout
    from .plan import Plan, PoolPlan


def per_node_plan(plan: Plan, layouts: t.Mapping[str, t.Mapping[str, tuple[Layout, int]]]) -> Plan:
    """The plan with the demand of its pools spread over nodes: by pool and node, the node's layout, and how many GPUs it has."""
    pools = tuple(
        replace(pool, by_node=_by_node(pool, layouts[pool.name])) if pool.name in layouts else pool
        for pool in plan.pools
    )
    # Nodes that are cut alike are one and the same.
    ways = {id(one): one for pool in pools for one in (pool, *pool.by_node.values())}.values()
    return replace(
        plan,
        pools=pools,
        config=replace(plan.config, data=config_of(ways, plan.config.namespace).data),
        mig=replace(plan.mig, entries=mig_entries_of(ways)),
    )


def _by_node(pool: PoolPlan, layouts: t.Mapping[str, tuple[Layout, int]]) -> dict[str, PoolPlan]:
    known: dict[tuple[str, int], PoolPlan] = {}
    found: dict[str, PoolPlan] = {}
    for node, (layout, gpus) in layouts.items():
        way = (repr(layout), gpus)
        if way not in known:
            known[way] = _on_node(pool, layout, gpus)
        found[node] = known[way]
    return found


def _on_node(pool: PoolPlan, layout: Layout, gpus: int) -> PoolPlan:
    sharing = replace(pool.sharing, layout=layout)
    key, mig_key, entry = entries_of(sharing, gpus)
    return replace(
        pool,
        sharing=sharing,
        config_key=key,
        mig_key=mig_key,
        mig_entry=entry,
        node_labels=node_labels_of(pool.name, pool.labels, key, mig_key),
    )
