# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose turn it is: tests of several processes run side by side, except those that measure time, which run alone."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .programs import BUILD


@contextmanager
def turn(*, alone: bool, folder: Path = BUILD) -> Iterator[None]:
    """Wait until a test may run among the others of this checkout, or alone.

    Who waits to be alone stands in the door, so that nobody else comes in before.
    """
    with ExitStack() as room:
        with _held(folder / ".door", fcntl.LOCK_EX):
            room.enter_context(_held(folder / ".room", fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        yield


@contextmanager
def _held(path: Path, kind: int) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, kind)
        yield
