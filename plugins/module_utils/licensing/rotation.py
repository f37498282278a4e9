# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loads a new token: on one node first, then in the Secret, then on the other nodes.

The order of the steps allows a run to continue from the state of a node, wherever an earlier run ended.
"""

from __future__ import annotations

import dataclasses
import functools
import typing as t
from dataclasses import dataclass, field, replace

from ..catalog.names import LICENSING_MANAGER
from ..catalog.vgpu import AUTOMATIC, feature_mismatch
from ..core.errors import InvalidOptions, ModuleFailure, PartialFailure, ServiceError
from ..core.messages import MAX_LISTED, abbreviate, abbreviate_nodes, as_sentence, diff_of, join_words
from ..core.waits import WaitOptions, WaitTimeout
from ..gpu_operator.cluster_policy import DriverRollout, UpgradePolicy, changed_fields, is_in_place
from ..gpu_operator.readiness import driver_nodes, driver_object_of, is_driver
from ..kube.objects import write_or_dry_run
from ..kube.paths import CLUSTER_POLICIES, collection_path
from .container import DriverRestarts, LicenseContainers, RestartBlocked
from .content import LicenseTarget, LicensingConfigDiff, plan_licensing_config
from .diagnosis import (
    CONFIG_PATH,
    NODE_LEFT,
    TOKEN_PATH,
    CommandFailed,
    DriverPod,
    LicenseNode,
    LicenseObject,
    Reading,
    object_problem,
    problem,
)
from .token import (
    FEATURE_TYPE_OPTION,
    REPLACE_OPTION,
    RESTART_OPTION,
    RESTORE_OPTION,
    SHORT,
    TOKEN_ENV,
    TOKEN_OPTION,
    TOKEN_PATH_OPTION,
    are_unreachable,
    fingerprint,
    utc_now,
)

if t.TYPE_CHECKING:
    import datetime

    from ..kube.lease import Lease
    from ..pools.module import PlanModule
    from ..pools.plan import Plan
    from .cluster import LicenseCluster, LicenseObjectChange, LicenseObjects
    from .diagnosis import LicenseStatus

# Loads the files in the Secret into running drivers, node by node; pods are restarted only if this is requested.
#
# The order of the steps allows a run to continue from the state of a node, wherever an earlier run ended: the client is stopped before the new files
# replace the old ones. A client that has read the old files therefore never runs in a container with the new files.

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
                "The driver runs, but the device plugin is not ready, so the node does not advertise any GPUs: "
                f"{self._restarts.device_plugin_problem(name) or 'it has just become ready'}. Check the plugin's pod and log."
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


# Reads the state before a rotation: the nodes to rotate, the nodes that cannot be rotated, and whether nodes would lose their license.


class UnreachableServers(ModuleFailure):
    """Nodes cannot reach any license server of the new token."""

    code = "preflight"


class UnfittingFeatureType(ModuleFailure):
    """FeatureType in the new gridd.conf does not fit the vGPUs of nodes."""

    code = "preflight"


class UnreadableNodes(ModuleFailure):
    """The new files cannot be tried on any node."""

    code = "preflight"


@dataclass(frozen=True)
class Survey:
    """The state before a rotation: the nodes, their readings, the rotations, the nodes that cannot be rotated, and the pods that a drain would evict now."""

    nodes: t.Sequence[LicenseNode]
    readings: t.Mapping[str, Reading]
    rotations: t.Sequence[NodeRotation]
    skipped: t.Sequence[str]
    warnings: t.Sequence[str]
    restarts: DriverRestarts
    # By node.
    pods_to_evict: t.Mapping[str, t.Sequence[str]]
    expected_of: t.Callable[[LicenseNode], LicenseObject | None]

    @property
    def failing(self) -> list[str]:
        """The skipped nodes whose driver has failed. Nodes whose driver is still starting are not included."""
        return [
            node.name
            for node in self.nodes
            if node.name in self.skipped and node.pod is not None and node.pod.log_container
        ]

    @property
    def changed(self) -> bool:
        """Whether any node must be rotated, or has files that an earlier run has left behind."""
        return bool(self.rotations) or any(reading.leftovers for reading in self.readings.values())

    def diff(self) -> dict[str, t.Any]:
        """The digests of the files, and the pods that are evicted, for up to 100 nodes."""
        return diff_of(*self.node_states(), "licensing files of nodes")

    def node_states(self) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
        """The content of the diff, before and after."""
        before: dict[str, t.Any] = {}
        after: dict[str, t.Any] = {}
        for rotation in self.rotations[:MAX_LISTED]:
            name, reading = rotation.node.name, self.readings[rotation.node.name]
            digests = rotation.expected.fingerprints
            state = "licensed" if reading.is_licensed else "unlicensed"
            before[name] = {"state": state, **{path: (reading.files.get(path) or "")[:SHORT] for path in digests}}
            after[name] = {"state": "licensed", **{path: digest[:SHORT] for path, digest in digests.items()}}
            if rotation.unfinished:
                before[name]["driver_restart"], after[name]["driver_restart"] = "unfinished", "completed"
            if rotation.restarts_driver:
                before[name]["driver_pod"], after[name]["driver_pod"] = rotation.pod.name, "restarted"
            if pods := self.pods_to_evict.get(name):
                before[name]["pods"], after[name]["pods"] = list(pods[:MAX_LISTED]), "evicted"
        return before, after

    def first_nodes(self) -> Survey:
        """The survey with only the nodes on which the new files are tried: for each object, the first node in the order of the rotation. An object whose
        files are already in use on a node with a license needs none. Raises UnreadableNodes if no running driver of an object can be read.
        """
        first = []
        for target in dict.fromkeys(expected.target for node in self.nodes if (expected := self.expected_of(node))):
            rotations = [rotation for rotation in self.rotations if rotation.expected.target == target]
            names = {rotation.node.name for rotation in rotations}
            running = [
                node
                for node in self.nodes
                if node.running_pod is not None
                and not node.not_required
                and (expected := self.expected_of(node))
                and expected.target == target
            ]
            readable = [node for node in running if node.is_known_by(self.readings[node.name])]
            if running and not (readable or rotations):
                raise UnreadableNodes(
                    "\n".join(
                        [
                            f"{target.kind} {target.name} was not changed, because its new files cannot be tried on any node. Correct the causes, and run the "
                            "playbook again.",
                            *(f"node {node.name}: {self.readings[node.name].error}" for node in running[:MAX_LISTED]),
                        ]
                    )
                )
            # A readable node without a rotation has a license with the new files.
            if all(node.name in names for node in readable):
                first += rotations[:1]
        return replace(self, rotations=first)


def read_survey(
    module: PlanModule, cluster: LicenseCluster, nodes: list[LicenseNode], containers: LicenseContainers, lease: Lease
) -> Survey:
    """Read the Secret and the given nodes.

    Raises InvalidOptions, UnfittingFeatureType or UnreachableServers if nodes would lose their license, and RestartBlocked if drains are blocked.
    """
    _require_tokens(cluster, nodes)
    readings = containers.read_all(
        nodes,
        client=True,
        on_done=lambda count: module.progress.report("reading the licenses of nodes", count, len(nodes)),
    )
    rotations = plan_rotation(
        nodes,
        readings,
        cluster.expected_of,
        cluster.unfinished_restarts(),
        restart_drivers=module.params["restart_drivers"],
    )
    _require_fitting(rotations, readings)
    names = {rotation.node.name for rotation in rotations}
    skipped = _skipped([node for node in nodes if node.name not in names], readings)
    warnings = [f"Not rotated: {abbreviate_nodes(names)}. {cause}" for cause, names in skipped.items()]
    if module.params["preflight"]:
        warnings += _require_services(containers, rotations, cluster)
    restarts = DriverRestarts(module.client, cluster.namespace, cluster.rollouts(), lease, module.progress)
    drained = {rotation.node.name for rotation in rotations if rotation.is_drained}
    try:
        evicted = restarts.pods_to_evict([node for node in cluster.nodes if node.name in drained])
    except RestartBlocked as error:
        error.partial = {"license_rotation": RotationResult(pending=[each.node.name for each in rotations]).as_dict()}
        raise
    cannot = sorted(name for names in skipped.values() for name in names)
    return Survey(nodes, readings, rotations, cannot, warnings, restarts, evicted, cluster.expected_of)


def _require_tokens(cluster: LicenseCluster, nodes: t.Sequence[LicenseNode]) -> None:
    """Raise InvalidOptions if the new files would cause the nodes to lose their licenses."""
    if nodes and not cluster.mounted:
        raise InvalidOptions([cluster.no_object_text])
    used = dict.fromkeys(expected.target for node in nodes if (expected := cluster.expected_of(node)) is not None)
    objects = [expected for target in used if (expected := cluster.expected[target]).predicted is None]
    now = utc_now()
    problems = [text for expected in objects if (text := object_problem(expected, now))]
    if problems:
        raise InvalidOptions(problems)


def _require_fitting(rotations: t.Sequence[NodeRotation], readings: t.Mapping[str, Reading]) -> None:
    """Raise UnfittingFeatureType if nodes would get no license with the new gridd.conf, by the vGPU types that their drivers or their labels show."""
    problems: dict[str, list[str]] = {}
    for rotation in rotations:
        kind = rotation.node.series_with(readings[rotation.node.name])
        if rotation.action != NONE and kind and (reason := feature_mismatch(rotation.expected.feature_type, kind)):
            problems.setdefault(f"{reason} ({rotation.expected.label})", []).append(rotation.node.name)
    if problems:
        lines = [f"{abbreviate_nodes(names)}: gridd.conf: {reason}." for reason, names in problems.items()]
        raise UnfittingFeatureType(
            "\n".join(
                [
                    f"Nodes would get no license. No node was changed. Set {FEATURE_TYPE_OPTION} to {AUTOMATIC}, or correct gridd.conf where it is managed.",
                    *lines,
                ]
            ),
            {"license_rotation": RotationResult(pending=[each.node.name for each in rotations]).as_dict()},
        )


def _require_services(
    containers: LicenseContainers, rotations: t.Sequence[NodeRotation], cluster: LicenseCluster
) -> list[str]:
    """Warnings about servers that some nodes cannot reach. Raises UnreachableServers if the new files would cause a node to lose its license."""
    nodes = [rotation.node for rotation in rotations if rotation.action == REPLACE]
    checks = containers.check_all(nodes, cluster.expected_of)
    failed: dict[str, list[str]] = {}
    doubtful: dict[str, list[str]] = {}
    for name, results in checks.items():
        unreachable = are_unreachable(results)
        for check in results:
            if check.layer:
                (failed if unreachable else doubtful).setdefault(check.message, []).append(name)
    if failed:
        lines = [f"{abbreviate_nodes(names)}: {message}" for message, names in failed.items()]
        result = RotationResult(pending=[rotation.node.name for rotation in rotations])
        raise UnreachableServers(
            "\n".join(["Some nodes cannot reach any license server of the new token. No node was changed.", *lines]),
            {"license_rotation": result.as_dict()},
        )
    return [f"{abbreviate_nodes(names)}: {message}" for message, names in doubtful.items()]


def _skipped(nodes: t.Sequence[LicenseNode], readings: t.Mapping[str, Reading]) -> dict[str, list[str]]:
    """The nodes that cannot be rotated, by cause."""
    causes: dict[str, list[str]] = {}
    for node in nodes:
        reading = readings[node.name]
        if not node.is_known_by(reading):
            causes.setdefault(problem(node, reading, None, utc_now()), []).append(node.name)
    return causes


# Changes the licensingConfig of the ClusterPolicy, and determines which drivers this restarts.


@dataclasses.dataclass(frozen=True)
class LicensingConfigChange:
    """A change to the ClusterPolicy. `config` is None if the policy does not describe the driver. `rollout` is None if no driver restarts."""

    name: str
    config: LicensingConfigDiff | None
    rollout: DriverRollout | None
    held_back: bool = False

    @property
    def applied(self) -> bool:
        """Whether the change is sent."""
        return self.config is not None and self.config.changed and not self.held_back

    @property
    def held_back_fields(self) -> list[str]:
        """The fields whose change is not sent, because it would restart the driver."""
        return self.config.fields if self.config is not None and self.held_back else []


NO_CONFIG_CHANGE = LicensingConfigChange("", None, None)


def config_change(
    module: PlanModule, plan: Plan, cluster: LicenseCluster, target: LicenseTarget, version: str
) -> LicensingConfigChange:
    """Return the change to the ClusterPolicy, and the driver restarts that it causes."""
    config = plan_licensing_config(plan, cluster.policy, target)
    if config is None or cluster.policy is None:
        return LicensingConfigChange("", None, None)
    name = cluster.policy["metadata"]["name"]
    if not config.changed:
        return LicensingConfigChange(name, config, None)
    listed = module.client.list(collection_path("apps/v1", "DaemonSet", cluster.namespace))
    drivers = [item for item in listed if is_driver(item) and not driver_object_of(item)]
    nodes = driver_nodes(drivers).get("", 0)
    if not nodes:
        return LicensingConfigChange(name, config, None)
    upgrade_policy = UpgradePolicy.from_spec(cluster.policy.get("spec") or {})
    reasons = tuple(changed_fields(config.fields))
    in_place = is_in_place(config.paths, version, upgrade_policy, drivers)
    rollout = DriverRollout(nodes, upgrade_policy, reasons, in_place=in_place)
    return LicensingConfigChange(name, config, rollout, not (in_place or module.params["allow_driver_rollout"]))


def apply_config(module: PlanModule, change: LicensingConfigChange) -> str | None:
    """Send the change; in check mode, returns the reason why the server did not validate it."""
    body = {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": change.name},
        "spec": {"driver": {"licensingConfig": dict(change.config.after if change.config else {})}},
    }
    path = f"{CLUSTER_POLICIES}/{change.name}"
    check = module.check_mode
    return write_or_dry_run(
        lambda: module.client.apply(path, body, dry_run=check, field_validation="Strict", manager=LICENSING_MANAGER),
        check=check,
    )


# Tries new licensing files on one node before they are written to the object that all driver pods mount.


def survey_first_nodes(
    module: PlanModule,
    cluster: LicenseCluster,
    objects: LicenseObjects,
    changes: list[LicenseObjectChange],
    lease: Lease,
) -> tuple[list[LicenseObjectChange], Survey | None]:
    """Return the changes and the nodes on which to try their files. Raise an error of read_survey() or first_nodes() if nodes would lose their license."""
    written = [change for change in changes if change.body is not None]
    names = module.params["node_names"]
    nodes = [node for node in cluster.expect(written) if not names or node.name in names] if written else []
    if not nodes:
        return changes, None
    survey = read_survey(module, cluster, nodes, LicenseContainers(module.client), lease)
    if module.params["restore"]:
        _require_complete(survey, written)
    objects.unverified = _unverified(survey, written)
    if any(change.before.previous and change.target.name in objects.unverified for change in written):
        changes = [objects.compare(change.target) for change in changes]
    return changes, survey.first_nodes()


def require_rotation(module: PlanModule, cluster: LicenseCluster, changes: t.Iterable[LicenseObjectChange]) -> None:
    """Raise InvalidOptions if a run that loads no token would replace the token of nodes that have a license: nothing has shown that the new one works, and a
    driver that restarts would use it.
    """
    for change in changes:
        before = change.before.token
        if change.body is None or before is None or change.desired.files.token in (None, before):
            continue
        nodes = [
            node
            for node in cluster.license_nodes()
            if (expected := cluster.expected_of(node)) is not None and expected.target.is_same_object(change.target)
        ]
        readings = LicenseContainers(module.client).read_all(nodes, client=False)
        licensed = [name for name, reading in readings.items() if reading.is_licensed]
        if licensed:
            raise InvalidOptions(
                [
                    f"{change.target.label(cluster.namespace)} was not changed, because nodes have a license with its token ({abbreviate(licensed)}), and with "
                    f"{REPLACE_OPTION}, the new token may be for another license server. The playbook license_rotate tries the new token on one node "
                    "before it replaces the old one; run it with the same variables."
                ]
            )


def try_files(module: PlanModule, survey: Survey, labels: t.Sequence[str], lease: Lease) -> list[str]:
    """Load the new files into the drivers of the first nodes, and wait for their licenses; return the evicted pods. Raise PartialFailure if a node gets no
    license.
    """
    waiting = WaitOptions(module.params["wait_timeout"], module.params["wait_sleep"], module.progress)
    restart_timeout = module.params["restart_timeout"]
    containers = LicenseContainers(module.client)
    rotator = Rotator(containers, waiting, lease, survey.restarts, restart_timeout, unwritten=join_words(labels))
    containers.remove_leftovers(survey.nodes, survey.readings)
    result = RotationResult()
    rotator.run(survey.rotations, result)
    if result.removed:
        raise PartialFailure(
            f"{abbreviate_nodes(result.removed)} left the cluster while the new files were tried there. {join_words(labels)} was not changed. Run the playbook "
            "again.",
            {"license_rotation": result.as_dict()},
        )
    return result.evicted


def _unverified(survey: Survey, changes: t.Iterable[LicenseObjectChange]) -> set[str]:
    """The names of the objects whose present token does not license all of their nodes. Nodes that already have the desired token do not count."""
    names = set()
    for change in changes:
        tokens = [
            fingerprint(token) for token in (change.before.token, change.desired.files.token) if token is not None
        ]
        for dummy, reading in _nodes_of(survey, change):
            if reading.files.get(TOKEN_PATH) not in tokens or not reading.is_licensed:
                names.add(change.target.name)
                break
    return names


def _require_complete(survey: Survey, changes: t.Iterable[LicenseObjectChange]) -> None:
    """Raise InvalidOptions if nodes have a token that their object neither contains nor has kept: an attempt to replace the present token has failed before
    it changed the object, so the present files must be loaded, not the kept ones.
    """
    for change in changes:
        files = change.before
        former = files.previous.token if files.previous is not None else None
        known = [fingerprint(token) for token in (files.token, former) if token is not None]
        others = [
            node.name
            for node, reading in _nodes_of(survey, change)
            if reading.files.get(TOKEN_PATH) not in (None, *known)
        ]
        if others:
            raise InvalidOptions(
                [
                    f"{RESTORE_OPTION}: {abbreviate_nodes(others)} has a token that was never written to {change.target.kind} {change.target.name}, so the "
                    f"object still contains the files from before that attempt. To load them, run license_rotate without a token and without this variable."
                ]
            )


def _nodes_of(survey: Survey, change: LicenseObjectChange) -> list[tuple[LicenseNode, Reading]]:
    """The readable nodes whose driver pods mount the object."""
    return [
        (node, survey.readings[node.name])
        for node in survey.nodes
        if node.is_known_by(survey.readings[node.name])
        and (expected := survey.expected_of(node)) is not None
        and expected.target.is_same_object(change.target)
    ]
