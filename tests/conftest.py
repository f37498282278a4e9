# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures and helpers for all tests: the seed, the repository, programs that must succeed, and the lab."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import reporter
from tests.labs import RUN, Lab, build_lab, forget_saved, own_lab
from tests.programs import BUILD, REPO, tree_copy
from tests.scheduling import LabScheduling, files_left_out, machine_slot

if TYPE_CHECKING:
    from tests.helpers.vcenter import VCenter

# In the environment, so that the processes that run tests in parallel draw the same tests.
SEED = int(os.environ.setdefault("ACCEL_GPU_SEED", str(random.SystemRandom().randrange(2**32))))
os.environ.setdefault(RUN, str(os.getpid()))

# A failed assertion in a helper shows its values, too. Before the first import of a helper.
pytest.register_assert_rewrite("tests.helpers")

# Every process of the tests keeps its compiled bytecode below build/, even if the environment disables bytecode.
os.environ.update(PYTHONDONTWRITEBYTECODE="", PYTHONPYCACHEPREFIX=str(BUILD / "pycache"))
sys.dont_write_bytecode, sys.pycache_prefix = False, str(BUILD / "pycache")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(SEED)


def pytest_sessionstart(session: pytest.Session) -> None:
    reporter.install(session.config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        forget_saved()


def pytest_report_header() -> str:
    return f"seed: {SEED} (ACCEL_GPU_SEED={SEED} repeats this run)"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what the seed leaves to `make soak`: the cases of samples that are not drawn, then the files that are not drawn.

    A sample of the cases of several files is drawn from all of them, so that each run has one.
    """
    sampled: dict[str, list[pytest.Item]] = {}
    counts: dict[str, int] = {}
    for item in items:
        if {"lab", "openshift_lab"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("lab")
        mark = item.get_closest_marker("sampled")
        # Tests that only `make soak` runs are not drawn.
        if mark and not item.get_closest_marker("soak"):
            group = mark.kwargs.get("group") or item.nodeid.partition("[")[0]
            sampled.setdefault(group, []).append(item)
            if counts.setdefault(group, mark.args[0]) != mark.args[0]:
                raise pytest.UsageError(f"The tests of the group {group} differ in the number of cases to draw.")
    of_several_files: set[pytest.Item] = set()
    for name, alike in sampled.items():
        kept = random.Random(f"{SEED} {name}").sample(alike, min(counts[name], len(alike)))
        if len(set(map(_file, alike))) > 1:
            of_several_files.update(kept)
        for item in alike:
            if item not in kept:
                item.add_marker("soak")
    remaining = [item for item in items if item not in of_several_files and not item.get_closest_marker("soak")]
    left_out = files_left_out(map(_file, remaining), SEED)
    for item in remaining:
        if _file(item) in left_out:
            item.add_marker("soak")


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LabScheduling:
    return LabScheduling(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with machine_slot(alone=item.get_closest_marker("alone") is not None):
        return (yield)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers from the printed seed, independent of the order of the tests."""
    return random.Random(f"{SEED} {request.node.nodeid}")


@pytest.fixture(scope="session")
def repo() -> Path:
    return REPO


@pytest.fixture(scope="session")
def tree() -> Path:
    """A real copy of the collection (`.../ansible_collections/accel/gpu`), as it would be checked out."""
    return tree_copy()


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The running lab of the tests. All tests share it, so a test that needs an empty cluster calls `lab.reset()` first."""
    # The first build takes minutes, so its progress lines are shown.
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        build_lab()
    with own_lab("test") as lab:
        yield lab


@pytest.fixture
def vcenter(tmp_path: Path) -> Iterator[VCenter]:
    """A vCenter without Kubernetes, with the lab's default hosts and no virtual machines."""
    from tests.helpers.vcenter import start_vcenter

    with start_vcenter(tmp_path / "vcenter") as started:
        yield started
