# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings the nodes of a cluster to the sharing their pools declare: at once where nobody feels it, else turn by turn."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field

from ..cluster_state.node import parse
from ..cluster_state.pool_edit import last_good, node_edit
from ..cluster_state.pool_release import is_cut
from ..common.parallel import Outcome, is_fatal, run_bounded
from ..drain.drainer import progress_by_node
from ..kube.errors import ApiError
from ..kube.node_patcher import patch_node
from ..kube.paths import NODES
from ..schema import rollout
from . import late_labels
from .configmap_refresh import refresh
from .mig_manager import ensure_config_read
from .node_result import BROKEN_OFF, LEFT, ROLLED_BACK, NodeResult, RunnerContext
from .node_runner import NodeRunner
from .rolling_update import pool_queues, run_rolling_update
from .watched_nodes import WatchedNodes

if t.TYPE_CHECKING:
    from ..cluster_state.node_check import Finding
    from ..cluster_state.ownership import NodeEdit
    from ..common.progress import Progress
    from ..common.wait import Since
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..pools.plan import Plan, PoolPlan
    from .node_change import NodeChange
    from .reader import FleetState, StateReader
    from .reboot import Rebooter
    from .rolling_update import RollingResult
    from .scope import Scope


@dataclass
class RolloutResult:
    """What was sent so far; `steps` are those that were begun, with the pods that were in fact evicted."""

    changed: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    fates: dict[str, NodeResult] = field(default_factory=dict)
    steps: dict[str, dict[str, t.Any]] = field(default_factory=dict)
    not_begun: list[str] = field(default_factory=list)
    refreshed_pods: int = 0
    # Nodes whose gpu-feature-discovery was started again, besides those that took a turn.
    rediscovered: set[str] = field(default_factory=set)
    added: list[str] = field(default_factory=list)
    collected: list[str] = field(default_factory=list)

    @property
    def any(self) -> bool:
        """Whether anything was changed."""
        return bool(self.changed or self.added or self.collected or self.rediscovered)

    def named(self, *outcomes: str) -> list[str]:
        """The nodes with which it ended so."""
        return sorted(name for name, fate in self.fates.items() if fate.outcome in outcomes)

    def note(self, of: NodeChange, fate: NodeResult) -> None:
        """Count one node's turn."""
        self.fates[of.node] = fate
        self.steps[of.node] = {**of.told(), "evicts": fate.evicted}
        if fate.changed:
            self.changed.add(of.node)
        if fate.failed:
            self.failed[of.node] = f"{fate.failed}{_AFTER.get(fate.outcome, '')}"


_AFTER = {
    ROLLED_BACK: " (it is back on its last good profile)",
    LEFT: " (it is left cordoned and tainted; a run again goes on with it)",
    BROKEN_OFF: " (it is left cordoned; a run again goes on with it)",
}


@dataclass(frozen=True)
class RolloutContext:
    """What a rollout needs of its surroundings: the module's, or a test's."""

    run_id: str
    progress: Progress
    rebooter: Rebooter
    tell: t.Callable[[Finding], str]
    since: Since
    wait_timeout: float


class Rollout:
    """One plan on one cluster; keeps count of what was done, so that a failure tells how far it came."""

    def __init__(self, client: Client, plan: Plan, reader: StateReader, scope: Scope, ways: RolloutContext) -> None:
        """Send nothing yet."""
        self._client = client
        self._plan = plan
        self._reader = reader
        self._scope = scope
        self._ways = ways
        self.done = RolloutResult()

    def apply(self, fleet: FleetState, lease: Lease) -> None:
        """Send what differs, in the order in which the agents can follow it; one bad node does not stop the others."""
        changes = fleet.profile
        self.done.added.extend(self._reader.configs.add(changes, lease))
        if changes.refreshed:
            values = {name: f"{_key(fleet, name)} {self._ways.run_id}" for name in changes.refreshed}
            self.done.refreshed_pods += refresh(self._client, self._plan.config.namespace, values, lease)
        if changes.renamed:
            named = [fleet.nodes[name] for name in changes.renamed if name in fleet.nodes]
            ensure_config_read(self._client, self._plan.mig.namespace, named, lease, self._ways.progress)
        self._patch(fleet, lease)
        if changes.turns:
            self._take_turns(fleet, lease)

    def rediscover(self, nodes: t.Collection[str], lease: Lease) -> None:
        """Have the labels of these nodes written again, which do not say what the nodes offer."""
        late_labels.restart(self._client, self._plan.config.namespace, nodes, lease)
        self.done.rediscovered.update(nodes)

    def collect(self, fleet: FleetState, lease: Lease) -> None:
        """Take out the entries that no node names any more."""
        self.done.collected.extend(self._reader.configs.collect(fleet.profile, lease))

    def preview(self, fleet: FleetState) -> str | None:
        """Let the server check the ConfigMap and one node of each pool without keeping them; what it did not check."""
        changes = fleet.profile
        try:
            self._reader.configs.add(changes, dry_run=True)
            samples = {fleet.profile.pool_of.get(edit.name, ""): edit for edit in changes.edits}
            for sample in samples.values():
                self._client.strategic_merge(f"{NODES}/{sample.name}", sample.patch, dry_run=True)
        except ApiError as error:
            if not error.forbidden:
                raise
            return f"not checked by the server: {error.message}"
        return None

    def give_up(self, fleet: FleetState, findings: t.Mapping[str, Finding], lease: Lease) -> None:
        """Take back, or leave with the reason, what was changed at once in this run and did not become as declared.

        A node that had no profile with which it was seen to work keeps the new one: there is nothing to go back to.
        """
        turns = {of.node for of in fleet.profile.turns}
        failed = [
            of
            for of in fleet.profile.steps
            if of.node in findings and of.node in self.done.changed - turns and of.pool and _has_a_way(fleet, of)
        ]
        if not failed:
            return
        with WatchedNodes(self._client, fleet.nodes, fleet.resource_version) as live:
            tools = self._tools(fleet, live, lease)
            stories = {of.node: self._ways.tell(findings[of.node]) for of in failed}
            calls = [(of.node, functools.partial(NodeRunner(tools, of).end_badly, stories[of.node])) for of in failed]
            for of, outcome in zip(failed, run_bounded(calls, stop=lease.lost), strict=True):
                if outcome.error is not None:
                    raise outcome.error
                if outcome.value is not None:
                    self.done.note(of, outcome.value)

    def _take_turns(self, fleet: FleetState, lease: Lease) -> None:
        steps = fleet.profile.turns
        sizes = {name: len(members) for name, members in fleet.membership.by_pool.items()}
        by_name = {of.node: of for of in steps}
        with WatchedNodes(self._client, fleet.nodes, fleet.resource_version) as live:
            tools = self._tools(fleet, live, lease)

            def on_done(turns: RollingResult) -> None:
                self._ways.progress.say("nodes changed one after the other", len(turns.fates), len(steps))

            begun: dict[str, NodeRunner] = {}

            def take(of: NodeChange) -> NodeResult:
                begun[of.node] = NodeRunner(tools, of)
                return begun[of.node].take()

            turns = run_rolling_update(pool_queues(steps, sizes), take, on_done)
        if turns.error is not None:
            for name in begun.keys() - turns.fates.keys():
                turns.fates[name] = begun[name].broken_off(turns.error)
        for name, fate in turns.fates.items():
            self.done.note(by_name[name], fate)
        self.done.not_begun += turns.not_begun
        if turns.error is not None:
            raise turns.error

    def _tools(self, fleet: FleetState, live: WatchedNodes, lease: Lease) -> RunnerContext:
        return RunnerContext(
            client=self._client,
            lease=lease,
            live=live,
            look=self._reader.look,
            tell=self._ways.tell,
            since=self._ways.since,
            say=progress_by_node(self._ways.progress),
            reboot=self._ways.rebooter,
            held=fleet.profile.held,
            namespace=self._plan.config.namespace,
            wait_timeout=self._ways.wait_timeout,
            repair=self._scope.repairs,
        )

    def _patch(self, fleet: FleetState, lease: Lease) -> None:
        changes, edits = fleet.profile, fleet.profile.at_once
        told = {of.node: of.told() for of in changes.steps if not of.turn}
        sent = 0

        def on_done(outcome: Outcome[bool]) -> None:
            nonlocal sent
            sent += 1
            if outcome.ok and outcome.value:
                self.done.changed.add(outcome.name)
                self.done.steps[outcome.name] = told[outcome.name]
            elif outcome.error is not None and not is_fatal(outcome.error):
                self.done.failed[outcome.name] = str(outcome.error)
            self._ways.progress.say("nodes labelled", sent, len(edits))

        calls = [(edit.name, self._patcher(edit, fleet.pool(edit.name), changes.held, lease)) for edit in edits]
        for outcome in run_bounded(calls, on_done=on_done, stop=lease.lost):
            if outcome.error is not None and is_fatal(outcome.error):
                raise outcome.error
        lease.check()

    def _patcher(
        self, edit: NodeEdit, pool: PoolPlan | None, held: t.Collection[str], lease: Lease
    ) -> t.Callable[[], bool]:
        def patch() -> bool:
            drain_first = False

            def compute(raw: t.Mapping[str, t.Any]) -> NodeEdit | None:
                nonlocal drain_first
                node = parse(raw)
                wanted = node_edit(node, pool, held)
                # The next list of the nodes finds a node that has to be drained first.
                drain_first = wanted is not None and pool is None and is_cut(node)
                return None if drain_first else wanted

            status = patch_node(self._client, edit, compute, lease.check).status
            return status == "changed" or (status == "unchanged" and not drain_first)

        return patch


def _key(fleet: FleetState, name: str) -> str:
    """The configurations that a node's agents are to read."""
    pool = fleet.pool(name)
    return f"{pool.on(name).config_key} {pool.on(name).mig_key}".strip() if pool else "none"


def _has_a_way(fleet: FleetState, of: NodeChange) -> bool:
    node = fleet.nodes.get(of.node)
    if node is None or of.pool is None:
        return False
    return of.pool.rollout.on_failure == rollout.LEAVE or last_good(node) is not None
