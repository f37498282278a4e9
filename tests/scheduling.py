# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tests run in parallel: one process takes a whole file, or a folder that shares a lab; tests that measure time run alone."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

from .programs import BUILD

# Starting their lab takes long, so one process runs the whole folder and starts the lab once.
SHARED = ("tests/integration/magnum/",)


class LabScheduling(LoadScopeScheduling):
    """Distributes files, and folders that share a lab, in the order of the tests."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in SHARED if nodeid.startswith(folder)), nodeid.partition("::")[0])


@contextmanager
def machine_slot(*, alone: bool, folder: Path = BUILD) -> Iterator[None]:
    """Wait until a test may run beside the other tests of this checkout, or alone.

    A test that waits to run alone holds the queue, so that no other test starts before it.
    """
    with ExitStack() as stack:
        with _locked(folder / ".queue", fcntl.LOCK_EX):
            stack.enter_context(_locked(folder / ".running", fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        yield


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, kind)
        yield
