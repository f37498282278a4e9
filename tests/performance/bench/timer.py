# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures commands as whole processes: their duration, the resources of their module, and their requests to servers."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab import processes
from lab.layout import Lab as LabLayout
from tests.labs import Lab
from tests.programs import REPO

from .request_counts import ApiServerLog, ServerLog
from .results import Measurement

_FOLDER = Path(__file__).parent
_AGENT = "accel.gpu/"
# Runs a module in the same way as Ansible and records the duration and memory of its process. The option -I keeps its own
# start at a few milliseconds.
_INTERPRETER = """#!{python} -IS
import json, os, sys, time
begin = time.monotonic()
child = os.fork()
if not child:
    os.execv("{python}", ["{python}", *sys.argv[1:]])
_, status, usage = os.wait4(child, 0)
with open("{log}", "a") as log:
    log.write(json.dumps([time.monotonic() - begin, usage.ru_maxrss / 1024]) + "\\n")
sys.exit(os.waitstatus_to_exitcode(status))
"""


class BenchmarkError(Exception):
    """A measured command failed or had an unexpected result."""


class Timer:
    """Runs commands against one lab, one at a time, and counts their requests in one of the lab's logs."""

    def __init__(
        self, lab: Lab, folder: Path, log: ServerLog | None = None, inventory: str | Path = "inventories/lab"
    ) -> None:
        """Write the interpreter that measures modules to the folder; the default log is the API server's."""
        self._lab = lab
        self._layout = LabLayout.named(lab.name)
        self._server_log = log or ApiServerLog(self._layout)
        self._inventory = str(inventory)
        self._log = folder / "modules.jsonl"
        self._interpreter = folder / "python"
        self._interpreter.write_text(_INTERPRETER.format(python=sys.executable, log=self._log))
        self._interpreter.chmod(0o755)
        self._steps = 0

    def playbook(self, name: str, *, changed: int, arguments: Sequence[str] = (), **variables: object) -> Measurement:
        """Run a playbook that must succeed with `changed` changed tasks on each host.

        With several hosts, the module's time is the median, and its memory the maximum.
        """
        self._log.write_text("")
        extra_vars = {f"bench_{key}": value for key, value in {"python": str(self._interpreter), **variables}.items()}
        command = [
            "ansible-playbook",
            "-i",
            self._inventory,
            str(_FOLDER / name),
            "-e",
            json.dumps(extra_vars),
            *arguments,
        ]
        since = self._server_log.mark()
        cpu_seconds = processes.cpu_seconds(processes.pids(self._layout))
        seconds, output = self._timed(command, {"ANSIBLE_DEPRECATION_WARNINGS": "0"})
        cpu_seconds = processes.cpu_seconds(processes.pids(self._layout)) - cpu_seconds
        if changes(output) != {changed}:
            raise BenchmarkError(f"{name} did not end with changed={changed}:\n{output}")
        modules = [json.loads(line) for line in self._log.read_text().splitlines()]
        counts = self._server_log.since(since, _AGENT)
        return Measurement(
            seconds,
            statistics.median(module[0] for module in modules) if modules else None,
            max(module[1] for module in modules) if modules else None,
            requests=counts.requests,
            pages=counts.pages,
            writes=counts.writes,
            server_seconds=cpu_seconds,
        )

    def kubectl(self) -> Measurement:
        """Set a new label value on all nodes of the benchmark with `kubectl label`."""
        self._steps += 1
        label = f"bench-step=k{self._steps}"
        return self.command("kubectl", "label", "nodes", "-l", "bench=yes", label, "--overwrite", agent="kubectl/")

    def command(self, *words: str, agent: str) -> Measurement:
        """Run a command of another program, whose user agent contains `agent`."""
        since = self._server_log.mark()
        seconds, _output = self._timed(words, {})
        counts = self._server_log.since(since, agent)
        return Measurement(seconds, requests=counts.requests, pages=counts.pages, writes=counts.writes)

    def _timed(self, command: Sequence[str], variables: Mapping[str, str]) -> tuple[float, str]:
        begin = time.monotonic()
        done = subprocess.run(
            command,
            cwd=REPO,
            env={**self._lab.env, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - begin
        if done.returncode:
            raise BenchmarkError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}")
        return seconds, done.stdout


def changes(output: str) -> set[int]:
    """Return the numbers of changed tasks per host in a playbook's recap; a single one if it is the same for all hosts."""
    return {int(number) for number in re.findall(r"\bchanged=(\d+) ", output)}
