# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many clusters in one job template: each is handled once, by one slice; what a slice costs; two jobs that change the same cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.awx.store import Row
from tests.helpers.awx_fleet import MAX_MIB_PER_SLICE, Fleet, JobCost, fleet
from tests.helpers.polling import until

pytestmark = pytest.mark.timeout(3600)

# Few clusters in slices of different sizes.
FEW, SLICES = 5, 3
SHARED = "https://awx.example.com/#/jobs/playbook/{id}"


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("few"), FEW, slices=SLICES) as started:
        yield started


def check(running: Fleet, template: str, slices: int) -> list[JobCost]:
    """Run a template that changes nothing on all clusters: each is handled exactly once, by one job, which sends what a job for this cluster alone sends."""
    names = [server.name for server in running.servers]
    costs = running.measure(template)
    for cost in costs:
        print(cost)
    assert len(costs) == slices
    assert Counter(name for cost in costs for name in cost.clusters) == Counter(names)
    # The API servers have logged requests of one job each.
    assert Counter(name for cost in costs for name in cost.requests) == Counter(names)
    sizes = [len(cost.clusters) for cost in costs]
    assert max(sizes) - min(sizes) <= 1, sizes
    running.set_slices(template, 1)
    try:
        (alone,) = running.measure(template, limit=names[0])
    finally:
        running.set_slices(template, slices)
    print(f"{names[0]} alone: {alone}")
    assert {count for cost in costs for count in cost.requests.values()} == {alone.requests[names[0]]}
    assert [cost.writes for cost in (*costs, alone)] == [0] * (slices + 1)
    assert max(cost.mib for cost in costs) <= MAX_MIB_PER_SLICE
    return costs


@pytest.mark.usual(60)
@pytest.mark.parametrize("template", ["GPU report", "GPU plan"])
def test_each_cluster_is_in_one_slice(few: Fleet, template: str) -> None:
    check(few, template, SLICES)


@pytest.mark.soak
@pytest.mark.usual(900)
def test_fifty_clusters_in_five_slices(tmp_path: Path) -> None:
    with fleet(tmp_path, 50, slices=5) as running:
        memory = sum(server.mebibytes() for server in running.servers)
        print(f"{len(running.servers)} API servers: {memory:.0f} MiB")
        for template in ("GPU report", "GPU plan"):
            assert [len(cost.clusters) for cost in check(running, template, 5)] == [10] * 5


@pytest.mark.usual(20)
def test_there_are_fewer_clusters_than_slices(few: Fleet) -> None:
    few.set_slices("GPU report", FEW + 4)
    try:
        costs = few.measure("GPU report")
    finally:
        few.set_slices("GPU report", SLICES)
    assert [len(cost.clusters) for cost in costs] == [1] * FEW
