# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The license client in the containers of driver pods: reads its state and its files, replaces files, and restarts it.

Source: NVIDIA/gpu-driver-container rhel9/nvidia-driver (start and end of nvidia-gridd, its PID file); NVIDIA/gpu-operator#2279 (the client returns its
license only if SIGTERM ends the client; the guest keeps its performance for 20 minutes without a license).
"""

from __future__ import annotations

import functools
import time
import typing as t

from ..catalog.names import DRIVER_CONTAINER, LIVE_PODS
from ..common.parallel import run_bounded
from ..kube.errors import ApiError
from ..kube.exec import ExecResult
from ..kube.metadata import is_deleting
from ..kube.paths import NODES, collection_path
from .connectivity import Server, ServiceCheck, check_command, evaluate_check, unknown_check
from .driver_pods import (
    CONFIG_PATH,
    DRIVER_POD_SELECTOR,
    TOKEN_PATH,
    DriverPod,
    LicenseNode,
    Reading,
    parse_driver_pods,
)
from .node_reads import PARALLEL, CommandFailed, concerns_all, error_sentence, read_parallel, shorten
from .status import LicenseStatus, parse_status
from .token import fingerprint

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from .diagnosis import LicenseObject

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
