# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes nodes in batches, and reports what was done."""

from __future__ import annotations

import collections
import functools
import typing as t
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from ..catalog.names import CONFIG_LABEL, CORDONED_ANNOTATION, FAILED_KEY, MIG_CONFIG_LABEL, MIG_STATE_LABEL
from ..catalog.taints import STARTUP_TAINT_KEY
from ..core.messages import MAX_LISTED, abbreviate
from ..core.waits import Outcome, WaitTimeout, is_fatal, run_bounded
from ..kube.errors import ApiError
from ..kube.objects import NOT_CHECKED, MissingPermission, Permission
from ..nodes.drain import drain_gpu_pods, progress_by_node, require_permission_to_evict
from ..nodes.impact import blocked_message
from ..nodes.node import Node, parse_node
from ..nodes.node_check import (
    CHANGING,
    FAILED,
    MAX_REASON,
    Patch,
    check_node,
    cordon_edit,
    node_merge_patch,
    not_ready_message,
    pause_clients,
    paused_operands,
    pool_resources,
    resume_clients,
    uncordon_edit,
)
from ..nodes.node_metadata import PatchStatus, patch_node
from ..nodes.ownership import awaited_nodes, is_undiscovered
from ..nodes.pool_edit import (
    LastGood,
    disable_mig_patch,
    is_partitioned,
    last_good,
    membership_edit,
    needs_verification,
)
from ..nodes.warnings import all_warnings, as_list, hidden_nodes
from ..schema.validators import LEAVE, reason_without_discovery
from ..sharing_modes import mig_parted
from ..sharing_modes.mig import format_layout
from .change_plan import (
    UNKNOWN,
    ChangePlan,
    NodeChange,
    declared_edit,
    held_back_taints,
    in_rollout_order,
    is_marked,
    node_change,
)
from .reader import (
    GONE,
    INTERRUPTED,
    QUARANTINED,
    ROLLED_BACK,
    UNCORDONED,
    NodeFailure,
    NodeResult,
    RolloutContext,
    RunContext,
    WatchedNode,
    WatchedNodes,
)
from .verification import (
    DISCOVERY_RESTARTED,
    NodeVerifier,
    diagnose,
    refresh_configmaps,
    restart_feature_discovery,
    restart_mig_manager,
    restart_mig_manager_of,
    untolerated_reasons,
)

if t.TYPE_CHECKING:
    from ..kube.lease import Lease
    from ..nodes.impact import UnfitWorkload
    from ..nodes.node_check import NodeDrift
    from ..nodes.ownership import NodeEdit
    from ..pools.plan import PoolPlan
    from .reader import ClusterState

# Builds the result of gpu_sharing, whose size does not grow with the number of nodes (pure).

_OUTCOMES = {
    ROLLED_BACK: " (it is back on its last good configuration)",
    QUARANTINED: " (it is left cordoned and tainted; the next run continues with it)",
    INTERRUPTED: " (it is left cordoned; the next run continues with it)",
}


@dataclass
class RolloutResult:
    """The changes that were made so far, or the predicted changes; `steps` contains the started changes with the evicted pods.

    written: the nodes that were patched or whose pods were evicted, including nodes that failed, were rolled back, or are gone.
    not_started: the nodes whose change was not started, each with the option that held it back.
    """

    written: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    results: dict[str, NodeResult] = field(default_factory=dict)
    steps: dict[str, dict[str, t.Any]] = field(default_factory=dict)
    not_started: dict[str, str] = field(default_factory=dict)
    refreshed_pods: int = 0
    # Nodes whose gpu-feature-discovery was restarted outside the rolling update.
    discovery_restarted: set[str] = field(default_factory=set)
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    predicted: bool = False

    @classmethod
    def predict(cls, changes: ChangePlan) -> RolloutResult:
        """The result of a run that makes all these changes."""
        return cls(
            written={change.node for change in changes.node_changes},
            results={change.node: NodeResult(change.node, repaired=change.stuck) for change in changes.node_changes},
            steps={change.node: change.as_dict() for change in changes.node_changes},
            added=[*changes.device_plugin.added, *changes.mig.added],
            removed=[*changes.device_plugin.removed, *changes.mig.removed],
            predicted=True,
        )

    @property
    def any(self) -> bool:
        """Whether the run has written anything, even if no change of a node was completed."""
        return bool(self.written or self.added or self.removed or self.refreshed_pods or self.discovery_restarted)

    @property
    def changed(self) -> set[str]:
        """The nodes whose change was completed."""
        return self.written - self.failed.keys() - {name for name, node in self.results.items() if not node.completed}

    @property
    def left_cordoned(self) -> list[str]:
        """The nodes that remain cordoned."""
        return self.nodes_with(QUARANTINED, INTERRUPTED)

    def nodes_with(self, *outcomes: str) -> list[str]:
        """The nodes with one of these outcomes."""
        return sorted(name for name, result in self.results.items() if result.outcome in outcomes)

    def add(self, change: NodeChange, result: NodeResult) -> None:
        """Add the result of one node."""
        self.results[change.node] = result
        self.steps[change.node] = {**change.as_dict(), "evicts": result.evicted}
        if result.written:
            self.written.add(change.node)
        if result.failure:
            self.failed[change.node] = f"{result.failure}{_OUTCOMES.get(result.outcome, '')}"


def build_result(
    state: ClusterState,
    findings: t.Mapping[str, NodeDrift],
    done: RolloutResult,
    unusual: t.Mapping[str, str],
    limit: int | None = MAX_LISTED,
) -> dict[str, t.Any]:
    """The result of the module with at most `limit` names in each list; `unusual` is the result of unusual_nodes()."""
    changed = done.changed
    pools = {}
    for pool in state.plan.pools:
        nodes = state.members(pool.name)
        pools[pool.name] = {
            "nodes": len(nodes),
            "changed": len({node.name for node in nodes} & changed),
            "verified": sum(1 for node in nodes if node.ready and check_node(node, pool) is None),
            **pool_resources(nodes, pool),
            **({"missing": dict(state.missing[pool.name])} if pool.name in state.missing else {}),
        }
    membership = state.membership
    return {
        "pools": pools,
        "changed_nodes": sorted(changed)[:limit],
        "changed_count": len(changed),
        "released_nodes": dict(_released(done)[:limit]),
        "change_counts": dict(sorted(collections.Counter(done.steps[name]["change"] for name in changed).items())),
        "steps": dict(sorted(done.steps.items())[:limit]),
        "failed": dict(sorted(done.failed.items())[:limit]),
        "rolled_back": done.nodes_with(ROLLED_BACK)[:limit],
        "left_cordoned": done.left_cordoned[:limit],
        "gone": done.nodes_with(GONE)[:limit],
        "not_started": sorted({*state.changes.limited, *done.not_started})[:limit],
        "repaired": dict(sorted(_repaired(done).items())[:limit]),
        "not_as_declared": [str(findings[name]) for name in sorted(findings)][:limit],
        "not_ready": _not_ready(state)[:limit],
        "unusual_nodes": as_list(unusual, limit),
        "held_back": held_back_taints(state.changes, state.nodes, state.plan.pools),
        "config_entries": {"added": list(done.added), "removed": list(done.removed)},
        "refreshed_pods": done.refreshed_pods,
        "overlaps": dict(sorted(membership.overlaps.items())[:limit]),
        "empty_pools": list(membership.empty),
        "undeclared_pins": {pool: names[:limit] for pool, names in membership.undeclared_pins.items()},
        "mismatched": {pool: names[:limit] for pool, names in membership.mismatched.items()},
    }


def _released(done: RolloutResult) -> list[tuple[str, str]]:
    """The released nodes, each with its pool."""
    steps = {name: done.steps[name] for name in sorted(done.changed)}
    return [(name, step["released_from"] or UNKNOWN) for name, step in steps.items() if "released_from" in step]


def _repaired(done: RolloutResult) -> dict[str, str]:
    """The problem that was repaired, by node."""
    repaired = {name: node.repaired for name, node in done.results.items() if node.repaired and not node.failure}
    return {**dict.fromkeys(done.discovery_restarted, DISCOVERY_RESTARTED), **repaired}


def _not_ready(state: ClusterState) -> list[str]:
    return sorted(name for name in state.changes.pool_of if name in state.nodes and not state.nodes[name].ready)


def after_discovery(state: ClusterState, failing: t.Collection[str] = ()) -> dict[str, t.Any]:
    """The nodes and pools whose changes are unknown before discovery: nodes without a model, except `failing` nodes, and pools without nodes."""
    awaited = awaited_nodes(state.plan.pools, state.nodes.values(), state.membership)
    nodes = [name for name in awaited if name not in failing]
    unknown = state.membership.empty if is_undiscovered(state.nodes.values()) else []
    if not nodes and not unknown:
        return {}
    return {"nodes": nodes[:MAX_LISTED], "nodes_count": len(nodes), "pools": list(unknown)}


def unfit_warnings(unfit: t.Sequence[UnfitWorkload]) -> t.Iterator[str]:
    """A warning about the workloads that no node can run after the changes."""
    if unfit:
        yield f"After the change, no node fits {len(unfit)} workload(s): {abbreviate(list(map(str, unfit)), separator='; ')}."


def warnings(state: ClusterState, done: RolloutResult, unusual: t.Mapping[str, str]) -> list[str]:
    """The warnings of a run or its prediction: warnings about the nodes and about the run's changes."""
    nodes = state.nodes.values()
    # A preview before discovery lists the empty pools in after_discovery().
    before_discovery = done.predicted and is_undiscovered(nodes)
    released: dict[str, list[str]] = {}
    for name, pool_name in _released(done):
        released.setdefault(pool_name, []).append(name)
    texts = [
        *all_warnings(
            nodes,
            state.membership,
            state.changes.released,
            unusual,
            run=True,
            before_discovery=before_discovery,
            hidden=hidden_nodes(state.plan, nodes, state.membership, unusual, before_discovery=before_discovery),
        ),
        *(
            f"No pool in gpu_pools claims {abbreviate(names)} of pool {name} any longer; each {'will be' if done.predicted else 'was'} released."
            for name, names in sorted(released.items())
        ),
    ]
    gone = done.nodes_with(GONE)
    if gone:
        texts.append(f"{abbreviate(gone)} disappeared from the cluster during the change.")
    for pool, taints in held_back_taints(state.changes, state.nodes, state.plan.pools).items():
        texts.append(
            f"Taint {', '.join(taints)} of pool {pool} was held back: the ClusterPolicy, or the NVIDIADriver of its nodes, does not tolerate "
            "it, so NVIDIA's pods could not restart on these nodes. Allow the driver rollout with gpu_operator_allow_driver_rollout, then run "
            "the playbook again."
        )
    blocked = [
        f"{change.node} by {', '.join(map(str, change.blocking_pods))}"
        for change in state.changes.rolling_changes
        if change.blocking_pods
    ]
    if blocked:
        fails = (
            "; the run will fail; with rollout.pause_on_failure: false, it first changes the other nodes"
            if done.predicted
            else ""
        )
        texts.append(
            f"{len(blocked)} node(s) cannot be changed because pods that cannot be evicted use their GPUs: {abbreviate(blocked)}{fails}."
        )
    texts += unfit_warnings(state.changes.unfit)
    texts += state.warnings
    texts += [
        f"Pool {name} lacks {format_layout(missing)} of its sharing.demand: they do not fit its nodes."
        for name, missing in state.missing.items()
    ]
    return texts


# Changes one node in the rolling update: cordons, drains, changes, verifies and uncordons it; after a failure, rolls back or quarantines it.
#
# The node is read again at the start, because hours may have passed since the plan was made. Marks on the node record the progress, so that the
# next run can continue if this one is killed.


class NodeRunner:
    """Makes the change to one node."""

    def __init__(self, context: RolloutContext, change: NodeChange) -> None:
        """Store the arguments; no request is sent yet."""
        self._context = context
        self._change = change
        self._pool = change.pool
        self._name = change.node
        self.result = NodeResult(change.node)
        self._node = WatchedNode(context, self.result)
        self._labels_changed = self._verified = False
        self._verifier = NodeVerifier(context, self._node, change.pool, self.result)

    def run(self) -> NodeResult:
        """Make the change. An `error` in the result (a missing permission, no connection, a lost lease) also stops all other changes."""
        return self._guard(self._run)

    def fail_immediate(self, message: str) -> NodeResult:
        """Roll back or quarantine a node that was changed outside the rolling update and does not match its declaration."""
        self._labels_changed = True
        return self._guard(lambda: self._fail(NodeFailure("not-verified", message)))

    def _guard(self, work: t.Callable[[], None]) -> NodeResult:
        try:
            work()
        except Exception as error:
            if isinstance(error, ApiError) and not is_fatal(error):
                # The server has rejected a request for this node, for example during its rollback; requests for other nodes may succeed.
                self.result.failure = "; and then: ".join(filter(None, (self.result.failure, str(error))))
                self.result.outcome = UNCORDONED
            else:
                self.result.error = error
                self.result.failure = f"the run was stopped while the node was being changed: {error}"
            node = self._node.latest
            if node is not None and CORDONED_ANNOTATION in node.annotations:
                self.result.outcome = INTERRUPTED
        finally:
            self._context.report(self._name, "")
        return self.result

    def _run(self) -> None:
        node = self._node.read()
        if node is None:
            self.result.outcome = GONE
            return
        try:
            self._change_node(node)
        except NodeFailure as failure:
            self._fail(failure)
        except WaitTimeout as timeout:
            self._fail(NodeFailure("timeout", str(timeout)))
        except ApiError as error:
            if is_fatal(error) or self._verified:
                # If a verified node cannot be uncordoned, it is not rolled back; the next run uncordons it.
                raise
            self._fail(NodeFailure("refused", str(error)))

    def _change_node(self, node: Node) -> None:
        if not node.ready:
            raise NodeFailure("not-ready", not_ready_message(self._name))
        if self._change.blocking_pods and not is_marked(node):
            # The node is not cordoned if pods still block the change.
            change = self._fresh_change(node)
            self.result.failure = blocked_message(change.blocking_pods) if change and change.blocking_pods else ""
            if self.result.failure:
                self.result.outcome = UNCORDONED
                return
        cordoned = self._node.write(lambda actual: cordon_patch(actual, self._cordon_reason()))
        if cordoned is None:
            self.result.outcome = GONE
            return
        change = self._fresh_change(cordoned)
        resets_mig = self._pool is None and needs_verification(cordoned)
        if change is not None:
            self._drain(change)
            if resets_mig:
                self._reset_mig(cordoned, change)
            else:
                self._apply(cordoned, change)
        if resets_mig or self._pool:
            self._verifier.verify(change)
            self._verified = True
        if resets_mig:
            self._node.write(self._patch)
        if self._node.write(uncordon_patch) is None:
            self.result.outcome = GONE

    def _cordon_reason(self) -> str:
        if self._change.released_from is not None:
            return f"it is being released from pool {self._change.released_from or '(unknown)'}"
        return f"GPU sharing is being changed{f' for pool {self._pool.name}' if self._pool else ''}"

    def _fresh_change(self, node: Node) -> NodeChange | None:
        """The change to the node, planned again from its current state and pods."""
        pods = self._context.reader.list_pods(self._name)
        context = self._context
        return node_change(
            node, self._pool, pods, context.held_back, context.plugin_entries, repair=context.scope.repairs
        )

    def _patch(self, node: Node) -> Patch | None:
        context = self._context
        edit = declared_edit(node, self._pool, context.held_back, context.plugin_entries, repair=context.scope.repairs)
        return edit.patch if edit else None

    def _drain(self, change: NodeChange) -> None:
        """Evict the pods that cannot keep their GPUs, or wait until they terminate."""
        if change.blocking_pods:
            raise NodeFailure("drain", blocked_message(change.blocking_pods))
        if not change.displaced and not change.pods_to_evict:
            return
        self._context.report(self._name, "draining")
        try:
            drain_gpu_pods(
                self._context.client,
                self._name,
                change,
                change.rollout.drain_options,
                self._context.lease.check,
                functools.partial(self._context.report, self._name),
                list_pods=lambda: self._context.reader.list_pods(self._name).gpu_pods.get(self._name, ()),
                pause_clients=lambda: self._node.write(pause_clients) is not None,
                evicted=self.result.evicted,
            )
        except WaitTimeout as timeout:
            raise NodeFailure("drain", str(timeout)) from timeout
        finally:
            self.result.written |= bool(self.result.evicted)

    def _apply(self, node: Node, change: NodeChange) -> None:
        is_changing = change.edit is None and node.mig_state in CHANGING
        if is_changing and (self._pool is None or self._verifier.is_declared_after_wait()):
            return
        if change.stuck or (change.edit and change.edit.labels.get(MIG_CONFIG_LABEL)):
            self._verifier.restart_mig_manager(change.stuck)
        self._write_labels(self._patch)

    def _write_labels(self, compute: t.Callable[[Node], Patch | None]) -> None:
        try:
            self._node.write(compute)
        except ApiError as error:
            # If only the response was lost, the labels have been changed.
            self._labels_changed |= error.maybe_applied
            raise
        self._labels_changed = True

    def _reset_mig(self, node: Node, change: NodeChange) -> None:
        """Remove the MIG devices by setting an explicit configuration; the other labels are kept until the removal is verified."""
        changes_labels = "labels" in ((disable_mig_patch(node) or {}).get("metadata") or {})
        if changes_labels or (change.stuck and node.mig_state not in CHANGING):
            self._verifier.restart_mig_manager(change.stuck)
        self._write_labels(disable_mig_patch)

    def _fail(self, failure: NodeFailure) -> None:
        self.result.failure = str(failure)
        self.result.outcome = self._roll_back_or_quarantine(failure)

    def _roll_back_or_quarantine(self, failure: NodeFailure) -> str:
        """Handle the failure according to `rollout.on_failure`; return the outcome.

        A rollback or a quarantine is recorded in an annotation with the failure. Unless `on_failure` is `leave`, a node whose labels were not
        changed is only uncordoned.
        """
        node = self._node.read()
        if node is None:
            return GONE
        message = str(failure)
        if self._change.rollout.on_failure != LEAVE:
            if not self._labels_changed:
                self._node.write(lambda actual: uncordon_patch(actual, verified=False))
                return UNCORDONED
            good = _restorable(node, self._context.existing_entries)
            if good is not None and self._roll_back(good):
                self._node.write(lambda actual: uncordon_patch(actual, failure=message))
                return ROLLED_BACK
        self._node.write(lambda actual: cordon_patch(actual, message))
        self._node.write(lambda actual: quarantine_patch(actual, failure.reason, message))
        return QUARANTINED

    def _roll_back(self, good: LastGood) -> bool:
        """Restore the last good configuration; returns whether the node works with it."""
        self._context.report(self._name, "rolling back to its last good configuration")
        node = self._node.latest
        patch = rollback_patch(node, good) if node else None
        try:
            if patch and MIG_CONFIG_LABEL in patch["metadata"]["labels"]:
                restart_mig_manager_of(self._context, self._node)
            self._node.write(lambda actual: rollback_patch(actual, good))
            return bool(self._node.wait(lambda actual: _works(actual, good)))
        except WaitTimeout:
            return False


def _restorable(node: Node, entries: t.Collection[str]) -> LastGood | None:
    """The node's last good configuration; None if its entry no longer exists, because NVIDIA's operands fail without it.

    A node still offers the resources of a missing entry until its device plugin restarts, so the record alone does not show that it works.
    """
    good = last_good(node)
    return good if good is not None and good.labels.get(CONFIG_LABEL) in (None, *entries) else None


def _works(node: Node | None, good: LastGood) -> bool | None:
    """Whether a node offers the resources of its last good configuration again; None if it does not offer them yet."""
    if node is None or node.mig_state == FAILED:
        return False
    same = all(node.allocatable.get(name, 0) == count for name, count in good.offers.items())
    return True if same and node.ready and not paused_operands(node) and node.mig_state not in CHANGING else None


def cordon_patch(node: Node, reason: str) -> Patch | None:
    """The patch that cordons the node and records the cordon, or None if nothing changes, for example if the node is already cordoned.

    The patch also removes the taint of an earlier failure, because NVIDIA's pods do not tolerate it and must run during the change.
    """
    spec, annotations = ({}, {}) if node.has_taint(STARTUP_TAINT_KEY) else cordon_edit(node, reason)
    if node.has_taint(FAILED_KEY):
        spec["taints"] = _taints_without(node, FAILED_KEY)
    return node_merge_patch(node, spec, annotations)


def uncordon_patch(node: Node, failure: str | None = None, *, verified: bool = True) -> Patch | None:
    """The patch that removes the collection's cordon, taints and pauses, or None if nothing changes.

    `failure` is recorded as the reason for a rollback. The startup taint is removed only from a verified node without a failure.
    """
    spec, annotations = uncordon_edit(node)
    note = failure[:MAX_REASON] if failure else None
    if node.annotations.get(FAILED_KEY) != note:
        annotations[FAILED_KEY] = note
    keys = {FAILED_KEY, STARTUP_TAINT_KEY} if verified and not failure else {FAILED_KEY}
    if any(node.has_taint(key) for key in keys):
        spec["taints"] = _taints_without(node, *keys)
    return resume_clients(node, node_merge_patch(node, spec, annotations))


def quarantine_patch(node: Node, reason: str, message: str) -> Patch | None:
    """The patch that adds a taint with the reason (a valid label value) and an annotation with the message, or None if nothing changes."""
    taint = {"key": FAILED_KEY, "value": reason, "effect": "NoSchedule"}
    taints = [*_taints_without(node, FAILED_KEY), taint]
    spec: Patch = {} if taints == [dict(actual) for actual in node.taints] else {"taints": taints}
    note = message[:MAX_REASON]
    return node_merge_patch(node, spec, {} if node.annotations.get(FAILED_KEY) == note else {FAILED_KEY: note})


def rollback_patch(node: Node, good: LastGood) -> Patch | None:
    """The patch that restores the labels of the last good configuration, and removes the MIG state of the failed one.

    If the last good configuration has no MIG configuration, the label selects the one for whole GPUs, because the MIG manager does nothing
    without the label.
    """
    desired = dict(good.labels)
    if node.mig_config:
        desired[MIG_CONFIG_LABEL] = desired.get(MIG_CONFIG_LABEL) or mig_parted.DISABLED
    labels = {key: value for key, value in desired.items() if node.labels.get(key) != value}
    if MIG_CONFIG_LABEL in labels:
        labels[MIG_STATE_LABEL] = None
    return {"metadata": {"labels": labels}} if labels else None


def _taints_without(node: Node, *keys: str) -> list[dict[str, t.Any]]:
    return [dict(taint) for taint in node.taints if taint.get("key") not in keys]


# Sends the changes: first the ConfigMaps, then parallel patches of nodes whose pods are not affected, then a rolling update.

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
            self.done.refreshed_pods += refresh_configmaps(context.client, context.namespace, values, lease)
        if changes.immediate_mig_nodes:
            nodes = [state.nodes[name] for name in changes.immediate_mig_nodes if name in state.nodes]
            restart_mig_manager(context.client, context.plan.mig.namespace, nodes, lease, context.progress)
        self._patch_immediate(state, lease)
        if changes.rolling_changes:
            self._run_rolling_update(state, lease)

    def restart_discovery(self, nodes: t.Collection[str], lease: Lease) -> None:
        """Restart gpu-feature-discovery on nodes whose labels do not match their resources."""
        restart_feature_discovery(self._context.client, self._context.namespace, nodes, lease)
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
            changes = state.changes
            return declared_edit(parse_node(raw), pool, changes.held_back, changes.plugin_entries, repair=repair)

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
        # A change of MIG stops the operands on the node, and they could not start again.
        taints = {
            change.node: state.nodes[change.node].taints
            for change in changes
            if change.edit and MIG_CONFIG_LABEL in change.edit.labels and change.node in state.nodes
        }
        kept_away = untolerated_reasons(self._context, taints)
        with WatchedNodes(self._context.client, state.nodes, state.resource_version) as nodes:
            context = self._node_context(state, nodes, lease)

            def on_done(results: t.Sequence[NodeResult]) -> None:
                failed = sum(bool(result.failure) for result in results)
                completed = sum(result.completed for result in results)
                progress = self._context.progress
                progress.report("nodes changed in the rolling update", completed, len(changes), failed=failed)

            def run(change: NodeChange) -> NodeResult:
                if change.node in kept_away:
                    return NodeResult(change.node, UNCORDONED, kept_away[change.node])
                return NodeRunner(context, change).run()

            queues = pool_queues(changes, sizes)
            try:
                run_rolling_update(queues, run, self.done, on_done)
            finally:
                self.nodes = nodes.all()

    def _node_context(self, state: ClusterState, nodes: WatchedNodes, lease: Lease) -> RolloutContext:
        return RolloutContext(
            **vars(self._context),
            lease=lease,
            nodes=nodes,
            held_back=state.changes.held_back,
            plugin_entries=state.changes.plugin_entries,
            existing_entries=state.changes.device_plugin.during,
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
            (edit.name, functools.partial(self._patch_node, edit, state.pool_of(edit.name), changes, lease))
            for edit in edits
        ]
        for outcome in run_bounded(calls, on_done=on_done, stop=lease.lost):
            if outcome.error is not None and is_fatal(outcome.error):
                raise outcome.error
        lease.check()

    def _patch_node(self, edit: NodeEdit, pool: PoolPlan | None, changes: ChangePlan, lease: Lease) -> bool:
        """Patch the node; returns whether it was patched or no longer needs a patch."""
        drain_first = False

        def fresh_edit(raw: t.Mapping[str, t.Any]) -> NodeEdit | None:
            nonlocal drain_first
            node = parse_node(raw)
            fresh = membership_edit(node, pool, changes.held_back, changes.plugin_entries)
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
    if change.pool.rollout.on_failure == LEAVE:
        return True
    # Without operands, the node would not offer the resources of its last good configuration either.
    good = _restorable(node, state.changes.device_plugin.during)
    return good is not None and not reason_without_discovery(node.labels)


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
