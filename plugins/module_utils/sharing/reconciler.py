# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Applies changes and waits until the cluster is as declared."""

from __future__ import annotations

import contextlib
import time
import typing as t

from ..common.errors import PartialFailure, ReleaseRefused
from ..common.wait import WaitTimeout
from .readiness_watch import ObservedNodes

if t.TYPE_CHECKING:
    from ..kube.lease import Lease
    from .reader import ClusterState
    from .readiness_watch import ReadinessWatch
    from .rollout import Rollout
    from .run_context import RunContext

_MAX_NAMES = 5
# If something undoes the changes this often, the run reports that and stops.
_MAX_ROUNDS = 5


class Reconciler:
    """Reconciles a cluster; raises PartialFailure or WaitTimeout for nodes that are not as declared."""

    def __init__(
        self, context: RunContext, rollout: Rollout, watch: ReadinessWatch, *, wait: bool, allowed: t.Collection[str]
    ) -> None:
        """Keep the arguments; nothing is sent."""
        self._context = context
        self._rollout = rollout
        self._watch = watch
        self._wait = wait
        self._allowed = allowed

    def reconcile(self, state: ClusterState, run_lease: Lease) -> ObservedNodes:
        """Make the changes, including those of nodes that join or are discovered meanwhile; the lease is acquired before the first change."""
        deadline = time.monotonic() + self._context.wait_timeout
        rounds = 0
        with contextlib.ExitStack() as stack:
            lease: Lease | None = None

            def restart_discovery(nodes: t.Collection[str]) -> None:
                nonlocal lease
                lease = lease or stack.enter_context(run_lease)
                self._rollout.restart_discovery(nodes, lease)

            self._watch.restart_discovery = restart_discovery
            while True:
                if state.changes.changed and rounds < _MAX_ROUNDS:
                    if lease is None:
                        lease = stack.enter_context(run_lease)
                        if not lease.untouched:
                            # Another run may have changed the cluster before this one acquired the lease.
                            state = self._context.reader.read_again()
                    refusal = state.changes.releases.refusal(self._allowed, begun=self._rollout.done.any)
                    if refusal:
                        raise ReleaseRefused(refusal)
                    self._rollout.apply(state, lease)
                    self._excuse(state)
                    rounds += 1
                    deadline = time.monotonic() + self._context.wait_timeout
                    if state.changes.rolling_changes:
                        # A rolling update takes long: nodes may have joined, and others may have changed nodes.
                        state = self._context.reader.read()
                        if state.changes.node_changes:
                            continue
                if not self._wait:
                    observed = ObservedNodes(state, self._watch.findings(state), [])
                else:
                    observed = self._watch.wait(state, deadline)
                    if observed.findings and lease is not None:
                        self._rollout.roll_back_failed(observed.state, observed.findings, lease)
                    self._require_verified(observed)
                if observed.state.changes is state.changes or not observed.state.changes.changed:
                    break
                state = observed.state
            if lease is not None:
                self._rollout.remove_unused_entries(observed.state, lease)
        self._require_success()
        return observed

    def _excuse(self, state: ClusterState) -> None:
        """Do not wait for nodes that are reported otherwise, and do not change them again."""
        done = self._rollout.done
        left = {*done.failed, *done.not_started, *state.changes.limited, *state.changes.not_ready}
        self._watch.excused |= left
        self._context.reader.excluded |= left

    def _require_verified(self, observed: ObservedNodes) -> None:
        findings = {
            name: finding for name, finding in observed.findings.items() if name not in self._rollout.done.failed
        }
        if not findings and not observed.undiscovered:
            return
        message = self._context.describe(findings, observed.undiscovered)
        failed = f"{self._failures()}\n" if self._rollout.done.failed else ""
        raise WaitTimeout(
            f"{failed}{len(findings) + len(observed.undiscovered)} node(s) are not as their pools declare "
            f"(wait_timeout {self._context.wait_timeout:.0f} s):\n{message}"
        )

    def _require_success(self) -> None:
        if self._rollout.done.failed:
            raise PartialFailure(self._failures())

    def _failures(self) -> str:
        done = self._rollout.done
        lines = [f"{name}: {done.failed[name]}" for name in sorted(done.failed)[:_MAX_NAMES]]
        if len(done.failed) > _MAX_NAMES:
            lines.append(f"and {len(done.failed) - _MAX_NAMES} more")
        if done.not_started:
            lines.append(f"{len(done.not_started)} node(s) were not started (rollout.pause_on_failure)")
        return "\n".join([f"{len(done.failed)} node(s) could not be changed:", *lines])
