# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The changes that bring a set of nodes to the sharing that their pools declare (pure): diff, check result and plan."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.names import CONFIG_LABEL, GPUS_ANNOTATION, MIG_CONFIG_LABEL, MIG_STATE_LABEL
from ..fleet import expect
from ..fleet.generated import NOTHING, Generated
from ..fleet.node import Node
from ..fleet.ownership import POOLS, NodeEdit, edit, noted, spelled
from ..modes import mig
from .entries import ConfigMap, Entries, entries
from .mig_entries import MigEntries, mig_entries

if t.TYPE_CHECKING:
    from ..pools.membership import Membership
    from ..pools.plan import Plan, PoolPlan

DIFF_LIMIT = 100
# The state is about the configuration before; left there it would be taken for that of the new one.
_STALE = {MIG_CONFIG_LABEL: MIG_STATE_LABEL}


@dataclass(frozen=True)
class Profile:
    """All that differs from what the pools declare; nothing of it is sent when it is empty."""

    edits: tuple[NodeEdit, ...]
    pool_of: t.Mapping[str, str]
    refreshed: tuple[str, ...]
    entries: Entries
    mig_entries: MigEntries
    # The taints, as spelled(), that are not put on more nodes than have them.
    held: frozenset[str] = frozenset()

    @property
    def changed(self) -> bool:
        """Whether there is anything to send."""
        return bool(self.edits) or self.entries.changed or self.mig_entries.changed

    @property
    def released(self) -> list[str]:
        """The nodes that belong to no pool any more and give back what is ours."""
        return [node.name for node in self.edits if node.name not in self.pool_of]

    @property
    def cut(self) -> list[str]:
        """The nodes that get another MIG configuration."""
        return [node.name for node in self.edits if node.labels.get(MIG_CONFIG_LABEL)]

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
        if self.edits:
            shown = self.edits[:DIFF_LIMIT]
            before["nodes"] = {node.name: node.before for node in shown}
            after["nodes"] = {node.name: node.after for node in shown}
            if len(self.edits) > len(shown):
                after["nodes_not_shown"] = len(self.edits) - len(shown)
        return before, after


@dataclass(frozen=True)
class ConfigMaps:
    """What agents read: the device plugin's ConfigMap and the MIG manager's; None: not there (or of no interest)."""

    plugin: ConfigMap | None = None
    mig: ConfigMap | None = None
    generated: Generated = NOTHING


def _needs_a_copy(change: NodeEdit) -> bool:
    return bool(change.labels.get(CONFIG_LABEL) or change.labels.get(MIG_CONFIG_LABEL))


def node_edit(node: Node, pool: PoolPlan | None, held: t.Collection[str] = ()) -> NodeEdit | None:
    """What makes a node a member of the pool (of none: what gives back all that is ours), or None when it is.

    A held taint is not put on the node, and stays where the node has it.
    """
    if pool is None:
        return edit(node, POOLS, drop_others=True, annotations={GPUS_ANNOTATION: None}, stale=_STALE)
    there = {spelled(taint) for taint in node.taints}
    taints = [taint for taint in pool.taints if spelled(taint) in there or spelled(taint) not in held]
    cut = expect.mig_config(node, pool, ours=MIG_CONFIG_LABEL in noted(node.annotations, POOLS.labels))
    counted = str(expect.gpus(node, pool)) if pool.sharing.strategy == mig.SINGLE and node.discovered else None
    return edit(
        node,
        POOLS,
        labels={**pool.node_labels, **({MIG_CONFIG_LABEL: cut} if cut else {})},
        taints=taints,
        drop_others=True,
        annotations={GPUS_ANNOTATION: counted},
        stale=_STALE,
    )


def held_taints(profile: Profile, nodes: t.Mapping[str, Node], pools: t.Iterable[PoolPlan]) -> dict[str, list[str]]:
    """By pool, its held taints that a node of it lacks."""
    found: dict[str, list[str]] = {}
    for pool in pools:
        held = [text for text in map(spelled, pool.taints) if text in profile.held]
        members = (
            [nodes[name] for name, of in profile.pool_of.items() if of == pool.name and name in nodes] if held else []
        )
        lacking = [text for text in held if any(text not in map(spelled, node.taints) for node in members)]
        if lacking:
            found[pool.name] = lacking
    return found


def profile(
    plan: Plan,
    nodes: t.Sequence[Node],
    membership: Membership,
    configmaps: ConfigMaps,
    held: t.Collection[str] = (),
) -> Profile:
    """Compare every node of the cluster with its pool; a node of no pool is touched only where something on it is ours.

    A node that several pools claim is left as it is: the user has to say which of them it belongs to.
    """
    pools = {pool.name: pool for pool in plan.pools}
    pool_of = {node: pool for pool, members in membership.by_pool.items() for node in members}
    unclear = {*membership.overlaps, *membership.undiscovered}
    edits: list[NodeEdit] = []
    named: set[str] = set()
    cut: set[str] = set()
    for node in nodes:
        of_pool = pools.get(pool_of.get(node.name, ""))
        change = node_edit(node, of_pool, held) if of_pool or node.name not in unclear else None
        if change:
            edits.append(change)
        labels = {**node.labels, **(change.labels if change else {})}
        if labels.get(CONFIG_LABEL):
            named.add(t.cast("str", labels[CONFIG_LABEL]))
        if labels.get(MIG_CONFIG_LABEL):
            cut.add(t.cast("str", labels[MIG_CONFIG_LABEL]))
    return Profile(
        edits=tuple(sorted(edits, key=lambda change: change.name)),
        pool_of=pool_of,
        refreshed=tuple(sorted(change.name for change in edits if _needs_a_copy(change))),
        entries=entries(plan.config.data, named, configmaps.plugin),
        mig_entries=mig_entries(plan.mig, cut, configmaps.mig, configmaps.generated),
        held=frozenset(held),
    )
