# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Identify processes, so that a later run on the same machine can see whether one of them still runs."""

from __future__ import annotations

import os


def start_time(pid: int) -> str:
    """Clock ticks from the boot to the start of a process, which differ when its number is used again.

    Empty if there is no such process, where it is a zombie, and where the system has no /proc.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as handle:
            after_name = handle.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if after_name[0] == "Z" else after_name[19]


def pid_namespace() -> str:
    """The PID namespace of this process: each container has its own. Empty if it is unknown."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def machine() -> str:
    """The boot of this machine and the PID namespace, within which a PID and a start time identify a process; empty if unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as handle:
            boot = handle.read().strip()
    except OSError:
        return ""
    namespace = pid_namespace()
    return f"{boot}/{namespace}" if namespace else ""
