# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two inventories and a person share a VKS cluster: no operation of one changes, drains or deletes a group of another."""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import NODEGROUP_MARK
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ServiceError
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.module import DrainingModule
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.modules import vks_nodegroup
from lab import cloud_requests
from tests.helpers.shared_clusters import MOST_OF_A_PERSON, SharedCluster
from tests.helpers.vks_modules import CLUSTER, Account, Object

KILLED = "the run is killed"


class Drainer:
    """Records the drained nodes. A drain that fails leaves both groups of a replacement, as a killed run does."""

    def __init__(self, account: Account, fails: bool) -> None:
        self._account, self._fails = account, fails
        self.drained: set[str] = set()

    def __enter__(self) -> Drainer:
        return self

    def __exit__(self, *why: object) -> None:
        """Nothing to release."""

    def check(self) -> None:
        """The lease is never lost."""

    def cluster_nodes(self) -> list[Node]:
        with self._account.fake.state.lock:
            rows = [node for group in self._account.fake.state.groups.values() for node in group["nodes"]]
            return [Node(row["name"], {}, ready=True) for row in rows]

    def drain(self, names: Collection[str]) -> None:
        self.drained |= set(names)
        if self._fails:
            raise ServiceError(KILLED, status=400)

    def uncordon(self, names: Collection[str]) -> None:
        """The nodes of this test have no cordons."""


class SharedVks(SharedCluster):
    """Node groups of the fake service, and who owns them. It has no Kubernetes: drains are recorded."""

    flavors = ("g3-standard-16x128-1A40", "g2-standard-16x64-1rtx4090")
    settings: Mapping[str, Any] = {"disk_type": "nvme-iops3000", "ssh_key": "lab"}
    lists_late = True

    def __init__(self, account: Account, chance: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
        """Use the cluster of this account."""
        self.account, self._monkeypatch = account, monkeypatch
        self._drained: set[str] = set()
        super().__init__(chance)

    def groups(self) -> dict[str, Object]:
        return self.account.groups()

    def identifiers(self, name: str, group: Object) -> set[str]:
        with self.account.fake.state.lock:
            rows = list(self.account.fake.state.groups.values())
            return {group["id"], *(node["name"] for row in rows if row["id"] == group["id"] for node in row["nodes"])}

    def mark(self) -> int:
        self._drained = set()
        return self.account.mark()

    def written(self, since: int) -> set[str]:
        sent = cloud_requests.writes(self.account.lab, since, "accel.gpu/")
        return {part for request in sent for part in request.path.partition("?")[0].split("/")} | self._drained

    def run(self, groups: Sequence[Object], *, check: bool = False, interrupt: bool = False) -> Object | None:
        drainer = Drainer(self.account, interrupt)
        self._monkeypatch.setattr(DrainingModule, "drainer", drainer)
        options: Object = {"cluster": CLUSTER, "confirm": [CLUSTER], "wait_sleep": 1, "wait_timeout": 60}
        result = self.account.run(vks_nodegroup.main, check=check, nodegroups=groups, **options)
        self._drained |= drainer.drained
        return None if KILLED in str(result.get("msg")) else result

    def act_as_person(self, groups: Mapping[str, Object]) -> str:
        """Create a group with a suggestive name, often as a copy of another group with all its labels, or delete one."""
        own = self.owned(groups)
        if own and (len(own) >= MOST_OF_A_PERSON or self.chance.random() < 0.3):
            declared: Object = {"name": self.chance.choice(own), "state": "absent"}
        else:
            source = self.source(groups)
            labels = groups[source]["labels"] if self.chance.random() < 0.7 else {}
            name = self.suggestive_name(source)
            declared = {"name": name, "flavor": self.flavors[0], **self.settings, "node_count": 1}
            declared["node_labels"] = labels or {}
        result = self.run([declared])
        assert result is not None
        assert not result.get("failed"), result
        if declared.get("state") != "absent":
            # A person's client sets no mark, or copies one.
            mark = {NODEGROUP_MARK: declared["node_labels"].get(NODEGROUP_MARK)}
            unmarked = self.account.run(vks_nodegroup.main, cluster=CLUSTER, name=declared["name"], node_labels=mark)
            assert not unmarked.get("failed"), unmarked
        return str(declared)


@pytest.mark.parametrize("count", [25, pytest.param(1500, marks=[pytest.mark.soak, pytest.mark.timeout(7200)])])
def test_no_operation_touches_a_group_of_another(account: Account, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    SharedVks(account, random.Random(os.environ["ACCEL_GPU_SEED"]), monkeypatch).play(count)
