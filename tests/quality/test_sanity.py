# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible-test sanity` without an ignore file; `make test` asks the development's ansible-core, `make soak` all."""

from __future__ import annotations

import pytest

from tests.programs import REPO
from tests.sanity_runs import NO_PYTHON, SanityRuns


@pytest.mark.parametrize(
    "core",
    [
        pytest.param("2.19", marks=pytest.mark.usual(60)),
        pytest.param("2.16", marks=[pytest.mark.usual(120), pytest.mark.soak]),
        pytest.param("2.21", marks=[pytest.mark.usual(120), pytest.mark.soak]),
    ],
)
def test_sanity(sanity_runs: SanityRuns, core: str) -> None:
    code, said = sanity_runs.ended(core)
    if code == NO_PYTHON:
        pytest.skip(said.strip())
    if code:
        found = [line for line in said.splitlines() if line.startswith(("ERROR", "FATAL"))]
        pytest.fail("\n".join(found or said.splitlines()[-40:]), pytrace=False)


def test_nothing_is_ignored() -> None:
    assert not list((REPO / "tests" / "sanity").glob("ignore*"))
