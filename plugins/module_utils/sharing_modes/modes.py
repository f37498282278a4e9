# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All sharing modes by name. To add a mode, add a name to catalog/names.py, a file next to this one, and an entry here."""

from __future__ import annotations

import typing as t

from .mig import MIG
from .mps import MPS
from .time_slicing import TIME_SLICING
from .whole_gpus import NONE

if t.TYPE_CHECKING:
    from .base import SharingMode

MODES: dict[str, SharingMode] = {mode.name: mode for mode in (NONE, TIME_SLICING, MPS, MIG)}
# The mode of a pool that does not set one.
DEFAULT_MODE = NONE


def find_mode(plugin_key: str, *, partitioned: bool) -> SharingMode | None:
    """The mode of a node whose GPUs this section of the device plugin's configuration shares; the key is empty if no section shares them.

    The result is None if no mode whose `partitions_gpus` equals `partitioned` uses the section.
    """
    modes = [mode for mode in MODES.values() if mode.partitions_gpus == partitioned]
    return next((mode for mode in modes if plugin_key == mode.plugin_key or (partitioned and not plugin_key)), None)


def mode_named(name: t.Any) -> SharingMode | None:
    """The mode with this name; None for any other value."""
    return MODES.get(name) if isinstance(name, str) else None


def current_mode(strategy: str, replicas: int, *, partitioned: bool) -> str:
    """The mode of a node, as shown in tables; `strategy` is the value of gpu-feature-discovery's label."""
    return MIG.name if partitioned else mode_with_replicas(strategy, replicas)


def mode_with_replicas(name: str, replicas: int) -> str:
    """A mode with its number of shares, as shown in tables."""
    return f"{name} x{replicas}" if replicas > 1 else name
