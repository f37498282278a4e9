# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for conditions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

_BETWEEN = 0.1
# The limits of tests suit an idle machine. On one that is busy with other labs, a condition is met later, which is no failure.
BUSY = 4


def until(ask: Callable[[], Any], limit: float = 60, describe: Callable[[], Any] | None = None) -> Any:
    """Call until the result is true, and return it; fail after this number of seconds, on a busy machine later.

    The failure shows the last result, or the result of `describe`.
    """
    deadline = time.monotonic() + BUSY * limit
    while not (answer := ask()):
        assert time.monotonic() < deadline, describe() if describe else answer
        time.sleep(_BETWEEN)
    return answer


def busy_factor() -> float:
    """The factor for time limits on a machine with other load, before a test causes load itself: the load per processor, at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
