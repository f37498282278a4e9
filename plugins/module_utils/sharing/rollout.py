# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends the changes: first the ConfigMaps, then parallel patches of nodes whose pods are not affected, then a rolling update."""

from __future__ import annotations

import functools
import typing as t
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from ..cluster_state.node import parse_node
from ..cluster_state.pool_edit import last_good, membership_edit
from ..cluster_state.pool_release import is_partitioned
from ..common.parallel import Outcome, is_fatal, run_bounded
from ..drain.drainer import progress_by_node
from ..drain.eviction import require_permission_to_evict
from ..kube.access_review import MissingPermission, Permission
from ..kube.errors import ApiError
from ..kube.node_patcher import PatchStatus, patch_node
from ..kube.objects import NOT_CHECKED
from ..schema import rollout
from ..schema.operand_labels import reason_without_discovery
from . import operand_restart
from .diagnosis import diagnose
from .node_change import NodeChange, declared_edit, in_rollout_order
from .node_runner import NodeRunner
from .result import RolloutResult
from .run_context import INTERRUPTED, QUARANTINED, NodeResult, RolloutContext, RunContext
from .watched_nodes import WatchedNodes

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..cluster_state.node_check import NodeDrift
    from ..cluster_state.ownership import NodeEdit
    from ..kube.lease import Lease
    from ..pools.plan import PoolPlan
    from .reader import ClusterState
# The threads mostly wait; with more of them, they would only wait for each other.
_MAX_THREADS = 64


class Rollout:
    """Applies one plan to one cluster; `done` records the changes that were sent, so that they can be reported after a failure.

    nodes: the nodes after the last call of apply(), even if it failed. They are up to date only if the call ran a rolling update.
    """

    def __init__(self, context: RunContext) -> None:
        """Store the context; no request is sent yet."""
        self._context = context
        self.done = RolloutResult()
        self.nodes: t.Mapping[str, Node] = {}
        # The namespaces in which this user may evict pods.
        self._evictable: set[str] = set()

    def require_permission_to_evict(self, state: ClusterState) -> None:
        """Raise MissingPermission if the changes evict pods that this user may not evict; the server is asked only once about each namespace."""
        evictions = state.changes.evictions
        namespaces = {pod.namespace for pods in evictions.values() for pod in pods}
        if not namespaces <= self._evictable:
            require_permission_to_evict(self._context.client, evictions)
            self._evictable |= namespaces

    def apply(self, state: ClusterState, lease: Lease) -> None:
        """Send the changes in the order that NVIDIA's operands require; a failure on one node does not stop the changes to others."""
        self.nodes = state.nodes
        self.require_permission_to_evict(state)
        changes, context = state.changes, self._context
        self.done.added.extend(self._context.reader.configmaps.add_entries(changes, lease))
        if changes.nodes_to_refresh:
            values = {name: f"{_configuration(state, name)} {context.run_id}" for name in changes.nodes_to_refresh}
            self.done.refreshed_pods += operand_restart.refresh_configmaps(
                context.client, context.namespace, values, lease
            )
        if changes.immediate_mig_nodes:
            nodes = [state.nodes[name] for name in changes.immediate_mig_nodes if name in state.nodes]
            operand_restart.restart_mig_manager(
                context.client, context.plan.mig.namespace, nodes, lease, context.progress
            )
        self._patch_immediate(state, lease)
        if changes.rolling_changes:
            self._run_rolling_update(state, lease)

    def restart_discovery(self, nodes: t.Collection[str], lease: Lease) -> None:
        """Restart gpu-feature-discovery on nodes whose labels do not match their resources."""
        operand_restart.restart_discovery(self._context.client, self._context.namespace, nodes, lease)
        self.done.discovery_restarted.update(nodes)

    def dry_run(self, state: ClusterState) -> str | None:
        """Let the server check the ConfigMaps, one node of each pool, and the permission to evict; returns the reason if something was not checked."""
        changes = state.changes
        try:
            self._context.reader.configmaps.add_entries(changes, dry_run=True)
            samples = {changes.pool_of.get(edit.name, ""): edit for edit in changes.edits}
            statuses = [self._check_edit(edit, state) for edit in samples.values()]
        except ApiError as error:
            if not error.lacks_right:
                raise
            return NOT_CHECKED
        if "unchecked" in statuses:
            return NOT_CHECKED
        try:
            self.require_permission_to_evict(state)
        except MissingPermission:
            # Without a dry run of an edit, it is unknown whether this user may change nodes at all.
            if statuses or Permission("patch", "nodes").is_granted(self._context.client):
                raise
            return NOT_CHECKED
        return None

    def _check_edit(self, edit: NodeEdit, state: ClusterState) -> PatchStatus:
        pool, repair = state.pool_of(edit.name), self._context.scope.repairs

        def fresh_edit(raw: t.Mapping[str, t.Any]) -> NodeEdit | None:
            return declared_edit(parse_node(raw), pool, state.changes.held_back, repair=repair)

        return patch_node(self._context.client, edit, fresh_edit, lambda: None, dry_run=True).status

    def roll_back_failed(self, state: ClusterState, findings: t.Mapping[str, NodeDrift], lease: Lease) -> None:
        """Roll back or quarantine nodes that this run patched outside the rolling update and that do not match their declaration.

        A node keeps the new configuration if it has no last good configuration, or if its labels disable the operands.
        """
        rolling = {change.node for change in state.changes.rolling_changes}
        patched = self.done.written - rolling
        failed = [
            change
            for change in state.changes.node_changes
            if change.node in patched and change.node in findings and _can_roll_back(state, change)
        ]
        if not failed:
            return
        with WatchedNodes(self._context.client, state.nodes, state.resource_version) as nodes:
            context = self._node_context(state, nodes, lease)
            messages = {change.node: diagnose(self._context, {change.node: findings[change.node]}) for change in failed}
            calls = [
                (change.node, functools.partial(NodeRunner(context, change).fail_immediate, messages[change.node]))
                for change in failed
            ]
            errors: list[Exception] = []
            for change, outcome in zip(failed, run_bounded(calls, stop=lease.lost), strict=True):
                if outcome.value is not None:
                    self.done.add(change, outcome.value)
                error = outcome.value.error if outcome.value is not None else outcome.error
                if error is not None:
                    errors.append(error)
            # Other nodes may have been rolled back despite the error, so all results are recorded before it is raised.
            if errors:
                raise errors[0]

    def _run_rolling_update(self, state: ClusterState, lease: Lease) -> None:
        changes = state.changes.rolling_changes
        sizes = {name: len(members) for name, members in state.membership.by_pool.items()}
        with WatchedNodes(self._context.client, state.nodes, state.resource_version) as nodes:
            context = self._node_context(state, nodes, lease)

            def on_done(results: t.Sequence[NodeResult]) -> None:
                failed = sum(bool(result.failure) for result in results)
                completed = sum(result.completed for result in results)
                progress = self._context.progress
                progress.report("nodes changed in the rolling update", completed, len(changes), failed=failed)

            queues = pool_queues(changes, sizes)
            try:
                run_rolling_update(queues, lambda change: NodeRunner(context, change).run(), self.done, on_done)
            finally:
                self.nodes = nodes.all()

    def _node_context(self, state: ClusterState, nodes: WatchedNodes, lease: Lease) -> RolloutContext:
        return RolloutContext(
            **vars(self._context),
            lease=lease,
            nodes=nodes,
            held_back=state.changes.held_back,
            report=progress_by_node(self._context.progress),
        )

    def _patch_immediate(self, state: ClusterState, lease: Lease) -> None:
        changes, edits = state.changes, state.changes.immediate_edits
        steps = {change.node: change.as_dict() for change in changes.node_changes if not change.rolling}
        failed: list[str] = []

        def on_done(outcome: Outcome[bool], finished: int) -> None:
            error = outcome.error
            if outcome.value or (isinstance(error, ApiError) and error.maybe_applied):
                self.done.written.add(outcome.name)
                self.done.steps[outcome.name] = steps[outcome.name]
            if error is not None:
                failed.append(outcome.name)
                if not is_fatal(error):
                    self.done.failed[outcome.name] = str(error)
            progress = self._context.progress
            progress.report("nodes labeled", finished - len(failed), len(edits), failed=len(failed))

        calls = [
            (edit.name, functools.partial(self._patch_node, edit, state.pool_of(edit.name), changes.held_back, lease))
            for edit in edits
        ]
        for outcome in run_bounded(calls, on_done=on_done, stop=lease.lost):
            if outcome.error is not None and is_fatal(outcome.error):
                raise outcome.error
        lease.check()

    def _patch_node(self, edit: NodeEdit, pool: PoolPlan | None, held_back: t.Collection[str], lease: Lease) -> bool:
        """Patch the node; returns whether it was patched or no longer needs a patch."""
        drain_first = False

        def fresh_edit(raw: t.Mapping[str, t.Any]) -> NodeEdit | None:
            nonlocal drain_first
            node = parse_node(raw)
            fresh = membership_edit(node, pool, held_back)
            # A node that must be drained first is handled after the nodes are listed again.
            drain_first = fresh is not None and pool is None and is_partitioned(node)
            return None if drain_first else fresh

        status = patch_node(self._context.client, edit, fresh_edit, lease.check).status
        return status == "changed" or (status == "unchanged" and not drain_first)


def _configuration(state: ClusterState, name: str) -> str:
    """The names of the configurations that the operands of a node must read."""
    pool = state.pool_of(name)
    return f"{pool.for_node(name).config_key} {pool.for_node(name).mig_key}".strip() if pool else "none"


def _can_roll_back(state: ClusterState, change: NodeChange) -> bool:
    node = state.nodes.get(change.node)
    if node is None or change.pool is None:
        return False
    if change.pool.rollout.on_failure == rollout.LEAVE:
        return True
    # Without operands, the node would not offer the resources of its last good configuration either.
    return last_good(node) is not None and not reason_without_discovery(node.labels)


@dataclass
class PoolQueue:
    """The queue of one pool's changes, which limits parallel changes and may pause after a failure."""

    waiting: deque[NodeChange]
    max_unavailable: int
    pause_on_failure: bool
    running: int = 0
    unavailable: int = 0
    paused: bool = False

    @property
    def limiting_option(self) -> str:
        """The option that prevented the remaining changes from starting, unless an error has stopped the rolling update."""
        return "rollout.pause_on_failure" if self.paused else "rollout.max_unavailable"

    def next(self) -> NodeChange | None:
        """The next change that may start, if any; new nodes do not count against max_unavailable."""
        if not self.waiting or self.paused:
            return None
        if self.waiting[0].is_new or self.running + self.unavailable < self.max_unavailable:
            change = self.waiting.popleft()
            self.running += not change.is_new
            return change
        return None

    def ended(self, change: NodeChange, result: NodeResult) -> None:
        """Record the end of a change; a node that remains cordoned counts as unavailable."""
        self.running -= not change.is_new
        self.unavailable += result.outcome in (QUARANTINED, INTERRUPTED) and not change.is_new
        self.paused = self.paused or bool(result.failure and self.pause_on_failure)


def pool_queues(changes: t.Iterable[NodeChange], sizes: t.Mapping[str, int]) -> list[PoolQueue]:
    """One queue per pool, with new nodes first; `sizes` contains the number of nodes of each pool."""
    by_pool: dict[str, list[NodeChange]] = {}
    for change in changes:
        by_pool.setdefault(change.queue, []).append(change)
    queues = []
    for name, listed in sorted(by_pool.items()):
        ordered = sorted(in_rollout_order(listed), key=lambda change: not change.is_new)
        # Released nodes may have different recorded settings; the most cautious settings are used.
        max_unavailable = min(change.rollout.max_parallel(sizes.get(name, len(listed))) for change in listed)
        pause_on_failure = any(change.rollout.pause_on_failure for change in listed)
        queues.append(PoolQueue(deque(ordered), max_unavailable, pause_on_failure))
    return queues


def run_rolling_update(
    queues: t.Sequence[PoolQueue],
    run: t.Callable[[NodeChange], NodeResult],
    total: RolloutResult,
    on_done: t.Callable[[t.Sequence[NodeResult]], None],
) -> None:
    """Run all changes and add them to the total result; `on_done` gets the results so far.

    After a result with an error, no more changes are started, and the error is raised once the running changes have finished.
    """
    running: dict[Future[NodeResult], tuple[PoolQueue, NodeChange]] = {}
    results: list[NodeResult] = []
    error = None
    with ThreadPoolExecutor(max_workers=_MAX_THREADS) as threads:
        while True:
            for queue in queues:
                while error is None and len(running) < _MAX_THREADS and (change := queue.next()) is not None:
                    running[threads.submit(run, change)] = queue, change
            if not running:
                break
            done, dummy = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                queue, change = running.pop(future)
                result = future.result()
                error = error or result.error
                results.append(result)
                total.add(change, result)
                queue.ended(change, result)
            on_done(results)
    total.not_started.update({change.node: queue.limiting_option for queue in queues for change in queue.waiting})
    if error is not None:
        raise error
