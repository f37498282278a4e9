# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares every node and both ConfigMaps with the pools, and plans all changes of a run before any request is sent (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.names import CONFIG_LABEL, MIG_CONFIG_LABEL
from ..catalog.taints import format_taint
from ..cluster_state.gpu_pods import PodOnNode, PodsByNode
from ..cluster_state.impact import LABELS
from ..cluster_state.node import Node
from ..cluster_state.ownership import NodeEdit
from ..cluster_state.pool_release import is_managed, release_edit
from ..cluster_state.workload_fit import UnfitWorkload, node_after, node_before, unfit_workloads
from ..common.results import MAX_LISTED
from .configmaps import ConfigMapEntries, ConfigMaps, device_plugin_entries, mig_entries
from .node_change import NodeChange, depends_on_pods, limit_changes, node_change
from .released_nodes import ReleasedNodes, changes_sharing_silently
from .scope import EVERYTHING, NEW_NODES, PRESENT, Scope

if t.TYPE_CHECKING:
    from ..pools.membership import Membership
    from ..pools.plan import Plan, PoolPlan


@dataclass(frozen=True)
class ChangePlan:
    """All changes that make the cluster match the pools; if there are none, no request is sent.

    node_changes: the changes of this run. limited: the nodes left for another run (rollout.limit). not_ready: the nodes whose change
    must wait until they are ready.
    needs_pods: whether the changes may depend on the pods on the nodes, which have not been listed.
    held_back: the taints (in the format of format_taint()) that are not added to additional nodes.
    """

    node_changes: tuple[NodeChange, ...]
    pool_of: t.Mapping[str, str]
    device_plugin: ConfigMapEntries
    mig: ConfigMapEntries
    held_back: frozenset[str] = frozenset()
    limited: tuple[str, ...] = ()
    not_ready: tuple[str, ...] = ()
    needs_pods: bool = False
    releases: ReleasedNodes = field(default_factory=ReleasedNodes)
    # The workloads that no node can run after the changes; empty if the pods have not been listed.
    unfit: tuple[UnfitWorkload, ...] = ()

    @property
    def edits(self) -> tuple[NodeEdit, ...]:
        """The edits of nodes, by name."""
        return tuple(change.edit for change in self.node_changes if change.edit)

    @property
    def rolling_changes(self) -> list[NodeChange]:
        """The changes of the rolling update."""
        return [change for change in self.node_changes if change.rolling]

    @property
    def evictions(self) -> dict[str, tuple[PodOnNode, ...]]:
        """The pods that the run evicts, by node. Nodes with blocking pods are omitted, because they are not drained."""
        return {
            change.node: change.pods_to_evict
            for change in self.rolling_changes
            if change.pods_to_evict and not change.blocking_pods
        }

    @property
    def immediate_edits(self) -> list[NodeEdit]:
        """The edits of nodes outside the rolling update, which do not affect pods."""
        return [change.edit for change in self.node_changes if change.edit and not change.rolling]

    @property
    def changed(self) -> bool:
        """Whether the run changes anything."""
        return bool(self.node_changes) or self.device_plugin.changed or self.mig.changed

    @property
    def released(self) -> list[str]:
        """The nodes that are released from their pools."""
        return [change.node for change in self.node_changes if change.released_from is not None]

    @property
    def nodes_to_refresh(self) -> list[str]:
        """The nodes that get a configuration. Their operands must read the ConfigMap again, because the configuration's entry may be new."""
        return [edit.name for edit in self.edits if edit.labels.get(CONFIG_LABEL) or edit.labels.get(MIG_CONFIG_LABEL)]

    @property
    def immediate_mig_nodes(self) -> list[str]:
        """The nodes whose MIG configuration changes outside the rolling update."""
        return [edit.name for edit in self.immediate_edits if edit.labels.get(MIG_CONFIG_LABEL)]

    @property
    def new_taints(self) -> set[str]:
        """The taints that are added to any node, in the format of format_taint()."""
        return {
            taint
            for edit in self.edits
            for taint in set(edit.after.get("taints", ())) - set(edit.before.get("taints", ()))
        }

    def diff(self) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
        """The states before and after the run, for at most MAX_LISTED nodes."""
        before: dict[str, t.Any] = {}
        after: dict[str, t.Any] = {}
        for key, entries in (("configmap", self.device_plugin), ("mig_configmap", self.mig)):
            if entries.changed:
                before[key], after[key] = dict(entries.actual), entries.after
        if self.node_changes:
            shown = self.node_changes[:MAX_LISTED]
            before["nodes"], after["nodes"] = {}, {}
            for change in shown:
                before["nodes"][change.node], after["nodes"][change.node] = _node_diff(change)
            if len(self.node_changes) > len(shown):
                after["nodes_not_shown"] = len(self.node_changes) - len(shown)
        if self.unfit:
            after["workloads_without_node"] = list(map(str, self.unfit))
        return before, after


def _node_diff(change: NodeChange) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    before = dict(change.edit.before) if change.edit else {}
    after = dict(change.edit.after) if change.edit else {}
    if change.marks:
        before["annotations"] = {**before.get("annotations", {}), **change.marks}
        after["annotations"] = dict(after.get("annotations", {}))
    if change.pods_to_evict:
        before["pods"], after["pods"] = [pod.full_name for pod in change.pods_to_evict], []
    return before, after


def held_back_taints(
    plan: ChangePlan, nodes: t.Mapping[str, Node], pools: t.Iterable[PoolPlan]
) -> dict[str, list[str]]:
    """The held-back taints that at least one node of a pool lacks, by pool."""
    missing: dict[str, list[str]] = {}
    for pool in pools:
        held_back = [text for text in map(format_taint, pool.taints) if text in plan.held_back]
        if not held_back:
            continue
        members = [nodes[name] for name, of_pool in plan.pool_of.items() if of_pool == pool.name and name in nodes]
        lacking = [text for text in held_back if any(text not in map(format_taint, node.taints) for node in members)]
        if lacking:
            missing[pool.name] = lacking
    return missing


def plan_sharing_changes(
    plan: Plan,
    nodes: t.Sequence[Node],
    membership: Membership,
    configmaps: ConfigMaps,
    held_back: t.Collection[str] = (),
    *,
    scope: Scope = EVERYTHING,
    pods: PodsByNode | None = None,
) -> ChangePlan:
    """Compare every node with its pool. A node without a pool is changed only if the collection has written to it.

    Nodes that several pools claim and nodes outside the scope are not changed.
    `pods` contains the pods on the nodes, or is None if they have not been listed.
    """
    pools = {pool.name: pool for pool in plan.pools}
    pool_of = {node: pool for pool, members in membership.by_pool.items() for node in members}
    ambiguous = {*membership.overlaps, *membership.undiscovered}
    by_queue: dict[str, list[NodeChange]] = {}
    needs_pods = False
    unshared: dict[str, int] = {}
    for node in nodes:
        pool = pools.get(pool_of.get(node.name, ""))
        if (pool is None and node.name in ambiguous) or not scope.contains(node, pool):
            continue
        change = node_change(node, pool, pods or PodsByNode(), held_back, repair=scope.repairs)
        if change is None:
            continue
        needs_pods = needs_pods or (pods is None and depends_on_pods(change, node))
        by_queue.setdefault(change.queue, []).append(change)
        if pool is not None and changes_sharing_silently(node, pool, change.edit):
            unshared[pool.name] = unshared.get(pool.name, 0) + 1
    unready = {node.name for node in nodes if not node.ready}
    all_changes = [change for changes in by_queue.values() for change in changes]
    not_ready = {change.node for change in all_changes if change.rolling and change.node in unready}
    chosen: list[NodeChange] = []
    limited: list[str] = []
    for name, changes in by_queue.items():
        possible = [change for change in changes if change.node not in not_ready]
        of_this_run, remaining = limit_changes(possible, len(membership.by_pool.get(name, changes)))
        chosen += of_this_run
        limited += remaining
    named = {label: _entries_named_by(label, nodes, chosen) for label in (CONFIG_LABEL, MIG_CONFIG_LABEL)}
    return ChangePlan(
        unfit=_unfit(nodes, chosen, pods) if pods is not None else (),
        node_changes=tuple(sorted(chosen, key=lambda change: change.node)),
        pool_of=pool_of,
        device_plugin=device_plugin_entries(plan.config.data, named[CONFIG_LABEL], configmaps.device_plugin),
        mig=mig_entries(plan.mig, named[MIG_CONFIG_LABEL], configmaps.mig, configmaps.generated),
        held_back=frozenset(held_back),
        limited=tuple(sorted(limited)),
        not_ready=tuple(sorted(not_ready)),
        needs_pods=needs_pods,
        releases=ReleasedNodes(
            changes=tuple(change for change in all_changes if change.released_from is not None),
            unclaimed=_unclaimed(nodes, pool_of, ambiguous) if scope.state == PRESENT else {},
            pools_without_nodes=frozenset(pools) - {name for name, members in membership.by_pool.items() if members},
            unshared=unshared if scope.state in (PRESENT, NEW_NODES) else {},
            managed=sum(1 for node in nodes if node.name in pool_of and is_managed(node)),
        ),
    )


def _unfit(nodes: t.Sequence[Node], changes: t.Iterable[NodeChange], pods: PodsByNode) -> tuple[UnfitWorkload, ...]:
    by_name = {node.name: node for node in nodes}
    after = {
        change.node: node_after(
            by_name[change.node], change.pool, change.transition, change.edit.labels if change.edit else None
        )
        for change in changes
        if change.transition.kind != LABELS
    }
    return unfit_workloads(pods.demands, map(node_before, nodes), after, MAX_LISTED) if after else ()


def _unclaimed(nodes: t.Iterable[Node], pool_of: t.Mapping[str, str], ambiguous: t.Collection[str]) -> dict[str, str]:
    """Return every managed node that no declared pool claims, inside or outside the run's scope, with the pool in its label."""
    return {
        node.name: node.pin
        for node in nodes
        if node.name not in pool_of
        and node.name not in ambiguous
        and is_managed(node)
        and release_edit(node) is not None
    }


def _entries_named_by(label: str, nodes: t.Iterable[Node], changes: t.Iterable[NodeChange]) -> set[str]:
    """The names of the entries that the nodes' labels select after these changes."""
    changed = {change.node: change.edit.labels for change in changes if change.edit}
    names = (changed.get(node.name, {}).get(label, node.labels.get(label)) for node in nodes)
    return {name for name in names if name}
