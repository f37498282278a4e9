# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes of the pools' groups have come to the cluster, and what makes each what its pool declares (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.names import POOL_LABEL
from ..cluster_state import cordon
from ..cluster_state.node import Node, parse_node
from ..cluster_state.ownership import POOLS, NodeEdit, metadata_edit
from ..cluster_state.pool_assignment import assign_pools
from ..cluster_state.pool_edit import node_edit
from ..nodegroups.names import is_of
from ..pools.nodegroups import WORDS

if t.TYPE_CHECKING:
    from ..pools.plan import NodeGroupPlan, Plan, PoolPlan

Raw = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class ArrivedNode:
    """One node of a group; `why` is what its kubelet says of not being ready, empty for one that is. edit: None where nothing is to be done."""

    node: Node
    why: str
    edit: NodeEdit | None


@dataclass(frozen=True)
class GroupArrival:
    """The nodes of one pool's group, by name, and how many there are to be."""

    pool: PoolPlan
    group: NodeGroupPlan
    wanted: int
    nodes: tuple[ArrivedNode, ...]

    @property
    def ready(self) -> int:
        """How many are there and ready."""
        return sum(not arrived.why for arrived in self.nodes)

    @property
    def missing(self) -> int:
        """How many are still to come."""
        return max(0, self.wanted - len(self.nodes))

    @property
    def stays(self) -> bool:
        """Whether all nodes are to stay."""
        return _stay(self.nodes, self.wanted)

    @property
    def done(self) -> bool:
        """Whether as many are ready as there are to be; one more that is on its way out hinders nobody."""
        return self.ready >= self.wanted


def arrivals(
    plan: Plan, told: t.Mapping[str, t.Any], raws: t.Iterable[Raw], only: t.Collection[str] = ()
) -> list[GroupArrival]:
    """The groups of all pools (or of those named), in the pools' order; `told` is what the cloud's module says of them, by their names."""
    raws = list(raws)
    nodes = [parse_node(raw) for raw in raws]
    reasons = {node.name: _reason(node, raw) for node, raw in zip(nodes, raws, strict=True)}
    membership = assign_pools(plan.pools, nodes)
    by_name = {node.name: node for node in nodes}
    found = []
    for pool in plan.pools:
        if pool.nodegroup is None or (only and pool.name not in only):
            continue
        its = [by_name[name] for name in membership.by_pool[pool.name] if _is_made(by_name[name], pool.nodegroup)]
        wanted = _wanted(plan, pool.nodegroup, told)
        stays = _stay(its, wanted)
        arrived = tuple(ArrivedNode(node, reasons[node.name], edit_of(node, pool, stays=stays)) for node in its)
        found.append(GroupArrival(pool, pool.nodegroup, wanted, arrived))
    return found


def edit_of(node: Node, pool: PoolPlan, *, stays: bool) -> NodeEdit | None:
    """A node that offers no GPU yet becomes what its pool declares; one that does is only made sure to be the pool's.

    Somebody may use the GPUs of the latter: how it is shared is changed by who cordons and empties it for that. One that a run was
    emptying when it was killed, and that `stays` after all, is opened again.
    """
    if node.discovered or any(node.allocatable.values()):
        change = metadata_edit(node, POOLS, labels={POOL_LABEL: pool.name})
    else:
        change = node_edit(node, pool)
    reopening = cordon.cancel_removal(node) if stays else None
    return _both(node, change, reopening) if reopening else change


def _stay(nodes: t.Sized, wanted: int) -> bool:
    """Of more nodes than there are to be, those on their way out are still to be seen."""
    return len(nodes) <= wanted


def _both(node: Node, change: NodeEdit | None, reopening: cordon.Patch) -> NodeEdit:
    change = change or NodeEdit(node.name, {"metadata": {}})
    metadata, more = change.patch["metadata"], reopening["metadata"]
    annotations = {**metadata.get("annotations", {}), **more["annotations"]}
    patch = {
        "metadata": {**metadata, **more, "annotations": annotations},
        "spec": {**change.patch.get("spec", {}), **reopening["spec"]},
    }
    return NodeEdit(
        node.name, patch, {**change.before, "unschedulable": True}, {**change.after, "unschedulable": False}
    )


def _is_made(node: Node, group: NodeGroupPlan) -> bool:
    """Whether a node of the pool is of its group, too: what the cloud says counts, and where it says nothing, that it is the pool's."""
    named = node.labels.get(group.group_label) if group.group_label else None
    return is_of(named, group.name) if named is not None else POOL_LABEL in node.labels


def _wanted(plan: Plan, group: NodeGroupPlan, told: t.Mapping[str, t.Any]) -> int:
    """How many nodes the cloud makes: what it says, or what the pool declares."""
    word = WORDS[plan.cluster.cloud.provider].count if plan.cluster.cloud else ""
    count = (told.get(group.name) or {}).get(word)
    if isinstance(count, int):
        return count
    return group.min_node_count or 0 if group.autoscaled else group.node_count


def _reason(node: Node, raw: Raw) -> str:
    if node.ready:
        return ""
    conditions = {of.get("type"): of for of in (raw.get("status") or {}).get("conditions") or ()}
    told = conditions.get("Ready") or {}
    words = [str(told[key]) for key in ("reason", "message") if told.get(key)]
    return ": ".join(words) or "its kubelet has said nothing yet"
