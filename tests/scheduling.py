# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parallel tests: one process runs a whole file, or a folder that shares a lab; tests that measure time run alone."""

from __future__ import annotations

import fcntl
import random
import re
from collections.abc import Iterable, Iterator
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


# Of the files that match a pattern, `make test` runs this number, drawn by the seed, since most of their time goes into starting what they test. If a pattern
# has parentheses, it draws this number for each of their values. The first pattern that matches a file counts, so a new folder needs no entry.
DRAWN_FILES = {
    # A whole run of site, the state that other tests start from.
    r"tests/integration/site/test_site\.py": 1,
    r"tests/integration/site/test_\w+\.py": 4,
    # Modules that change operators, nodes and sharing; then those for connections, requests and results.
    r"tests/integration/modules/test_(?:cluster_policy|helm_release|operator_info|upgrading)\.py": 1,
    r"tests/integration/modules/test_(?:drain|eviction|gpu_holders|node_metadata|nodegroup_nodes|release)\.py": 1,
    r"tests/integration/modules/test_(?:gpu_\w+|mig_configs|modes|demand|transitions)\.py": 1,
    r"tests/integration/modules/test_\w+\.py": 4,
    r"tests/integration/(lab|sim)/test_\w+\.py": 1,
    # The objects of others, on one of the clouds.
    r"tests/integration/\w+/test_shared\.py": 1,
    r"tests/integration/openshift/test_olm_\w+\.py": 1,
    r"tests/integration/openshift/test_\w+\.py": 1,
    r"tests/integration/(\w+)/test_\w+\.py": 2,
}


# Quick checks run first, in the order of the tests, so that mistakes show early.
FIRST = ("tests/quality/", "tests/unit/")


def files_left_out(files: Iterable[str], seed: int) -> set[str]:
    """The files that the seed leaves to `make soak`."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for file in sorted(set(files)):
        matches = ((pattern, re.fullmatch(pattern, file)) for pattern in DRAWN_FILES)
        kind = next(((pattern, *match.groups()) for pattern, match in matches if match), None)
        if kind:
            alike.setdefault(kind, []).append(file)
    drawn = {
        file
        for kind, names in alike.items()
        for file in random.Random(f"{seed} {' '.join(kind)}").sample(names, min(DRAWN_FILES[kind[0]], len(names)))
    }
    return {file for names in alike.values() for file in names} - drawn


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
