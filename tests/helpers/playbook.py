# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs playbooks of the collection as a user does, returns their results as data, and can kill them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.programs import REPO

_TOKEN = "ACCEL_GPU_TEST_RUN"


@dataclass(frozen=True)
class PlaybookRun:
    """A finished ansible-playbook: exit status, output, and the JSON callback's document (empty if there is none)."""

    rc: int
    stdout: str
    stderr: str
    document: Mapping[str, Any]

    @property
    def stats(self) -> Mapping[str, Mapping[str, int]]:
        """Per host: ok, changed, failures, skipped, unreachable."""
        stats: Mapping[str, Mapping[str, int]] = self.document.get("stats", {})
        return stats

    def changed(self, host: str = "lab") -> int:
        """Return the number of changed tasks of a host."""
        return self.stats[host]["changed"]

    def results(self, host: str = "lab") -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield each task's name and result on a host, in order."""
        for play in self.document.get("plays", []):
            for task in play["tasks"]:
                if host in task["hosts"]:
                    yield task["task"]["name"], task["hosts"][host]

    def module_results(self, action: str, host: str = "lab") -> list[Mapping[str, Any]]:
        """Return the results of every call of one module (by FQCN), in order."""
        return [result for _name, result in self.results(host) if result.get("action") == action]

    def shown(self, text: str) -> bool:
        """Return whether stderr contains this text, regardless of line breaks."""
        return "".join(text.split()) in "".join(self.stderr.split())

    def failure(self, host: str = "lab") -> str:
        """Return the message of the task that failed on a host."""
        return next(str(result.get("msg", "")) for _name, result in self.results(host) if result.get("failed"))

    def require_success(self) -> PlaybookRun:
        """Return itself, or fail the test with the run's output."""
        messages = [
            f"{name}: {r.get('msg')}" for host in self.stats for name, r in self.results(host) if r.get("failed")
        ]
        assert self.rc == 0, "\n".join([*messages, self.stderr[-3000:], self.stdout[-1500:] if not messages else ""])
        return self


class Playbook:
    """One ansible-playbook process and its child processes."""

    def __init__(
        self,
        name: str,
        *,
        environ: Mapping[str, str],
        inventory: Path = REPO / "inventories" / "lab",
        variables: Mapping[str, Any] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        """Start the playbook; its output is JSON on stdout, progress on stderr."""
        self.token = uuid.uuid4().hex
        command = ["ansible-playbook", name, "-i", str(inventory), *arguments]
        if variables:
            command += ["-e", json.dumps(variables)]
        environment = {
            **environ,
            _TOKEN: self.token,
            "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_DEPRECATION_WARNINGS": "0",
        }
        self.process = subprocess.Popen(
            command,
            cwd=REPO,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait(self, timeout: float = 600) -> PlaybookRun:
        """Wait for the end; a run that exceeds the timeout is killed and fails the test."""
        try:
            stdout, stderr = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            stdout, stderr = self.process.communicate()
            raise AssertionError(f"still running after {timeout} s:\n{stderr[-3000:]}") from None
        try:
            document = json.loads(stdout)
        except json.JSONDecodeError:
            document = {}
        return PlaybookRun(self.process.returncode, stdout, stderr, document)

    def kill(self) -> None:
        """Kill -9 all processes, which are found by a token in their environment, since workers leave the session."""
        while pids := list(self._pids()):
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def alive(self) -> list[int]:
        """The processes of the run that have not ended."""
        return list(self._pids())

    def kill_worker(self) -> bool:
        """Kill -9 only the process that Ansible has forked for the task; False if no task is running.

        The module that it has started continues, but no process waits for it.
        """
        workers = [pid for pid in self._pids() if _parent_of(pid) == self.process.pid]
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(workers)

    def stop(self) -> None:
        """SIGSTOP all processes, as on a suspended machine; resume() continues them."""
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the stopped processes."""
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _pids(self) -> Iterator[int]:
        needle = f"{_TOKEN}={self.token}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                alive = (
                    needle in (entry / "environ").read_bytes() and "\nState:\tZ" not in (entry / "status").read_text()
                )
            except OSError:
                continue
            if alive:
                yield int(entry.name)


def _parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def run_playbook(name: str, *, environ: Mapping[str, str], timeout: float = 600, **options: Any) -> PlaybookRun:
    """Run a playbook to its end, with the options of Playbook."""
    return Playbook(name, environ=environ, **options).wait(timeout)
