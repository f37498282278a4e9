# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes files atomically, with permissions only for their owner, and never through a symbolic link."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile

from .errors import ConnectionProblem
from .temporary_files import owner, remove_leftovers

# The age in seconds from which a temporary file counts as a leftover of a killed run; writing a file takes less than a second.
_ABANDONED_AGE = 60.0


def write(path: str, text: str, *, keep_mode: bool = False) -> None:
    """Write a file atomically with mode 0600; raises ConnectionProblem.

    A symbolic link at `path` is an error, because another user may have chosen its target; links to its folder are followed.
    `keep_mode`: whether an existing file of the same user keeps its permissions, for reports that other users may read. The permissions of
    another user's file are never kept, because that user has chosen them.
    """
    folder, name = os.path.split(os.path.abspath(path))
    new = ""
    try:
        existing = _existing(path)
        prefix = f".{name[:120]}.accel-gpu-"
        remove_leftovers(folder, prefix, age=_ABANDONED_AGE)
        # This fails if anything exists at the path, including a link.
        handle, new = tempfile.mkstemp(prefix=f"{prefix}{owner()}-", dir=folder)
        if keep_mode and existing is not None and existing.st_uid == os.geteuid():
            os.fchmod(handle, stat.S_IMODE(existing.st_mode) & 0o777)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # rename() replaces a link that was created in the meantime, and does not follow it.
        os.replace(new, path)
    except OSError as error:
        if new:
            with contextlib.suppress(OSError):
                os.unlink(new)
        raise ConnectionProblem(f"{path} cannot be written: {error.strerror}.") from None


def require_replaceable(path: str) -> None:
    """Raise ConnectionProblem if write() would refuse what exists at the path, before a service creates what is to be written."""
    with contextlib.suppress(OSError):
        _existing(path)


def make_folder(path: str) -> None:
    """Create the folder of a file; raises ConnectionProblem."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        os.makedirs(folder, exist_ok=True)
    except (OSError, ValueError) as error:
        raise ConnectionProblem(f"{folder} cannot be created: {getattr(error, 'strerror', error)}.") from None


def text_of(path: str) -> str | None:
    """The text of a file; None if it does not exist. Raises ConnectionProblem for a file that write() does not replace, such as a symbolic link."""
    try:
        if _existing(path) is None:
            return None
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise ConnectionProblem(f"{path} cannot be read: {getattr(error, 'strerror', error)}.") from None


def holds(path: str, text: str) -> bool:
    """Whether a file contains this text and has mode 0600; raises ConnectionProblem for a symbolic link or a special file, which write() does not replace."""
    try:
        existing = _existing(path)
        if existing is None or stat.S_IMODE(existing.st_mode) != 0o600:
            return False
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read() == text
    except OSError:
        return False


def _existing(path: str) -> os.stat_result | None:
    """The status of the file; None if it does not exist."""
    try:
        existing = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(existing.st_mode):
        raise ConnectionProblem(
            f"{path} cannot be written: it is a symbolic link, which is not followed. Use the path of its target, or delete the link."
        )
    if stat.S_ISDIR(existing.st_mode):
        raise ConnectionProblem(f"{path} cannot be written: it is a directory. Use the path of a file.")
    if not stat.S_ISREG(existing.st_mode):
        raise ConnectionProblem(f"{path} cannot be written: it is not a regular file. Use a different path.")
    return existing
