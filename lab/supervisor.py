# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""process-compose: starting it for a lab, asking it, stopping it."""

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
from .part import Part

# Relative to the lab's folder, since the path of a socket may have 107 characters at most.
_SOCKET = "supervisor.sock"
_DOWN_SECONDS = 20.0
COMPOSE = LAB / "compose" / "kube.yaml"


@dataclass(frozen=True)
class Service:
    """What process-compose knows of one service."""

    name: str
    status: str
    ready: bool
    pid: int
    restarts: int
    exit_code: int


def environment(lab: Lab, tools: dict[str, Path], parts: Sequence[Part], *, with_sim: bool) -> dict[str, str]:
    """Return the environment of the supervisor: what the compose files name, and nothing that changes its behaviour."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PC_", "LAB_", "KUBE", "K8S_", "OS_"))
    }
    values = {
        processes.MARK: str(lab.dir),
        "LAB_DIR": str(lab.dir),
        "LAB_REPO": str(REPO),
        "LAB_SERVICE": f"{sys.executable} -P -m lab.service {lab.name} {lab.dir}",
        "LAB_WITHOUT_SIM": "false" if with_sim else "true",
        "PYTHONPATH": str(REPO),
        "PYTHONUNBUFFERED": "1",
        # The readiness probes speak TLS to servers of the lab's own authority.
        "SSL_CERT_FILE": str(lab.pki / "ca.crt"),
    }
    values |= {f"LAB_PORT_{_variable(service)}": str(port) for service, port in lab.ports().items()}
    values |= {f"LAB_TOOL_{_variable(tool)}": str(folder / "bin") for tool, folder in tools.items()}
    for part in parts:
        values |= part.environment(lab)
    return kept | values


def start(lab: Lab, tools: dict[str, Path], parts: Sequence[Part] = (), *, with_sim: bool = True) -> None:
    """Start process-compose with all services, and return once it answers."""
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
    deadline = time.monotonic() + 10
    while services(lab, program) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise LabError(f"process-compose did not start: see {lab.logs / 'supervisor.out'}")
        time.sleep(0.05)


def services(lab: Lab, program: Path) -> list[Service] | None:
    """Return the services' states, or None when no supervisor answers."""
    if not (lab.dir / _SOCKET).exists():
        return None
    done = _client(lab, program, "process", "list", "-o", "json")
    if done.returncode:
        return None
    return [
        Service(
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


def wait_ready(lab: Lab, program: Path, limit: float, say: Callable[[list[Service]], None]) -> None:
    """Wait until every service is ready; fail with the name of the one that is not, and the end of its log."""
    deadline = time.monotonic() + limit
    while True:
        states = services(lab, program)
        if states is None:
            raise LabError(f"process-compose ended: see {lab.logs / 'supervisor.log'}")
        waiting = [state for state in states if not state.ready]
        if not waiting:
            return
        say(waiting)
        failed = next((state for state in waiting if state.restarts >= 3), None)
        if failed or time.monotonic() > deadline:
            worst = failed or waiting[0]
            raise LabError(f"{worst.name} does not become ready ({worst.status}):\n{tail(lab, worst.name)}")
        time.sleep(0.1)


def stop(lab: Lab, program: Path) -> None:
    """Stop all services in order, as far as a supervisor answers; what is left is killed."""
    if services(lab, program) is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            _client(lab, program, "down", timeout=_DOWN_SECONDS)
    processes.kill(lab)
    (lab.dir / _SOCKET).unlink(missing_ok=True)


def pause(lab: Lab, program: Path, names: Sequence[str]) -> None:
    """Stop some of the services until the lab is started again (`up`, `reset`)."""
    for name in names:
        _client(lab, program, "process", "stop", name)
    # What the client says is not enough: it gives up on a service that takes its time to end.
    deadline = time.monotonic() + _DOWN_SECONDS
    while running := [of.name for of in services(lab, program) or [] if of.name in names and of.status == "Running"]:
        if time.monotonic() > deadline:
            raise LabError(f"{', '.join(running)} did not stop: see {lab.logs / 'supervisor.log'}")
        time.sleep(0.1)


def tail(lab: Lab, service: str, lines: int = 15) -> str:
    """Return the end of a service's log as text."""
    path = lab.logs / f"{service}.log"
    if not path.exists():
        return f"(nothing in {path})"
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def _client(lab: Lab, program: Path, *arguments: str, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(program), "-U", "-u", _SOCKET, "-L", "log/supervisor-client.log", *arguments]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PC_")}
    return subprocess.run(command, cwd=lab.dir, env=clean, capture_output=True, text=True, check=False, timeout=timeout)


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")


def tool(name: str) -> Path:
    """Return the folder of a tool's programs, in a process that the supervisor started."""
    return Path(os.environ[f"LAB_TOOL_{_variable(name)}"])
