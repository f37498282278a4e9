# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Formats durations."""

from __future__ import annotations


def spent(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3:05 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds // 60:.0f}:{seconds % 60:02.0f} min"


def about(seconds: float) -> str:
    """A rounded estimate: `20 s`, `4 min`."""
    if seconds < 90:
        return f"{max(5, round(seconds / 5) * 5)} s"
    return f"{round(seconds / 60)} min"
