# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tests run side by side: one process takes a whole file, or a folder that shares a lab; what measures time runs alone."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

from .programs import BUILD

# Their lab is dear: it is up as long as tests of the folder run, and once.
SHARED = ("tests/integration/magnum/",)


class ByLab(LoadScopeScheduling):
    """Gives out files, and folders that share a lab, in the order of the tests."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in SHARED if nodeid.startswith(folder)), nodeid.partition("::")[0])


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
