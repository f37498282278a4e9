# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for the nodes of groups, and gives them the labels and taints of their pool."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import typing as t
from dataclasses import dataclass, field

from ..catalog.names import POOL_LABEL
from ..core.messages import MAX_LISTED, MAX_NAMED, abbreviate, diff_of
from ..core.waits import Progress, StateTimer, WaitTimeout, run_bounded, wait_until
from ..kube.objects import NOT_CHECKED
from ..kube.paths import NODES
from ..nodes.node import Node, parse_node, ready_condition
from ..nodes.node_check import NOT_READY, cancel_removal
from ..nodes.node_metadata import patch_node
from ..nodes.ownership import POOL_OWNER, NodeEdit, assign_pools, metadata_edit
from ..nodes.pool_edit import membership_edit
from ..pools.plan import NodeMetadata, Plan
from ..schema.providers import NODE_COUNT, may_be_replacement
from ..schema.variables import merge

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..pools.plan import NodeGroupMember, NodeGroupPlan, PoolPlan

# Finds the nodes of the pools' node groups. Provides the edits that make these nodes match their pools, and the messages for the wait.
#
# All functions are pure, except for the clock of StatusHistory.

NodeObject = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class GroupStatus:
    """The nodes of a pool's node group and their desired number. `not_ready` contains, by node name, the reasons why nodes are not ready."""

    pool: PoolPlan
    group: NodeGroupPlan
    desired: int
    nodes: tuple[Node, ...]
    not_ready: t.Mapping[str, str]

    @property
    def ready(self) -> int:
        """The number of ready nodes."""
        return len(self.nodes) - len(self.not_ready)

    @property
    def missing(self) -> int:
        """The number of nodes that are not in the cluster yet."""
        return max(0, self.desired - len(self.nodes))

    @property
    def complete(self) -> bool:
        """Whether enough nodes are ready; surplus nodes do not matter."""
        return self.ready >= self.desired

    def edit_of(self, node: Node) -> NodeEdit | None:
        """The edit that sets the pool's metadata on a node. A node that already advertises GPUs gets only the pool label.

        The GPUs of a node that already advertises them may be in use, so a later run, which drains the node, changes their sharing mode. A node that a
        killed run has cordoned for removal is uncordoned, unless its group has surplus nodes that will be removed.
        """
        if node.discovered or any(node.allocatable.values()):
            change = metadata_edit(node, POOL_OWNER, NodeMetadata(labels={POOL_LABEL: self.pool.name}))
        else:
            change = membership_edit(node, self.pool)
        uncordoning = cancel_removal(node) if len(self.nodes) <= self.desired else None
        if uncordoning is None:
            return change
        change = change or NodeEdit(node.name, {})
        return dataclasses.replace(
            change,
            patch=merge(change.patch, uncordoning),
            before={**change.before, "unschedulable": True},
            after={**change.after, "unschedulable": False},
        )


def group_statuses(
    plan: Plan,
    nodegroups: t.Mapping[str, t.Any],
    objects: t.Iterable[NodeObject],
    pool_names: t.Collection[str] = (),
) -> list[GroupStatus]:
    """The status of the node groups of all pools, or of the pools in `pool_names`, in the order of the pools. `nodegroups` contains the result of the cloud's
    module, by group.
    """
    not_ready: dict[str, str] = {}
    nodes: dict[str, Node] = {}
    for item in objects:
        node = parse_node(item)
        nodes[node.name] = node
        if not node.ready:
            not_ready[node.name] = _not_ready_reason(item)
    membership = assign_pools(_with_existing_groups(plan.pools, nodegroups), _with_adopted(plan, nodegroups, nodes))
    statuses = []
    for pool in plan.pools:
        group = pool.nodegroup
        if group is None or (pool_names and pool.name not in pool_names):
            continue
        existing = {_existing_name(member, nodegroups) for member in group.members}
        is_reported = all((nodegroups.get(member.name) or {}).get("name") for member in group.members)
        adopted = _adopted(group, nodegroups)
        members = tuple(
            nodes[name]
            for name in membership.by_pool[pool.name]
            if name in adopted or _is_member(nodes[name], group, existing, is_reported)
        )
        reasons = {node.name: not_ready[node.name] for node in members if node.name in not_ready}
        statuses.append(GroupStatus(pool, group, _desired_count(group, nodegroups), members, reasons))
    return statuses


def _existing_name(member: NodeGroupMember, nodegroups: t.Mapping[str, t.Any]) -> str:
    """The name of a group in the cloud: the result of the cloud's module contains the name of a replacement."""
    return str((nodegroups.get(member.name) or {}).get("name") or member.name)


def _with_existing_groups(pools: t.Sequence[PoolPlan], nodegroups: t.Mapping[str, t.Any]) -> list[PoolPlan]:
    """The pools with the names that their node groups have in the cloud."""
    return [
        dataclasses.replace(
            pool, nodegroup=dataclasses.replace(group, name=_existing_name(group.members[0], nodegroups))
        )
        if (group := pool.nodegroup) is not None and len(group.members) == 1
        else pool
        for pool in pools
    ]


def _adopted(group: NodeGroupPlan, nodegroups: t.Mapping[str, t.Any]) -> set[str]:
    """The names of the nodes that a group had before it was adopted."""
    return {
        str(name) for member in group.members for name in (nodegroups.get(member.name) or {}).get("adopted_nodes") or ()
    }


def _with_adopted(plan: Plan, nodegroups: t.Mapping[str, t.Any], nodes: t.Mapping[str, Node]) -> list[Node]:
    """The nodes, of which those of adopted groups count as nodes of the pool, unless they have a pool label."""
    pools = {name: pool.name for pool in plan.pools if pool.nodegroup for name in _adopted(pool.nodegroup, nodegroups)}
    return [
        dataclasses.replace(node, labels={**node.labels, POOL_LABEL: pools[name]})
        if name in pools and POOL_LABEL not in node.labels
        else node
        for name, node in nodes.items()
    ]


def _is_member(node: Node, group: NodeGroupPlan, existing: t.Collection[str], is_reported: bool) -> bool:
    """Whether a node of the pool belongs to the pool's node group, according to the cloud's label or, if that label is missing, the pool label.

    existing: the names of the node groups in the cloud. If the cloud's module has reported them, no other group counts, because the mark of a group, which
    the module has checked, decides whether it is a replacement. Without a report, a node with the pool label counts if the name of its group suggests it.
    """
    name = node.labels.get(group.group_label) if group.group_label else None
    if name is None:
        return POOL_LABEL in node.labels
    return name in existing or (not is_reported and POOL_LABEL in node.labels and may_be_replacement(name, group.name))


def _desired_count(group: NodeGroupPlan, nodegroups: t.Mapping[str, t.Any]) -> int:
    """The total desired number of nodes in the pool's zones. Each number comes from the result of the cloud's module or, if it is not there, from the
    declaration.
    """
    return sum(_member_count(group, member, nodegroups.get(member.name) or {}) for member in group.members)


def _member_count(group: NodeGroupPlan, member: NodeGroupMember, result: t.Mapping[str, t.Any]) -> int:
    count = result.get(NODE_COUNT)
    if isinstance(count, int):
        return count
    return member.min_node_count or 0 if group.autoscaled else member.node_count


def _not_ready_reason(item: NodeObject) -> str:
    ready = ready_condition(item)
    texts = [str(ready[key]) for key in ("reason", "message") if ready.get(key)]
    return ": ".join(texts) or "the kubelet has not reported yet"


def progress_text(groups: t.Sequence[GroupStatus]) -> str:
    """A progress message about the groups that are not complete."""
    waiting = [f"{status.group.name} {status.ready}/{status.desired}" for status in groups if not status.complete]
    return f"nodes ready: {abbreviate(waiting)}" if waiting else "all nodes are ready"


class StatusHistory:
    """Records how long groups and nodes have had their current status."""

    def __init__(self, timer: StateTimer | None = None) -> None:
        """Start without any records."""
        self._timer = timer or StateTimer()

    def record(self, groups: t.Sequence[GroupStatus]) -> None:
        """Record the current status."""
        for status in groups:
            self._group_age(status)
            for node in status.nodes:
                self._node_age(node.name, status)

    def timeout_message(self, groups: t.Sequence[GroupStatus], look_at: str) -> str:
        """A message about each incomplete group, with the nodes that are not ready, the reason and duration for each, and the remedy."""
        return " ".join(
            [
                *(self._group_message(status) for status in groups if not status.complete),
                f"Check the machines in the cloud ({look_at}), and run the playbook again.",
            ]
        )

    def _group_age(self, status: GroupStatus) -> float:
        return self._timer.seconds(status.group.name, (status.ready, status.missing))

    def _node_age(self, node: str, status: GroupStatus) -> float:
        return self._timer.seconds(node, status.not_ready.get(node))

    def _group_message(self, status: GroupStatus) -> str:
        parts = [
            f"Node group {status.group.name} (pool {status.pool.name}): {status.ready} of {status.desired} nodes are ready, for "
            f"{self._group_age(status):.0f} s"
        ]
        if status.missing:
            parts.append(f"{status.missing} never joined the cluster")
        parts += [
            f"{name} {NOT_READY} for {self._node_age(name, status):.0f} s or longer ({reason})"
            for name, reason in itertools.islice(status.not_ready.items(), MAX_NAMED)
        ]
        if len(status.not_ready) > MAX_NAMED:
            parts.append(f"{len(status.not_ready) - MAX_NAMED} more are not ready")
        return f"{'; '.join(parts)}."


# Waits for the nodes of the pools' node groups. When a node joins the cluster, sets the pool's metadata on the node with one patch.


@dataclass
class GroupNodesResult:
    """The changes that a run has made or, in check mode, would make. `edits` contains the edit of each changed node."""

    groups: list[GroupStatus] = field(default_factory=list)
    edits: dict[str, NodeEdit] = field(default_factory=dict)
    unchecked: bool = False

    def result(self, check_mode: bool) -> dict[str, t.Any]:
        """The module's result: `changed`, `diff` and `nodegroup_nodes`."""
        missing = {status.pool.name: status.missing for status in self.groups if status.missing}
        not_ready = {name: reason for status in self.groups for name, reason in status.not_ready.items()}
        names = sorted(self.edits)
        shown = names[:MAX_LISTED]
        result = {
            "pools": {
                status.pool.name: {
                    "group": status.group.name,
                    "desired": status.desired,
                    "nodes": len(status.nodes),
                    "ready": status.ready,
                }
                for status in self.groups
            },
            "changed_nodes": shown,
            "changed_count": len(names),
            "missing": missing,
            "not_ready": dict(sorted(not_ready.items())[:MAX_LISTED]),
        }
        if self.unchecked:
            result["unchecked"] = NOT_CHECKED
        return {
            # The changes to missing nodes cannot be predicted.
            "changed": bool(names) or (check_mode and bool(missing)),
            "nodegroup_nodes": result,
            "diff": diff_of(
                {name: self.edits[name].before for name in shown},
                {name: self.edits[name].after for name in shown},
                "nodes",
            ),
        }


@dataclass(kw_only=True)
class GroupNodesReconciler:
    """Reconciles the nodes of one cluster's node groups.

    `nodegroups` is the result of the cloud's module, by group; `lease` returns a new lease, and is called whenever nodes must be changed.
    """

    client: Client
    plan: Plan
    nodegroups: t.Mapping[str, t.Any]
    pool_names: t.Collection[str]
    check_mode: bool
    lease: t.Callable[[], Lease]
    result: GroupNodesResult = field(default_factory=GroupNodesResult)

    def reconcile(self) -> list[GroupStatus]:
        """List the nodes once, and patch those that differ from their pools."""
        nodes = self.client.list(NODES)
        groups = self.result.groups = group_statuses(self.plan, self.nodegroups, nodes, self.pool_names)
        edits = [
            (edit, status) for status in groups for node in status.nodes if (edit := status.edit_of(node)) is not None
        ]
        if edits:
            with self.lease() as lease:
                calls = [(edit.name, functools.partial(self._patch, edit, status, lease)) for edit, status in edits]
                outcomes = run_bounded(calls, stop=lease.lost)
            errors = [outcome.error for outcome in outcomes if outcome.error is not None]
            if errors:
                raise errors[0]
        return groups

    def wait(self, timeout: float, interval: float, say: Progress, look_at: str) -> None:
        """Reconcile until every group is complete; raises WaitTimeout with the result so far."""
        history = StatusHistory()

        def read() -> list[GroupStatus]:
            groups = self.reconcile()
            history.record(groups)
            return groups

        try:
            wait_until(
                read,
                lambda groups: all(status.complete for status in groups),
                timeout=timeout,
                interval=interval,
                first_interval=1.0,
                describe=lambda groups: history.timeout_message(groups, look_at),
                progress_text=progress_text,
                progress=say,
            )
        except WaitTimeout as error:
            error.partial = self.result.result(self.check_mode)
            raise

    def _patch(self, edit: NodeEdit, status: GroupStatus, lease: Lease) -> None:
        patched = patch_node(
            self.client,
            edit,
            lambda item: status.edit_of(parse_node(item)),
            lease.check,
            dry_run=self.check_mode,
        )
        self.result.unchecked = self.result.unchecked or patched.status == "unchecked"
        if patched.status in ("changed", "unchecked"):
            self.result.edits[edit.name] = patched.edit
