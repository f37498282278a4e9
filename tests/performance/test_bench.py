# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make bench` on a few nodes: it measures what it says, and its limits on requests hold there too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.labs import Lab
from tests.performance.bench.page import page
from tests.performance.bench.profile import Profiles
from tests.performance.bench.rows import flat
from tests.performance.bench.setting import setting

NODES = 5

pytestmark = pytest.mark.soak


@pytest.fixture
def profiles(lab: Lab, tmp_path: Path) -> Iterator[Profiles]:
    """The lab without machines, as the benchmark has it."""
    yield Profiles(lab, tmp_path, 2, print)
    lab.reset()


@pytest.mark.usual(60)
def test_on_a_few_nodes(profiles: Profiles, lab: Lab) -> None:
    size = profiles.grow(NODES)
    assert size > 10_000
    change, nothing = profiles.change(1), profiles.nothing(1)
    assert not change.missed
    assert not nothing.missed
    assert {run.writes for run in flat(change.others)} == {NODES}
    assert all(run.module_seconds and run.module_mib and run.module_seconds < run.seconds for run in flat(change.ours))
    assert all(run.writes > NODES for run in flat(change.ours))
    written = page(setting(lab, size, 2, 0.0), [change, nothing])
    assert "| profile change | 5 |" in written
    assert "All" in written
