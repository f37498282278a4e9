# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what is there to what is declared and seen: apply and follow until nothing differs."""

from __future__ import annotations

import contextlib
import time
import typing as t

from ..common.errors import PartialFailure, ReleaseRefused
from ..common.wait import WaitTimeout
from .readiness_watch import ObservedNodes

if t.TYPE_CHECKING:
    from ..kube.lease import Lease
    from .reader import FleetState, StateReader
    from .readiness_watch import ReadinessWatch
    from .rollout import Rollout

_TOLD = 5
# Whoever undoes what we do as often as this is told of, and not fought.
_ROUNDS = 5


class Reconciler:
    """Brings everything together; raises SomeFailed or TimeoutStory with what could not be reached."""

    def __init__(
        self,
        reader: StateReader,
        rollout: Rollout,
        watcher: ReadinessWatch,
        lease: Lease,
        story: t.Callable[[ObservedNodes], str],
        *,
        wait: bool,
        wait_timeout: float,
        allowed: t.Collection[str] = (),
    ) -> None:
        """Send nothing yet; the lease, at which was looked before the first reading, is taken when there is something to send."""
        self._reader = reader
        self._rollout = rollout
        self._watcher = watcher
        self._lease = lease
        self._story = story
        self._wait = wait
        self._timeout = wait_timeout
        self._allowed = allowed

    def converge(self, fleet: FleetState) -> ObservedNodes:
        """Nodes that come, or are discovered, on the way are taken along."""
        deadline = time.monotonic() + self._timeout
        rounds = 0
        with contextlib.ExitStack() as stack:
            lease: Lease | None = None

            def rediscover(nodes: t.Collection[str]) -> None:
                nonlocal lease
                lease = lease or stack.enter_context(self._lease)
                self._rollout.rediscover(nodes, lease)

            self._watcher.rediscover = rediscover
            while True:
                if fleet.profile.changed and rounds < _ROUNDS:
                    if lease is None:
                        lease = stack.enter_context(self._lease)
                        if not lease.untouched:
                            # Another run may have changed the cluster since, or while this one waited for its lease.
                            fleet = self._reader.afresh()
                    refusal = fleet.profile.releases.refusal(self._allowed, begun=self._rollout.done.any)
                    if refusal:
                        raise ReleaseRefused(refusal)
                    self._rollout.apply(fleet, lease)
                    self._excuse(fleet)
                    rounds += 1
                    deadline = time.monotonic() + self._timeout
                    if fleet.profile.turns:
                        # They have taken their time: nodes may have come, and somebody may have changed what was done.
                        fleet = self._reader.read()
                        if fleet.profile.steps:
                            continue
                if not self._wait:
                    seen = ObservedNodes(fleet, self._watcher.findings(fleet), [])
                else:
                    seen = self._watcher.seen(fleet, deadline)
                    if seen.findings and lease is not None:
                        self._rollout.give_up(seen.fleet, seen.findings, lease)
                    self._give_up(seen)
                if seen.fleet.profile is fleet.profile or not seen.fleet.profile.changed:
                    break
                fleet = seen.fleet
            if lease is not None:
                self._rollout.collect(seen.fleet, lease)
        self._require_success()
        return seen

    def _excuse(self, fleet: FleetState) -> None:
        """Nodes that are told otherwise are neither waited for nor begun again."""
        done = self._rollout.done
        left = {*done.failed, *done.not_begun, *fleet.profile.limited, *fleet.profile.away}
        self._watcher.excused |= left
        self._reader.left_out |= left

    def _give_up(self, seen: ObservedNodes) -> None:
        findings = {name: of for name, of in seen.findings.items() if name not in self._rollout.done.failed}
        if not findings and not seen.undiscovered:
            return
        told = self._story(seen._replace(findings=findings))
        failed = f"{self._failures()}\n" if self._rollout.done.failed else ""
        raise WaitTimeout(
            f"{failed}{len(findings) + len(seen.undiscovered)} node(s) are not as their pools declare "
            f"(wait_timeout {self._timeout:.0f} s):\n{told}"
        )

    def _require_success(self) -> None:
        if self._rollout.done.failed:
            raise PartialFailure(self._failures())

    def _failures(self) -> str:
        done = self._rollout.done
        told = [f"{name}: {done.failed[name]}" for name in sorted(done.failed)[:_TOLD]]
        if len(done.failed) > _TOLD:
            told.append(f"and {len(done.failed) - _TOLD} more")
        if done.not_begun:
            told.append(f"{len(done.not_begun)} node(s) were not begun (rollout.pause_on_failure)")
        return "\n".join([f"{len(done.failed)} node(s) could not be changed:", *told])
