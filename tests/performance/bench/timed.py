# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands as whole processes: how long they take, what their module takes, and what they ask of the API server."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab import audit, processes
from lab.layout import Lab as LabLayout
from tests.labs import Lab
from tests.programs import REPO

from .rows import Run

_FOLDER = Path(__file__).parent
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
    """Runs commands against one lab, one at a time."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        """Put the interpreter that measures modules into the folder."""
        self._lab = lab
        self._layout = LabLayout.named(lab.name)
        self._log = folder / "modules.jsonl"
        self._interpreter = folder / "python"
        self._interpreter.write_text(_INTERPRETER.format(python=sys.executable, log=self._log))
        self._interpreter.chmod(0o755)
        self._steps = 0

    def playbook(self, name: str, *, changed: int, **variables: object) -> Run:
        """One ansible-playbook; `changed` tasks must have changed something, and nothing may have failed."""
        self._log.write_text("")
        given = {f"bench_{key}": value for key, value in {"python": str(self._interpreter), **variables}.items()}
        command = ["ansible-playbook", "-i", "inventories/lab", str(_FOLDER / name), "-e", json.dumps(given)]
        since = audit.mark(self._layout)
        worked = processes.worked(processes.of_lab(self._layout))
        seconds, said = self._timed(command, {"ANSIBLE_DEPRECATION_WARNINGS": "0"})
        worked = processes.worked(processes.of_lab(self._layout)) - worked
        if f"changed={changed} " not in said:
            raise BrokenRun(f"{name} did not end with changed={changed}:\n{said}")
        module = [json.loads(line) for line in self._log.read_text().splitlines()]
        asked = list(audit.requests(self._layout, since, "accel.gpu/"))
        return Run(
            seconds,
            module[0][0] if module else None,
            module[0][1] if module else None,
            requests=len(asked),
            pages=sum(1 for of in asked if of.verb == "list" and of.resource == "nodes"),
            writes=sum(1 for of in asked if of.mutating),
            server_seconds=worked,
        )

    def kubectl(self) -> Run:
        """One `kubectl label` of all nodes with the benchmark's label, with a value that they do not have."""
        self._steps += 1
        since = audit.mark(self._layout)
        command = ["kubectl", "label", "nodes", "-l", "bench=yes", f"bench-step=k{self._steps}", "--overwrite"]
        seconds, _said = self._timed(command, {})
        asked = audit.count(self._layout, since, "kubectl/")
        return Run(seconds, requests=sum(asked.values()), writes=asked["patch"])

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
