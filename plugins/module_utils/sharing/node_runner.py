# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node's turn: closed, emptied, changed, proven, opened again; and what becomes of it when that fails.

Everything is read anew when the turn comes, since hours may lie between the plan and the turn. Whatever a killed run has
left here is told by the marks on the node, so that the next run goes on from there.
"""

from __future__ import annotations

import functools
import time
import typing as t

from ..catalog.names import CLIENT_LABEL, CORDONED_ANNOTATION, MIG_CONFIG_LABEL, MIG_STATE_LABEL, PAUSED_FOR_MIG
from ..cluster_state.mig_repair import remedy
from ..cluster_state.node import Node
from ..cluster_state.node_check import CHANGING, FAILED, check, paused
from ..cluster_state.pool_edit import is_working, node_edit, whole_patch
from ..cluster_state.pool_release import is_abandoned, needs_verification, not_whole
from ..common.parallel import is_fatal
from ..common.wait import WaitTimeout
from ..drain.eviction import DrainOptions, await_termination, evict_pods
from ..drain.operand_diagnosis import failing_operands
from ..drain.pods_on_nodes import PodsByNode
from ..kube.errors import ApiError
from ..nvidia_config import mig_parted
from ..schema.messages import abbreviate
from . import late_labels, node_edits
from .node_change import NodeChange, is_marked, node_change
from .node_result import BROKEN_OFF, GONE, REOPENED, NodeFailure, NodeResult, RunnerContext, restart_mig_manager
from .node_result import quarantine as end_badly
from .reboot import RebootFailed
from .watched_node import WatchedNode

if t.TYPE_CHECKING:
    from ..cluster_state.cordon import Patch
    from ..cluster_state.ownership import NodeEdit
    from ..pools.plan import PoolPlan, RebootPlan

_LABELS_LATE = "its labels are late"
# How often NVIDIA's pods are looked at on a node that is not discovered.
_OPERANDS_LOOK = 5.0
# As long as the MIG manager waits for pods of such DaemonSets (mig-parted v0.15 pkg/mig/reconfigure).
CLIENTS_TIMEOUT = 300.0


class NodeRunner:
    """The turn of one node."""

    def __init__(self, tools: RunnerContext, of: NodeChange) -> None:
        """Send nothing yet."""
        self._tools = tools
        self._of = of
        self._pool = of.pool
        self._rollout = of.rollout
        self._leaves = of.leaves
        self._name = of.node
        self._node = WatchedNode(tools.client, tools.lease, tools.live, of.node)
        self._labelled = self._rediscovered = False
        self._looked_at = 0.0
        self.fate = NodeResult(of.node)

    def take(self) -> NodeResult:
        """Do it; raises only what would stop every other turn, too (no rights, no connection, a lost lease)."""
        node = self._node.read()
        if node is None:
            self.fate.outcome = GONE
            return self.fate
        try:
            self._go(node)
        except NodeFailure as failure:
            self._end(failure)
        except WaitTimeout as story:
            self._end(NodeFailure("timeout", str(story)))
        except ApiError as error:
            if is_fatal(error):
                raise
            self._end(NodeFailure("refused", str(error)))
        return self._ended()

    def end_badly(self, story: str) -> NodeResult:
        """What was changed without a turn, and did not become as declared."""
        self._labelled = True
        self._end(NodeFailure("not-proven", story))
        return self._ended()

    def broken_off(self, why: Exception) -> NodeResult:
        """What is known of a turn that take() has not ended: nothing more can be sent, and the node may still be closed by us."""
        self.fate.failed = f"its turn was broken off: {why}"
        node = self._node.now
        if node is not None and CORDONED_ANNOTATION in node.annotations:
            self.fate.outcome = BROKEN_OFF
        return self._ended()

    def _end(self, failure: NodeFailure) -> None:
        self.fate.failed = str(failure)
        self.fate.outcome = end_badly(self._tools, self._node, self._rollout, failure, changed=self._labelled)

    def _ended(self) -> NodeResult:
        self.fate.changed = self.fate.changed or self._node.changed
        return self.fate

    def _go(self, node: Node) -> None:
        pool = self._pool
        if not node.ready:
            raise NodeFailure(
                "not-ready", f"{self._name} is not ready, so that its pods cannot end and its agents do not work"
            )
        if self._of.blocked and not is_marked(node):
            # Pods that no drain takes away were there when the run began: if they still are, the node is not even cordoned.
            blocked = node_change(node, pool, self._edit(node), self._asked(), repair=self._tools.repair)
            self.fate.failed = _blocked(blocked)
            if self.fate.failed:
                self.fate.outcome = REOPENED
                return
        why = f"the sharing of its GPUs is being changed{f' for pool {pool.name}' if pool else ''}"
        if self._leaves is not None:
            why = f"it is being released from pool {self._leaves or '(unknown)'}"
        closed = self._node.write(lambda fresh: node_edits.cordon_patch(fresh, why))
        if closed is None:
            self.fate.outcome = GONE
            return
        now = node_change(closed, pool, self._edit(closed), self._asked(), repair=self._tools.repair)
        verifies = pool is None and needs_verification(closed)
        if now is not None:
            self._empty(now)
            if verifies:
                self._make_whole(closed, now)
            else:
                self._change(closed, now)
        if verifies:
            self._prove_whole()
            self._node.write(self._patch)
        elif pool:
            self._prove(now, pool)
        if self._node.write(node_edits.uncordon_patch) is None:
            self.fate.outcome = GONE

    def _asked(self) -> PodsByNode:
        return self._tools.look(self._name)

    def _empty(self, now: NodeChange) -> None:
        """Everybody who cannot stay goes, by eviction or by himself."""
        if now.blocked:
            raise NodeFailure("drain", _blocked(now))
        if not now.goes and not now.evicted:
            return
        rules = DrainOptions.from_rollout(now.rollout)
        self._tools.say(self._name, "draining")
        try:
            if now.evicted:
                self._evict(now, rules)
            if not rules.evict:
                self._await_end([user.uid for user in now.goes if not user.kept], rules)
            if now.stopped:
                self._stop_clients(now)
        except WaitTimeout as story:
            raise NodeFailure("drain", str(story)) from story

    def _stop_clients(self, now: NodeChange) -> None:
        """DaemonSets that select nodes by nvidia.com/gpu.deploy.client leave this one until it is opened again."""
        if self._node.write(node_edits.pause_clients) is None:
            return
        uids = {user.uid for user in now.stopped}
        await_termination(
            lambda: self._asked().gpu_pods.get(self._name, ()),
            uids,
            CLIENTS_TIMEOUT,
            self._tools.lease,
            f"label {CLIENT_LABEL} of the node is {PAUSED_FOR_MIG}: look at their DaemonSet, which has to take them away.",
        )

    def _evict(self, now: NodeChange, rules: DrainOptions) -> None:
        self.fate.evicted = [user.shown for user in now.evicted]
        self.fate.changed = True
        tools = self._tools
        say = functools.partial(tools.say, self._name)
        evict_pods(tools.client, self._name, now.evicted, rules, tools.lease, say)

    def _await_end(self, uids: t.Collection[str], rules: DrainOptions) -> None:
        await_termination(
            lambda: self._asked().gpu_pods.get(self._name, ()),
            uids,
            rules.drain_timeout,
            self._tools.lease,
            "drain is none: wait for their end, raise rollout.drain_timeout, or choose drain gpu-pods.",
        )

    def _change(self, node: Node, now: NodeChange) -> None:
        if (
            now.edit is None
            and node.mig_state in CHANGING
            and self._node.wait(self._judge, self._tools.wait_timeout) == ""
        ):
            # It was still at work.
            return
        if now.remedy or (now.edit and now.edit.labels.get(MIG_CONFIG_LABEL)):
            self._renew(now.remedy)
        self._node.write(self._patch)
        self._labelled = True

    def _edit(self, node: Node) -> NodeEdit | None:
        """What a node lacks of its pool's profile; a repair leaves that to another run."""
        if self._tools.repair and not (self._pool is None and is_abandoned(node)):
            return None
        return node_edit(node, self._pool, self._tools.held)

    def _make_whole(self, node: Node, now: NodeChange) -> None:
        """Have the GPUs cut back by an explicit configuration; what else is to be given back stays until that is verified."""
        changes = "labels" in ((whole_patch(node) or {}).get("metadata") or {})
        if changes or (now.remedy and node.mig_state not in CHANGING):
            self._renew(now.remedy)
        self._node.write(whole_patch)
        self._labelled = True

    def _patch(self, node: Node) -> Patch | None:
        edit = self._edit(node)
        return edit.patch if edit else None

    def _renew(self, why: str = "") -> None:
        self.fate.repaired = why or self.fate.repaired
        restart_mig_manager(self._tools, self._node)

    def _prove(self, now: NodeChange | None, pool: PoolPlan) -> None:
        """Until it is seen; what is stuck is given one more try, and a reboot where the user has said how."""
        self._tools.say(self._name, "waiting for NVIDIA's agents")
        # A node that is discovered in the usual time costs no look.
        self._looked_at = time.monotonic()
        cuts = now is not None and now.transition.cuts
        reboot = pool.rollout.reboot if cuts else None
        left = {"renew": True, "recut": self._tools.repair}
        while True:
            verdict = self._node.wait(self._judge, self._tools.wait_timeout, self._require_operands)
            if verdict == "":
                return
            node = self._node.now
            if node is None:
                return
            if verdict == _LABELS_LATE:
                self._rediscover()
                continue
            stuck = remedy(node, pool)
            if node.mig_state == FAILED and reboot is not None:
                self._reboot(reboot)
                reboot = None
            elif stuck and left.pop("renew", False):
                self._renew(stuck)
            elif stuck and left.pop("recut", False):
                self._recut(node)
            else:
                finding = check(node, pool)
                if finding is not None and finding.final and not stuck:
                    # Waiting, or going back, changes nothing about it; it is told with the proof of the whole pool.
                    return
                story = self._tools.tell(finding) if finding else f"{self._name} is not ready"
                raise NodeFailure("mig-failed" if stuck else "not-proven", f"{story}{_hint(now, node, pool)}")

    def _prove_whole(self) -> None:
        """Until the GPUs of a node without a pool are verified to be whole; a MIG manager that is stuck is restarted once."""
        self._tools.say(self._name, "waiting until its GPUs are whole")
        renewals = 1
        while True:
            verdict = self._node.wait(self._judge_whole, self._tools.wait_timeout)
            node = self._node.now
            if verdict == "" or node is None:
                return
            stuck = remedy(node, None)
            if stuck and renewals:
                renewals -= 1
                self._renew(stuck)
                continue
            finding = not_whole(node)
            story = self._tools.tell(finding) if finding else f"{self._name} is not ready"
            raise NodeFailure("mig-failed" if stuck else "not-proven", story)

    def _judge(self, node: Node | None) -> str | None:
        """No words: as declared, or gone; words: why it will not become so by waiting; None: not yet.

        _LABELS_LATE, once: something is to be done before it is waited for again.
        """
        if node is None:
            return ""
        finding = check(node, self._pool) if self._pool else None
        if finding is None:
            self._tools.since.forget(node.name)
            return "" if node.ready else None
        seconds = self._tools.since.note(node.name, finding.seen)
        if self._tools.repair and node_edit(node, self._pool, self._tools.held) is not None:
            # It is to become something else, but not now.
            return "" if is_working(node) and not remedy(node, self._pool) else None
        if not self._rediscovered and late_labels.are_late(finding, seconds):
            return _LABELS_LATE
        return str(finding) if finding.final else None

    def _judge_whole(self, node: Node | None) -> str | None:
        """No words: its GPUs are whole, or it is gone; words: why they will not be by waiting; None: not yet."""
        if node is None:
            return ""
        finding = not_whole(node)
        if finding is None:
            return "" if node.ready else None
        self._tools.since.note(node.name, finding.seen)
        return str(finding) if finding.final else None

    def _require_operands(self) -> None:
        """Raise Failed where a pod of NVIDIA's fails without which the node is never discovered: waiting would not help."""
        node = self._node.now
        if node is None or node.discovered or time.monotonic() - self._looked_at < _OPERANDS_LOOK:
            return
        self._looked_at = time.monotonic()
        found = failing_operands(self._tools.client, self._tools.namespace, [self._name], time.time())
        if found:
            raise NodeFailure("not-proven", f"{self._name}: {found[self._name]}")

    def _rediscover(self) -> None:
        self._tools.say(self._name, "starting its gpu-feature-discovery again")
        self._rediscovered = True
        late_labels.restart(self._tools.client, self._tools.namespace, [self._name], self._tools.lease)
        self.fate.repaired = self.fate.repaired or late_labels.RESTARTED

    def _reboot(self, how: RebootPlan) -> None:
        self._tools.say(self._name, "rebooting")
        self._node.write(lambda dummy: {"metadata": {"labels": {MIG_STATE_LABEL: None}}})
        try:
            self._tools.reboot.reboot(self._name, how, self._node.wait)
        except RebootFailed as error:
            raise NodeFailure("reboot", str(error)) from error
        self.fate.repaired = "rebooted"

    def _recut(self, node: Node) -> None:
        """What is left of a layout that was taken apart by half goes first, by NVIDIA's own configuration for that."""
        wanted = node.mig_config
        self._cut_into(mig_parted.DISABLED)
        self._node.wait(_is_whole, self._tools.wait_timeout)
        self._cut_into(wanted)
        self.fate.repaired = f"its GPUs were made whole and cut into {wanted} again"

    def _cut_into(self, name: str) -> None:
        self._node.write(lambda dummy: {"metadata": {"labels": {MIG_CONFIG_LABEL: name, MIG_STATE_LABEL: None}}})


def _is_whole(node: Node | None) -> bool | None:
    """Whether the MIG manager has done with making the GPUs whole, in whatever way; None: not yet."""
    if node is None or node.mig_state == FAILED:
        return False
    return True if node.mig_state == "success" and not paused(node) and not node.mig_devices else None


def _blocked(now: NodeChange | None) -> str:
    """Which pods use the GPUs that no drain takes off the node, and what to do; empty where there are none."""
    if now is None or not now.blocked:
        return ""
    return (
        f"{', '.join(now.blocked)}: in use of the node's GPUs, and cannot be evicted. Delete what is listed, set rollout.force for pods "
        f"without a controller, or add the nodeSelector {CLIENT_LABEL} to a DaemonSet (docs/rollout.md)"
    )


def _hint(now: NodeChange | None, node: Node, pool: PoolPlan) -> str:
    """What else may help: GPUs whose MIG mode is switched may wait for a reboot that nobody has said how to make."""
    waits = now is not None and now.transition.resets and node.mig_state == FAILED
    holders = ""
    if now is not None and now.possible and node.mig_state == FAILED:
        names = abbreviate([f"{user.shown} ({', '.join(user.possible)})" for user in now.possible])
        holders = f"\nIf its GPUs are in use, these pods may hold them, which no drain evicts: {names}."
    if not waits or pool.rollout.reboot is not None:
        return holders
    return f"{holders}\nIf its GPUs cannot be reset for another MIG mode, a reboot helps: rollout.reboot of the pool names the way to one."
