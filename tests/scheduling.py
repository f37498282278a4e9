# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parallel tests: one process runs a whole file, or a folder that shares a lab; tests that measure time run alone."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from .programs import BUILD
from .reporter import EXPECTED, cached

# Starting their lab takes long, so one process runs the whole folder and starts it once.
# Two processes run the tests on OpenShift, because these take longest: those of OLM, and the others.
SHARED = (
    "tests/integration/licensing/",
    "tests/integration/magnum/",
    "tests/integration/openshift/test_olm_",
    "tests/integration/openshift/",
    "tests/integration/registry/",
    "tests/integration/sim/",
)


# Quick checks run first, in the order of the tests, so that mistakes show early.
FIRST = ("tests/quality/", "tests/unit/")


class LabScheduling(LoadScopeScheduling):
    """Distributes files, and folders that share a lab: first the quick checks, then the longest, so that both processes end together."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in SHARED if nodeid.startswith(folder)), nodeid.partition("::")[0])

    def _assign_work_unit(self, node: WorkerController) -> None:
        if not next(iter(self.workqueue)).startswith(FIRST):
            expected = cached(self.config, EXPECTED)
            longest = max(
                self.workqueue, key=lambda scope: sum(expected.get(name, 0) for name in self.workqueue[scope])
            )
            self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)


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
