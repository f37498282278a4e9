# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that removes nodes with pods is killed: the next run continues, and pods leave only by eviction."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.cloud_pools import POOL_LABEL, CloudPools, Pool
from tests.helpers.workloads import Users

pytestmark = pytest.mark.timeout(3600)

APP = "work"
# Each of the two pods has its own node while two nodes are schedulable; one of the pods must always run.
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "nodeTaintsPolicy": "Honor",
    "labelSelector": {"matchLabels": {"app": APP}},
}
# Changing requests until all of a replacement is requested: the lease, a group, two cordons, two evictions, a deletion.
REPLACED = 7
# Of a scale-down by one node: the lease, a cordon, an eviction, the count. VKS chooses the node, and it is not drained first.
SHRUNK = {"magnum": 4, "vks": 2}


@dataclass(frozen=True)
class UsedPool:
    """A pool with two pods."""

    cloud: CloudPools
    users: Users
    folder: Path

    def pool(self, flavor: int, count: int = 2) -> Pool:
        return {**self.cloud.pool(1, count, flavor, recreate=True), "rollout": {"drain_timeout": 60}}

    def occupied(self, flavor: int = 0) -> None:
        """Start two nodes, each with a pod."""
        self.cloud.play([self.pool(flavor)])
        # A node that has just become ready stays unschedulable for a moment.
        self.users.until(lambda: len(self.nodes(schedulable=True)) == 2, "both nodes take pods")
        self.users.delete_all()
        self.users.create_namespace().deployment(
            APP,
            "",
            2,
            nodeSelector={POOL_LABEL: self.pool(flavor)["name"]},
            topologySpreadConstraints=[SPREAD],
            terminationGracePeriodSeconds=1,
        )
        self.users.budget(APP, APP, minAvailable=1)
        assert len(self.places()) == 2

    def nodes(self, *, schedulable: bool = False) -> set[str]:
        """The pool's nodes, or only the schedulable ones."""
        actual = self.cloud.provider.nodes(self.cloud.lab).items()
        own = {name: node for name, node in actual if POOL_LABEL in node["metadata"]["labels"]}
        return {name for name, node in own.items() if not (schedulable and node["spec"].get("taints"))}

    def places(self) -> set[str]:
        """The nodes on which the pods run."""
        return {pod["spec"]["nodeName"] for pod in self.users.wait_running(2, APP)}

    def killed(self, desired: Pool, number: int, *, then: Pool | None = None) -> bool:
        """Kill a run to `desired` after this number of changing requests, and run to `then` or to `desired`; False: it ended before."""
        with self.users.watched() as watch:
            interrupted = self.cloud.killed([desired], number, self.folder, then=[then or desired])
            # Pods of a machine that the cloud has deleted count as running until Kubernetes deletes them, a minute later.
            self.users.until(lambda: self.places() <= self.nodes(), "the pods run on the pool's nodes", seconds=240)
        assert watch.not_evicted() == [] or (self.cloud.provider.name == "vks" and desired["nodes"]["count"] == 1)
        return interrupted


@pytest.fixture
def used(cloud: CloudPools, tmp_path: Path) -> Iterator[UsedPool]:
    """A pool of two nodes with a pod on each; deleted after the test."""
    pool = UsedPool(cloud, Users(cloud.lab), tmp_path)
    pool.occupied()
    yield pool
    pool.users.delete_all()
    cloud.delete_nodegroups([pool.pool(0)])


@pytest.mark.sampled(1, group="killed runs")
@pytest.mark.usual(80)
def test_a_replacement_and_a_scale_down_are_killed_anywhere(used: UsedPool, rng: random.Random) -> None:
    assert used.killed(used.pool(1), rng.randint(1, REPLACED))
    assert used.killed(used.pool(1, count=1), rng.randint(1, SHRUNK[used.cloud.provider.name]))


@pytest.mark.soak
@pytest.mark.usual(250)
def test_a_replacement_is_killed_after_each_request(used: UsedPool) -> None:
    """Each run begins with the state in which the one before has ended."""
    ended = next(number for number in itertools.count(1) if not used.killed(used.pool(number % 2), number))
    assert ended > REPLACED


@pytest.mark.soak
@pytest.mark.usual(200)
def test_a_scale_down_is_killed_after_each_request(used: UsedPool) -> None:
    for number in itertools.count(1):
        if not used.killed(used.pool(0, count=1), number):
            break
        used.occupied()
    assert number > SHRUNK[used.cloud.provider.name]


@pytest.mark.soak
@pytest.mark.usual(250)
def test_a_replacement_that_is_canceled_keeps_the_old_group(used: UsedPool) -> None:
    """Its nodes are schedulable again before those of the new one are drained; after its deletion was requested, an equal group exists."""
    for number in range(1, REPLACED + 1):
        assert used.killed(used.pool(1), number, then=used.pool(0))
