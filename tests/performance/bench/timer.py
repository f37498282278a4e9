# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures commands as whole processes: their duration, the resources of all their processes, and their requests to servers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lab import processes
from lab.layout import Lab as LabLayout
from tests.labs import Lab
from tests.programs import REPO

from .request_counts import ApiServerLog, ServerLog
from .results import Measurement

_FOLDER = Path(__file__).parent
_AGENT = "accel.gpu/"


class BenchmarkError(Exception):
    """A measured command failed or had an unexpected result."""


class Timer:
    """Runs commands against one lab, one at a time, and counts their requests in one of the lab's logs."""

    def __init__(self, lab: Lab, log: ServerLog | None = None, inventory: str | Path = "inventories/lab") -> None:
        """The default log is the API server's."""
        self._lab = lab
        self._layout = LabLayout.named(lab.name)
        self._server_log = log or ApiServerLog(self._layout)
        self._inventory = str(inventory)
        self._steps = 0

    def playbook(self, name: str, *, changed: int, arguments: Sequence[str] = (), **variables: object) -> Measurement:
        """Run a playbook of this folder (*.yml) or of a collection; it must succeed with `changed` changed tasks on each host."""
        extra_vars = {f"bench_{key}": value for key, value in variables.items()}
        command = [
            "ansible-playbook",
            "-i",
            self._inventory,
            str(_FOLDER / name) if name.endswith(".yml") else name,
            "-e",
            json.dumps(extra_vars),
            *arguments,
        ]
        since = self._server_log.mark()
        server_seconds = processes.cpu_seconds(processes.pids(self._layout))
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file:
            measured, output = self._timed(command, {"ANSIBLE_DEPRECATION_WARNINGS": "0", **module_times(file.name)})
            measured = replace(measured, modules=json.load(file))
        server_seconds = processes.cpu_seconds(processes.pids(self._layout)) - server_seconds
        if changes(output) != {changed}:
            raise BenchmarkError(f"{name} did not end with changed={changed}:\n{output}")
        return self._with_requests(measured, since, _AGENT, server_seconds)

    def kubectl(self) -> Measurement:
        """Set a new label value on all nodes of the benchmark with `kubectl label`."""
        self._steps += 1
        label = f"bench-step=k{self._steps}"
        return self.command("kubectl", "label", "nodes", "-l", "bench=yes", label, "--overwrite", agent="kubectl/")

    def command(self, *words: str, agent: str) -> Measurement:
        """Run a command of another program, whose user agent contains `agent`."""
        since = self._server_log.mark()
        measured, _output = self._timed(words, {})
        return self._with_requests(measured, since, agent)

    def _with_requests(
        self, measured: Measurement, since: int, agent: str, server_seconds: float | None = None
    ) -> Measurement:
        counts = self._server_log.since(since, agent)
        return replace(
            measured,
            requests=counts.requests,
            pages=counts.pages,
            writes=counts.writes,
            server_seconds=server_seconds,
            further_pages=counts.further_pages,
        )

    def _timed(self, command: Sequence[str], variables: Mapping[str, str]) -> tuple[Measurement, str]:
        return resources(command, {**self._lab.env, **variables})


def module_times(path: str) -> dict[str, str]:
    """Return the variables with which Ansible writes the seconds in the collection's modules to a file."""
    plugins = _FOLDER / "callback_plugins"
    return {
        "ANSIBLE_CALLBACK_PLUGINS": str(plugins),
        "ANSIBLE_CALLBACKS_ENABLED": "module_times",
        "BENCH_MODULE_TIMES": path,
    }


def resources(command: Sequence[str], environ: Mapping[str, str]) -> tuple[Measurement, str]:
    """Run a command, which must succeed, and return its resources and its output."""
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file:
        done = subprocess.run(
            [sys.executable, "-S", "-E", str(_FOLDER / "usage.py"), file.name, *command],
            cwd=REPO,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        )
        actual = json.load(file)
    if actual.pop("status"):
        raise BenchmarkError(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}")
    return Measurement(**actual), done.stdout


def changes(output: str) -> set[int]:
    """Return the numbers of changed tasks per host in a playbook's recap; a single one if it is the same for all hosts."""
    return {int(number) for number in re.findall(r"\bchanged=(\d+) ", output)}
