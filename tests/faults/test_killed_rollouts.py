# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rolling update is killed at any moment: the next run ends like an uninterrupted one, and only the planned pods are evicted."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.cluster import Cluster
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.playbook_kills import changing_requests, killed_after, killed_at
from tests.helpers.rolling import CORDONED, FAILED
from tests.helpers.workloads import GPU, INNOCENT, Users
from tests.labs import Lab

SHARE = "accel.gpu.share"
FLEET = {
    "groups": [
        {"name": "a100", "count": 4, "model": "A100-SXM4-80GB", "gpus": 1},
        {"name": "t4", "count": 4, "model": "T4", "gpus": 1},
        {"name": "cpu", "count": 1},
    ]
}
# An administrator has cordoned it.
ADMINS = "t4-2"
WHOLE = {"train": {"mode": "none"}, "notebooks": {"mode": "none"}}
SPLIT = {"train": {"mode": "mig", "layout": {"3g.40gb": 2}}, "notebooks": {"mode": "mps", "replicas": 4}}
OFFERED = {
    "whole": {"a100-": {GPU: 1}, "t4-": {GPU: 1}},
    "split": {"a100-": {GPU: 2}, "t4-": {GPU: 4}},
}
# The changing requests after which `make test` kills a run; the fixture `total` checks that hardly more exist.
ROLLOUT_REQUESTS = 55
MODELS = {"train": "A100-SXM4-80GB", "notebooks": "Tesla-T4"}


def options(state: str) -> dict[str, Any]:
    """The playbook's options, to partition all GPUs or to disable MIG."""
    sharings = SPLIT if state == "split" else WHOLE
    rollout = {"max_unavailable": 3, "drain": "gpu-pods", "drain_timeout": 60}
    pools = [
        {"name": name, "match": {"model": model}, "sharing": sharings[name], "rollout": rollout}
        for name, model in MODELS.items()
    ]
    return {"variables": {"gpu_pools": pools}}


def play(lab: Lab, state: str, *arguments: str) -> PlaybookRun:
    return run_playbook(SHARE, environ=lab.env, arguments=arguments, **options(state)).require_success()


def sharing_result(run: PlaybookRun) -> dict[str, Any]:
    """The result of gpu_sharing."""
    actual: dict[str, Any] = run.module_results("accel.gpu.gpu_sharing")[-1]["gpu_sharing"]
    return actual


@dataclass
class Scenario:
    """Eight nodes, each with a pod that uses a GPU and one that uses none; with or without MIG."""

    lab: Lab
    state: str = "whole"
    cluster: Cluster = field(init=False)
    users: Users = field(init=False)

    def __post_init__(self) -> None:
        self.cluster, self.users = Cluster(self.lab), Users(self.lab)

    @property
    def other(self) -> str:
        return "whole" if self.state == "split" else "split"

    def nodes(self) -> list[str]:
        return sorted(name for name in self.cluster.nodes() if not name.startswith("cpu-"))

    def install(self, folder: Path) -> Scenario:
        fleet = folder / "eight.yaml"
        fleet.write_text(yaml.safe_dump(FLEET))
        self.lab.reset(fleet)
        # The operator is configured for both states beforehand.
        tags = ["--tags", "pools,nfd,gpu_operator"]
        run_playbook("accel.gpu.site", environ=self.lab.env, arguments=tags, **options("split")).require_success()
        play(self.lab, "whole")
        self.users.create_namespace()
        for node in self.nodes():
            self.users.deployment(f"{node}-gpu", node, resource=GPU)
            self.users.deployment(f"{node}-web", node, way=INNOCENT["web"])
        self.users.wait_running(2 * len(self.nodes()))
        self.cluster.kubectl("cordon", ADMINS)
        return self

    def require_converged(self, named: set[str], present: set[str], gone: dict[str, str]) -> None:
        """The next run reaches the state of an uninterrupted run, without leftovers, and only planned pods were evicted."""
        play(self.lab, self.other)
        self.state = self.other
        again = play(self.lab, self.state)
        assert again.changed() == 0
        for name, node in self.cluster.nodes().items():
            annotations = node["metadata"].get("annotations", {})
            assert not {CORDONED, FAILED} & set(annotations), name
            assert not [taint for taint in node["spec"].get("taints", []) if taint["key"].startswith("accel.gpu/")]
            assert bool(node["spec"].get("unschedulable")) is (name == ADMINS), name
        for prefix, resources in OFFERED[self.state].items():
            offered = self.cluster.offered(prefix)
            assert offered == dict.fromkeys(offered, resources)
            assert len(offered) == 4
        unnamed = {name for uid, name in gone.items() if uid in present} - named
        assert not unnamed

    def back_to_work(self) -> dict[str, str]:
        """Wait until every pod that could run before runs again; the admin's node stays cordoned. Returns the UIDs with their names."""
        gpu, web = len(self.nodes()), len(self.nodes())
        elsewhere = gpu - 1 if not self.users.running(f"{ADMINS}-gpu") else gpu
        present = self.users.wait_running(elsewhere + web)
        return {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in present}

    def plan(self) -> set[str]:
        """Return the pods that the plan will evict."""
        steps = sharing_result(play(self.lab, self.other, "--check"))["steps"]
        assert set(steps) == set(self.nodes())
        return {pod.partition("/")[2] for step in steps.values() for pod in step["evicts"]}


@pytest.fixture(scope="module")
def scenario(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    scenario = Scenario(lab).install(tmp_path_factory.mktemp("killed"))
    yield scenario
    scenario.users.delete_all()
    lab.reset()


def kill_once(scenario: Scenario, kill: Any) -> bool:
    """Kill one change in the current direction, and check the next run; False: it ended before."""
    present = scenario.back_to_work()
    named = scenario.plan()
    with scenario.users.watched() as watch:
        killed = bool(kill(options(scenario.other)))
        scenario.require_converged(named, set(present), {uid: gone.name for uid, gone in watch.gone.items()})
    return killed


def after_request(scenario: Scenario, number: int, folder: Path) -> bool:
    return kill_once(scenario, lambda args: killed_after(scenario.lab, SHARE, number, folder, **args))


@pytest.fixture(scope="module")
def total(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> int:
    """The number of changing requests of the longer direction."""
    counts = []
    for dummy in range(2):
        scenario.back_to_work()
        counts.append(
            len(changing_requests(scenario.lab, SHARE, tmp_path_factory.mktemp("count"), **options(scenario.other)))
        )
        scenario.state = scenario.other
    print(f"unharmed changes of eight nodes send {counts} changing requests")
    assert all(ROLLOUT_REQUESTS <= count < ROLLOUT_REQUESTS + 15 for count in counts)
    return max(counts)


@pytest.mark.usual(200)
@pytest.mark.sampled(1, group="killed runs")
@pytest.mark.timeout(900)
def test_a_rolling_update_is_killed_anywhere(scenario: Scenario, tmp_path: Path, rng: random.Random) -> None:
    assert after_request(scenario, rng.randint(1, ROLLOUT_REQUESTS), tmp_path)


@pytest.mark.soak
@pytest.mark.usual(4000)
@pytest.mark.timeout(4 * 3600)
def test_a_rolling_update_is_killed_after_each_request(scenario: Scenario, total: int, tmp_path: Path) -> None:
    """In both directions: with MIG enabled, and with MIG disabled."""
    interrupted = 0
    for number in range(1, total + 1):
        for dummy in range(2):
            interrupted += after_request(scenario, number, tmp_path)
    assert interrupted > total


@pytest.mark.soak
@pytest.mark.usual(5000)
@pytest.mark.timeout(4 * 3600)
def test_a_rolling_update_is_killed_at_any_moment(scenario: Scenario, rng: random.Random) -> None:
    started = time.monotonic()
    scenario.back_to_work()
    play(scenario.lab, scenario.other)
    scenario.state = scenario.other
    usual = time.monotonic() - started
    interrupted = 0
    for dummy in range(100):
        moment = rng.uniform(0, usual)
        interrupted += kill_once(scenario, lambda args, moment=moment: killed_at(scenario.lab, SHARE, moment, **args))
    assert interrupted > 50
