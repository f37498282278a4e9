# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gives the running drivers the files of their Secret, node by node, without restarting a pod.

The order of the steps makes the state of a node sufficient to continue after an end at any point: the client is ended before the new files get their names.
A container with the new files therefore never runs a client that has read the old ones.
"""

from __future__ import annotations

import dataclasses
import functools
import typing as t
from dataclasses import dataclass, field

from ..common.errors import PartialFailure, ServiceError
from ..common.results import MAX_LISTED
from ..common.wait import WaitOptions, WaitTimeout
from ..schema.messages import abbreviate_nodes
from .container import CommandFailed, LicenseContainers
from .diagnosis import Expected, problem
from .driver_pods import CONFIG_PATH, TOKEN_PATH, DriverPod, LicenseNode, Reading
from .token import utc_now

if t.TYPE_CHECKING:
    import datetime

    from ..kube.lease import Lease
    from .status import LicenseStatus

REPLACE, RESTART, NONE = "replace", "restart", "none"
# How often a node is tried if the API server or the kubelet fails temporarily.
_ATTEMPTS = 3


@dataclass(frozen=True)
class NodeRotation:
    """The change that one node needs: other files, or only a restart of its license client."""

    node: LicenseNode
    expected: Expected
    action: str


@dataclass
class FormerLicense:
    """The license of the client that was ended: whether its end was seen, and its expiry. A driver might show it longer than its client runs."""

    expires: datetime.datetime | None = None
    ended: bool = False

    def see(self, status: LicenseStatus | None) -> None:
        """Take notice of a state in which the node has no license."""
        self.ended |= status is not None and not status.is_licensed

    def is_shown_by(self, reading: Reading) -> bool:
        """Whether the reading may still show this license."""
        expires = reading.status.expires if reading.status is not None else None
        return not self.ended and (expires is None or self.expires is None or expires <= self.expires)


@dataclass
class RotationResult:
    """The nodes that were rotated, in order; then those that were not started, and the node that has failed."""

    rotated: list[str] = field(default_factory=list)
    unchanged: int = 0
    pending: list[str] = field(default_factory=list)
    failed: str = ""

    def as_dict(self) -> dict[str, t.Any]:
        """The result in the format of the module."""
        return {
            "rotated": self.rotated[:MAX_LISTED],
            "rotated_count": len(self.rotated),
            "unchanged_count": self.unchanged,
            "pending": self.pending[:MAX_LISTED],
            "failed": self.failed or None,
        }


def needed_action(reading: Reading, expected: Expected) -> str:
    """The change that a node needs."""
    if any(not expected.matches(reading, path) for path in expected.fingerprints):
        return REPLACE
    return NONE if reading.is_licensed and reading.client_runs is not False else RESTART


def plan_rotation(
    nodes: t.Sequence[LicenseNode],
    readings: t.Mapping[str, Reading],
    expected: t.Callable[[LicenseNode], Expected | None],
) -> list[NodeRotation]:
    """The nodes to rotate, those with other files first: a node without a license may fail again, and the first failure ends the run."""
    rotations = []
    for node in nodes:
        files = expected(node)
        if files is not None and node.pod is not None and not node.pod.failure and not readings[node.name].error:
            rotations.append(NodeRotation(node, files, needed_action(readings[node.name], files)))
    order = (REPLACE, RESTART)
    return sorted(
        (each for each in rotations if each.action != NONE), key=lambda each: (order.index(each.action), each.node.name)
    )


class Rotator:
    """Rotates one node after the other, and stops at the first one that gets no license."""

    def __init__(self, containers: LicenseContainers, waiting: WaitOptions, lease: Lease) -> None:
        """Send no request yet."""
        self._containers = containers
        self._waiting = waiting
        self._lease = lease

    def run(self, rotations: t.Sequence[NodeRotation], result: RotationResult) -> None:
        """Rotate the nodes; raises PartialFailure, whose message names the node, the reason and the remedy."""
        result.pending = [each.node.name for each in rotations]
        for rotation in rotations:
            name = rotation.node.name
            self._waiting.progress.report(f"rotating the license of {name}", len(result.rotated), len(rotations))
            try:
                self._rotate(rotation)
            except (CommandFailed, WaitTimeout, ServiceError) as error:
                result.failed = name
                result.pending.remove(name)
                raise PartialFailure(_message(name, error, result), {"license_rotation": result.as_dict()}) from error
            result.pending.remove(name)
            result.rotated.append(name)

    def _rotate(self, rotation: NodeRotation) -> None:
        """Rotate one node; after a temporary error from its current state."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                former = self._apply(rotation)
                break
            except ServiceError as error:
                if not error.transient or attempt == _ATTEMPTS:
                    raise
        self._verify(rotation, former)

    def _apply(self, rotation: NodeRotation) -> FormerLicense:
        pod, containers = t.cast("DriverPod", rotation.node.pod), self._containers
        contents = {TOKEN_PATH: rotation.expected.files.token, CONFIG_PATH: rotation.expected.files.config}
        current = containers.fingerprints(pod, *contents)
        changed = {
            path: content
            for path, content in contents.items()
            if content is not None and current[path] != rotation.expected.fingerprints[path]
        }
        before = self._status(pod)
        former = FormerLicense(before.expires if before is not None else None)
        former.see(before)

        def stop() -> None:
            containers.stop(pod)
            former.see(self._status(pod))

        steps: list[t.Callable[[], None]] = [
            *(functools.partial(containers.write_new, pod, path, content) for path, content in changed.items()),
            stop,
            *(functools.partial(containers.move_new, pod, path, content) for path, content in changed.items()),
            functools.partial(containers.start, pod),
        ]
        for step in steps:
            self._lease.check()
            step()
        return former

    def _status(self, pod: DriverPod) -> LicenseStatus | None:
        """The state of the license, None if it cannot be read: the steps between the end and the start of a client must not fail because of it."""
        try:
            return self._containers.status(pod)
        except CommandFailed:
            return None

    def _verify(self, rotation: NodeRotation, former: FormerLicense) -> None:
        """Wait until the new client runs, and has got a license with the new files."""
        node = rotation.node

        def read() -> Reading:
            reading = self._containers.read(node.pod, client=True)
            former.see(reading.status)
            return reading

        def text(reading: Reading) -> str:
            if reading.is_licensed and reading.client_runs is False:
                return "The license client (nvidia-gridd) does not run."
            if not reading.is_licensed:
                services = self._containers.check_all([node], lambda dummy: rotation.expected).get(node.name, ())
                reading = dataclasses.replace(reading, services=services)
            if reason := problem(node, reading, rotation.expected, utc_now()):
                return reason
            return "nvidia-smi still shows the license of the former client."

        self._waiting.until(
            read,
            lambda reading: needed_action(reading, rotation.expected) == NONE and not former.is_shown_by(reading),
            describe=text,
            progress_text=lambda reading: (
                f"rotating the license of {node.name}: {reading.status.text if reading.status else 'unknown'}"
            ),
        )


def _message(name: str, error: Exception, result: RotationResult) -> str:
    done = f" Done: {abbreviate_nodes(result.rotated)}." if result.rotated else " No other node was changed."
    pending = f" Not started: {abbreviate_nodes(result.pending)}." if result.pending else ""
    reason = error.message if isinstance(error, ServiceError) else str(error)
    return (
        f"The rotation stopped at node {name}: {reason}{'' if reason.endswith('.') else '.'}{done}{pending} A vGPU keeps its performance for 20 minutes "
        "without a license. Correct the cause, and run again: finished nodes are skipped."
    )
