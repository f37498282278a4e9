# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits until a changed node matches its declaration, and repairs operands that are known to get stuck."""

from __future__ import annotations

import time
import typing as t

from ..catalog.names import CONFIG_LABEL, MIG_CONFIG_LABEL, MIG_STATE_LABEL
from ..cluster_state.node import Node
from ..cluster_state.node_check import FAILED, NOT_READY, NodeDrift, check_node, paused_operands, repair_reason
from ..cluster_state.pool_edit import membership_edit, working_configuration
from ..cluster_state.pool_release import check_whole_gpus
from ..common.time_limit import run_within
from ..drain.operand_diagnosis import OPERANDS_INTERVAL, failing_operands
from ..nvidia_config import mig_parted
from ..schema.messages import abbreviate
from . import operand_restart
from .diagnosis import diagnose
from .run_context import NodeFailure, NodeResult, RolloutContext

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan, RebootPlan
    from .node_change import NodeChange
    from .watched_nodes import WatchedNode

_LABELS_LATE = "its labels are late"


class NodeVerifier:
    """Verifies one node, and records repairs in `result`."""

    def __init__(self, context: RolloutContext, node: WatchedNode, pool: PoolPlan | None, result: NodeResult) -> None:
        """Store the arguments; nothing is read yet."""
        self._context = context
        self._node = node
        self._pool = pool
        self._result = result
        self._discovery_restarted = False
        self._operands_checked = 0.0

    def verify(self, change: NodeChange | None) -> None:
        """Wait until the node matches its pool's declaration; raises NodeFailure if it does not. A node without a pool must have no MIG devices.

        If `rollout.reboot` is set, a node whose MIG change has failed is rebooted once. A stuck MIG manager is restarted once, and a repair also
        resets the layout once.
        """
        pool = self._pool
        awaited = "for NVIDIA's operands" if pool else "until its MIG devices are removed"
        self._context.report(self._node.name, f"waiting {awaited}")
        # This delays the first check, so that no pods are listed for a node that is discovered in the usual time.
        self._operands_checked = time.monotonic()
        reboot = pool.rollout.reboot if pool and change and change.transition.repartitions else None
        may_restart, may_reset = True, pool is not None and self._context.scope.repairs
        while True:
            verdict = self._node.wait(self._verdict, self._check_operands)
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
                finding = self._check(node)
                if pool and finding and finding.final and not stuck:
                    # Neither waiting nor a rollback would change this, so it is reported when the whole pool is verified.
                    return
                message = diagnose(self._context, {node.name: finding}) if finding else f"{node.name} {NOT_READY}"
                advice = _advice(change, node) if pool and change else ""
                raise NodeFailure("mig-failed" if stuck else "not-verified", f"{message}{advice}")

    def is_declared_after_wait(self) -> bool:
        """Wait for a change that is in progress, and return whether the node then matches its declaration."""
        return bool(self._node.wait(self._verdict) == "")

    def restart_mig_manager(self, stuck: str = "") -> None:
        """Restart the node's MIG manager; `stuck` is the problem that the restart is meant to repair."""
        self._result.repaired = stuck or self._result.repaired
        restart_mig_manager(self._context, self._node)

    def _check(self, node: Node) -> NodeDrift | None:
        return check_node(node, self._pool) if self._pool else check_whole_gpus(node)

    def _verdict(self, node: Node | None) -> str | None:
        """The reason why waiting does not help, which is _LABELS_LATE at most once; None if the wait must continue.

        The result is empty if the node matches its declaration or is gone.
        """
        if node is None:
            return ""
        finding = self._check(node)
        if finding is None:
            self._context.since.forget(node.name)
            return "" if node.ready else None
        seconds = self._context.since.seconds(node.name, finding.differences)
        if self._pool and self._context.scope.repairs and membership_edit(node, self._pool, self._context.held_back):
            # A repair does not change the desired configuration of the node.
            return "" if working_configuration(node) and not repair_reason(node, self._pool) else None
        if not self._discovery_restarted and finding.labels_only and seconds >= operand_restart.LABELS_LATE:
            return _LABELS_LATE
        return str(finding) if finding.final else None

    def _check_operands(self) -> None:
        """Raise NodeFailure if a failing NVIDIA pod prevents the discovery of a pool's node."""
        node = self._node.latest
        if (
            not self._pool
            or node is None
            or node.discovered
            or time.monotonic() - self._operands_checked < OPERANDS_INTERVAL
        ):
            return
        self._operands_checked = time.monotonic()
        configured = [node.name] if node.labels.get(CONFIG_LABEL) == self._pool.config_key else []
        client, namespace = self._context.client, self._context.namespace
        failing = failing_operands(client, namespace, [node.name], time.time(), configured)
        if failing:
            raise NodeFailure("not-verified", f"{node.name}: {failing[node.name]}")

    def _restart_discovery(self) -> None:
        self._context.report(self._node.name, "restarting its gpu-feature-discovery")
        self._discovery_restarted = True
        context = self._context
        operand_restart.restart_discovery(context.client, context.namespace, [self._node.name], context.lease)
        self._result.repaired = self._result.repaired or operand_restart.DISCOVERY_RESTARTED

    def _reboot(self, reboot: RebootPlan) -> None:
        """Run the user's reboot command, and wait until the node is ready and has a new boot ID."""
        name, program = self._node.name, reboot.command[0]
        self._context.report(name, "rebooting")
        # The response contains the current boot ID. The latest known version may be older than a reboot that the MIG manager has
        # started.
        node = self._node.write(lambda dummy: {"metadata": {"labels": {MIG_STATE_LABEL: None}}})
        before = node.boot_id if node else ""
        self._run_reboot_command([word.replace("{node}", name) for word in reboot.command], reboot.timeout)

        def is_rebooted(actual: Node | None) -> bool | None:
            return True if actual is not None and actual.ready and actual.boot_id != before else None

        if not self._node.wait(is_rebooted, timeout=reboot.timeout):
            raise NodeFailure(
                "reboot",
                f"{name} was not ready with a new boot ID within {reboot.timeout} s after {program} (rollout.reboot.timeout): "
                "check its console",
            )
        self._result.repaired = "rebooted"

    def _run_reboot_command(self, command: list[str], timeout: float) -> None:
        """Run the command. Only one reboot command runs at a time. Raises NodeFailure if it fails or does not finish in time."""
        call = f"{command[0]} (rollout.reboot.command)"
        try:
            with self._context.reboot_lock:
                # Without these two options, run_command would expand $ and ~ in words. If the program could not be started, it would only end this thread.
                status, dummy, stderr = run_within(
                    self._context.run_command, command, timeout, expand_user_and_vars=False, handle_exceptions=False
                )
        except TimeoutError:
            raise NodeFailure(
                "reboot",
                f"{call} was stopped for {self._node.name} because it did not finish within {timeout} s (rollout.reboot.timeout): "
                "check whether it can reach the node without a password",
            ) from None
        except (OSError, ValueError) as error:
            # ValueError: a word contains a NUL character.
            reason = getattr(error, "strerror", None) or error
            raise NodeFailure("reboot", f"{call} cannot be started for {self._node.name}: {reason}") from None
        if status:
            output = stderr.strip()[-300:] or "nothing"
            raise NodeFailure(
                "reboot",
                f"{call} failed for {self._node.name} with exit status {status} and wrote to stderr: {output}",
            )

    def _reset_layout(self, node: Node) -> None:
        """Remove a partly applied layout by setting NVIDIA's configuration for whole GPUs, and apply the layout again."""
        layout = node.mig_config
        self._set_mig_config(mig_parted.DISABLED)
        self._node.wait(_layout_removed)
        self._set_mig_config(layout)
        self._result.repaired = f"its MIG layout was removed, and {layout} was applied again"

    def _set_mig_config(self, name: str) -> None:
        self._node.write(lambda dummy: {"metadata": {"labels": {MIG_CONFIG_LABEL: name, MIG_STATE_LABEL: None}}})


def restart_mig_manager(context: RolloutContext, node: WatchedNode) -> None:
    """Restart the node's MIG manager, so that it reads new entries and retries failed changes."""
    actual = node.latest
    if actual is not None:
        context.report(node.name, "restarting its MIG manager")
        operand_restart.restart_mig_manager(context.client, context.namespace, [actual], context.lease)
        node.read()


def _layout_removed(node: Node | None) -> bool | None:
    """Whether the MIG manager has removed the MIG devices; None if it has not finished yet."""
    if node is None or node.mig_state == FAILED:
        return False
    return True if node.mig_state == "success" and not paused_operands(node) and not node.mig_devices else None


def _advice(change: NodeChange, node: Node) -> str:
    """Additional advice after a failed MIG change: the pods that may hold the GPUs, and whether a reboot may help."""
    if node.mig_state != FAILED:
        return ""
    advice = ""
    if change.possible_holders:
        names = abbreviate([f"{pod.full_name} ({', '.join(pod.possible_access)})" for pod in change.possible_holders])
        advice = f"\nIf its GPUs are in use, these pods, which no drain evicts, may hold them: {names}."
    if change.transition.resets and change.rollout.reboot is None:
        advice += "\nIf its GPUs cannot be reset for another MIG mode, a reboot helps: set rollout.reboot of the pool."
    return advice
