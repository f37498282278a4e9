# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes one node in the rolling update: cordons, drains, changes, verifies and uncordons it; after a failure, rolls back or quarantines it.

The node is read again at the start, because hours may have passed since the plan was made. Marks on the node record the progress, so that the
next run can continue if this one is killed.
"""

from __future__ import annotations

import functools
import typing as t

from ..catalog.names import CORDONED_ANNOTATION, FAILED_KEY, MIG_CONFIG_LABEL, MIG_STATE_LABEL
from ..catalog.taints import STARTUP_TAINT_KEY
from ..cluster_state.cordon import (
    MAX_REASON,
    Patch,
    cordon_edit,
    merge_patch,
    pause_clients,
    resume_clients,
    uncordon_edit,
)
from ..cluster_state.eviction_rules import blocked_message
from ..cluster_state.node import Node
from ..cluster_state.node_check import CHANGING, FAILED, not_ready_message, paused_operands
from ..cluster_state.pool_edit import LastGood, disable_mig_patch, last_good
from ..cluster_state.pool_release import needs_verification
from ..common.parallel import is_fatal
from ..common.wait import WaitTimeout
from ..drain.gpu_drain import drain_gpu_pods
from ..kube.errors import ApiError
from ..nvidia_config import mig_parted
from ..schema import rollout as rollout_fields
from .node_change import NodeChange, declared_edit, is_marked, node_change
from .node_verification import NodeVerifier, restart_mig_manager
from .run_context import (
    GONE,
    INTERRUPTED,
    QUARANTINED,
    ROLLED_BACK,
    UNCORDONED,
    NodeFailure,
    NodeResult,
    RolloutContext,
)
from .watched_nodes import WatchedNode


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
        return node_change(node, self._pool, pods, self._context.held_back, repair=self._context.scope.repairs)

    def _patch(self, node: Node) -> Patch | None:
        edit = declared_edit(node, self._pool, self._context.held_back, repair=self._context.scope.repairs)
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
        if self._change.rollout.on_failure != rollout_fields.LEAVE:
            if not self._labels_changed:
                self._node.write(lambda actual: uncordon_patch(actual, verified=False))
                return UNCORDONED
            good = last_good(node)
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
                restart_mig_manager(self._context, self._node)
            self._node.write(lambda actual: rollback_patch(actual, good))
            return bool(self._node.wait(lambda actual: _works(actual, good)))
        except WaitTimeout:
            return False


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
    return merge_patch(node, spec, annotations)


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
    return resume_clients(node, merge_patch(node, spec, annotations))


def quarantine_patch(node: Node, reason: str, message: str) -> Patch | None:
    """The patch that adds a taint with the reason (a valid label value) and an annotation with the message, or None if nothing changes."""
    taint = {"key": FAILED_KEY, "value": reason, "effect": "NoSchedule"}
    taints = [*_taints_without(node, FAILED_KEY), taint]
    spec: Patch = {} if taints == [dict(actual) for actual in node.taints] else {"taints": taints}
    note = message[:MAX_REASON]
    return merge_patch(node, spec, {} if node.annotations.get(FAILED_KEY) == note else {FAILED_KEY: note})


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
