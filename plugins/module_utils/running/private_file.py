# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that hold secrets: for their owner alone from the first byte on, and never half written."""

from __future__ import annotations

import os
import tempfile

from .errors import ConnectionProblem


def write(path: str, text: str) -> None:
    """Put a file in its place whole, for its owner alone; ConnectionProblem where that cannot be."""
    folder = os.path.dirname(os.path.abspath(path))
    new = ""
    try:
        # mkstemp makes files for their owner alone.
        handle, new = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=folder)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        if new and os.path.exists(new):
            os.unlink(new)
        raise ConnectionProblem(f"{path} cannot be written: {error.strerror}.") from None
