# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rotation is killed: the next run continues, and neither of them restarts a pod, unless drivers are restarted."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.faults.api_proxy import Request
from tests.helpers.licensing import NODES, Licensing
from tests.helpers.playbook_kills import changing_requests, killed_after, killed_at

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

ROTATE = "accel.gpu.license_rotate"


@dataclass
class Scenario:
    """Every node has a pod that uses its GPU. Each run has another token."""

    licensing: Licensing
    nodes: list[str]
    restarts_drivers: bool = False
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def next_token(self) -> dict[str, Any]:
        token = self.licensing.token(f"dls-{next(self.numbers)}.example.net")
        given: dict[str, Any] = {"gpu_licensing_token_path": str(token), "gpu_licensing_node_names": self.nodes}
        given |= {"gpu_licensing_replace": True, "gpu_licensing_restart_drivers": self.restarts_drivers}
        return {"variables": {**self.licensing.variables, "gpu_licensing_verify": False, **given}}

    def requests(self, folder: Path) -> list[Request]:
        """The changing requests of a run that is not killed."""
        actual = changing_requests(self.licensing.lab, ROTATE, folder, **self.next_token())
        if self.restarts_drivers:
            assert [request.method for request in actual].count("DELETE") == len(self.nodes)
            return actual
        commands = [request.command for request in actual if request.command]
        assert {"cp", "kill", "mv", "env"} == set(commands)
        assert commands.count("env") == len(self.nodes)
        return actual

    def kill_once(self, number: int, folder: Path) -> bool:
        """Kill a run after this number of changing requests, and continue; False: it ended before."""
        before, since = self.licensing.pods(), self.licensing.mark()
        options = self.next_token()
        killed = bool(killed_after(self.licensing.lab, ROTATE, number, folder, **options))
        self.require_completed(options["variables"])
        if not self.restarts_drivers:
            assert self.licensing.pods() == before
            assert self.licensing.pod_changes(since) == []
        assert not [name for name, node in self.licensing.cluster.nodes().items() if node["spec"].get("unschedulable")]
        return killed

    def require_completed(self, variables: dict[str, Any]) -> None:
        """The next run completes the rotation, and the one after it changes nothing."""
        self.licensing.play("license_rotate", **variables).require_success()
        states = self.licensing.states()
        assert {state["status"] for state in states.values()} == {"Licensed"}
        assert {states[name]["token_sha256"] for name in self.nodes} == {self.licensing.digest()}
        assert self.licensing.play("license_rotate", **variables).require_success().changed("lab") == 0


@pytest.fixture
def all_nodes(licensing: Licensing) -> Scenario:
    licensing.run_gpu_pods()
    return Scenario(licensing, sorted(licensing.states()))


@pytest.fixture
def two_nodes(all_nodes: Scenario) -> Scenario:
    return Scenario(all_nodes.licensing, all_nodes.nodes[:2])


@pytest.mark.sampled(1, group="killed runs")
@pytest.mark.usual(90)
def test_a_rotation_may_be_killed_anywhere(all_nodes: Scenario, tmp_path: Path, rng: random.Random) -> None:
    # At least: the Secret, the Lease, and four commands for each node.
    assert all_nodes.kill_once(rng.randint(1, 2 + 4 * NODES), tmp_path)


@pytest.mark.soak
@pytest.mark.usual(900)
@pytest.mark.timeout(3600)
def test_a_rotation_may_be_killed_after_each_of_its_requests(two_nodes: Scenario, tmp_path: Path) -> None:
    count = len(two_nodes.requests(tmp_path))
    # The number of signals until a license client has ended varies.
    assert sum(two_nodes.kill_once(number, tmp_path) for number in range(1, count + 1)) >= count - 4


@pytest.mark.soak
@pytest.mark.usual(600)
@pytest.mark.timeout(3600)
def test_a_restart_of_drivers_may_be_killed_after_each_of_its_requests(two_nodes: Scenario, tmp_path: Path) -> None:
    two_nodes.restarts_drivers = True
    count = len(two_nodes.requests(tmp_path))
    # The number of renewals of the Lease varies.
    assert sum(two_nodes.kill_once(number, tmp_path) for number in range(1, count + 1)) >= count - 4


@pytest.mark.soak
@pytest.mark.usual(120)
@pytest.mark.parametrize("seconds", [3.0, 4.5, 8.0, 15.0])
def test_a_rotation_may_be_killed_at_any_time(all_nodes: Scenario, seconds: float) -> None:
    options = all_nodes.next_token()
    killed_at(all_nodes.licensing.lab, ROTATE, seconds, **options)
    all_nodes.require_completed(options["variables"])
