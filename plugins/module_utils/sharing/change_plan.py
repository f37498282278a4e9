# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The changes that bring a set of nodes to the sharing that their pools declare (pure): diff, check result and plan."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.names import CONFIG_LABEL, MIG_CONFIG_LABEL
from ..catalog.taints import format_taint
from ..cluster_state.generated_mig_config import NOTHING, Generated
from ..cluster_state.mig_capacity import NOTHING as UNKNOWN
from ..cluster_state.mig_capacity import MigCapacity
from ..cluster_state.node import Node
from ..cluster_state.ownership import NodeEdit
from ..cluster_state.pool_edit import node_edit
from ..cluster_state.pool_release import is_abandoned, is_managed, left_pool, release_edit
from ..drain.pods_on_nodes import PodsByNode
from .device_plugin_entries import ConfigMap, DevicePluginEntries
from .device_plugin_entries import device_plugin_entries as entries
from .mig_entries import MigEntries, mig_entries
from .node_change import NodeChange, limit_changes, needs_pods, node_change
from .released_nodes import ReleasedNodes, stops_sharing_silently
from .scope import EVERYTHING, NEW_NODES, PRESENT, Scope

if t.TYPE_CHECKING:
    from ..pools.membership import Membership
    from ..pools.plan import Plan, PoolPlan

DIFF_LIMIT = 100


@dataclass(frozen=True)
class ChangePlan:
    """All that differs from what the pools declare; nothing of it is sent when it is empty.

    `steps` are those of this run. `limited` nodes are left for another run (rollout.limit), `away` ones have to be ready first.
    `asks`: who is on the nodes may change the steps, and has not been looked at. `compared`: the change of each node, None where
    it is as declared.
    """

    steps: tuple[NodeChange, ...]
    pool_of: t.Mapping[str, str]
    entries: DevicePluginEntries
    mig_entries: MigEntries
    # The taints, as spelled(), that are not put on more nodes than have them.
    held: frozenset[str] = frozenset()
    limited: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    asks: bool = False
    compared: t.Mapping[str, NodeEdit | None] = field(default_factory=dict)
    releases: ReleasedNodes = field(default_factory=ReleasedNodes)

    @property
    def edits(self) -> tuple[NodeEdit, ...]:
        """The changes of nodes, in the order of their names."""
        return tuple(of.edit for of in self.steps if of.edit)

    @property
    def turns(self) -> list[NodeChange]:
        """The steps that are made one after the other."""
        return [of for of in self.steps if of.turn]

    @property
    def at_once(self) -> list[NodeEdit]:
        """The changes that nobody feels."""
        return [of.edit for of in self.steps if of.edit and not of.turn]

    @property
    def changed(self) -> bool:
        """Whether there is anything to send."""
        return bool(self.steps) or self.entries.changed or self.mig_entries.changed

    @property
    def released(self) -> list[str]:
        """The nodes that belong to no pool any more and give back what is ours."""
        return [of.node for of in self.steps if of.leaves is not None]

    @property
    def refreshed(self) -> list[str]:
        """The nodes on which agents are to read a configuration that may be new."""
        return [edit.name for edit in self.edits if edit.labels.get(CONFIG_LABEL) or edit.labels.get(MIG_CONFIG_LABEL)]

    @property
    def renamed(self) -> list[str]:
        """The nodes that get another MIG configuration without a turn."""
        return [edit.name for edit in self.at_once if edit.labels.get(MIG_CONFIG_LABEL)]

    @property
    def new_taints(self) -> set[str]:
        """The taints, as spelled(), that some node gets."""
        return {
            taint
            for node in self.edits
            for taint in set(node.after.get("taints", ())) - set(node.before.get("taints", ()))
        }

    def diff(self) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
        """Before and after, for up to DIFF_LIMIT nodes: of thousands nobody reads more."""
        before: dict[str, t.Any] = {}
        after: dict[str, t.Any] = {}
        if self.entries.changed:
            before["configmap"], after["configmap"] = dict(self.entries.live), self.entries.after
        if self.mig_entries.changed:
            before["mig_configmap"], after["mig_configmap"] = dict(self.mig_entries.live), self.mig_entries.after
        if self.steps:
            listed = self.steps[:DIFF_LIMIT]
            before["nodes"] = {of.node: _before(of) for of in listed}
            after["nodes"] = {of.node: _after(of) for of in listed}
            if len(self.steps) > len(listed):
                after["nodes_not_shown"] = len(self.steps) - len(listed)
        return before, after


def _before(of: NodeChange) -> dict[str, t.Any]:
    found = dict(of.edit.before) if of.edit else {}
    if of.marks:
        found["annotations"] = {**found.get("annotations", {}), **of.marks}
    return {**found, "pods": [user.shown for user in of.evicted]} if of.evicted else found


def _after(of: NodeChange) -> dict[str, t.Any]:
    found = dict(of.edit.after) if of.edit else {}
    if of.marks:
        found["annotations"] = dict(found.get("annotations", {}))
    return {**found, "pods": []} if of.evicted else found


@dataclass(frozen=True)
class ConfigMaps:
    """What agents read: the device plugin's ConfigMap and the MIG manager's; None: not there (or of no interest).

    `generated` is what the MIG manager has written for the nodes by itself, `offered` what it says of their GPUs.
    """

    plugin: ConfigMap | None = None
    mig: ConfigMap | None = None
    generated: Generated = NOTHING
    offered: MigCapacity = UNKNOWN


def held_taints(
    plan_changes: ChangePlan, nodes: t.Mapping[str, Node], pools: t.Iterable[PoolPlan]
) -> dict[str, list[str]]:
    """By pool, its held taints that a node of it lacks."""
    found: dict[str, list[str]] = {}
    for pool in pools:
        held = [text for text in map(format_taint, pool.taints) if text in plan_changes.held]
        members = (
            [nodes[name] for name, of in plan_changes.pool_of.items() if of == pool.name and name in nodes]
            if held
            else []
        )
        lacking = [text for text in held if any(text not in map(format_taint, node.taints) for node in members)]
        if lacking:
            found[pool.name] = lacking
    return found


def plan_changes(
    plan: Plan,
    nodes: t.Sequence[Node],
    membership: Membership,
    configmaps: ConfigMaps,
    held: t.Collection[str] = (),
    *,
    scope: Scope = EVERYTHING,
    asked: PodsByNode | None = None,
    left_out: t.Collection[str] = (),
    before: ChangePlan | None = None,
) -> ChangePlan:
    """Compare every node of the cluster with its pool; a node of no pool is touched only where something on it is ours.

    A node that several pools claim is left as it is: the user has to say which of them it belongs to. A node outside the
    scope is left, too, as are those that are `left_out` by name. `asked` says who is on the nodes; None: nobody has looked.
    `before` is what came of the same nodes when nobody had.
    """
    pools = {pool.name: pool for pool in plan.pools}
    pool_of = {node: pool for pool, members in membership.by_pool.items() for node in members}
    unclear = {*membership.overlaps, *membership.undiscovered}
    found: dict[str, list[NodeChange]] = {}
    asks = False
    known = before.compared if before else {}
    compared: dict[str, NodeEdit | None] = {}
    unshared: dict[str, int] = {}
    for node in nodes:
        pool = pools.get(pool_of.get(node.name, ""))
        if node.name in left_out or (pool is None and node.name in unclear) or not scope.holds(node, pool):
            continue
        edit = None
        if scope.repairs:
            edit = node_edit(node, None) if pool is None and is_abandoned(node) else None
        else:
            edit = known[node.name] if node.name in known else node_edit(node, pool, held)
            compared[node.name] = edit
        of = node_change(node, pool, edit, asked or PodsByNode(), repair=scope.repairs)
        if of is not None:
            asks = asks or (asked is None and needs_pods(of, node))
            found.setdefault(of.queue, []).append(of)
        if of is not None and pool is not None and stops_sharing_silently(node, pool, edit):
            unshared[pool.name] = unshared.get(pool.name, 0) + 1
    unready = {node.name for node in nodes if not node.ready}
    away = {of.node for listed in found.values() for of in listed if of.turn and of.node in unready}
    chosen: list[NodeChange] = []
    limited: list[str] = []
    for name, listed in found.items():
        there = [of for of in listed if of.node not in away]
        of_this_run, left = limit_changes(there, len(membership.by_pool.get(name, listed)))
        chosen += of_this_run
        limited += left
    named, cut = _named(nodes, chosen)
    return ChangePlan(
        steps=tuple(sorted(chosen, key=lambda of: of.node)),
        pool_of=pool_of,
        entries=entries(plan.config.data, named, configmaps.plugin),
        mig_entries=mig_entries(plan.mig, cut, configmaps.mig, configmaps.generated),
        held=frozenset(held),
        limited=tuple(sorted(limited)),
        away=tuple(sorted(away)),
        asks=asks,
        compared=compared,
        releases=ReleasedNodes(
            steps=tuple(of for listed in found.values() for of in listed if of.leaves is not None),
            unclaimed=_unclaimed(nodes, pool_of, unclear) if scope.state == PRESENT else {},
            emptied=frozenset(pools) - {name for name, members in membership.by_pool.items() if members},
            unshared=unshared if scope.state in (PRESENT, NEW_NODES) else {},
            managed=sum(1 for node in nodes if node.name in pool_of and is_managed(node)),
        ),
    )


def _unclaimed(nodes: t.Iterable[Node], pool_of: t.Mapping[str, str], unclear: t.Collection[str]) -> dict[str, str]:
    """Every managed node that the declared pools leave without a pool, whatever a run is restricted to: by name, the pool it is in."""
    return {
        node.name: left_pool(node)
        for node in nodes
        if node.name not in pool_of and node.name not in unclear and is_managed(node) and release_edit(node) is not None
    }


def _named(nodes: t.Iterable[Node], chosen: t.Iterable[NodeChange]) -> tuple[set[str], set[str]]:
    """The entries of the two ConfigMaps that the nodes' labels name at the end."""
    labels = {of.node: of.edit.labels for of in chosen if of.edit}
    found: tuple[set[str], set[str]] = (set(), set())
    for node in nodes:
        changed = labels.get(node.name, {})
        for names, key in zip(found, (CONFIG_LABEL, MIG_CONFIG_LABEL), strict=True):
            name = changed[key] if key in changed else node.labels.get(key)
            if name:
                names.add(name)
    return found
