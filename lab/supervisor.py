# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts, queries and stops process-compose, the supervisor of a lab's services."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import processes
from .errors import LabError
from .layout import LAB, REPO, Lab
from .part import LabPart

# Relative to the lab's folder, because the path of a socket is limited to 107 characters.
_SOCKET = "supervisor.sock"
_START_SECONDS, _DOWN_SECONDS = 60.0, 60.0
COMPOSE = LAB / "compose" / "kube.yaml"


@dataclass(frozen=True)
class ServiceState:
    """The state of one service as process-compose reports it."""

    name: str
    status: str
    ready: bool
    pid: int
    restarts: int
    exit_code: int


def environment(lab: Lab, tools: dict[str, Path], parts: Sequence[LabPart], *, with_sim: bool) -> dict[str, str]:
    """Return the supervisor's environment: the variables of the compose files, without those that change its behavior."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PC_", "LAB_", "KUBE", "K8S_", "OS_"))
    }
    values = {
        processes.MARK: str(lab.dir),
        "LAB_DIR": str(lab.dir),
        "LAB_REPO": str(REPO),
        "LAB_SERVICE": f"{sys.executable} -P -m lab.service {lab.name} {lab.dir}",
        "LAB_WITHOUT_SIM": "false" if with_sim else "true",
        "LAB_AGGREGATOR_ROUTING": "true",
        "LAB_EGRESS_SELECTOR": "",
        "PYTHONPATH": str(REPO),
        "PYTHONUNBUFFERED": "1",
        # The readiness probes use TLS with the lab's own CA.
        "SSL_CERT_FILE": str(lab.pki / "ca.crt"),
    }
    values |= {f"LAB_PORT_{_variable(service)}": str(port) for service, port in lab.ports().items()}
    values |= {f"LAB_TOOL_{_variable(tool)}": str(folder / "bin") for tool, folder in tools.items()}
    for part in parts:
        values |= part.environment(lab)
    return kept | values


def start(lab: Lab, tools: dict[str, Path], parts: Sequence[LabPart] = (), *, with_sim: bool = True) -> None:
    """Start process-compose with all services, and return when it answers."""
    (lab.dir / _SOCKET).unlink(missing_ok=True)
    program = tools["process-compose"] / "bin" / "process-compose"
    command = [str(program), "up", "-U", "-u", _SOCKET, "-L", str(lab.logs / "supervisor.log")]
    for file in (COMPOSE, *(part.compose for part in parts)):
        command += ["-f", str(file)]
    command += ["-t=false", "--disable-dotenv", "--keep-project", "--ordered-shutdown"]
    with (lab.logs / "supervisor.out").open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=lab.dir,
            env=environment(lab, tools, parts, with_sim=with_sim),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_SECONDS
    while services(lab, program) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise LabError(f"process-compose did not start: see {lab.logs / 'supervisor.out'}")
        time.sleep(0.05)


def services(lab: Lab, program: Path) -> list[ServiceState] | None:
    """Return the states of the services, or None if no supervisor answers."""
    if not (lab.dir / _SOCKET).exists():
        return None
    done = _client(lab, program, "process", "list", "-o", "json")
    if done.returncode:
        return None
    return [
        ServiceState(
            state["name"],
            state["status"],
            state["is_running"] and state["is_ready"] == "Ready",
            state["pid"],
            state["restarts"],
            state["exit_code"],
        )
        for state in json.loads(done.stdout)
        if state["status"] != "Disabled"
    ]


def wait_ready(lab: Lab, program: Path, limit: float, report: Callable[[list[ServiceState]], None]) -> None:
    """Wait until every service is ready; raise LabError with the name and the last log lines of one that is not."""
    deadline = time.monotonic() + limit
    while True:
        states = services(lab, program)
        if states is None:
            raise LabError(f"process-compose ended: see {lab.logs / 'supervisor.log'}")
        waiting = [state for state in states if not state.ready]
        if not waiting:
            return
        report(waiting)
        failed = next((state for state in waiting if state.restarts >= 3), None)
        if failed or time.monotonic() > deadline:
            worst = failed or waiting[0]
            raise LabError(f"{worst.name} did not become ready ({worst.status}):\n{tail(lab, worst.name)}")
        time.sleep(0.1)


def stop(lab: Lab, program: Path) -> None:
    """Stop all services in order through the supervisor, then kill the remaining processes."""
    if services(lab, program) is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            _client(lab, program, "down", timeout=_DOWN_SECONDS)
    processes.kill(lab)
    (lab.dir / _SOCKET).unlink(missing_ok=True)


def pause(lab: Lab, program: Path, names: Sequence[str]) -> None:
    """Stop some services until the next start of the lab (`up`, `reset`)."""
    for name in names:
        _client(lab, program, "process", "stop", name)
    # The exit status of the client is not sufficient: it does not wait long enough for slow services.
    deadline = time.monotonic() + _DOWN_SECONDS
    while running := [
        one.name for one in services(lab, program) or [] if one.name in names and one.status == "Running"
    ]:
        if time.monotonic() > deadline:
            raise LabError(f"{', '.join(running)} did not stop: see {lab.logs / 'supervisor.log'}")
        time.sleep(0.1)


def tail(lab: Lab, service: str, lines: int = 15) -> str:
    """Return the last lines of a service's log."""
    path = lab.logs / f"{service}.log"
    if not path.exists():
        return f"({path} does not exist)"
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def _client(lab: Lab, program: Path, *arguments: str, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(program), "-U", "-u", _SOCKET, "-L", "log/supervisor-client.log", *arguments]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PC_")}
    return subprocess.run(command, cwd=lab.dir, env=clean, capture_output=True, text=True, check=False, timeout=timeout)


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")


def tool(name: str) -> Path:
    """Return the folder of a tool's programs; works only in a process that the supervisor started."""
    return Path(os.environ[f"LAB_TOOL_{_variable(name)}"])
