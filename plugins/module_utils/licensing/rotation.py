# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loads the files in the Secret into running drivers, node by node; pods are restarted only if this is requested.

The order of the steps allows a run to continue from the state of a node, wherever an earlier run ended: the client is stopped before the new files
replace the old ones. A client that has read the old files therefore never runs in a container with the new files.
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
from .container import LicenseContainers
from .diagnosis import LicenseObject, problem
from .driver_pods import CONFIG_PATH, TOKEN_PATH, DriverPod, LicenseNode, Reading
from .driver_restart import DriverRestarts
from .node_reads import NODE_LEFT, CommandFailed
from .option_names import RESTART_OPTION, TOKEN_ENV, TOKEN_OPTION, TOKEN_PATH_OPTION
from .token import utc_now

if t.TYPE_CHECKING:
    import datetime

    from ..kube.lease import Lease
    from .status import LicenseStatus

REPLACE, RESTART, NONE = "replace", "restart", "none"
# The last completed step of a node, or the step in progress (a drain, or the completion of an earlier restart). _STEPS contains the texts for messages.
_UNCHANGED, _WRITTEN, _ENDED, _REPLACED, _STARTED = "unchanged", "written", "ended", "replaced", "started"
_DRAINING, _DELETED, _UNFINISHED = "draining", "deleted", "unfinished"
_STEPS = {
    _UNCHANGED: "before its first change",
    _WRITTEN: "after its new files were written next to the old ones",
    _ENDED: "after its license client was stopped",
    _REPLACED: "after its license client was stopped and its files were replaced",
    _STARTED: "after its license client was started with the new files",
    _DRAINING: "while it was drained",
    _DELETED: "after its driver pod was deleted",
    _UNFINISHED: "while an unfinished restart of its driver was completed",
}
_RESTART_ADVICE = f"To restart the driver of the node after a drain, set {RESTART_OPTION}."
# The number of attempts for a node if the API server or the kubelet fails temporarily, or if its driver pod is replaced.
_ATTEMPTS = 3


@dataclass(frozen=True)
class NodeRotation:
    """The change that one node needs: new files, only a restart of its license client, or only the completion of an unfinished driver restart.

    restarts_driver: whether the node is drained and its driver pod is deleted instead. unfinished: whether an earlier run began a driver restart, but
    did not complete it. drains_again: whether pods that were scheduled since then are evicted, because the driver is not running.
    """

    node: LicenseNode
    expected: LicenseObject
    action: str
    restarts_driver: bool = False
    unfinished: bool = False
    drains_again: bool = False

    @property
    def is_drained(self) -> bool:
        """Whether pods are evicted."""
        return self.restarts_driver or self.drains_again

    @property
    def is_restart(self) -> bool:
        """Whether this rotation begins or completes a restart of the driver, for which the node is cordoned."""
        return self.restarts_driver or self.unfinished

    @property
    def pod(self) -> DriverPod:
        """The driver pod; if the node has none, the pod whose restart an earlier run has begun."""
        return t.cast("DriverPod", self.node.pod)

    @property
    def restart_advice(self) -> str:
        """The advice to restart the driver; empty if this run restarts it, or an earlier run has restarted it."""
        return "" if self.restarts_driver or self.action == NONE else _RESTART_ADVICE


@dataclass
class FormerLicense:
    """The license of a stopped client, which a driver may still report: when it expires, and whether the node was observed without a license."""

    expires: datetime.datetime | None = None
    ended: bool = False

    def observe(self, status: LicenseStatus | None) -> None:
        """Record whether the node was observed without a license."""
        self.ended |= status is not None and not status.is_licensed

    def is_shown_by(self, reading: Reading) -> bool:
        """Whether the reading may still show this license."""
        expires = reading.status.expires if reading.status is not None else None
        return not self.ended and (expires is None or self.expires is None or expires <= self.expires)


@dataclass
class RotationResult:
    """The nodes that were rotated, in order; the nodes that left the cluster during the run; the pending nodes; and the node that has failed."""

    rotated: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unchanged: int = 0
    pending: list[str] = field(default_factory=list)
    # The nodes whose drivers were restarted, and the pods that were evicted from them and from the node that has failed.
    restarted: list[str] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    failed: str = ""
    # The last completed step, or the step in progress, of the current node or of the node that has failed.
    reached: str = _UNCHANGED

    def as_dict(self) -> dict[str, t.Any]:
        """The result in the format that the module returns."""
        return {
            "rotated": self.rotated[:MAX_LISTED],
            "rotated_count": len(self.rotated),
            "restarted": self.restarted[:MAX_LISTED],
            "evicted": self.evicted[:MAX_LISTED],
            "removed": self.removed[:MAX_LISTED],
            "unchanged_count": self.unchanged,
            "pending": self.pending[:MAX_LISTED],
            "failed": self.failed or None,
            "reached": self.reached if self.failed else None,
        }


def needed_action(reading: Reading, expected: LicenseObject) -> str:
    """The change that a node needs."""
    if any(not expected.matches(reading, path) for path in expected.fingerprints):
        return REPLACE
    return NONE if reading.is_licensed and reading.client_runs is not False else RESTART


def plan_rotation(
    nodes: t.Sequence[LicenseNode],
    readings: t.Mapping[str, Reading],
    expected: t.Callable[[LicenseNode], LicenseObject | None],
    unfinished: t.Mapping[str, str],
    *,
    restart_drivers: bool,
) -> list[NodeRotation]:
    """The rotations in their order. The first failure ends the run, so nodes without a license come before nodes that would lose one: while a node that an
    earlier run has changed gets no license with the new files, no other node is changed. A node that has no license although others have one with the very
    same files says nothing about the new files, so it comes last.

    `unfinished` contains, by node, the name of the driver pod whose restart an earlier run has begun but not completed. These nodes come first.
    """
    rotations = [
        rotation
        for node in nodes
        if (files := expected(node)) is not None
        and (
            rotation := _node_rotation(
                node, readings[node.name], files, unfinished.get(node.name), restart_drivers=restart_drivers
            )
        )
    ]
    order = (RESTART, REPLACE, NONE)

    def works(reading: Reading) -> bool:
        return reading.is_licensed and reading.client_runs is not False

    licensed = [reading.files for reading in readings.values() if works(reading)]

    def position(rotation: NodeRotation) -> tuple[bool, bool, bool, int, str]:
        reading = readings[rotation.node.name]
        own_problem = not works(reading) and reading.files in licensed
        return (
            not rotation.unfinished,
            own_problem,
            works(reading),
            order.index(rotation.action),
            rotation.node.name,
        )

    return sorted(rotations, key=position)


def _node_rotation(
    node: LicenseNode, reading: Reading, files: LicenseObject, pod_to_restart: str | None, *, restart_drivers: bool
) -> NodeRotation | None:
    """The rotation of one node; None if the node needs no change, or cannot be changed."""
    readable = node.is_known_by(reading)
    action = needed_action(reading, files) if readable else NONE
    if pod_to_restart is None:
        return NodeRotation(node, files, action, restart_drivers) if action != NONE else None
    if node.pod is None:
        node = dataclasses.replace(node, pod=DriverPod(pod_to_restart, files.namespace, node.name))
    elif action == RESTART and node.pod.name != pod_to_restart:
        # The driver has restarted with these files; the client may simply not have received a license yet.
        action = NONE
    return NodeRotation(
        node,
        files,
        action,
        restart_drivers and action != NONE,
        unfinished=True,
        drains_again=restart_drivers and not (readable and node.pod is not None and node.pod.ready),
    )


class Rotator:
    """Rotates one node at a time, and stops at the first node that gets no license."""

    def __init__(
        self,
        containers: LicenseContainers,
        waiting: WaitOptions,
        lease: Lease,
        restarts: DriverRestarts,
        restart_timeout: float,
        unwritten: str = "",
    ) -> None:
        """Store the arguments; no request is sent yet. `restart_timeout` is the number of seconds within which a restarted driver must be ready, and
        `unwritten` contains the objects that get the new files only after this rotation.
        """
        self._containers = containers
        self._waiting = waiting
        self._lease = lease
        self._restarts = restarts
        self._unwritten = unwritten
        self._restart_waiting = dataclasses.replace(waiting, timeout=restart_timeout, option="restart_timeout")

    def run(self, rotations: t.Sequence[NodeRotation], result: RotationResult) -> None:
        """Rotate the nodes; raises PartialFailure, or an error that affects every node. The message contains the node, the reason and the remedy."""
        result.pending = [each.node.name for each in rotations]
        for rotation in rotations:
            name = rotation.node.name
            self._waiting.progress.report(f"rotating the license of {name}", len(result.rotated), len(rotations))
            result.reached = _UNFINISHED if rotation.unfinished else _UNCHANGED
            result.pending.remove(name)
            try:
                self._rotate(rotation, result)
            except (ModuleFailure, ServiceError) as error:
                if self._has_left(name, error):
                    result.removed.append(name)
                    continue
                result.failed = name
                message, partial = (
                    stop_message(rotation, error, result, _STEPS[result.reached], self._unwritten),
                    {"license_rotation": result.as_dict()},
                )
                if isinstance(error, (ServiceError, CommandFailed, WaitTimeout)):
                    raise PartialFailure(message, partial) from error
                error.args, error.partial = (message,), partial
                raise
            result.rotated.append(name)

    def _has_left(self, name: str, error: Exception) -> bool:
        """Whether an error occurred because the node was removed, for example by an autoscaler."""
        if not isinstance(error, (ServiceError, CommandFailed, WaitTimeout)):
            return False
        try:
            return not self._containers.has_node(name)
        except (ModuleFailure, ServiceError):
            return False

    def _rotate(self, rotation: NodeRotation, result: RotationResult) -> None:
        """Rotate one node, including the restart of its driver if one is required or unfinished."""
        if rotation.restarts_driver:
            result.reached = _DRAINING
            self._restarts.begin(rotation.pod, result.evicted)
            result.reached = _DELETED
            result.restarted.append(rotation.node.name)
        elif rotation.drains_again:
            self._restarts.drain_again(rotation.pod, result.evicted)
        replaced = rotation.restarts_driver or rotation.action == NONE
        if rotation.is_restart:
            rotation = self._with_next_pod(rotation, self._restart_waiting)
        self._rotate_pod(rotation, result, replaced=replaced)
        if rotation.is_restart:
            self._await_gpus(rotation.node.name)
            self._restarts.finish(rotation.node.name)

    def _await_gpus(self, name: str) -> None:
        """Wait until evicted pods can return to a node, before the next node is drained."""
        self._restart_waiting.until(
            lambda: self._restarts.device_plugin_ready(name),
            bool,
            describe=lambda dummy: (
                "The driver runs, but the device plugin is not ready, so the node does not advertise any GPUs. Check the plugin's pod and log."
            ),
            progress_text=lambda dummy: f"waiting for the device plugin of {name}",
        )

    def _rotate_pod(self, rotation: NodeRotation, result: RotationResult, *, replaced: bool) -> None:
        """Rotate one node; after a temporary error, or if the driver pod was replaced, try again from the node's current state."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                former = self._apply(rotation, result, replaced=replaced)
                self._verify(rotation, former)
                return
            except (CommandFailed, ServiceError) as error:
                if attempt == _ATTEMPTS:
                    raise
                if self._is_replaced(rotation):
                    rotation, replaced = self._with_next_pod(rotation, self._waiting), True
                elif not (isinstance(error, ServiceError) and error.transient):
                    raise

    def _is_replaced(self, rotation: NodeRotation) -> bool:
        """Whether the node has a different driver pod, or the container of its driver pod was restarted."""
        return self._containers.current_pod(rotation.pod) != rotation.pod

    def _with_next_pod(self, rotation: NodeRotation, waiting: WaitOptions) -> NodeRotation:
        """Wait until the driver is loaded in the node's current driver pod; returns the rotation with this pod."""
        former = rotation.pod

        def text(pod: DriverPod | None) -> str:
            state = pod.failure_text if pod is not None else "The node has no driver pod."
            users = self._restarts.gpu_users_text(former.node) if rotation.is_restart else ""
            parts = (
                f"The driver pod {former.name} was replaced.",
                state,
                users,
                "The driver uses the new files when it starts.",
            )
            return " ".join(filter(None, parts))

        def read() -> DriverPod | None:
            pod = self._containers.current_pod(former)
            if pod is None and not self._containers.has_node(former.node):
                raise CommandFailed(NODE_LEFT)
            return pod

        pod = waiting.until(
            read,
            lambda pod: pod is not None and pod.ready and not pod.failure,
            describe=text,
            progress_text=lambda pod: f"waiting for the driver of {former.node}",
        )
        return dataclasses.replace(rotation, node=dataclasses.replace(rotation.node, pod=pod))

    def _apply(self, rotation: NodeRotation, result: RotationResult, *, replaced: bool) -> FormerLicense:
        """Replace the files that differ, and restart the client. In a container that was started with the new files, the client already uses them."""
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
        """The state of the license; None if it cannot be read. A read error must not prevent the steps between the end and the start of a client."""
        try:
            return self._containers.status(pod)
        except (CommandFailed, ServiceError):
            # If the API server has failed, the next step raises the error.
            return None

    def _verify(self, rotation: NodeRotation, former: FormerLicense) -> None:
        """Wait until the new client runs and has a license, and the node has the new files."""
        node = rotation.node

        def read() -> Reading:
            reading = self._containers.read(rotation.pod, client=True)
            former.observe(reading.status)
            return reading

        def text(reading: Reading) -> str:
            if reading.is_licensed and reading.client_runs is False:
                advice = rotation.restart_advice or f"Check the log of pod {rotation.pod.name}."
                return f"The license client (nvidia-gridd) does not run. {advice}"
            if not reading.is_licensed:
                services = self._containers.check_all([node], lambda dummy: rotation.expected).get(node.name, ())
                reading = dataclasses.replace(reading, services=services)
            if reason := problem(node, reading, rotation.expected, utc_now()):
                return reason
            return "nvidia-smi still shows the license of the previous license client."

        self._waiting.until(
            read,
            lambda reading: needed_action(reading, rotation.expected) == NONE and not former.is_shown_by(reading),
            describe=text,
            progress_text=lambda reading: (
                f"rotating the license of {node.name}: {reading.status.text if reading.status else 'unknown'}"
            ),
        )


def stop_message(
    rotation: NodeRotation, error: Exception, result: RotationResult, step: str, unwritten: str = ""
) -> str:
    """The message of a rotation that stops at a node after `step`; `unwritten` lists the objects that do not have the new files yet."""
    done = f" Already rotated: {abbreviate_nodes(result.rotated)}." if result.rotated else " No other node was changed."
    pending = f" Not rotated yet: {abbreviate_nodes(result.pending)}." if result.pending else ""
    cordon = ""
    if rotation.is_restart and result.reached != "draining":
        cordon = " The node stays cordoned until a run completes its rotation, and even then if it was already cordoned before the restart."
    advice = f" {rotation.restart_advice}".rstrip() if isinstance(error, CommandFailed) else ""
    where = f"The rotation stopped at node {rotation.node.name}, {step}"
    remedy = "Correct the cause, and run the playbook again; it continues with this node, and nodes that are already rotated are skipped."
    if unwritten:
        remedy = (
            f"{unwritten} was not changed, and still has the previous files. Correct the cause, and run the playbook again; it continues with this node. To "
            f"load the previous files on this node, run license_rotate without a token ({TOKEN_OPTION}, {TOKEN_PATH_OPTION}, {TOKEN_ENV})."
        )
    return f"{where}: {as_sentence(str(error))}{advice}{cordon}{done}{pending} A vGPU keeps its performance for 20 minutes without a license. {remedy}"
