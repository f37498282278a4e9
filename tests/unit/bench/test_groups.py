# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark row of several clusters is compared with one run per cluster."""

from __future__ import annotations

import pytest

from tests.performance.bench.groups import fleet_row, nodegroups
from tests.performance.bench.results import Measurement


def run(seconds: float, requests: int, writes: int = 0) -> Measurement:
    return Measurement(seconds, requests=requests, writes=writes)


def test_ratio_of_a_fleet() -> None:
    row = fleet_row(10, 4, 5, [[run(12.0, 70)], [run(9.0, 70)]], [[run(2.0, 7)], [run(1.5, 7)]])
    assert row.ratios == (0.6, 0.6)
    assert row.missed == ()
    assert (row.count, row.items) == (40, "node groups")
    assert "10 clusters, forks 5" in row.title


@pytest.mark.parametrize(
    ("actual", "missed"),
    [
        (run(21.0, 70), "ratio ≤ 1: 1.05"),
        (run(12.0, 71), "requests per cluster ≤ 7: 7.10"),
        (run(12.0, 70, writes=1), "writes ≤ 0: 1"),
    ],
    ids=["slower", "more-requests", "a-write"],
)
def test_limits_of_a_fleet(actual: Measurement, missed: str) -> None:
    row = fleet_row(10, 4, 5, [[actual]], [[run(2.0, 7)]])
    assert [str(limit) for limit in row.missed] == [f"**MISSED** {missed}"]


def test_node_groups_are_different() -> None:
    groups = nodegroups(50)
    assert len({group["name"] for group in groups}) == len({str(group["node_labels"]) for group in groups}) == 50
