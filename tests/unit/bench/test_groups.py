# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a fleet of clusters is measured by: as many runs for one cluster as there are clusters."""

from __future__ import annotations

import pytest

from tests.performance.bench.groups import declared, of_fleet
from tests.performance.bench.rows import Run


def run(seconds: float, requests: int, writes: int = 0) -> Run:
    return Run(seconds, requests=requests, writes=writes)


def test_a_fleet_beside_its_clusters_one_by_one() -> None:
    row = of_fleet(10, 4, 5, [[run(12.0, 70)], [run(9.0, 70)]], [[run(2.0, 7)], [run(1.5, 7)]])
    assert row.ratios == (0.6, 0.6)
    assert row.missed == ()
    assert (row.count, row.of) == (40, "node groups")
    assert "10 clusters, forks 5" in row.what


@pytest.mark.parametrize(
    ("found", "missed"),
    [
        (run(21.0, 70), "ratio ≤ 1: 1.05"),
        (run(12.0, 71), "requests a cluster ≤ 7: 7.10"),
        (run(12.0, 70, writes=1), "writes ≤ 0: 1"),
    ],
    ids=["slower", "more-requests", "a-write"],
)
def test_what_a_fleet_may_not_cost(found: Run, missed: str) -> None:
    row = of_fleet(10, 4, 5, [[found]], [[run(2.0, 7)]])
    assert [str(limit) for limit in row.missed] == [f"**MISSED** {missed}"]


def test_node_groups_differ() -> None:
    groups = declared(50)
    assert len({group["name"] for group in groups}) == len({str(group["node_labels"]) for group in groups}) == 50
