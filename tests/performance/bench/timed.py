# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands as whole processes: how long they take, what their module takes, and what they ask of the servers."""

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

from .asked import ApiServer, Log
from .rows import Run

_FOLDER = Path(__file__).parent
_OURS = "accel.gpu/"
# Runs a module as Ansible does and notes what its process took; isolated, it starts in a few milliseconds itself.
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


class BrokenRun(Exception):
    """A timed command that did not do what it was timed for."""


class Timer:
    """Runs commands against one lab, one at a time; requests are counted in the log of whom they are meant for."""

    def __init__(
        self, lab: Lab, folder: Path, log: Log | None = None, inventory: str | Path = "inventories/lab"
    ) -> None:
        """Put the interpreter that measures modules into the folder; without a log it is the API server's."""
        self._lab = lab
        self._layout = LabLayout.named(lab.name)
        self._asked = log or ApiServer(self._layout)
        self._inventory = str(inventory)
        self._log = folder / "modules.jsonl"
        self._interpreter = folder / "python"
        self._interpreter.write_text(_INTERPRETER.format(python=sys.executable, log=self._log))
        self._interpreter.chmod(0o755)
        self._steps = 0

    def playbook(self, name: str, *, changed: int, arguments: Sequence[str] = (), **variables: object) -> Run:
        """One ansible-playbook; of each host `changed` tasks must have changed something, and nothing may have failed.

        Of several hosts, the module's process is the median one in time, and the largest one in memory.
        """
        self._log.write_text("")
        given = {f"bench_{key}": value for key, value in {"python": str(self._interpreter), **variables}.items()}
        command = ["ansible-playbook", "-i", self._inventory, str(_FOLDER / name), "-e", json.dumps(given), *arguments]
        since = self._asked.mark()
        worked = processes.cpu_seconds(processes.pids(self._layout))
        seconds, said = self._timed(command, {"ANSIBLE_DEPRECATION_WARNINGS": "0"})
        worked = processes.cpu_seconds(processes.pids(self._layout)) - worked
        if changes(said) != {changed}:
            raise BrokenRun(f"{name} did not end with changed={changed}:\n{said}")
        modules = [json.loads(line) for line in self._log.read_text().splitlines()]
        asked = self._asked.since(since, _OURS)
        return Run(
            seconds,
            statistics.median(module[0] for module in modules) if modules else None,
            max(module[1] for module in modules) if modules else None,
            requests=asked.requests,
            pages=asked.pages,
            writes=asked.writes,
            server_seconds=worked,
        )

    def kubectl(self) -> Run:
        """One `kubectl label` of all nodes with the benchmark's label, with a value that they do not have."""
        self._steps += 1
        label = f"bench-step=k{self._steps}"
        return self.command("kubectl", "label", "nodes", "-l", "bench=yes", label, "--overwrite", agent="kubectl/")

    def command(self, *words: str, agent: str) -> Run:
        """One command of another program, which shows itself to servers by this word."""
        since = self._asked.mark()
        seconds, _said = self._timed(words, {})
        asked = self._asked.since(since, agent)
        return Run(seconds, requests=asked.requests, pages=asked.pages, writes=asked.writes)

    def _timed(self, command: Sequence[str], more: Mapping[str, str]) -> tuple[float, str]:
        begin = time.monotonic()
        done = subprocess.run(
            command,
            cwd=REPO,
            env={**self._lab.env, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - begin
        if done.returncode:
            raise BrokenRun(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}")
        return seconds, done.stdout


def changes(said: str) -> set[int]:
    """How many tasks changed something on a host, by a playbook's recap; one number where it is the same on all of them."""
    return {int(number) for number in re.findall(r"\bchanged=(\d+) ", said)}
