# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derives the node groups of the pools, in the format of the option `nodegroups` of the providers' modules (pure)."""

from __future__ import annotations

import typing as t

from ..catalog import names
from ..catalog.machine_api import ACCELERATOR_LABEL
from ..catalog.taints import STARTUP_TAINT
from ..common.nested import get_nested
from ..schema.nodegroup_checks import member_name
from ..schema.pool import POOLS
from ..schema.providers import PROVIDERS
from ..schema.types import Document, Integer, MapOf
from .nodegroup_names import MAX_NODE_COUNT, MIN_NODE_COUNT, NODE_COUNT, NODE_LABELS, NODE_TAINTS
from .plan import CloudPlan, NodeGroupMember, NodeGroupPlan
from .scale_from_zero import future_node
from .variables import NOT_SET, InvalidVariables

if t.TYPE_CHECKING:
    from .plan import PoolPlan

# The changed numbers of nodes, by pool.
_COUNTS = MapOf(item=Integer())
# null removes a label of an earlier sharing mode, and `state: absent` removes the startup taint.
_OWN_LABELS = (names.MIG_CONFIG_LABEL,)


def cloud_of(cluster: Document) -> CloudPlan | None:
    """The cloud of a valid gpu_cluster; None if it has no cloud."""
    for key, settings in (cluster.get("cloud") or {}).items():
        if settings is not None:
            definition = PROVIDERS[key]
            return CloudPlan(
                provider=key,
                cluster=settings.get("cluster") or cluster["name"],
                template=settings.get("template"),
                nodegroup_label=settings.get("nodegroup_label", ""),
                options={name: settings[name] for name in definition.connection_options if name in settings},
                module=definition.nodegroup_module,
                issues_kubeconfig=definition.issues_kubeconfig,
                lists_undeclared_groups=definition.lists_undeclared_groups,
            )
    return None


def nodegroup_plan(pool: Document, cloud: CloudPlan | None) -> NodeGroupPlan | None:
    """The node group of a valid pool; None if its nodes already exist."""
    nodes = pool.get("nodes")
    if nodes is None or cloud is None:
        return None
    scale = pool.get("autoscale") or {}
    definition = PROVIDERS[cloud.provider]
    name, zones = nodes.get("name") or pool["name"], tuple(nodes.get("zones") or ())
    count, low, high = nodes.get("count", scale.get("min", 0)), scale.get("min"), scale.get("max")
    gpus = definition.flavor_gpus(nodes["flavor"]) if "flavor" in nodes else None
    return NodeGroupPlan(
        name=name,
        group_label=cloud.nodegroup_label,
        flavor=nodes.get("flavor") or nodes[definition.flavor_instead],
        node_count=count,
        min_node_count=low,
        max_node_count=high,
        settings={key: nodes[key] for key in ("recreate", *definition.nodes_fields) if key in nodes and key != "zones"},
        zones=zones,
        members=_members(name, zones, count, low, high),
        flavor_gpus=gpus.count if gpus else None,
        priority=scale.get("priority"),
    )


def _members(
    name: str, zones: t.Sequence[str], count: int, low: int | None, high: int | None
) -> tuple[NodeGroupMember, ...]:
    """The node groups of a pool; with several zones, the first groups get the nodes that cannot be distributed evenly."""
    places: t.Sequence[str | None] = zones or (None,)

    def part(total: int | None, index: int) -> int | None:
        return None if total is None else total // len(places) + (index < total % len(places))

    return tuple(
        NodeGroupMember(member_name(name, zone), zone, part(count, index) or 0, part(low, index), part(high, index))
        for index, zone in enumerate(places)
    )


def nodegroups_option(cloud: CloudPlan | None, pools: t.Iterable[PoolPlan]) -> tuple[Document, ...]:
    """The option `nodegroups` of the provider's module: each group with the labels and taints that its nodes register with."""
    return tuple(
        _group(cloud, pool, pool.nodegroup, member)
        for pool in pools
        if cloud and pool.nodegroup
        for member in pool.nodegroup.members
    )


def _group(cloud: CloudPlan, pool: PoolPlan, group: NodeGroupPlan, member: NodeGroupMember) -> Document:
    scale: Document = {}
    definition = PROVIDERS[cloud.provider]
    if group.autoscaled:
        scale = {MIN_NODE_COUNT: member.min_node_count, MAX_NODE_COUNT: member.max_node_count}
        if definition.autoscaling_option:
            scale["autoscaling"] = True
    taints: list[Document] = [dict(taint) for taint in pool.registration.taints]
    if STARTUP_TAINT not in taints:
        taints.append({**STARTUP_TAINT, "state": "absent"})
    labels: Document = dict.fromkeys(_OWN_LABELS)
    return {
        "name": member.name,
        # A setting that replaces the flavor is one of the provider's own settings.
        **({} if definition.flavor_instead in group.settings else {"flavor": group.flavor}),
        NODE_COUNT: member.node_count,
        **scale,
        **group.settings,
        **({"zone": member.zone} if member.zone else {}),
        **(_future_node_settings(pool, labels) if definition.scaled_by_openshift else {}),
        NODE_LABELS: {**labels, **pool.registration.node_labels},
        NODE_TAINTS: taints,
    }


def _future_node_settings(pool: PoolPlan, labels: Document) -> Document:
    """The description of the pool's future nodes for the autoscaler of OpenShift; adds the label of their kind of GPU to `labels`."""
    node = future_node(pool)
    labels[ACCELERATOR_LABEL] = node.accelerator or None
    capacity: Document = {"labels": dict(node.labels)}
    if node.resources is not None:
        capacity["resources"] = dict(node.resources)
    return {"capacity": capacity}


def with_node_counts(
    pools: t.Sequence[Document] | None, counts: t.Mapping[str, t.Any], defaults: Document | None = None
) -> list[Document]:
    """gpu_pools with the numbers of nodes in `counts` (by pool); raises InvalidVariables for a pool without a fixed number of nodes."""
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
        yield f"pool {name}: {len(others) + 1} pools have this name; use a unique name for each"
    elif pool is None:
        known = [str(get_nested(pool, "name")) for pool in pools]
        yield f"{name} is not a declared pool; declared pools: {', '.join(known) or 'none'}"
    elif not isinstance(pool.get("nodes"), dict):
        yield f"pool {name}: it has no node group, so its number of nodes cannot be set; declare nodes first"
    elif pool.get("autoscale") or get_nested(defaults, "autoscale"):
        yield f"pool {name}: its autoscaler chooses the number of nodes; change autoscale.min and max"
