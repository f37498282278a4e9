# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derives the node groups of the pools, in the format of the option `nodegroups` of the providers' modules (pure)."""

from __future__ import annotations

import typing as t

from ..catalog import names
from ..catalog.taints import STARTUP_TAINT
from ..common.nested import get_nested
from ..schema.pool import POOLS
from ..schema.providers import PROVIDERS
from ..schema.rollout import NONE, ROLLOUT
from ..schema.types import Document, Integer, MapOf
from .nodegroup_names import MAX_NODE_COUNT, MIN_NODE_COUNT, NODE_COUNT, NODE_LABELS, NODE_TAINTS
from .plan import CloudPlan, NodeGroupPlan
from .variables import NOT_SET, InvalidVariables

if t.TYPE_CHECKING:
    from .plan import PoolPlan

_DRAIN_TIMEOUT = ROLLOUT.fields["drain_timeout"].default
# Changed numbers of nodes, by pool.
_COUNTS = MapOf(item=Integer())
# A label of an earlier sharing mode is removed by null, the startup taint by `state: absent`.
_OWN_LABELS = (names.MIG_CONFIG_LABEL,)


def cloud_of(cluster: Document) -> CloudPlan | None:
    """The provider of a valid gpu_cluster."""
    for key, settings in (cluster.get("cloud") or {}).items():
        if settings is not None:
            return CloudPlan(
                provider=key,
                cluster=settings.get("cluster") or cluster["name"],
                template=settings.get("template"),
                nodegroup_label=settings.get("nodegroup_label", ""),
                options={name: settings[name] for name in PROVIDERS[key].connection_options if name in settings},
            )
    return None


def nodegroup_plan(pool: Document, cloud: CloudPlan | None) -> NodeGroupPlan | None:
    """The node group of a valid pool; None if its nodes already exist."""
    nodes = pool.get("nodes")
    if nodes is None or cloud is None:
        return None
    scale = pool.get("autoscale") or {}
    return NodeGroupPlan(
        name=nodes.get("name") or pool["name"],
        group_label=cloud.nodegroup_label,
        flavor=nodes["flavor"],
        node_count=nodes.get("count", scale.get("min", 0)),
        min_node_count=scale.get("min"),
        max_node_count=scale.get("max"),
        settings={key: nodes[key] for key in ("recreate", *PROVIDERS[cloud.provider].nodes_fields) if key in nodes},
    )


def nodegroups_option(cloud: CloudPlan | None, pools: t.Iterable[PoolPlan]) -> tuple[Document, ...]:
    """The option `nodegroups` of the provider's module: each group with the labels and taints that its nodes register with."""
    return tuple(_group(cloud, pool, pool.nodegroup) for pool in pools if cloud and pool.nodegroup)


def _group(cloud: CloudPlan, pool: PoolPlan, group: NodeGroupPlan) -> Document:
    scale: Document = {}
    if group.autoscaled:
        scale = {MIN_NODE_COUNT: group.min_node_count, MAX_NODE_COUNT: group.max_node_count}
        if PROVIDERS[cloud.provider].autoscaling_option:
            scale["autoscaling"] = True
    taints: list[Document] = [dict(taint) for taint in pool.registration.taints]
    if STARTUP_TAINT not in taints:
        taints.append({**STARTUP_TAINT, "state": "absent"})
    return {
        "name": group.name,
        "flavor": group.flavor,
        NODE_COUNT: group.node_count,
        **scale,
        **group.settings,
        NODE_LABELS: {**dict.fromkeys(_OWN_LABELS), **pool.registration.node_labels},
        NODE_TAINTS: taints,
    }


def drain_options(pools: t.Iterable[PoolPlan]) -> Document:
    """The option `kubernetes.drain` for nodes of these groups; if pools differ, the more careful value is used."""
    rollouts = [pool.rollout for pool in pools if pool.nodegroup]
    grace_periods = [rollout.grace_period for rollout in rollouts]
    longest = max((period for period in grace_periods if period is not None), default=None)
    return {
        "evict": all(rollout.drain != NONE for rollout in rollouts),
        "force": bool(rollouts) and all(rollout.force for rollout in rollouts),
        # None means each pod's own grace period, the only value that cannot be too short.
        "grace_period": None if None in grace_periods else longest,
        "drain_timeout": max((rollout.drain_timeout for rollout in rollouts), default=_DRAIN_TIMEOUT),
    }


def with_node_counts(
    pools: t.Sequence[Document] | None, counts: t.Mapping[str, t.Any], defaults: Document | None = None
) -> list[Document]:
    """gpu_pools with changed numbers of nodes, by pool; raises InvalidVariables for a pool without a fixed number of nodes."""
    if pools is None:
        raise InvalidVariables([NOT_SET])
    if reason := POOLS.mistyped(pools):
        raise InvalidVariables([f"gpu_pools: {reason}"])
    counts = _COUNTS.coerce(counts)
    problems = list(_COUNTS.problems(counts, "counts"))
    if not problems:
        problems = [problem for name in counts for problem in _count_problems(name, pools, defaults or {})]
    if problems:
        raise InvalidVariables(problems, "the numbers of nodes (gpu_nodegroups_node_counts)")
    return [
        {**pool, "nodes": {**pool["nodes"], "count": counts[pool["name"]]}}
        if get_nested(pool, "name") in tuple(counts)
        else pool
        for pool in pools
    ]


def _count_problems(name: str, pools: t.Sequence[t.Any], defaults: t.Any) -> t.Iterator[str]:
    pool, *others = [pool for pool in pools if get_nested(pool, "name") == name] or [None]
    if others:
        yield f"pool {name}: {len(others) + 1} pools have this name; give each its own"
    elif pool is None:
        known = [str(get_nested(pool, "name")) for pool in pools]
        yield f"{name} is not a declared pool; declared are {', '.join(known) or 'none'}"
    elif not isinstance(pool.get("nodes"), dict):
        yield f"pool {name}: it has no node group, so its number of nodes cannot be set; declare nodes first"
    elif pool.get("autoscale") or get_nested(defaults, "autoscale"):
        yield f"pool {name}: its autoscaler chooses the number of nodes; change autoscale.min and max"
