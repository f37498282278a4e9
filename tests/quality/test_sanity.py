# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible-test sanity` without an ignore file; `make test` uses the development's ansible-core, `make soak` all versions.

Two of its tests take seconds for each file, so `make test` draws the files that it gives to them; ruff and mypy read all files in each run.
"""

from __future__ import annotations

import random
import subprocess

import pytest

from tests.programs import REPO, environment, tracked

CORE = "2.19"
# The exit status of tools/sanity on a machine without a Python for an ansible-core.
NO_PYTHON = 3
SLOW = ("import", "pylint")
DRAWN_FILES = 50


@pytest.mark.soak
@pytest.mark.usual(250)
@pytest.mark.parametrize("core", [CORE, "2.16", "2.21"])
def test_sanity(core: str) -> None:
    run_sanity(core)


@pytest.mark.usual(90)
def test_quick_tests_of_sanity() -> None:
    run_sanity(CORE, *(f"--skip-test={name}" for name in SLOW))


@pytest.mark.usual(60)
def test_slow_tests_of_sanity(rng: random.Random) -> None:
    files = [str(path.relative_to(REPO)) for path in tracked("plugins/*.py")]
    run_sanity(CORE, *(f"--test={name}" for name in SLOW), *sorted(rng.sample(files, DRAWN_FILES)))


def run_sanity(core: str, *arguments: str) -> None:
    done = subprocess.run(
        [REPO / "tools" / "sanity", core, *arguments],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    message = done.stdout
    if done.returncode == NO_PYTHON:
        pytest.skip(message.strip())
    if done.returncode:
        actual = [line for line in message.splitlines() if line.startswith(("ERROR", "FATAL"))]
        pytest.fail("\n".join(actual or message.splitlines()[-40:]), pytrace=False)


def test_nothing_is_ignored() -> None:
    assert not list((REPO / "tests" / "sanity").glob("ignore*"))
