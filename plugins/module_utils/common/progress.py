# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the progress of a module to a file, from which the action plugin reads it line by line."""

from __future__ import annotations

import json
import os
import threading
import time
import typing as t

PROGRESS_ENV = "ACCEL_GPU_PROGRESS"
RUN_ID_ENV = "ACCEL_GPU_RUN_ID"
INVENTORY_HOST_ENV = "ACCEL_GPU_INVENTORY_HOST"


class Progress:
    """Appends lines to a file; never fails and never blocks a module."""

    def __init__(self, path: str | None) -> None:
        """Write to the file that the action plugin has created; without a file, all lines are dropped."""
        self._path = path if path and os.path.isfile(path) else None
        self._lock = threading.Lock()

    def report(self, text: str, done: int | None = None, total: int | None = None, *, failed: int = 0) -> None:
        """Append one line, with counts if they are given. `done` does not include failures. The reader limits the number of lines that it shows."""
        if self._path is None:
            return
        line: dict[str, t.Any] = {"at": round(time.time(), 3), "text": f"{text}, {failed} failed" if failed else text}
        if total is not None:
            line.update(done=done or 0, total=total)
        try:
            # A missing file is not created again: the reader has removed it, and would not remove it a second time.
            with self._lock, open(os.open(self._path, os.O_WRONLY | os.O_APPEND), "ab") as file:
                file.write(json.dumps(line).encode() + b"\n")
        except OSError:
            # If the reader was killed, the disk is full, or the file belongs to another user, the work continues.
            self._path = None
