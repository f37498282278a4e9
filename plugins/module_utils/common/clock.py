# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A clock for time limits that other machines count too."""

from __future__ import annotations

import time


def elapsed() -> float:
    """Seconds since some fixed moment; includes the time for which the machine was suspended, where the system counts it."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
