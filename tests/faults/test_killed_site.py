# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook site, or the worker of one of its tasks, is killed at any moment: the next run reaches the usual state."""

from __future__ import annotations

import random
import time
import typing as t
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.faults.test_killed_runs import SITE, SMALL, SMALL_POOLS, VARIABLES, kubectl, require_converged
from tests.helpers.foreign import Foreign
from tests.helpers.playbook import run_playbook
from tests.helpers.playbook_kills import killed_worker_at
from tests.labs import Lab

MOMENTS = 25
NOTEBOOKS, TRAIN = t.cast("list[dict[str, Any]]", SMALL_POOLS)
CHANGED: dict[str, Any] = {
    **VARIABLES,
    "gpu_pools": [
        {**NOTEBOOKS, "sharing": {"mode": "mps", "replicas": 2}},
        {**TRAIN, "sharing": {"mode": "mig", "layout": {"3g.40gb": 2}}},
    ],
}


def require_nothing_left(lab: Lab) -> None:
    """No node is cordoned by the collection, and the lease has no holder."""
    for node in kubectl(lab, "get", "nodes")["items"]:
        annotations = node["metadata"].get("annotations", {})
        leftovers = [key for key in ("accel.gpu/cordoned", "accel.gpu/failed") if key in annotations]
        taints = [taint["key"] for taint in node["spec"].get("taints", []) if taint["key"].startswith("accel.gpu/")]
        # A cordon without the collection's annotation is foreign; Foreign checks it.
        assert (leftovers, taints) == ([], []), node["metadata"]["name"]
    lease = kubectl(lab, "get", "lease", "accel-gpu", "-n", "kube-system")
    assert not lease["spec"].get("holderIdentity")


def kill_at(lab: Lab, tmp_path: Path, moment: float, *, worker: bool, again: bool) -> None:
    """Kill a first run, or one that changes all sharing, at this fraction of the time of an uninterrupted run."""
    fleet = tmp_path / "small.yaml"
    fleet.write_text(yaml.safe_dump(SMALL))
    lab.reset(fleet)
    foreign = Foreign(lab)
    begun = time.monotonic()
    if again:
        run_playbook(SITE, environ=lab.env, variables=VARIABLES).require_success()
        foreign.create()
        # A change takes about as long as the first run: it has no installations, but nodes change one after another.
        killed_worker_at(lab, SITE, moment * (time.monotonic() - begun), worker=worker, variables=CHANGED)
    else:
        foreign.create()
        killed_worker_at(lab, SITE, moment * FIRST_RUN, worker=worker, variables=VARIABLES)
    variables = CHANGED if again else VARIABLES
    require_converged(lab, foreign, variables=variables)
    require_nothing_left(lab)


# About the duration of a first run on two cores (seconds); a run that ended before was not interrupted.
FIRST_RUN = 50.0


@pytest.mark.soak
@pytest.mark.usual(130)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(MOMENTS))
def test_site_is_killed_at_any_moment(lab: Lab, tmp_path: Path, rng: random.Random, number: int) -> None:
    worker, again = bool(number % 2), bool(number // 2 % 2)
    moment = (number + rng.random()) / MOMENTS
    print(f"{'a change' if again else 'a first run'}, at {moment:.0%} of it")
    kill_at(lab, tmp_path, moment, worker=worker, again=again)
