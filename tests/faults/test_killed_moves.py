# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that takes nodes away on which pods run, and is killed on its way: the next one goes on, and pods leave by eviction alone."""

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
# Of the two pods, each has a node for itself while there are two that take pods; one of them is always to run.
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "nodeTaintsPolicy": "Honor",
    "labelSelector": {"matchLabels": {"app": APP}},
}
# Changing requests of a replacement until all of it is asked for: the lease, a group, two cordons, two evictions, a deletion.
REPLACED = 7
# Of a shrink by one node: the lease, a cordon, an eviction, the number. VKS chooses which node goes, and nobody empties it before.
SHRUNK = {"magnum": 4, "vks": 2}


@dataclass(frozen=True)
class UsedPool:
    """A pool, and somebody's two pods on it."""

    cloud: CloudPools
    users: Users
    folder: Path

    def pool(self, flavor: int, count: int = 2) -> Pool:
        return {**self.cloud.pool(1, count, flavor, recreate=True), "rollout": {"drain_timeout": 60}}

    def occupied(self, flavor: int = 0) -> None:
        """Two nodes, and a pod on each."""
        self.cloud.play([self.pool(flavor)])
        # One that has just become ready keeps pods away for a moment more.
        self.users.until(lambda: len(self.nodes(taking=True)) == 2, "both nodes take pods")
        self.users.leave()
        self.users.arrive().deployment(
            APP,
            "",
            2,
            nodeSelector={POOL_LABEL: self.pool(flavor)["name"]},
            topologySpreadConstraints=[SPREAD],
            terminationGracePeriodSeconds=1,
        )
        self.users.budget(APP, APP, minAvailable=1)
        assert len(self.places()) == 2

    def nodes(self, *, taking: bool = False) -> set[str]:
        """The pool's nodes, or those of them that take pods."""
        found = self.cloud.provider.nodes(self.cloud.lab).items()
        its = {name: node for name, node in found if POOL_LABEL in node["metadata"]["labels"]}
        return {name for name, node in its.items() if not (taking and node["spec"].get("taints"))}

    def places(self) -> set[str]:
        """The nodes on which the pods run."""
        return {pod["spec"]["nodeName"] for pod in self.users.wait_running(2, APP)}

    def killed(self, wanted: Pool, number: int, *, then: Pool | None = None) -> bool:
        """Kill a run to what is wanted after so many changing requests, and run to that or another end; False: it has ended before."""
        with self.users.watched() as watch:
            struck = self.cloud.killed([wanted], number, self.folder, then=[then or wanted])
            # Pods of a machine that the cloud has taken are seen to run until Kubernetes sweeps them away, a minute later.
            self.users.until(lambda: self.places() <= self.nodes(), "the pods run on the pool's nodes", seconds=240)
        assert watch.not_evicted() == [] or (self.cloud.provider.name == "vks" and wanted["nodes"]["count"] == 1)
        return struck


@pytest.fixture
def used(cloud: CloudPools, tmp_path: Path) -> Iterator[UsedPool]:
    """A pool of two nodes with a pod on each; gone afterwards."""
    pool = UsedPool(cloud, Users(cloud.lab), tmp_path)
    pool.occupied()
    yield pool
    pool.users.leave()
    cloud.delete_nodegroups([pool.pool(0)])


@pytest.mark.sampled(1, of="killed groups")
@pytest.mark.usual(80)
def test_a_pool_that_is_replaced_and_shrinks_may_be_killed_anywhere(used: UsedPool, rng: random.Random) -> None:
    assert used.killed(used.pool(1), rng.randint(1, REPLACED))
    assert used.killed(used.pool(1, count=1), rng.randint(1, SHRUNK[used.cloud.provider.name]))


@pytest.mark.soak
@pytest.mark.usual(250)
def test_a_replacement_may_be_killed_after_each_request(used: UsedPool) -> None:
    """Each one begins where the one before has ended."""
    ended = next(number for number in itertools.count(1) if not used.killed(used.pool(number % 2), number))
    assert ended > REPLACED


@pytest.mark.soak
@pytest.mark.usual(200)
def test_a_shrink_may_be_killed_after_each_request(used: UsedPool) -> None:
    for number in itertools.count(1):
        if not used.killed(used.pool(0, count=1), number):
            break
        used.occupied()
    assert number > SHRUNK[used.cloud.provider.name]


@pytest.mark.soak
@pytest.mark.usual(250)
def test_who_thinks_better_of_a_replacement_gets_the_old_group_back(used: UsedPool) -> None:
    """Its nodes take pods again before those of the new one are emptied; once its end was asked for, there is another one like it."""
    for number in range(1, REPLACED + 1):
        assert used.killed(used.pool(1), number, then=used.pool(0))
