# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Driver containers with a license client, in memory: they answer the commands that the collection sends, and no other."""

from __future__ import annotations

import datetime
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.paths import NODES
from ansible_collections.accel.gpu.plugins.module_utils.kube.transport import ExecResult
from ansible_collections.accel.gpu.plugins.module_utils.licensing.diagnosis import (
    CONFIG_PATH,
    TOKEN_PATH,
    DriverPod,
    LicenseNode,
)
from ansible_collections.accel.gpu.plugins.module_utils.licensing.token import InvalidToken, parse_token

NAMESPACE = "gpu-operator"
PID_FILE = "/var/run/nvidia-gridd/nvidia-gridd.pid"


class Killed(BaseException):
    """The end of the run by a signal."""


def missing(program: str, path: str) -> ExecResult:
    return ExecResult(1, "", f"{program}: {path}: No such file or directory\n")


@dataclass
class Container:
    """One driver container; the client has a license while it runs with a token that `accepts` accepts."""

    files: dict[str, bytes]
    accepts: Callable[[bytes], bool] = lambda token: True
    pid: int | None = 100
    # The files that the running client has read.
    loaded: dict[str, bytes] = field(default_factory=dict)
    skew: int = 0
    started: int = 0
    # How many reads of the state it takes until the client has its license.
    delay: int = 0
    waiting: int = 0
    # The result of a connection to a license server.
    connection: ExecResult = field(default_factory=lambda: ExecResult(0, "0.1 0.2 0.3", ""))
    # The content of the PID file without a client, and the process of the node that has this number (empty: none).
    stale_pid: int | None = None
    stale_name: str = ""
    # Whether the client does not end after SIGTERM.
    immortal: bool = False
    # Whether the driver shows the license of an earlier client until the next one has got its own, and the state that it shows.
    sticky: bool = False
    shown: str = "Unlicensed (Unrestricted)"
    # Whether the client has no PID file yet.
    hidden: bool = False
    # How many starts of the client fail.
    refused_starts: int = 0
    # The vGPU type that nvidia-smi shows, and whose class FeatureType in the loaded gridd.conf must fit; empty for neither.
    vgpu_type: str = ""

    def __post_init__(self) -> None:
        self.loaded = dict(self.files) if self.pid else {}

    @property
    def licensed(self) -> bool:
        token = self.loaded.get(TOKEN_PATH)
        if self.pid is None or token is None or not self.accepts(token):
            return False
        if self.vgpu_type.endswith("C") and b"FeatureType=2" in self.loaded.get(CONFIG_PATH, b""):
            return False
        try:
            return self.waiting <= 0 and not parse_token(token).problem(_now())
        except InvalidToken:
            return False

    def run(self, command: Sequence[str], stdin: bytes | None) -> ExecResult:
        match tuple(command):
            case ("nvidia-smi", "-q"):
                self.waiting -= 1
                if self.licensed:
                    self.shown = f"Licensed (Expiry: 2030-1-5 4:02:{self.started} GMT)"
                elif not self.sticky:
                    self.shown = "Unlicensed (Unrestricted)"
                gpu = f"    Product Name : NVIDIA {self.vgpu_type}\n" if self.vgpu_type else ""
                return ExecResult(
                    0,
                    f"==============NVSMI LOG==============\n{gpu}    vGPU Software Licensed Product\n"
                    f"        Product Name : NVIDIA Virtual Compute Server\n        License Status : {self.shown}\n",
                    "",
                )
            case ("sha256sum", *paths):
                lines = [
                    f"{hashlib.sha256(self.files[path]).hexdigest()}  {path}" for path in paths if path in self.files
                ]
                absent = [path for path in paths if path not in self.files]
                errors = "".join(missing("sha256sum", path).stderr for path in absent)
                return ExecResult(1 if absent else 0, "".join(f"{line}\n" for line in lines), errors)
            case ("date", "-u", "+%s"):
                return ExecResult(0, f"{int(time.time()) + self.skew}\n", "")
            case ("cp", "/dev/stdin", path):
                assert stdin is not None
                self.files[path] = stdin
                return ExecResult(0, "", "")
            case ("mv", source, target):
                if source not in self.files:
                    return missing("mv", source)
                self.files[target] = self.files.pop(source)
                return ExecResult(0, "", "")
            case ("rm", "-f", *paths):
                assert all(path.endswith(".new") for path in paths)
                for path in paths:
                    self.files.pop(path, None)
                return ExecResult(0, "", "")
            case ("cat", path) if path == PID_FILE:
                pid = self.stale_pid if self.hidden else self.pid or self.stale_pid
                return ExecResult(0, f"{pid}\n", "") if pid else missing("cat", path)
            case ("cat", path) if path.startswith("/proc/"):
                names = {f"/proc/{self.pid}/comm": "nvidia-gridd", f"/proc/{self.stale_pid}/comm": self.stale_name}
                return ExecResult(0, f"{names[path]}\n", "") if names.get(path) else missing("cat", path)
            case ("kill", "-TERM", pid):
                assert not (self.pid is None and str(self.stale_pid) == pid and self.stale_name), (
                    "another process was ended"
                )
                if str(self.pid) != pid:
                    return ExecResult(1, "", f"kill: ({pid}) - No such process\n")
                if self.immortal:
                    return ExecResult(0, "", "")
                self.pid, self.loaded = None, {}
                return ExecResult(0, "", "")
            case ("curl", *dummy):
                return self.connection
            case ("env", libraries, "nvidia-gridd"):
                folders = ["/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"]
                assert libraries == "LD_LIBRARY_PATH=" + ":".join(f"{folder}/nvidia/gridd" for folder in folders)
                if self.refused_starts > 0:
                    self.refused_starts -= 1
                    return ExecResult(1, "", "nvidia-gridd: cannot start\n")
                assert self.pid is None, "a second client was started"
                self.started += 1
                self.pid, self.loaded, self.waiting = 100 + self.started, dict(self.files), self.delay
                return ExecResult(0, "", "")
        raise AssertionError(f"unknown command {command}")


@dataclass
class Containers:
    """The containers by node, in place of the API client; `before` is called with each command, and may raise an error."""

    by_node: dict[str, Container]
    before: Callable[[str, tuple[str, ...]], None] = lambda node, command: None
    after: Callable[[str, tuple[str, ...]], None] = lambda node, command: None
    commands: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    # How many driver pods each node has had before, and how many reads it takes until the container of its pod runs.
    replaced: dict[str, int] = field(default_factory=dict)
    starting: dict[str, int] = field(default_factory=dict)
    # The nodes that have left the cluster, and whose pods have not.
    left_pods: set[str] = field(default_factory=set)

    def exec(
        self,
        pod_path: str,
        container: str,
        command: Sequence[str],
        *,
        stdin: bytes | None = None,
        timeout: float | None = None,
        repeatable: bool = False,
    ) -> ExecResult:
        assert container == "nvidia-driver-ctr"
        for attempt in range(2):
            try:
                return self._exec(pod_path.rpartition("/driver-")[2], tuple(command), stdin)
            except ApiError as error:
                # As the client of the API does.
                if attempt or not repeatable or not error.unreachable:
                    raise
        raise AssertionError

    def _exec(self, name: str, command: tuple[str, ...], stdin: bytes | None) -> ExecResult:
        node, dummy, number = name.partition("+")
        if node in self.left_pods:
            raise ApiError("error dialing backend: no route to host", status=500, method="GET", path="/exec")
        if node not in self.by_node or int(number or 0) != self.replaced.get(node, 0):
            raise ApiError(f'pods "driver-{name}" not found', status=404, reason="NotFound", method="GET", path="/exec")
        self.commands.append((node, command))
        self.before(node, command)
        result = self.by_node[node].run(command, stdin)
        self.after(node, command)
        return result

    def replace_pod(self, node: str, container: Container) -> None:
        """Another driver pod starts on the node."""
        self.by_node[node] = container
        self.replaced[node] = self.replaced.get(node, 0) + 1

    def pod(self, node: str) -> dict[str, Any]:
        """The driver pod of a node."""
        number = self.replaced.get(node, 0)
        state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        if self.starting.get(node, 0) > 0:
            self.starting[node] -= 1
            state = {"waiting": {"reason": "PodInitializing"}}
        return {
            "metadata": {
                "name": f"driver-{node}+{number}" if number else f"driver-{node}",
                "namespace": NAMESPACE,
                "uid": f"uid-{node}-{number}",
            },
            "spec": {"nodeName": node},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True" if "running" in state else "False"}],
                "containerStatuses": [{"name": "nvidia-driver-ctr", "state": state}],
            },
        }

    def mutations(self) -> list[tuple[str, tuple[str, ...]]]:
        """The commands that change something."""
        return [each for each in self.commands if each[1][0] in ("cp", "mv", "rm", "kill", "env")]

    def remove_node(self, node: str, *, pod_stays: bool = False) -> None:
        """The node leaves the cluster; its pod may be shown until it is collected."""
        del self.by_node[node]
        self.left_pods |= {node} if pod_stays else set()

    def list(self, path: str, *, field_selector: str, label_selector: str = "") -> Sequence[dict[str, Any]]:
        """A node; or the driver pods of one node, or of all nodes."""
        if path == NODES:
            return [{"metadata": {"name": name}} for name in self.by_node if field_selector == f"metadata.name={name}"]
        assert label_selector == "app.kubernetes.io/component=nvidia-driver"
        node = field_selector.partition("spec.nodeName=")[2]
        return [self.pod(name) for name in (*self.by_node, *self.left_pods) if name == node or not node]


def license_node(
    name: str, vgpu_type: str = "NVIDIA-A100-10C", pool: str | None = None, failure: str = ""
) -> LicenseNode:
    """A node with its driver pod."""
    pod = DriverPod(f"driver-{name}", NAMESPACE, name, "2026-01-01T00:00:00Z", failure, f"uid-{name}-0")
    return LicenseNode(name, pool, vgpu_type, "580.95.05", pod)


def lost_connection(*, sent: bool = True) -> ApiError:
    """The error of a broken connection."""
    return ApiError("connection reset", reason="Broken", method="GET", path="/exec", sent=sent)


def initial_files(token: str, config: str = "FeatureType=1\n") -> dict[str, bytes]:
    """The files of a container."""
    return {TOKEN_PATH: token.encode(), CONFIG_PATH: config.encode()}


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
