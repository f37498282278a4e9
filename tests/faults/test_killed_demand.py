# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that plans a demand is killed: the next run continues, and partitions no more GPUs than an uninterrupted run."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.playbook_kills import changing_requests, killed_after
from tests.helpers.rolling import NONE, Rolling
from tests.helpers.workloads import GPU
from tests.labs import Lab

SHARE = "accel.gpu.share"
# Four of six GPUs: one for the small devices, three for the large ones.
DEMAND = {"mode": "mig", "demand": {"1g.10gb": 7, "3g.40gb": 6}}
OFFERED = {"nvidia.com/mig-1g.10gb": 7, "nvidia.com/mig-3g.40gb": 6, GPU: 2}


@dataclass
class Scenario:
    """Three nodes of two GPUs, one of which has a pod."""

    rolling: Rolling
    requests: int = 0

    def options(self, sharing: dict[str, Any]) -> dict[str, Any]:
        return {"variables": {"gpu_pools": [self.rolling.pool(sharing)]}}

    def play(self, sharing: dict[str, Any]) -> PlaybookRun:
        return run_playbook(SHARE, environ=self.rolling.lab.env, **self.options(sharing)).require_success()

    def offered(self) -> Counter[str]:
        """The resources of all nodes."""
        actual: Counter[str] = Counter()
        for item in self.rolling.cluster.offered("a100-").values():
            actual.update(item)
        return actual

    def require_met(self) -> None:
        """The state after an uninterrupted run: no leftovers of the collection, and nothing to do."""
        assert self.offered() == OFFERED
        assert self.play(DEMAND).changed() == 0
        self.rolling.require_clean()

    def kill_once(self, number: int, folder: Path) -> bool:
        """Kill a run after this number of changing requests; False: it ended before."""
        killed = bool(killed_after(self.rolling.lab, SHARE, number, folder, **self.options(DEMAND)))
        self.play(DEMAND)
        self.require_met()
        self.play(NONE)
        assert self.offered() == {GPU: 6}
        return killed


@pytest.fixture(scope="module")
def scenario(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    rolling = Rolling(lab).install(tmp_path_factory.mktemp("demand"), nodes=3, gpus=2)
    rolling.share(DEMAND, check=False)
    scenario = Scenario(rolling)
    scenario.play(NONE)
    rolling.users.deployment("at-work", "a100-2", resource=GPU)
    rolling.users.wait_running(1)
    options = scenario.options(DEMAND)
    scenario.requests = len(changing_requests(lab, SHARE, tmp_path_factory.mktemp("count"), **options))
    scenario.require_met()
    scenario.play(NONE)
    yield scenario
    rolling.users.delete_all()
    lab.reset()


@pytest.mark.usual(60)
@pytest.mark.sampled(1, group="killed runs")
def test_a_run_may_be_killed_anywhere(scenario: Scenario, tmp_path: Path, rng: random.Random) -> None:
    scenario.kill_once(rng.randint(1, scenario.requests), tmp_path)


@pytest.mark.soak
@pytest.mark.usual(900)
@pytest.mark.timeout(3600)
def test_a_run_may_be_killed_after_each_of_its_requests(scenario: Scenario, tmp_path: Path) -> None:
    assert (
        sum(scenario.kill_once(number, tmp_path) for number in range(1, scenario.requests + 1)) > scenario.requests // 2
    )
