# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan after MIG allocation: each node of a pool with a demand has values of its own (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from .derive import device_plugin_configmap, mig_entries, node_entries, pool_node_labels

if t.TYPE_CHECKING:
    from ..mig.layout import Layout
    from .plan import Plan, PoolPlan


def per_node_plan(plan: Plan, layouts: t.Mapping[str, t.Mapping[str, tuple[Layout, int]]]) -> Plan:
    """The plan with these layouts and numbers of GPUs, by pool and node, for pools with a demand."""
    pools = tuple(
        replace(pool, by_node=_by_node(pool, layouts[pool.name])) if pool.name in layouts else pool
        for pool in plan.pools
    )
    # Nodes with the same layout share one object.
    variants = {id(one): one for pool in pools for one in (pool, *pool.by_node.values())}.values()
    return replace(
        plan,
        pools=pools,
        config=replace(plan.config, data=device_plugin_configmap(variants, plan.config.namespace).data),
        mig=replace(plan.mig, entries=mig_entries(variants)),
    )


def _by_node(pool: PoolPlan, layouts: t.Mapping[str, tuple[Layout, int]]) -> dict[str, PoolPlan]:
    variants: dict[tuple[str, int], PoolPlan] = {}
    for layout, gpus in layouts.values():
        if (repr(layout), gpus) not in variants:
            variants[repr(layout), gpus] = _with_layout(pool, layout, gpus)
    return {node: variants[repr(layout), gpus] for node, (layout, gpus) in layouts.items()}


def _with_layout(pool: PoolPlan, layout: Layout, gpus: int) -> PoolPlan:
    sharing = replace(pool.sharing, layout=layout)
    config_key, mig_key, entry = node_entries(sharing, gpus)
    return replace(
        pool,
        sharing=sharing,
        config_key=config_key,
        mig_key=mig_key,
        mig_entry=entry,
        node_labels=pool_node_labels(pool.name, pool.labels, config_key, mig_key),
    )
