# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hundred GPU nodes of different speed: the lab starts, and applies a MIG change to all of them, in reasonable time."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab.fleet import HARDWARE_ANNOTATION
from tests.integration.sim.sim_cluster import SimCluster, install
from tests.labs import Lab

NODES = 100
TIME_FACTOR = [0.5, 3]
# If all nodes changed at once, the control plane would determine the duration, not the machines.
WINDOW = 10
# Maximum seconds; 113 and 88 were measured on two cores with other load.
UP, CHANGED = 600, 600

pytestmark = [pytest.mark.soak, pytest.mark.alone, pytest.mark.timeout(1800)]


@pytest.fixture
def empty(lab: Lab, tmp_path: Path) -> Iterator[Lab]:
    """A lab with a hundred nodes of two GPUs each, without NFD and operator."""
    group = {"name": "a100", "count": NODES, "model": "A100-SXM4-80GB", "gpus": 2, "time_factor": TIME_FACTOR}
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump({"groups": [group]}))
    lab.reset(path)
    yield lab
    lab.reset()


@pytest.mark.usual(180)
def test_rolling_mig_change_of_a_hundred_nodes_of_different_speed(empty: Lab) -> None:
    started = time.monotonic()
    cluster = install(empty, UP)
    print(f"all operands of {NODES} nodes ran after {time.monotonic() - started:.0f} s")
    nodes = list(cluster.api.list("/api/v1/nodes"))
    factors = {
        n["metadata"]["name"]: json.loads(n["metadata"]["annotations"][HARDWARE_ANNOTATION])["time_factor"]
        for n in nodes
    }
    assert len(factors) == NODES
    started = time.monotonic()
    took = partition_in_windows(cluster, sorted(factors))
    by_factor = [took[name] for name in sorted(factors, key=factors.__getitem__)]
    fast, slow = statistics.median(by_factor[:25]), statistics.median(by_factor[-25:])
    print(f"{NODES} nodes were partitioned, {WINDOW} at a time, after {time.monotonic() - started:.0f} s")
    print(f"median duration per node: {fast:.1f} s in the fastest quarter, {slow:.1f} s in the slowest")
    assert fast < slow


def partition_in_windows(cluster: SimCluster, waiting: list[str]) -> dict[str, float]:
    """Partition the GPUs of all nodes, WINDOW nodes at a time; return the duration of each node in seconds."""
    began: dict[str, float] = {}
    took: dict[str, float] = {}

    def done() -> bool:
        for node in cluster.api.list("/api/v1/nodes"):
            name, labels = node["metadata"]["name"], node["metadata"]["labels"]
            if name in began and name not in took and labels.get("nvidia.com/mig.config.state") == "success":
                took[name] = time.monotonic() - began[name]
        for name in waiting[len(began) : len(took) + WINDOW]:
            cluster.partition(name, "halves")
            began[name] = time.monotonic()
        return len(took) == len(waiting)

    cluster.wait(done, limit=CHANGED, what="every node to be partitioned in halves")
    return took
