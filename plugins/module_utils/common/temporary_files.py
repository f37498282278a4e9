# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Temporary files that say in their names which process has made them, so that the next run removes what a killed one has left."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
import time

# PID namespace, PID, start time in clock ticks since the boot, and chance.
_OWNER = r"(?P<namespace>\d+)-(?P<pid>\d+)-(?P<started>\d+)-\w+"


def make_file(kind: str) -> str:
    """A new empty file for this user alone, in the folder for temporary files; raises OSError. Leftovers of its kind go."""
    prefix, folder = f"accel-gpu-{kind}-", tempfile.gettempdir()
    remove_leftovers(folder, prefix)
    handle, path = tempfile.mkstemp(prefix=f"{prefix}{owner()}-", dir=folder)
    os.close(handle)
    return path


def owner() -> str:
    """This process, for the name of a file, to be followed by `-` and letters or digits by chance."""
    return f"{_namespace()}-{os.getpid()}-{started(os.getpid())}"


def remove_leftovers(folder: str, prefix: str, age: float = 0) -> list[str]:
    """Remove this user's files in a folder that begin so, whose processes no longer run; their paths.

    `age`: seconds that they must be old, for a folder that may be another machine's, too, whose processes cannot be seen. What
    cannot be judged or removed stays.
    """
    name, removed = re.compile(re.escape(prefix) + _OWNER), []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            found = name.fullmatch(entry.name)
            if found is None or found["namespace"] != _namespace():
                continue
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                ours = status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode)
                if ours and time.time() - status.st_mtime >= age and not _runs(int(found["pid"]), found["started"]):
                    os.unlink(entry.path)
                    removed.append(entry.path)
    return sorted(removed)


def started(pid: int) -> str:
    """When a process was started, by which a later one with the same number is another; 0 where that cannot be seen."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as handle:
            return handle.read().rpartition(")")[2].split()[19]
    except OSError:
        return "0"


def _namespace() -> str:
    """The PID namespace: containers that share a folder cannot see each other's processes."""
    try:
        return "".join(filter(str.isdigit, os.readlink("/proc/self/ns/pid"))) or "0"
    except OSError:
        return "0"


def _runs(pid: int, begun: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return started(pid) in (begun, "0") or begun == "0"
