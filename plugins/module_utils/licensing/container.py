# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands in driver containers, returned licenses, and restarts of drivers."""

from __future__ import annotations

import contextlib
import functools
import time
import typing as t
from dataclasses import dataclass

from ..catalog.names import DRIVER_CONTAINER, LIVE_PODS
from ..catalog.operands import PLUGIN
from ..core.errors import ModuleFailure, ServiceError
from ..core.messages import abbreviate, abbreviate_nodes, as_sentence
from ..core.waits import WaitTimeout, run_bounded
from ..helm.preparation import unready_reasons
from ..kube.errors import ApiError
from ..kube.fields import is_deleting
from ..kube.lease import LeaseLost
from ..kube.paths import NODES, PODS, collection_path
from ..nodes.drain import NodeRemoval, drain_gpu_pods
from ..nodes.impact import BlockingPod, blocked_message, blocking_gpu_pods, gpu_pods_to_evict
from ..nodes.node import Node, parse_node
from ..nodes.node_check import (
    Patch,
    cordon_for_driver_restart,
    driver_pod_to_restart,
    end_driver_restart,
    not_ready_message,
    pause_clients,
    unfinished_run_message,
)
from ..nodes.node_metadata import patch_node
from ..nodes.ownership import NodeEdit
from ..nodes.pods import app_of, is_ready, pods_by_node, pods_on, read_operand_pods
from .diagnosis import (
    CONFIG_PATH,
    DRIVER_POD_SELECTOR,
    NODE_LEFT,
    PARALLEL,
    TOKEN_PATH,
    CommandFailed,
    DriverPod,
    LicenseNode,
    LicenseStatus,
    Reading,
    concerns_all,
    error_sentence,
    parse_driver_pods,
    parse_status,
    read_parallel,
    shorten,
)
from .token import NODE_NAMES_OPTION, Server, ServiceCheck, check_command, evaluate_check, fingerprint, unknown_check

if t.TYPE_CHECKING:
    from ..core.waits import Progress
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..kube.transport import ExecResult
    from ..nodes.pods import PodOnNode, PodsByNode
    from ..pools.plan import RolloutPlan
    from .diagnosis import LicenseObject

# The license client in the containers of driver pods: reads its state and its files, replaces files, and restarts it.
#
# Source: NVIDIA/gpu-driver-container rhel9/nvidia-driver (start and end of nvidia-gridd, its PID file); NVIDIA/gpu-operator#2279 (the client returns its
# license only if SIGTERM ends the client; the guest keeps its performance for 20 minutes without a license).

# The directories with the license client's private libraries in the driver images. Source: NVIDIA/gpu-driver-container, rhel9/nvidia-driver, _load_driver
# ("LD_LIBRARY_PATH=/usr/lib64/nvidia/gridd nvidia-gridd"), and ubuntu24.04/nvidia-driver, _start_daemons
# ("LD_LIBRARY_PATH=/usr/lib/$DRIVER_ARCH-linux-gnu/nvidia/gridd nvidia-gridd"; DRIVER_ARCH is x86_64 or aarch64).
_LIBRARIES = (
    "/usr/lib64/nvidia/gridd",
    "/usr/lib/x86_64-linux-gnu/nvidia/gridd",
    "/usr/lib/aarch64-linux-gnu/nvidia/gridd",
)
_CLIENT = "nvidia-gridd"
START = ("env", f"LD_LIBRARY_PATH={':'.join(_LIBRARIES)}", _CLIENT)
_PID_FILE = "/var/run/nvidia-gridd/nvidia-gridd.pid"
# The time limits, in seconds, for one command; nvidia-smi waits for the driver.
_READ_TIMEOUT, _WRITE_TIMEOUT = 30.0, 60.0
# The time limits, in seconds, for the client to return its license and end, and for a written file to be complete.
_STOP_TIMEOUT, _FILE_TIMEOUT = 60.0, 15.0
# The time limit, in seconds, for a client whose start was not confirmed to write its PID file.
_START_TIMEOUT = 10.0
_NEW = ".new"
_FILES = (CONFIG_PATH, TOKEN_PATH)
_LEFTOVERS = tuple(f"{path}{_NEW}" for path in _FILES)


class LicenseContainers:
    """The license client in the driver pods of one cluster."""

    def __init__(
        self,
        client: Client,
        sleep: t.Callable[[float], None] = time.sleep,
        clock: t.Callable[[], float] = time.monotonic,
        wall_clock: t.Callable[[], float] = time.time,
    ) -> None:
        """Store the arguments; no request is sent yet."""
        self._client = client
        self._sleep = sleep
        self._clock = clock
        self._wall_clock = wall_clock

    def read_all(
        self,
        nodes: t.Sequence[LicenseNode],
        *,
        files: bool = True,
        client: bool = False,
        on_done: t.Callable[[int], None] = lambda done: None,
    ) -> dict[str, Reading]:
        """Read all nodes in parallel; returns the readings by node name. The error of a single node becomes part of that node's reading; errors that affect
        every node are raised.
        """
        calls = [
            (node.name, functools.partial(self.read, pod, files=files, client=client))
            for node in nodes
            if (pod := node.running_pod) is not None
        ]
        return {node.name: Reading() for node in nodes} | read_parallel(calls, on_done)

    def read(self, pod: DriverPod, *, files: bool = True, client: bool = False) -> Reading:
        """Read one node, including the clock if the node has no license. With `client`, also find leftover files, and check whether a licensed node's client
        runs.
        """
        status = self.status(pod)
        digests = self.fingerprints(pod, *_FILES, *(_LEFTOVERS if client else ())) if files else {}
        leftovers = tuple(path for path in _LEFTOVERS if digests.pop(path, None) is not None)
        if status.is_licensed:
            runs = bool(self.client_pid(pod)) if client else None
            return Reading(status, digests, leftovers=leftovers, client_runs=runs)
        return Reading(status, digests, self._clock_skew(pod), leftovers=leftovers)

    def remove_leftovers(self, nodes: t.Sequence[LicenseNode], readings: t.Mapping[str, Reading]) -> None:
        """Remove files that an earlier run left behind; if this fails on a node, the next run retries it. Raises errors that affect every node."""
        calls = [
            (node.name, functools.partial(self._run, pod, "rm", "-f", *leftovers))
            for node in nodes
            if (pod := node.running_pod) is not None and (leftovers := readings[node.name].leftovers)
        ]
        for outcome in run_bounded(calls, PARALLEL, fatal=concerns_all):
            if outcome.error is not None and concerns_all(outcome.error):
                raise outcome.error

    def status(self, pod: DriverPod) -> LicenseStatus:
        """The state of the license."""
        output = self._run(pod, "nvidia-smi", "-q")
        if output.exit_code != 0 and not output.stdout:
            raise CommandFailed(f"nvidia-smi -q failed in pod {pod.name}: {_last_line(output)}.")
        return parse_status(output.stdout)

    def check_services(self, pod: DriverPod, servers: t.Iterable[Server], proxy: str) -> tuple[ServiceCheck, ...]:
        """Check whether the license servers can be reached from a node."""
        return tuple(self._check_service(pod, server, proxy) for server in servers)

    def _check_service(self, pod: DriverPod, server: Server, proxy: str) -> ServiceCheck:
        try:
            output = self._run(pod, *check_command(server, proxy))
        except ApiError as error:
            if concerns_all(error):
                raise
            # The runtime reports a missing program as an error.
            return unknown_check(server, error_sentence(error).rstrip("."))
        return evaluate_check(server, proxy, output.exit_code, output.stdout, output.stderr)

    def check_all(
        self, nodes: t.Sequence[LicenseNode], expected_of: t.Callable[[LicenseNode], LicenseObject | None]
    ) -> dict[str, tuple[ServiceCheck, ...]]:
        """Check the license servers from all nodes in parallel; returns the checks by node. Nodes whose driver does not run or whose servers are unknown
        are skipped.
        """
        calls = []
        for node in nodes:
            expected, pod = expected_of(node), node.running_pod
            if expected is not None and pod is not None and (servers := expected.servers):
                calls.append((node.name, functools.partial(self.check_services, pod, servers, expected.proxy)))
        outcomes = run_bounded(calls, PARALLEL, fatal=concerns_all)
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        return {outcome.name: outcome.value or () for outcome in outcomes}

    def fingerprints(self, pod: DriverPod, *paths: str) -> dict[str, str | None]:
        """The SHA-256 digests of files in the container, by path; the digest of a missing file is None."""
        output = self._run(pod, "sha256sum", *paths)
        digests: dict[str, str | None] = dict.fromkeys(paths)
        for line in output.stdout.splitlines():
            digest, path = line.partition("  ")[::2]
            if path in digests and len(digest) == 64:
                digests[path] = digest
        if output.exit_code not in (0, 1):
            raise CommandFailed(f"sha256sum failed in pod {pod.name}: {_last_line(output)}.")
        return digests

    def _clock_skew(self, pod: DriverPod) -> float | None:
        before = self._wall_clock()
        output = self._run(pod, "date", "-u", "+%s")
        text = output.stdout.strip()
        if output.exit_code != 0 or not text.isdecimal() or len(text) > 12:
            return None
        return round(int(text) - (before + self._wall_clock()) / 2)

    def write_new(self, pod: DriverPod, path: str, content: bytes) -> None:
        """Write a new file next to the one in use; the content is passed only through standard input."""
        new = f"{path}{_NEW}"
        result = self._client.exec(
            pod.path,
            DRIVER_CONTAINER,
            ["cp", "/dev/stdin", new],
            stdin=content,
            timeout=_WRITE_TIMEOUT,
            repeatable=True,
        )
        if not result.ok:
            raise CommandFailed(
                f"Pod {pod.name} cannot write {new}: {_last_line(result)}. If the directory is missing, the pod was started without a token."
            )
        deadline = self._clock() + _FILE_TIMEOUT
        while self.fingerprints(pod, new)[new] != fingerprint(content):
            if self._clock() > deadline:
                raise CommandFailed(f"Pod {pod.name} did not write {new} completely.")
            self._sleep(0.5)

    def move_new(self, pod: DriverPod, path: str, content: bytes) -> None:
        """Replace a file with the one that write_new() has written. The call can safely be repeated after a lost response."""
        result = self._run(pod, "mv", f"{path}{_NEW}", path)
        if not result.ok and self.fingerprints(pod, path)[path] != fingerprint(content):
            raise CommandFailed(f"Pod {pod.name} cannot replace {path}: {_last_line(result)}.")

    def stop(self, pod: DriverPod) -> None:
        """Stop the license client with SIGTERM, so that it returns its license, and wait until the process has exited."""
        pid = self.client_pid(pod)
        if not pid:
            return
        # Not repeated after a lost response: by then, another process may have the same process ID.
        signaled = self._client.exec(pod.path, DRIVER_CONTAINER, ("kill", "-TERM", pid), timeout=_READ_TIMEOUT)
        deadline = self._clock() + _STOP_TIMEOUT
        while self._is_client(pod, pid):
            if not signaled.ok:
                raise CommandFailed(
                    f"nvidia-gridd (PID {pid}) in pod {pod.name} cannot be stopped: {_last_line(signaled)}."
                )
            if self._clock() > deadline:
                raise CommandFailed(
                    f"nvidia-gridd (PID {pid}) in pod {pod.name} is still running {_STOP_TIMEOUT:.0f} s after SIGTERM."
                )
            self._sleep(0.5)

    def client_pid(self, pod: DriverPod) -> str:
        """The process ID of the license client; empty if the client is not running, even if an earlier process has left a PID file."""
        file = self._run(pod, "cat", _PID_FILE)
        pid = file.stdout.strip()
        return pid if file.ok and pid.isdecimal() and int(pid) > 1 and self._is_client(pod, pid) else ""

    def _is_client(self, pod: DriverPod, pid: str) -> bool:
        """Whether a process is the license client. Driver pods share the process IDs of their node (hostPID), so the ID may belong to any process."""
        name = self._run(pod, "cat", f"/proc/{pid}/comm")
        return name.ok and name.stdout.strip() == _CLIENT

    def start(self, pod: DriverPod) -> None:
        """Start the license client, which reads its files only when it starts; tries a second time if the first attempt fails."""
        result = self._start(pod)
        if not result.ok and not self.client_pid(pod):
            result = self._start(pod)
        if not result.ok and not self.client_pid(pod):
            raise CommandFailed(
                f"nvidia-gridd does not start in pod {pod.name}: {_last_line(result)}. The license client of this node is stopped. Correct the cause and run "
                "license_rotate again."
            )

    def _start(self, pod: DriverPod) -> ExecResult:
        """Run the start command only once: after a lost response, the client may already be running, and must not be started a second time."""
        try:
            return self._client.exec(pod.path, DRIVER_CONTAINER, START, timeout=_READ_TIMEOUT)
        except ApiError as error:
            if not (error.unreachable and error.sent):
                raise
            deadline = self._clock() + _START_TIMEOUT
            while not self.client_pid(pod):
                if self._clock() > deadline:
                    raise
                self._sleep(0.5)
            from ..kube.transport import ExecResult

            return ExecResult(0, "", "")

    def current_pod(self, pod: DriverPod) -> DriverPod | None:
        """The current driver pod on the same node as the given one; None if there is none, or if that pod is being deleted."""
        path = collection_path("v1", "Pod", pod.namespace)
        pods = self._client.list(
            path, label_selector=DRIVER_POD_SELECTOR, field_selector=f"{LIVE_PODS},spec.nodeName={pod.node}"
        )
        return parse_driver_pods(item for item in pods if not is_deleting(item)).get(pod.node)

    def has_node(self, name: str) -> bool:
        """Whether the cluster has a node with this name."""
        return any(True for dummy in self._client.list(NODES, field_selector=f"metadata.name={name}"))

    def _run(self, pod: DriverPod, *command: str) -> ExecResult:
        """Run a command that can safely be repeated."""
        return self._client.exec(pod.path, DRIVER_CONTAINER, command, timeout=_READ_TIMEOUT, repeatable=True)


def _last_line(result: ExecResult) -> str:
    lines = [line.strip() for line in (result.stderr or result.stdout).splitlines() if line.strip()]
    return shorten(lines[-1]).rstrip(".") if lines else f"exit code {result.exit_code}"


# Returns the licenses of vGPU nodes before their machines are removed.
#
# A drain does not evict the pods of DaemonSets, and clouds power off the machines. A license client that is not stopped first keeps its license until
# the license expires (kubernetes-sigs/cluster-api-provider-openstack#1973).


class LicenseReturn(NodeRemoval):
    """Ends the license clients of nodes that will be removed. Failures cause only warnings, because the machines can be removed anyway."""

    def __init__(
        self, client: Client, warn: t.Callable[[str], None], containers: LicenseContainers | None = None
    ) -> None:
        """Store the arguments; no request is sent yet."""
        self._client = client
        self._warn = warn
        self._containers = containers or LicenseContainers(client)

    def prepare(self, nodes: t.Sequence[Node]) -> None:
        """End the license clients with SIGTERM, so that they return their licenses."""
        self._for_each(nodes, self._containers.stop, "The license stays assigned until it expires")

    def cancel(self, nodes: t.Sequence[Node]) -> None:
        """Start the license clients again on nodes that are not removed after all."""
        self._for_each(nodes, self._start, "The license client was not started again; run the playbook license_rotate")

    def _start(self, pod: DriverPod) -> None:
        # Without a token, the license client could not get a license.
        if self._containers.fingerprints(pod, TOKEN_PATH)[TOKEN_PATH] and not self._containers.client_pid(pod):
            self._containers.start(pod)

    def _for_each(self, nodes: t.Sequence[Node], work: t.Callable[[DriverPod], None], effect: str) -> None:
        names = [node.name for node in nodes if node.has_vgpu]
        if not names:
            return
        causes: dict[str, list[str]] = {}
        try:
            pods = parse_driver_pods(
                self._client.list(PODS, label_selector=DRIVER_POD_SELECTOR, field_selector=LIVE_PODS)
            )
        except ServiceError as error:
            causes[_reason(error)] = names
            pods = {}
        running = {name: pods[name] for name in names if name in pods and not pods[name].failure}
        calls = [(name, functools.partial(work, pod)) for name, pod in running.items()]
        for outcome in run_bounded(calls, PARALLEL, fatal=lambda error: _is_unexpected(error) or _lacks_right(error)):
            if outcome.error is not None and _is_unexpected(outcome.error):
                raise outcome.error
            if outcome.error is not None and _lacks_right(outcome.error):
                causes[_reason(outcome.error)] = list(running)
            elif outcome.error is not None:
                causes.setdefault(_reason(outcome.error), []).append(outcome.name)
        for cause, affected in causes.items():
            self._warn(f"{abbreviate_nodes(affected)}: {effect}. {cause}")


def _is_unexpected(error: Exception) -> bool:
    """Whether the error does not belong to a single node, for example because the lease was lost."""
    return not isinstance(error, (ServiceError, CommandFailed))


def _lacks_right(error: Exception) -> bool:
    return isinstance(error, ApiError) and error.lacks_right


def _reason(error: Exception) -> str:
    if _lacks_right(error):
        return "This user is not allowed to list driver pods or to run commands in them (pods/exec)."
    return as_sentence(str(error))


# Cordons and drains a node, and restarts the driver. When the driver starts, it reads the token from the mounted Secret.
#
# An annotation records which driver pod is restarted, so after a killed run, the next run can determine whether that pod was already deleted. A driver
# pod is deleted only while no pod uses the GPUs, including pods that tolerate the cordon, because a driver is not unloaded while a process has a device
# file open.

# The seconds within which the replacement of a removed pod is scheduled if it tolerates the cordon (the scheduler's first backoff is 1 second).
_RETURN_TIME = 5.0
_RETURNED = "A pod that tolerates the cordon is scheduled to the node again. Remove its toleration or nodeSelector, or scale its workload down."


class RestartBlocked(ModuleFailure):
    """The drivers of some nodes cannot be restarted."""

    code = "blocked"


@dataclass(frozen=True)
class NodeDrain:
    """The drain of one node before a restart of its driver. All pods that use the node's GPUs lose access to them."""

    displaced: tuple[PodOnNode, ...]
    pods_to_evict: tuple[PodOnNode, ...]
    pods_to_pause: tuple[PodOnNode, ...]
    blocking_pods: tuple[BlockingPod, ...]

    @classmethod
    def of_node(cls, name: str, pods: PodsByNode, rollout: RolloutPlan) -> NodeDrain:
        """The drain of a node; `rollout` contains its drain settings."""
        displaced = tuple(pods.gpu_pods.get(name, ()))
        return cls(
            displaced,
            gpu_pods_to_evict(displaced, pods.other_pods.get(name, ()), rollout),
            tuple(pod for pod in displaced if pod.pausable),
            tuple(blocking_gpu_pods(displaced, rollout, device_files=True)),
        )


def restart_problem(node: Node, drain: NodeDrain) -> str:
    """Why the driver of a node cannot be restarted, as a sentence with the remedy; empty if it can."""
    unfinished = unfinished_run_message(node)
    if unfinished and driver_pod_to_restart(node) is None:
        return f"{as_sentence(f'The node {unfinished}')} Run the playbook of that run again first."
    if not node.ready:
        return f"{not_ready_message('The node')}. Repair it first."
    return as_sentence(blocked_message(drain.blocking_pods)) if drain.blocking_pods else ""


@dataclass(frozen=True)
class DriverRestarts:
    """Restarts drivers in one cluster. `rollouts` contains the drain settings of each node."""

    client: Client
    namespace: str
    rollouts: t.Mapping[str, RolloutPlan]
    lease: Lease
    progress: Progress

    def pods_to_evict(self, nodes: t.Sequence[Node]) -> dict[str, list[str]]:
        """The pods that a drain of these nodes would evict now, by node; raises RestartBlocked if a node cannot be drained."""
        if not nodes:
            return {}
        pods = pods_by_node(self.client, pods_on(self.client), self.namespace)
        drains = {node.name: NodeDrain.of_node(node.name, pods, self.rollouts[node.name]) for node in nodes}
        if problems := {node.name: text for node in nodes if (text := restart_problem(node, drains[node.name]))}:
            lines = [f"node {name}: {text}" for name, text in problems.items()]
            listed = abbreviate(lines, separator="\n")
            raise RestartBlocked(
                f"Drivers cannot be restarted. No node was changed. Correct the causes, or select other nodes with {NODE_NAMES_OPTION}.\n{listed}"
            )
        return {name: [pod.full_name for pod in drain.pods_to_evict] for name, drain in drains.items()}

    def begin(self, pod: DriverPod, evicted: list[str]) -> None:
        """Cordon the node of a driver pod, evict the pods that use its GPUs, and delete the driver pod, which its DaemonSet replaces.

        The evicted pods are added to `evicted`, even if an error is raised. If the driver pod was not deleted, the node is uncordoned.
        """
        self._patch(pod.node, lambda node: cordon_for_driver_restart(node, pod.name))
        try:
            self._drain_and_delete(pod, evicted)
        except LeaseLost as error:
            error.args = (f"{as_sentence(str(error))} The node stays cordoned.",)
            raise

    def drain_again(self, pod: DriverPod, evicted: list[str]) -> None:
        """Cordon a node with an unfinished restart, if it is no longer cordoned, and evict the pods that were scheduled to it since its drain.

        The evicted pods are added to `evicted`, even if an error is raised.
        """
        self._patch(pod.node, lambda node: cordon_for_driver_restart(node, driver_pod_to_restart(node) or pod.name))
        self._drain(pod.node, evicted)

    def gpu_users_text(self, name: str) -> str:
        """A sentence that lists the pods that use the GPUs of a node, with the remedy; empty if there are none, or if they cannot be listed."""
        try:
            names = [pod.full_name for pod in self._gpu_pods(name)]
        except ServiceError:
            return ""
        return (
            f"These pods use the node's GPUs, so the driver may not start: {abbreviate(names)}. {_RETURNED}"
            if names
            else ""
        )

    def _drain_and_delete(self, pod: DriverPod, evicted: list[str]) -> None:
        name = pod.node
        try:
            displaced = self._drain(name, evicted)
            self._require_no_gpu_pods(name, _RETURN_TIME if displaced else 0)
            self._delete(pod)
        except (WaitTimeout, CommandFailed, ApiError) as error:
            uncordoned = False
            if not (isinstance(error, ApiError) and error.outcome_unknown):
                with contextlib.suppress(CommandFailed, ServiceError):
                    uncordoned = self.finish(name)
            effect = "was uncordoned again" if uncordoned else "stays cordoned"
            raise CommandFailed(f"{as_sentence(str(error))} The node {effect}.") from error

    def _drain(self, name: str, evicted: list[str]) -> bool:
        """Drain the node, and wait until all pods that used its GPUs are gone; returns whether there were any."""
        node = self._read(name)
        drain = NodeDrain.of_node(name, self._pods(name), self.rollouts[name])
        if problem := restart_problem(node, drain):
            raise CommandFailed(problem)
        drain_gpu_pods(
            self.client,
            name,
            drain,
            self.rollouts[name].drain_options,
            self.lease.check,
            self.progress.report,
            list_pods=lambda: self._gpu_pods(name),
            pause_clients=lambda: self._pause_clients(name),
            evicted=evicted,
        )
        return bool(drain.displaced)

    def _require_no_gpu_pods(self, name: str, seconds: float) -> None:
        """Raise CommandFailed if pods use the GPUs of a drained node now, or within the given number of seconds."""
        end = time.monotonic() + seconds
        while True:
            self.lease.check()
            if names := [pod.full_name for pod in self._gpu_pods(name)]:
                raise CommandFailed(
                    f"The driver was not restarted, because these pods were scheduled to the node during the drain: {abbreviate(names)}. {_RETURNED}"
                )
            if time.monotonic() >= end:
                return
            time.sleep(1)

    def _delete(self, pod: DriverPod) -> None:
        """Delete the driver pod, unless a pod with a different UID has replaced it."""
        self.lease.check()
        try:
            self.client.delete(pod.path, body={"preconditions": {"uid": pod.uid}})
        except ApiError as error:
            if not error.conflict:
                raise

    def device_plugin_ready(self, name: str) -> bool:
        """Whether the device plugin, which waits for the driver, is ready on a node; True for a node without a device plugin."""
        return not self._unready_plugins(name)

    def device_plugin_problem(self, name: str) -> str:
        """Why the device plugin of a node is not ready, for a message."""
        return "; ".join(unready_reasons(self._unready_plugins(name)))

    def _unready_plugins(self, name: str) -> list[t.Mapping[str, t.Any]]:
        pods = read_operand_pods(self.client, self.namespace, [name])
        return [pod for pod in pods if app_of(pod) == PLUGIN and not is_ready(pod)]

    def finish(self, name: str) -> bool:
        """Undo the cordon and the label that begin() has set; returns whether a cordon was removed. Other cordons remain."""
        return "spec" in self._patch(name, end_driver_restart)

    def _pause_clients(self, name: str) -> bool:
        self._patch(name, pause_clients)
        return True

    def _gpu_pods(self, name: str) -> t.Sequence[PodOnNode]:
        return self._pods(name).gpu_pods.get(name, ())

    def _pods(self, name: str) -> PodsByNode:
        return pods_by_node(self.client, pods_on(self.client, name), self.namespace)

    def _read(self, name: str) -> Node:
        node = self.client.get(f"{NODES}/{name}")
        if node is None:
            raise CommandFailed(NODE_LEFT)
        return parse_node(node)

    def _patch(self, name: str, make_patch: t.Callable[[Node], Patch | None]) -> Patch:
        """Send the patch that `make_patch` returns for the node, if any. Returns the patch that was applied; empty if the node was not changed."""

        def make_edit(node: Node) -> NodeEdit | None:
            patch = make_patch(node)
            return NodeEdit(name, patch) if patch is not None else None

        edit = make_edit(self._read(name))
        if edit is None:
            return {}
        result = patch_node(self.client, edit, lambda raw: make_edit(parse_node(raw)), self.lease.check)
        if result.status == "gone":
            raise CommandFailed(NODE_LEFT)
        return result.edit.patch if result.status == "changed" else {}
