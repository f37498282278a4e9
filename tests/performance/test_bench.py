# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make bench` on a few nodes and node groups: it measures what it says, and its limits on requests hold there too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.labs import Lab, own_lab
from tests.performance.bench.groups import BESIDE_EACH, NodeGroups
from tests.performance.bench.page import page
from tests.performance.bench.profile import Profiles
from tests.performance.bench.rows import flat
from tests.performance.bench.setting import setting

NODES, GROUPS, CLUSTERS = 5, 3, 2

pytestmark = [pytest.mark.soak, pytest.mark.alone]


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
    written = page(setting(lab, 2, 0.0, size), [change, nothing])
    assert "| profile change | 5 nodes |" in written
    assert "All" in written


@pytest.mark.usual(200)
def test_on_a_few_node_groups(tmp_path: Path) -> None:
    with own_lab("bench", "openstack") as lab:
        groups = NodeGroups(lab, tmp_path, 1, print)
        nothing = groups.nothing(GROUPS, 1)
        created = groups.side_by_side(GROUPS, 1)
        fleet = groups.fleet(CLUSTERS, GROUPS, (1, CLUSTERS))
        written = page(setting(lab, 1, 0.0), [nothing, created, *fleet])
    assert not nothing.missed
    assert {run.requests for run in flat(nothing.ours)} == {GROUPS + BESIDE_EACH}
    assert all(run.requests for run in flat(nothing.others))
    assert {run.writes for run in flat(created.ours)} == {GROUPS}
    assert {run.writes for run in flat(created.others)} == {1}
    assert [{run.requests for run in flat(row.ours)} for row in fleet] == [{CLUSTERS * (GROUPS + BESIDE_EACH)}] * 2
    assert {run.requests for row in fleet for run in flat(row.others)} == {GROUPS + BESIDE_EACH}
    assert "| nothing to change | 3 node groups |" in written
    assert "magnum 23" in written
