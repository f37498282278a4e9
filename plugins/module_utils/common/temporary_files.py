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

from .process import pid_namespace, start_time

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
    return f"{_namespace()}-{os.getpid()}-{start_time(os.getpid()) or 0}"


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


def _namespace() -> str:
    """Containers that share a folder cannot see each other's processes."""
    return "".join(filter(str.isdigit, pid_namespace())) or "0"


def _runs(pid: int, begun: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return start_time(pid) in (begun, "") or begun == "0"
