# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All sharing modes by name. A new mode is one file beside this one, and an entry here."""

from __future__ import annotations

import typing as t

from .mig import MIG
from .mps import MPS
from .time_slicing import TIME_SLICING
from .whole_gpus import NONE

if t.TYPE_CHECKING:
    from .base import SharingMode

MODES: dict[str, SharingMode] = {mode.name: mode for mode in (NONE, TIME_SLICING, MPS, MIG)}


def mode_with_replicas(name: str, replicas: int) -> str:
    """A mode with its number of shares, as tables show it."""
    return f"{name} x{replicas}" if replicas > 1 else name
