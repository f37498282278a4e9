# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible-test sanity` without an ignore file; `make test` uses the development's ansible-core, `make soak` all versions."""

from __future__ import annotations

import subprocess

import pytest

from tests.programs import REPO, environment

# The exit status of tools/sanity on a machine without a Python for an ansible-core.
NO_PYTHON = 3


@pytest.mark.parametrize(
    "core",
    [
        pytest.param("2.19", marks=pytest.mark.usual(180)),
        pytest.param("2.16", marks=[pytest.mark.usual(200), pytest.mark.soak]),
        pytest.param("2.21", marks=[pytest.mark.usual(200), pytest.mark.soak]),
    ],
)
def test_sanity(core: str) -> None:
    done = subprocess.run(
        [REPO / "tools" / "sanity", core],
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
