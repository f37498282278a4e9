# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes of the pools' node groups in the cluster, and the edits that make them match their pools (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.names import POOL_LABEL
from ..cluster_state import cordon
from ..cluster_state.node import Node, parse_node
from ..cluster_state.ownership import POOLS, NodeEdit, metadata_edit
from ..cluster_state.pool_assignment import assign_pools
from ..cluster_state.pool_edit import node_edit
from ..nodegroups.names import is_group_or_replacement
from ..nodegroups.spec import NODE_COUNT

if t.TYPE_CHECKING:
    from ..pools.plan import NodeGroupPlan, Plan, PoolPlan

NodeObject = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class GroupNode:
    """A node of a group. not_ready: the kubelet's reason, empty for a ready node. edit: None where nothing has to change."""

    node: Node
    not_ready: str
    edit: NodeEdit | None


@dataclass(frozen=True)
class GroupStatus:
    """The nodes of one pool's group, by name, and their desired number."""

    pool: PoolPlan
    group: NodeGroupPlan
    desired: int
    nodes: tuple[GroupNode, ...]

    @property
    def ready(self) -> int:
        """The number of ready nodes."""
        return sum(not node.not_ready for node in self.nodes)

    @property
    def missing(self) -> int:
        """The number of nodes that are not in the cluster yet."""
        return max(0, self.desired - len(self.nodes))

    @property
    def has_surplus(self) -> bool:
        """Whether some of the nodes are about to be removed."""
        return len(self.nodes) > self.desired

    @property
    def complete(self) -> bool:
        """Whether enough nodes are ready; surplus nodes do not matter."""
        return self.ready >= self.desired


def group_statuses(
    plan: Plan,
    nodegroups: t.Mapping[str, t.Any],
    objects: t.Iterable[NodeObject],
    pool_names: t.Collection[str] = (),
) -> list[GroupStatus]:
    """The groups of all pools (or of those named), in the pools' order; `nodegroups` is the result of the cloud's module, by group."""
    not_ready = {}
    nodes: dict[str, Node] = {}
    for item in objects:
        node = parse_node(item)
        nodes[node.name] = node
        not_ready[node.name] = "" if node.ready else _not_ready_reason(item)
    membership = assign_pools(plan.pools, list(nodes.values()))
    found = []
    for pool in plan.pools:
        if pool.nodegroup is None or (pool_names and pool.name not in pool_names):
            continue
        members = [nodes[name] for name in membership.by_pool[pool.name] if _is_member(nodes[name], pool.nodegroup)]
        desired = _desired_count(pool.nodegroup, nodegroups)
        has_surplus = len(members) > desired
        found.append(
            GroupStatus(
                pool,
                pool.nodegroup,
                desired,
                tuple(
                    GroupNode(node, not_ready[node.name], edit_of(node, pool, has_surplus=has_surplus))
                    for node in members
                ),
            )
        )
    return found


def edit_of(node: Node, pool: PoolPlan, *, has_surplus: bool) -> NodeEdit | None:
    """The edit that gives a node its pool's metadata; a node that offers GPUs already only gets the pool's label.

    Its GPUs may be in use, and their sharing is changed by the run that drains it for that. A node that a killed run cordoned for removal is
    uncordoned, unless its group `has_surplus` nodes.
    """
    if node.discovered or any(node.allocatable.values()):
        change = metadata_edit(node, POOLS, labels={POOL_LABEL: pool.name})
    else:
        change = node_edit(node, pool)
    uncordoning = None if has_surplus else cordon.cancel_removal(node)
    return _with_uncordon(node, change, uncordoning) if uncordoning else change


def _with_uncordon(node: Node, change: NodeEdit | None, uncordoning: cordon.Patch) -> NodeEdit:
    change = change or NodeEdit(node.name, {"metadata": {}})
    metadata, more = change.patch["metadata"], uncordoning["metadata"]
    annotations = {**metadata.get("annotations", {}), **more["annotations"]}
    patch = {
        "metadata": {**metadata, **more, "annotations": annotations},
        "spec": {**change.patch.get("spec", {}), **uncordoning["spec"]},
    }
    return NodeEdit(
        node.name, patch, {**change.before, "unschedulable": True}, {**change.after, "unschedulable": False}
    )


def _is_member(node: Node, group: NodeGroupPlan) -> bool:
    """Whether a node of the pool is of its group: by the cloud's label, or else because it is labelled as the pool's."""
    name = node.labels.get(group.group_label) if group.group_label else None
    return is_group_or_replacement(name, group.name) if name is not None else POOL_LABEL in node.labels


def _desired_count(group: NodeGroupPlan, nodegroups: t.Mapping[str, t.Any]) -> int:
    """The number of nodes in the cloud's result, or else the declared one."""
    count = (nodegroups.get(group.name) or {}).get(NODE_COUNT)
    if isinstance(count, int):
        return count
    return group.min_node_count or 0 if group.autoscaled else group.node_count


def _not_ready_reason(item: NodeObject) -> str:
    conditions = (item.get("status") or {}).get("conditions") or ()
    ready: NodeObject = next((condition for condition in conditions if condition.get("type") == "Ready"), {})
    texts = [str(ready[key]) for key in ("reason", "message") if ready.get(key)]
    return ": ".join(texts) or "the kubelet has not reported yet"
