# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes of a lab, found in /proc by a marker in the environment of every service."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from .layout import Lab

# Not exported by `lab env`: a user's shell must not count as a service.
MARK = "ACCEL_GPU_LAB_SERVICE_OF"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


def pids(lab: Lab) -> set[int]:
    """Return the process ids of a lab's services and their descendants, even if the lab's supervisor is dead."""
    mark = f"{MARK}={lab.dir}".encode()
    parents: dict[int, int] = {}
    marked: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int(_stat(entry)[1])
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                marked.add(int(entry.name))
        except (OSError, ValueError):
            continue
    matching = set(marked)
    # A process in bubblewrap has an empty environment, but an ancestor with the marker.
    for process in parents:
        chain, ancestor = [process], parents[process]
        while ancestor in parents and ancestor not in matching:
            chain.append(ancestor)
            ancestor = parents[ancestor]
        if ancestor in matching:
            matching.update(chain)
    return matching - {os.getpid()}


def memory(processes: Iterable[int]) -> int:
    """Return the resident memory of processes in bytes."""
    total = 0
    for process in processes:
        try:
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
        except OSError:
            continue
    return total


def cpu_seconds(processes: Iterable[int]) -> float:
    """Return the processor time used by processes, in seconds."""
    total = 0
    for process in processes:
        try:
            fields = _stat(Path(f"/proc/{process}"))
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def descendants(processes: Iterable[int]) -> dict[int, set[int]]:
    """Return, for each process, itself and its descendants among the given processes."""
    known = set(processes)
    families: dict[int, set[int]] = {process: {process} for process in known}
    for process in known:
        ancestor = _parent(process)
        while ancestor in known:
            families[ancestor].add(process)
            ancestor = _parent(ancestor)
    return families


def kill(lab: Lab, limit: float = 60.0) -> int:
    """Kill all processes of a lab, and return their number."""
    killed: set[int] = set()
    deadline = time.monotonic() + limit
    while (remaining := {process for process in pids(lab) if not _zombie(process)}) and time.monotonic() < deadline:
        for process in remaining:
            killed.add(process)
            _signal(process, signal.SIGKILL)
        _gone(remaining, deadline)
    return len(killed)


@contextlib.contextmanager
def frozen(lab: Lab) -> Iterator[None]:
    """Suspend a lab's processes for the duration of the context."""
    stopped = pids(lab)
    try:
        for process in stopped:
            _signal(process, signal.SIGSTOP)
        yield
    finally:
        for process in stopped:
            _signal(process, signal.SIGCONT)


def _gone(processes: set[int], deadline: float) -> None:
    while time.monotonic() < deadline and any(
        Path(f"/proc/{process}").exists() and not _zombie(process) for process in processes
    ):
        time.sleep(0.02)


def _parent(process: int) -> int:
    try:
        return int(_stat(Path(f"/proc/{process}"))[1])
    except OSError:
        return 0


def _zombie(process: int) -> bool:
    """Return whether all threads of a process are dead: other threads can hold its ports when the first is a zombie."""
    try:
        threads = list(Path(f"/proc/{process}/task").iterdir())
    except OSError:
        return True
    return all(_state(thread) in ("Z", "X") for thread in threads)


def _state(thread: Path) -> str:
    try:
        return _stat(thread)[0]
    except OSError:
        return "X"


def _stat(folder: Path) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; the name before it can contain any character."""
    return (folder / "stat").read_text().rpartition(")")[2].split()


def _signal(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)
