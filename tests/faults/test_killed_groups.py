# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that makes node groups and is killed on its way: the next one goes on, and nothing is there twice or left over."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab import audit, cloud_requests
from lab.layout import REPO
from lab.layout import Lab as LabLayout
from plugins.module_utils.groups.naming import is_of
from tests.helpers.clouds import MAGNUM, VKS, Group, Provider, group_of
from tests.helpers.killing import changing_requests, killed_after, to_kubernetes
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.rolling import CORDONED
from tests.labs import Lab, own_lab

NODES, RETIRE = "accel.gpu.nodes", "accel.gpu.retire"
OURS = "accel.gpu/"
POOL_LABEL = "accel.gpu/pool"
# No machines but those of the clouds.
FLEET = REPO / "lab" / "fleets" / "clouds.yaml"
PROVIDERS = {provider.name: provider for provider in (MAGNUM, VKS)}

Pool = dict[str, Any]


@dataclass
class World:
    """One cloud of the lab, whose cluster has the groups that it was made with, and those of pools."""

    lab: Lab
    provider: Provider
    before: dict[str, Group] = field(init=False)

    def __post_init__(self) -> None:
        self.before = self.provider.settled(self.lab)

    def pool(self, number: int, count: int = 1, flavor: int = 0, **nodes: Any) -> Pool:
        """A pool that makes `count` nodes of one of the provider's flavors."""
        made = {"flavor": self.provider.flavors[flavor], "count": count, **self.provider.settings, **nodes}
        return {"name": f"killed-{number}", "labels": {"team": f"team-{number}"}, "nodes": made}

    def options(self, pools: Sequence[Pool], **more: Any) -> dict[str, Any]:
        """What a playbook is started with, about these pools."""
        cluster = {"name": self.lab.name, "cloud": {self.provider.name: {}}}
        variables = {"gpu_cluster": cluster, "gpu_defaults": {}, "gpu_pools": list(pools), **more}
        return {"variables": variables, "arguments": ["--skip-tags", "report"]}

    def play(self, pools: Sequence[Pool]) -> PlaybookRun:
        """An unharmed run."""
        return run_playbook(NODES, environ=self.lab.env, **self.options(pools)).require_success()

    def retire(self, pools: Sequence[Pool]) -> None:
        """The cluster as it was before any of this."""
        run_playbook(RETIRE, environ=self.lab.env, **self.options(pools, pool="all")).require_success()
        assert self.provider.settled(self.lab) == self.before
        self.provider.require_no_orphan(self.lab)

    def ways(self) -> dict[str, Any]:
        """Through proxies before the cloud and before the API server: a run changes both."""
        return {"ways": (self.provider.way, to_kubernetes)}

    def count(self, pools: Sequence[Pool], folder: Path) -> int:
        """How many changing requests an unharmed run sends."""
        return len(changing_requests(self.lab, NODES, folder, **self.ways(), **self.options(pools)))

    def killed(self, pools: Sequence[Pool], number: int, folder: Path) -> bool:
        """Kill a run after so many changing requests, and go on; False: it has ended before."""
        struck = killed_after(self.lab, NODES, number, folder, **self.ways(), **self.options(pools))
        self.play(pools)
        self.require(pools)
        return struck is not None

    def require(self, pools: Sequence[Pool]) -> None:
        """As an unharmed run leaves it: a group for each pool and no other, its nodes, nothing of ours on them, nothing left to do."""
        groups = self.provider.settled(self.lab)
        assert {name: group for name, group in groups.items() if name in self.before} == self.before
        made = {name: group for name, group in groups.items() if name not in self.before}
        found = {pool["name"]: [group for name, group in made.items() if is_of(name, pool["name"])] for pool in pools}
        assert {name: [group.count for group in of] for name, of in found.items()} == {
            pool["name"]: [pool["nodes"]["count"]] for pool in pools
        }
        assert len(made) == len(pools)
        self.provider.require_no_orphan(self.lab)
        pool_of = {group.id: name for name, (group,) in found.items()}
        for name, node in self.provider.nodes(self.lab).items():
            assert not node["spec"].get("unschedulable"), name
            assert CORDONED not in node["metadata"]["annotations"], name
            assert node["metadata"]["labels"].get(POOL_LABEL) == pool_of.get(group_of(node)), name
        self.require_nothing_left(pools)

    def require_nothing_left(self, pools: Sequence[Pool]) -> None:
        """One more run changes nothing, and asks neither the cloud nor the API server to."""
        layout = LabLayout.named(self.lab.name)
        asked, audited = cloud_requests.mark(layout), audit.mark(layout)
        assert self.play(pools).changed() == 0
        assert cloud_requests.writes(layout, asked, OURS) == []
        assert [request for request in audit.requests(layout, audited, OURS) if request.mutating] == []


@pytest.fixture(scope="module")
def clouds() -> Iterator[Lab]:
    """A lab with both clouds, and no machines but theirs."""
    with own_lab("clouds", "openstack", "vks") as lab:
        lab.command("nodes", "apply", str(FLEET))
        yield lab


@pytest.fixture(params=PROVIDERS)
def world(clouds: Lab, request: pytest.FixtureRequest) -> World:
    return World(clouds, PROVIDERS[request.param])


def four(world: World) -> list[Pool]:
    return [world.pool(number) for number in range(1, 5)]


@pytest.mark.usual(60)
def test_a_run_that_makes_groups_may_be_killed_anywhere(world: World, tmp_path: Path, rng: random.Random) -> None:
    assert world.killed(four(world), rng.randint(1, 4), tmp_path)
    world.retire(four(world))


@pytest.mark.soak
@pytest.mark.usual(400)
@pytest.mark.timeout(3600)
def test_a_run_that_makes_groups_may_be_killed_after_each_request(world: World, tmp_path: Path) -> None:
    pools = four(world)
    total = world.count(pools, tmp_path)
    assert total >= len(pools)
    for number in range(1, total + 1):
        world.retire(pools)
        world.killed(pools, number, tmp_path)
    world.retire(pools)
