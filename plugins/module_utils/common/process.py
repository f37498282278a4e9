# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Identifies processes, so that a later run on the same machine can detect whether they are still running."""

from __future__ import annotations

import contextlib
import os
import typing as t


def start_time(pid: int) -> str:
    """The clock ticks from the boot to the start of a process, which identify the process even if its PID is reused.

    Empty if there is no such process, if it is a zombie, or if the system has no /proc.
    """
    state = _state(pid)
    return "" if state is None or state[0] == "Z" else state[19]


def descendants(pid: int) -> dict[int, str]:
    """The start times of the descendants of a process, by PID; empty on a system without /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdecimal() and (state := _state(int(name))) is not None:
            children.setdefault(int(state[1]), []).append(int(name))
    below, waiting = dict[int, str](), [pid]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            below[child] = start_time(child)
            waiting.append(child)
    return {child: started for child, started in below.items() if started}


def signal_processes(processes: t.Mapping[int, str], number: int) -> None:
    """Send a signal to those of the processes from descendants() that are still running."""
    for pid, started in processes.items():
        if start_time(pid) == started:
            with contextlib.suppress(OSError):
                os.kill(pid, number)


def _state(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name: the state, the PID of the parent, and others; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as handle:
            return handle.read().rpartition(")")[2].split() or None
    except OSError:
        return None


def pid_namespace() -> str:
    """The PID namespace of this process (each container has its own); empty if unknown."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def machine() -> str:
    """An id of the machine's current boot and the PID namespace, within which a PID and a start time identify a process; empty if it is unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as handle:
            boot = handle.read().strip()
    except OSError:
        return ""
    namespace = pid_namespace()
    return f"{boot}/{namespace}" if namespace else ""
