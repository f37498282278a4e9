# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that creates node groups is killed: the next run continues, without duplicate or orphaned node groups."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.helpers.cloud_pools import CloudPools, Pool


def four(cloud: CloudPools) -> list[Pool]:
    return [cloud.pool(number) for number in range(1, 5)]


@pytest.mark.sampled(1, group="killed runs")
@pytest.mark.usual(60)
def test_a_run_that_creates_groups_is_killed_anywhere(cloud: CloudPools, tmp_path: Path, rng: random.Random) -> None:
    assert cloud.killed(four(cloud), rng.randint(1, 4), tmp_path)
    cloud.delete_nodegroups(four(cloud))


@pytest.mark.soak
@pytest.mark.usual(400)
@pytest.mark.timeout(3600)
def test_a_run_that_creates_groups_is_killed_after_each_request(cloud: CloudPools, tmp_path: Path) -> None:
    pools = four(cloud)
    total = cloud.count(pools, tmp_path)
    assert total >= len(pools)
    for number in range(1, total + 1):
        cloud.delete_nodegroups(pools)
        cloud.killed(pools, number, tmp_path)
    cloud.delete_nodegroups(pools)
