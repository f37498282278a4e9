# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Temporary files whose names identify their process, so that a later run can remove the files of a killed run."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
import time

from .process import pid_namespace, start_time

# PID namespace, PID, start time in clock ticks since the boot, and random characters.
_OWNER = r"(?P<namespace>\d+)-(?P<pid>\d+)-(?P<started>\d+)-\w+"


def make_file(kind: str) -> str:
    """Create an empty file that only this user can access, in the folder for temporary files, and remove leftover files of this kind; raises OSError."""
    prefix, folder = f"accel-gpu-{kind}-", tempfile.gettempdir()
    remove_leftovers(folder, prefix)
    handle, path = tempfile.mkstemp(prefix=f"{prefix}{owner()}-", dir=folder)
    os.close(handle)
    return path


def owner() -> str:
    """An id of this process for the name of a file; `-` and random letters or digits must follow."""
    return f"{_namespace()}-{os.getpid()}-{start_time(os.getpid()) or 0}"


def remove_leftovers(folder: str, prefix: str, age: float = 0) -> list[str]:
    """Remove this user's files in a folder that have this prefix and whose processes have ended; returns their paths.

    `age`: the minimum age in seconds, for a folder shared with other machines, whose processes are not visible. Other files, and files that
    cannot be removed, are kept.
    """
    name, removed = re.compile(re.escape(prefix) + _OWNER), []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            match = name.fullmatch(entry.name)
            if match is None or match["namespace"] != _namespace():
                continue
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                is_own = status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode)
                if is_own and time.time() - status.st_mtime >= age and not _runs(int(match["pid"]), match["started"]):
                    os.unlink(entry.path)
                    removed.append(entry.path)
    return sorted(removed)


def _namespace() -> str:
    """The PID namespace, because containers that share a folder cannot see each other's processes."""
    return "".join(filter(str.isdigit, pid_namespace())) or "0"


def _runs(pid: int, started: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return start_time(pid) in (started, "") or started == "0"
