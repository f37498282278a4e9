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

from ..common.errors import ModuleFailure, PartialFailure, ServiceError
from ..common.results import MAX_LISTED
from ..common.wait import WaitOptions, WaitTimeout
from ..schema.messages import abbreviate_nodes, as_sentence
from .container import CommandFailed, LicenseContainers
from .diagnosis import Expected, problem
from .driver_pods import CONFIG_PATH, TOKEN_PATH, DriverPod, LicenseNode, Reading
from .token import utc_now

if t.TYPE_CHECKING:
    import datetime

    from ..kube.lease import Lease
    from .status import LicenseStatus

REPLACE, RESTART, NONE = "replace", "restart", "none"
# The last completed step of a node, with its text for messages.
_UNCHANGED, _WRITTEN, _ENDED, _REPLACED, _STARTED = "unchanged", "written", "ended", "replaced", "started"
_STEPS = {
    _UNCHANGED: "before its first change",
    _WRITTEN: "after its new files were written next to the old ones",
    _ENDED: "after its license client was stopped",
    _REPLACED: "after its license client was stopped and its files were replaced",
    _STARTED: "after its license client was started with the new files",
}
# How often a node is tried if the API server or the kubelet fails temporarily, or its driver pod is replaced.
_ATTEMPTS = 3


@dataclass(frozen=True)
class NodeRotation:
    """The change that one node needs: other files, or only a restart of its license client."""

    node: LicenseNode
    expected: Expected
    action: str

    @property
    def pod(self) -> DriverPod:
        """The driver pod, which runs when the rotation is planned."""
        return t.cast("DriverPod", self.node.pod)


@dataclass
class FormerLicense:
    """The license of the client that was ended: whether its end was seen, and its expiry. A driver might show it longer than its client runs."""

    expires: datetime.datetime | None = None
    ended: bool = False

    def observe(self, status: LicenseStatus | None) -> None:
        """Take notice of a state in which the node has no license."""
        self.ended |= status is not None and not status.is_licensed

    def is_shown_by(self, reading: Reading) -> bool:
        """Whether the reading may still show this license."""
        expires = reading.status.expires if reading.status is not None else None
        return not self.ended and (expires is None or self.expires is None or expires <= self.expires)


@dataclass
class RotationResult:
    """The nodes that were rotated, in order; those that left the cluster meanwhile, those that were not started, and the node that has failed."""

    rotated: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unchanged: int = 0
    pending: list[str] = field(default_factory=list)
    failed: str = ""
    # The last completed step of the node that is in progress, or has failed.
    reached: str = _UNCHANGED

    def as_dict(self) -> dict[str, t.Any]:
        """The result in the format of the module."""
        return {
            "rotated": self.rotated[:MAX_LISTED],
            "rotated_count": len(self.rotated),
            "removed": self.removed[:MAX_LISTED],
            "unchanged_count": self.unchanged,
            "pending": self.pending[:MAX_LISTED],
            "failed": self.failed or None,
            "reached": self.reached if self.failed else None,
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
        if files is not None and node.running_pod is not None and not readings[node.name].error:
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
        """Rotate the nodes; raises PartialFailure, or the error that concerns every node. The message names the node, the reason and the remedy."""
        result.pending = [each.node.name for each in rotations]
        for rotation in rotations:
            name = rotation.node.name
            self._waiting.progress.report(f"rotating the license of {name}", len(result.rotated), len(rotations))
            result.reached = _UNCHANGED
            result.pending.remove(name)
            try:
                self._rotate(rotation, result)
            except (ModuleFailure, ServiceError) as error:
                if self._has_left(name, error):
                    result.removed.append(name)
                    continue
                result.failed = name
                message, partial = _message(name, error, result), {"license_rotation": result.as_dict()}
                if isinstance(error, (ServiceError, CommandFailed, WaitTimeout)):
                    raise PartialFailure(message, partial) from error
                error.args, error.partial = (message,), partial
                raise
            result.rotated.append(name)

    def _has_left(self, name: str, error: Exception) -> bool:
        """Whether the error of a node comes from its removal, for example by an autoscaler."""
        if not isinstance(error, (ServiceError, CommandFailed, WaitTimeout)):
            return False
        try:
            return not self._containers.has_node(name)
        except (ModuleFailure, ServiceError):
            return False

    def _rotate(self, rotation: NodeRotation, result: RotationResult) -> None:
        """Rotate one node; after a temporary error, or if its driver pod was replaced, from its current state."""
        replaced = False
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                former = self._apply(rotation, result, replaced=replaced)
                self._verify(rotation, former)
                return
            except (CommandFailed, ServiceError) as error:
                if attempt == _ATTEMPTS:
                    raise
                if self._is_replaced(rotation):
                    rotation, replaced = self._with_next_pod(rotation), True
                elif not (isinstance(error, ServiceError) and error.transient):
                    raise

    def _is_replaced(self, rotation: NodeRotation) -> bool:
        """Whether the driver pod of the node is another one, or its container has started again."""
        return self._containers.current_pod(rotation.pod) != rotation.pod

    def _with_next_pod(self, rotation: NodeRotation) -> NodeRotation:
        """The rotation in the driver pod that the node has now, once it runs."""
        former = rotation.pod

        def text(pod: DriverPod | None) -> str:
            state = f"The driver does not run: {pod.failure}." if pod is not None else "The node has no driver pod."
            return f"The driver pod {former.name} was replaced. {state} The driver uses the new files when it starts."

        def read() -> DriverPod | None:
            pod = self._containers.current_pod(former)
            if pod is None and not self._containers.has_node(former.node):
                raise CommandFailed("The node has left the cluster.")
            return pod

        pod = self._waiting.until(
            read,
            lambda pod: pod is not None and not pod.failure,
            describe=text,
            progress_text=lambda pod: f"waiting for the driver of {former.node}",
        )
        return dataclasses.replace(rotation, node=dataclasses.replace(rotation.node, pod=pod))

    def _apply(self, rotation: NodeRotation, result: RotationResult, *, replaced: bool) -> FormerLicense:
        """Replace the files that differ, and restart the client. A container that was started with the new files has a client that uses them."""
        pod, containers = rotation.pod, self._containers
        contents = {TOKEN_PATH: rotation.expected.files.token, CONFIG_PATH: rotation.expected.files.config}
        current = containers.fingerprints(pod, *contents)
        changed = {
            path: content
            for path, content in contents.items()
            if content is not None and current[path] != rotation.expected.fingerprints[path]
        }
        if replaced and not changed:
            result.reached = _STARTED
            return FormerLicense(ended=True)
        before = self._status(pod)
        former = FormerLicense(before.expires if before is not None else None)
        former.observe(before)

        def stop() -> None:
            containers.stop(pod)
            former.observe(self._status(pod))

        steps: list[tuple[str, t.Callable[[], None]]] = [
            *((_WRITTEN, functools.partial(containers.write_new, pod, path, data)) for path, data in changed.items()),
            (_ENDED, stop),
            *((_REPLACED, functools.partial(containers.move_new, pod, path, data)) for path, data in changed.items()),
            (_STARTED, functools.partial(containers.start, pod)),
        ]
        for reached, step in steps:
            self._lease.check()
            step()
            result.reached = reached
        return former

    def _status(self, pod: DriverPod) -> LicenseStatus | None:
        """The state of the license, None if it cannot be read: the steps between the end and the start of a client must not fail because of it."""
        try:
            return self._containers.status(pod)
        except (CommandFailed, ServiceError):
            # If the API server fails, the next step does, too.
            return None

    def _verify(self, rotation: NodeRotation, former: FormerLicense) -> None:
        """Wait until the new client runs, and has got a license with the new files."""
        node = rotation.node

        def read() -> Reading:
            reading = self._containers.read(rotation.pod, client=True)
            former.observe(reading.status)
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
    where = f"The rotation stopped at node {name}, {_STEPS[result.reached]}"
    return (
        f"{where}: {as_sentence(str(error))}{done}{pending} A vGPU keeps its performance for 20 minutes without a license. "
        "Correct the cause, and run again: finished nodes are skipped."
    )
