# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How modules write files: whole, for their owner alone from the first byte on, and never through a symbolic link."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat

from .errors import ConnectionProblem
from .temporary_files import owner, remove_leftovers

_ATTEMPTS = 10
# Seconds after which a file that was never renamed is a killed run's; to write one takes less than one.
_ABANDONED = 60.0


def write(path: str, text: str, *, keep_mode: bool = False) -> None:
    """Put a file in its place whole, with mode 0600; ConnectionProblem where that cannot be.

    A symbolic link at `path` is refused: whoever has put it there would choose which file is overwritten. Its folder may be
    reached by links. `keep_mode`: a file of the same user keeps its permissions, for reports that others are meant to read. One of
    another user does not: that user would choose who reads the report.
    """
    folder, name = os.path.split(os.path.abspath(path))
    new = ""
    try:
        mode = _mode(path)
        keep_mode = keep_mode and mode is not None and os.lstat(path).st_uid == os.geteuid()
        handle, new = _create(folder, name)
        if keep_mode and mode is not None:
            os.fchmod(handle, stat.S_IMODE(mode) & 0o777)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # rename() replaces a link that has appeared meanwhile, and does not follow it.
        os.replace(new, path)
    except OSError as error:
        if new:
            with contextlib.suppress(OSError):
                os.unlink(new)
        raise ConnectionProblem(f"{path} cannot be written: {error.strerror}.") from None


def holds(path: str, text: str) -> bool:
    """Whether a file has this text already and only its owner may read it; ConnectionProblem where it could not be written."""
    try:
        mode = _mode(path)
        if mode is None or stat.S_IMODE(mode) != 0o600:
            return False
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read() == text
    except OSError:
        return False


def _mode(path: str) -> int | None:
    """Of the file that is there; None where there is none."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(mode):
        raise ConnectionProblem(
            f"{path} cannot be written: it is a symbolic link, which is not followed. Name the file that it leads to, or delete the link."
        )
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ConnectionProblem(f"{path} cannot be written: it is not a regular file. Name another one.")
    return mode


def _create(folder: str, name: str) -> tuple[int, str]:
    """A new file beside the one that it is to replace: O_EXCL fails on whatever is there, a link included."""
    prefix = f".{name[:120]}.accel-gpu-"
    remove_leftovers(folder, prefix, age=_ABANDONED)
    for attempt in range(_ATTEMPTS):
        new = os.path.join(folder, f"{prefix}{owner()}-{secrets.token_hex(8)}")
        try:
            return os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), new
        except FileExistsError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError
