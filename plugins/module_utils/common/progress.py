# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module tells while it works: lines in a file that the action plugin reads, and nothing when there is none."""

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
    """Appends lines to a file; a module must never fail or wait because of them."""

    def __init__(self, path: str | None) -> None:
        """Write to an existing file; without one everything said is dropped."""
        self._path = path if path and os.path.isfile(path) else None
        self._lock = threading.Lock()

    @classmethod
    def from_env(cls) -> Progress:
        """The file that the action plugin has named."""
        return cls(os.environ.get(PROGRESS_ENV))

    def say(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """One line, with counts where there are some; the reader shows only as many as a person can follow."""
        if self._path is None:
            return
        line: dict[str, t.Any] = {"at": round(time.time(), 3), "text": text}
        if total is not None:
            line.update(done=done or 0, total=total)
        try:
            # Never creates the file: once the reader has removed it, nobody would.
            with self._lock:
                handle = os.open(self._path, os.O_WRONLY | os.O_APPEND)
                try:
                    os.write(handle, json.dumps(line).encode() + b"\n")
                finally:
                    os.close(handle)
        except OSError:
            # The reader is gone (killed), the disk is full, another user's file: the work goes on.
            self._path = None
