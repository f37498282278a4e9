# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run is killed right after any of its changing requests: the next run ends with the state of an uninterrupted one."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.cluster import Cluster
from tests.helpers.foreign import Foreign
from tests.helpers.playbook import run_playbook
from tests.helpers.playbook_kills import changing_requests, killed_after
from tests.labs import Lab
from tests.programs import run

SITE = "accel.gpu.site"
# A fleet in which every kind of request occurs, and few of them twice.
SMALL = {
    "groups": [
        {"name": "t4", "count": 2, "model": "T4", "gpus": 1},
        {"name": "h100", "count": 1, "model": "H100-80GB-HBM3", "gpus": 2},
        {"name": "cpu", "count": 1},
    ]
}
SMALL_POOLS = [
    {"name": "notebooks", "match": {"model": "Tesla-T4"}, "sharing": {"mode": "time-slicing", "replicas": 4}},
    {
        "name": "train",
        "match": {"model": "H100-80GB-HBM3"},
        "taints": [{"key": "restricted-access", "value": "yes", "effect": "NoSchedule"}],
        "labels": {"team": "research"},
    },
]
VARIABLES = {"gpu_pools": SMALL_POOLS, "gpu_validation_hold_seconds": 2}
# The changing requests after which `make test` kills a run; the tests that kill after each of them check that hardly more exist.
FIRST_RUN_REQUESTS = 65
SHARING_REQUESTS = 22


def kubectl(lab: Lab, *words: str) -> Any:
    """Return the output of `kubectl get` as data."""
    return json.loads(run("kubectl", *words, "-o", "json", env=lab.env))


def require_converged(lab: Lab, foreign: Foreign, **options: Any) -> None:
    """The next run converges, a third run has nothing to do, and the invariants hold."""
    run_playbook(SITE, environ=lab.env, **options).require_success()
    assert run_playbook(SITE, environ=lab.env, **options).require_success().changed() == 0
    foreign.require_intact()
    assert len(kubectl(lab, "get", "clusterpolicies")["items"]) == 1
    releases = kubectl(lab, "get", "secrets", "-A", "-l", "owner=helm")["items"]
    statuses = [r["metadata"]["labels"] for r in releases if r["metadata"]["labels"]["status"] != "superseded"]
    assert sorted((s["name"], s["status"]) for s in statuses) == [("gpu-operator", "deployed"), ("nfd", "deployed")]
    assert kubectl(lab, "get", "pods", "-A", "-l", "accel.gpu/validation")["items"] == []


@pytest.fixture
def small_fleet(tmp_path: Path) -> Path:
    fleet = tmp_path / "small.yaml"
    fleet.write_text(yaml.safe_dump(SMALL))
    return fleet


def kill_a_first_run(lab: Lab, fleet: Path, tmp_path: Path, point: int) -> None:
    """From an empty cluster: kill after this number of changing requests."""
    lab.reset(fleet)
    foreign = Foreign(lab)
    foreign.create()
    assert killed_after(lab, SITE, point, tmp_path, variables=VARIABLES)
    require_converged(lab, foreign, variables=VARIABLES)


@pytest.mark.usual(100)
@pytest.mark.sampled(1, group="killed runs")
def test_a_first_run_is_killed_anywhere(lab: Lab, small_fleet: Path, tmp_path: Path, rng: random.Random) -> None:
    kill_a_first_run(lab, small_fleet, tmp_path, rng.randint(1, FIRST_RUN_REQUESTS))


@pytest.mark.soak
@pytest.mark.usual(2400)
@pytest.mark.timeout(3 * 3600)
def test_a_first_run_is_killed_after_each_request(lab: Lab, small_fleet: Path, tmp_path: Path) -> None:
    lab.reset(small_fleet)
    total = len(changing_requests(lab, SITE, tmp_path, variables=VARIABLES))
    assert FIRST_RUN_REQUESTS <= total < FIRST_RUN_REQUESTS + 15
    for point in range(1, total + 1):
        kill_a_first_run(lab, small_fleet, tmp_path, point)


def sharing_by(replicas: int) -> dict[str, Any]:
    """Return the options of a run that only shares the T4 nodes in this way."""
    pool = {
        "name": "notebooks",
        "match": {"model": "Tesla-T4"},
        "sharing": {"mode": "time-slicing", "replicas": replicas},
    }
    variables = {"gpu_pools": [pool], "gpu_allow_release": "all"}
    return {"variables": variables, "arguments": ["--tags", "sharing"]}


@pytest.fixture
def foreign(lab: Lab) -> Foreign:
    """Objects of others in a cluster whose T4 nodes offer four shares."""
    Cluster(lab).share()
    foreign = Foreign(lab)
    foreign.create()
    return foreign


def kill_a_change_of_sharing(lab: Lab, foreign: Foreign, tmp_path: Path, point: int) -> None:
    """Change from four shares to eight, killed after this number of changing requests."""
    four, eight = sharing_by(4), sharing_by(8)
    run_playbook(SITE, environ=lab.env, **four).require_success()
    assert killed_after(lab, SITE, point, tmp_path, **eight)
    run_playbook(SITE, environ=lab.env, **eight).require_success()
    assert run_playbook(SITE, environ=lab.env, **eight).require_success().changed() == 0
    foreign.require_intact()


@pytest.mark.usual(100)
@pytest.mark.sampled(1, group="killed runs")
def test_a_change_of_sharing_is_killed_anywhere(lab: Lab, foreign: Foreign, tmp_path: Path, rng: random.Random) -> None:
    kill_a_change_of_sharing(lab, foreign, tmp_path, rng.randint(1, SHARING_REQUESTS))


@pytest.mark.soak
@pytest.mark.usual(300)
def test_a_change_of_sharing_is_killed_after_each_request(lab: Lab, foreign: Foreign, tmp_path: Path) -> None:
    run_playbook(SITE, environ=lab.env, **sharing_by(4)).require_success()
    total = len(changing_requests(lab, SITE, tmp_path, **sharing_by(8)))
    assert SHARING_REQUESTS <= total < SHARING_REQUESTS + 8
    for point in range(1, total + 1):
        kill_a_change_of_sharing(lab, foreign, tmp_path, point)
