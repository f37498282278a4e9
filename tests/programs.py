# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs programs that must succeed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
BUILD = REPO / "build"
VENV_BIN = Path(sys.executable).parent
TAIL_LINES = 60


def environment(**more: str) -> dict[str, str]:
    """The environment in which this checkout's tools and collection have precedence, with `more` added."""
    return {
        **os.environ,
        "PATH": f"{VENV_BIN}{os.pathsep}{os.environ['PATH']}",
        "ANSIBLE_COLLECTIONS_PATH": str(BUILD),
        "NO_COLOR": "1",
        "ANSIBLE_HOME": str(BUILD / "ansible-home"),
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "False",
        **more,
    }


def run(*command: str | Path, cwd: Path = REPO, env: Mapping[str, str] | None = None) -> str:
    """Run a program, which must succeed, and return its output; otherwise the test fails with the end of the output."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment() if env is None else dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        message = "\n".join(done.stdout.splitlines()[-TAIL_LINES:])
        pytest.fail(f"{' '.join(map(str, command))} ended with {done.returncode}\n{message}", pytrace=False)
    return done.stdout


def tracked(*patterns: str) -> list[Path]:
    """The files of the repository (tracked, or new and not ignored) that match the patterns."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=REPO,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [REPO / name for name in listed.stdout.splitlines() if (REPO / name).exists()]


def tree_copy() -> Path:
    """A real copy of the collection below `build/tree`; each test process has its own."""
    return Path(run(REPO / "tools" / "tree", BUILD / "tree" / os.environ.get("PYTEST_XDIST_WORKER", "alone")).strip())
