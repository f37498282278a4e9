# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pools whose nodes a cloud of the lab creates: runs that are killed meanwhile, and the state that the next run must reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import audit, cloud_requests
from lab.layout import Lab as LabLayout
from lab.machines import FLAVOR_LABEL
from plugins.module_utils.schema.providers import may_be_replacement
from tests.helpers.clouds import Group, Provider, group_of
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.playbook_kills import changing_requests, killed_after, kubernetes_proxy
from tests.helpers.rolling import CORDONED
from tests.labs import Lab

NODES, DELETE_NODEGROUPS = "accel.gpu.nodegroups", "accel.gpu.delete_nodegroups"
PREFIX = "accel.gpu/"
POOL_LABEL = "accel.gpu/pool"

Pool = dict[str, Any]


@dataclass
class CloudPools:
    """One cloud of the lab, whose cluster has its initial node groups and those of pools."""

    lab: Lab
    provider: Provider
    before: dict[str, Group] = field(init=False)

    def __post_init__(self) -> None:
        self.before = self.provider.settled(self.lab)

    def pool(self, number: int, count: int = 1, flavor: int = 0, **nodes: Any) -> Pool:
        """A pool with `count` nodes of one of the provider's flavors."""
        created = {"flavor": self.provider.flavors[flavor], "count": count, **self.provider.settings, **nodes}
        return {"name": f"killed-{number}", "labels": {"team": f"team-{number}"}, "nodes": created}

    def options(self, pools: Sequence[Pool], **more: Any) -> dict[str, Any]:
        """The playbook's options for these pools."""
        cluster = {"name": self.lab.name, "cloud": {self.provider.name: {}}}
        variables = {"gpu_cluster": cluster, "gpu_defaults": {}, "gpu_pools": list(pools), **more}
        return {"variables": variables, "arguments": ["--skip-tags", "report"]}

    def play(self, pools: Sequence[Pool]) -> PlaybookRun:
        """Run without interruption."""
        return run_playbook(NODES, environ=self.lab.env, **self.options(pools)).require_success()

    def delete_nodegroups(self, pools: Sequence[Pool]) -> None:
        """Delete the pools' node groups."""
        run_playbook(
            DELETE_NODEGROUPS, environ=self.lab.env, **self.options(pools, gpu_pool="all", gpu_confirm=self.lab.name)
        ).require_success()
        assert self.provider.settled(self.lab) == self.before
        self.provider.require_no_orphan(self.lab)

    def proxy_options(self) -> dict[str, Any]:
        """Start proxies in front of the cloud and of the API server, since a run changes both."""
        return {"proxies": (self.provider.start_proxy, kubernetes_proxy)}

    def count(self, pools: Sequence[Pool], folder: Path) -> int:
        """The number of changing requests of an uninterrupted run."""
        return len(changing_requests(self.lab, NODES, folder, **self.proxy_options(), **self.options(pools)))

    def killed(self, pools: Sequence[Pool], number: int, folder: Path, *, then: Sequence[Pool] | None = None) -> bool:
        """Kill a run after this number of changing requests, and run again with the same or other pools; False: it ended before."""
        interrupted = killed_after(self.lab, NODES, number, folder, **self.proxy_options(), **self.options(pools))
        self.play(then or pools)
        self.require(then or pools)
        return interrupted is not None

    def require(self, pools: Sequence[Pool]) -> None:
        """The state after an uninterrupted run: one group per pool and no other, its nodes without leftovers, and nothing to do."""
        groups = self.provider.settled(self.lab)
        assert {name: group for name, group in groups.items() if name in self.before} == self.before
        created = {name: group for name, group in groups.items() if name not in self.before}
        actual = {
            pool["name"]: [group for name, group in created.items() if may_be_replacement(name, pool["name"])]
            for pool in pools
        }
        assert {name: [group.count for group in item] for name, item in actual.items()} == {
            pool["name"]: [pool["nodes"]["count"]] for pool in pools
        }
        assert len(created) == len(pools)
        self.provider.require_no_orphan(self.lab)
        pool_of = {group.id: name for name, (group,) in actual.items()}
        flavors = {pool["name"]: pool["nodes"]["flavor"] for pool in pools}
        for name, node in self.provider.nodes(self.lab).items():
            assert not node["spec"].get("unschedulable"), name
            assert CORDONED not in node["metadata"]["annotations"], name
            labels, pool = node["metadata"]["labels"], pool_of.get(group_of(node))
            assert labels.get(POOL_LABEL) == pool, name
            assert pool is None or labels[FLAVOR_LABEL] == flavors[pool], name
        self.require_nothing_left(pools)

    def require_nothing_left(self, pools: Sequence[Pool]) -> None:
        """Another run changes nothing, and sends no changing request to the cloud or the API server."""
        layout = LabLayout.named(self.lab.name)
        sent, audited = cloud_requests.mark(layout), audit.mark(layout)
        assert self.play(pools).changed() == 0
        assert cloud_requests.writes(layout, sent, PREFIX) == []
        assert [request for request in audit.requests(layout, audited, PREFIX) if request.mutating] == []
