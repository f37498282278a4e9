# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits until a changed node is as declared, and repairs what is known to get stuck."""

from __future__ import annotations

import time
import typing as t

from ..catalog.names import MIG_CONFIG_LABEL, MIG_STATE_LABEL
from ..cluster_state.node import Node
from ..cluster_state.node_check import FAILED, check, paused_operands, repair_reason
from ..cluster_state.pool_edit import node_edit, working_configuration
from ..cluster_state.pool_release import check_whole_gpus
from ..drain.operand_diagnosis import failing_operands
from ..nvidia_config import mig_parted
from ..schema.messages import abbreviate
from . import operands
from .diagnosis import diagnose
from .run_context import NodeFailure

if t.TYPE_CHECKING:
    from ..cluster_state.node_check import Finding
    from ..pools.plan import PoolPlan, RebootPlan
    from .node_change import NodeChange
    from .run_context import NodeContext, NodeResult
    from .watched_nodes import WatchedNode

_LABELS_LATE = "its labels are late"
# Seconds between two looks at NVIDIA's pods on a node that is not discovered.
_OPERANDS_INTERVAL = 5.0


class NodeVerifier:
    """Verifies one node; `result` gets the repairs that were made."""

    def __init__(self, context: NodeContext, node: WatchedNode, pool: PoolPlan | None, result: NodeResult) -> None:
        """Keep the arguments; nothing is read."""
        self._context = context
        self._node = node
        self._pool = pool
        self._result = result
        self._discovery_restarted = False
        self._operands_checked = 0.0

    def verify(self, change: NodeChange | None, pool: PoolPlan) -> None:
        """Wait until the node is as its pool declares; raises NodeFailure.

        The MIG manager is restarted once if it is stuck, a repair also resets the layout once, and the node is rebooted once if
        `rollout.reboot` says how.
        """
        self._context.report(self._node.name, "waiting for NVIDIA's operands")
        # A node that is discovered in the usual time costs no list of pods.
        self._operands_checked = time.monotonic()
        reboot = pool.rollout.reboot if change is not None and change.transition.repartitions else None
        may_restart, may_reset = True, self._context.scope.repairs
        while True:
            verdict = self._node.wait(self._verdict, self._context.wait_timeout, self._check_operands)
            node = self._node.latest
            if verdict == "" or node is None:
                return
            stuck = repair_reason(node, pool)
            if verdict == _LABELS_LATE:
                self._restart_discovery()
            elif node.mig_state == FAILED and reboot is not None:
                self._reboot(reboot)
                reboot = None
            elif stuck and may_restart:
                may_restart = False
                self.restart_mig_manager(stuck)
            elif stuck and may_reset:
                may_reset = False
                self._reset_layout(node)
            else:
                finding = check(node, pool)
                if finding is not None and finding.final and not stuck:
                    # Neither waiting nor a rollback changes it; it is reported with the verification of the whole pool.
                    return
                raise self._failure(finding, stuck, _advice(change, node, pool))

    def verify_mig_reset(self) -> None:
        """Wait until a node without a pool has no MIG devices; a stuck MIG manager is restarted once."""
        self._context.report(self._node.name, "waiting until its MIG devices are removed")
        may_restart = True
        while True:
            verdict = self._node.wait(self._mig_reset_verdict, self._context.wait_timeout)
            node = self._node.latest
            if verdict == "" or node is None:
                return
            stuck = repair_reason(node, None)
            if not stuck or not may_restart:
                raise self._failure(check_whole_gpus(node), stuck)
            may_restart = False
            self.restart_mig_manager(stuck)

    def is_declared_after_wait(self) -> bool:
        """Wait for a change that is under way, and return whether the node is as declared then."""
        return bool(self._node.wait(self._verdict, self._context.wait_timeout) == "")

    def restart_mig_manager(self, stuck: str = "") -> None:
        """Restart the node's MIG manager; `stuck` is what that repairs."""
        self._result.repaired = stuck or self._result.repaired
        restart_mig_manager(self._context, self._node)

    def _failure(self, finding: Finding | None, stuck: str, advice: str = "") -> NodeFailure:
        message = diagnose(self._context, {finding.node: finding}) if finding else f"{self._node.name} is not ready"
        return NodeFailure("mig-failed" if stuck else "not-verified", f"{message}{advice}")

    def _verdict(self, node: Node | None) -> str | None:
        """Empty: as declared, or gone. Text: why waiting does not help (once, _LABELS_LATE). None: not yet."""
        if node is None:
            return ""
        finding = check(node, self._pool) if self._pool else None
        if finding is None:
            self._context.since.forget(node.name)
            return "" if node.ready else None
        seconds = self._context.since.seconds(node.name, finding.differences)
        if self._context.scope.repairs and node_edit(node, self._pool, self._context.held_back) is not None:
            # A repair does not change what the node is to become.
            return "" if working_configuration(node) and not repair_reason(node, self._pool) else None
        if not self._discovery_restarted and finding.labels_only and seconds >= operands.LABELS_LATE:
            return _LABELS_LATE
        return str(finding) if finding.final else None

    def _mig_reset_verdict(self, node: Node | None) -> str | None:
        """Empty: the MIG devices are removed, or the node is gone. Text: why waiting does not help. None: not yet."""
        finding = check_whole_gpus(node) if node else None
        if node is None or finding is None:
            return "" if node is None or node.ready else None
        self._context.since.seconds(node.name, finding.differences)
        return str(finding) if finding.final else None

    def _check_operands(self) -> None:
        """Raise NodeFailure if a failing pod of NVIDIA's keeps the node from being discovered."""
        node = self._node.latest
        if node is None or node.discovered or time.monotonic() - self._operands_checked < _OPERANDS_INTERVAL:
            return
        self._operands_checked = time.monotonic()
        failing = failing_operands(self._context.client, self._context.namespace, [node.name], time.time())
        if failing:
            raise NodeFailure("not-verified", f"{node.name}: {failing[node.name]}")

    def _restart_discovery(self) -> None:
        self._context.report(self._node.name, "restarting its gpu-feature-discovery")
        self._discovery_restarted = True
        context = self._context
        operands.restart_discovery(context.client, context.namespace, [self._node.name], context.lease)
        self._result.repaired = self._result.repaired or operands.DISCOVERY_RESTARTED

    def _reboot(self, reboot: RebootPlan) -> None:
        """Run the user's program, one at a time, and wait until the node is ready with another boot ID."""
        name, node, program = self._node.name, self._node.latest, reboot.command[0]
        self._context.report(name, "rebooting")
        self._node.write(lambda dummy: {"metadata": {"labels": {MIG_STATE_LABEL: None}}})
        before = node.boot_id if node else ""
        with self._context.reboot_lock:
            status, dummy, stderr = self._context.run_command([word.replace("{node}", name) for word in reboot.command])
        if status:
            output = stderr.strip()[-300:] or "nothing"
            raise NodeFailure(
                "reboot",
                f"{program} (rollout.reboot.command) failed for {name} with exit status {status} and wrote to stderr: {output}",
            )

        def is_rebooted(actual: Node | None) -> bool | None:
            return True if actual is not None and actual.ready and actual.boot_id != before else None

        if not self._node.wait(is_rebooted, reboot.timeout):
            raise NodeFailure(
                "reboot",
                f"{name} was not ready with another boot ID within {reboot.timeout} s after {program} (rollout.reboot.timeout): "
                "check its console",
            )
        self._result.repaired = "rebooted"

    def _reset_layout(self, node: Node) -> None:
        """Remove a layout that is applied in part, by NVIDIA's configuration for whole GPUs, and apply it again."""
        layout = node.mig_config
        self._set_mig_config(mig_parted.DISABLED)
        self._node.wait(_layout_removed, self._context.wait_timeout)
        self._set_mig_config(layout)
        self._result.repaired = f"its MIG layout was removed and {layout} applied again"

    def _set_mig_config(self, name: str) -> None:
        self._node.write(lambda dummy: {"metadata": {"labels": {MIG_CONFIG_LABEL: name, MIG_STATE_LABEL: None}}})


def restart_mig_manager(context: NodeContext, node: WatchedNode) -> None:
    """Restart the node's MIG manager, so that it reads new entries and retries what has failed."""
    actual = node.latest
    if actual is not None:
        context.report(node.name, "restarting its MIG manager")
        operands.restart_mig_manager(context.client, context.namespace, [actual], context.lease)
        node.read()


def _layout_removed(node: Node | None) -> bool | None:
    """Whether the MIG manager has removed the MIG devices; None: not yet."""
    if node is None or node.mig_state == FAILED:
        return False
    return True if node.mig_state == "success" and not paused_operands(node) and not node.mig_devices else None


def _advice(change: NodeChange | None, node: Node, pool: PoolPlan) -> str:
    """What else may help after a failed MIG change: pods that may hold the GPUs, and a reboot."""
    if change is None or node.mig_state != FAILED:
        return ""
    advice = ""
    if change.possible_holders:
        names = abbreviate([f"{pod.full_name} ({', '.join(pod.possible_access)})" for pod in change.possible_holders])
        advice = f"\nIf its GPUs are in use, these pods may hold them, which no drain evicts: {names}."
    if change.transition.resets and pool.rollout.reboot is None:
        advice += "\nIf its GPUs cannot be reset for another MIG mode, a reboot helps: set rollout.reboot of the pool."
    return advice
