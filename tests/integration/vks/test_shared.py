# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two inventories and a person share a VKS cluster: no operation of one changes, drains or deletes a group of another."""

from __future__ import annotations

import os
import random
from collections.abc import Collection

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import NODEGROUP_MARK
from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.common.errors import ServiceError
from ansible_collections.accel.gpu.plugins.module_utils.drain.module import DrainingModule
from ansible_collections.accel.gpu.plugins.modules import vks_nodegroup
from lab import cloud_requests
from tests.helpers.vks_modules import CLUSTER, Account, Object

FLAVORS = ("g3-standard-16x128-1A40", "g2-standard-16x64-1rtx4090")
SETTINGS = {"disk_type": "nvme-iops3000", "ssh_key": "lab"}
# The names of the second inventory are names that replacements of the first one's groups could have.
DECLARED = {"first": ("train", "burst"), "second": ("train-2026", "burst-0002"), "person": ()}
MOST_OF_A_PERSON = 5


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
            raise ServiceError("the run is killed", status=400)

    def uncordon(self, names: Collection[str]) -> None:
        """The nodes of this test have no cordons."""


# The refusal to create a group beside one that may be the declared group.
UNPROVEN = "no mark proves whose group this is"


class Shared:
    """The cluster, who owns each of its groups, and one operation of one of the owners at a time."""

    def __init__(self, account: Account, chance: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
        self.account, self.chance, self.monkeypatch = account, chance, monkeypatch
        self.owner: dict[str, str] = dict.fromkeys(account.groups(), "the service")
        self.deleted: list[str] = []

    def operate(self, owner: str) -> str:
        """One random operation, after which the groups of all others are as before; returns what was done."""
        args = self._of_a_person() if owner == "person" else self._of_an_inventory(owner)
        before, nodes = self.account.groups(), self._nodes()
        drainer = Drainer(self.account, fails=self.chance.random() < 0.3)
        self.monkeypatch.setattr(DrainingModule, "drainer", drainer)
        since = self.account.mark()
        result = self.account.run(
            vks_nodegroup.main, cluster=CLUSTER, confirm=[CLUSTER], wait_sleep=1, wait_timeout=60, **args
        )
        if owner == "person" and args.get("state") != "absent":
            # A person's client sets no mark, or copies one.
            mark = {NODEGROUP_MARK: args["node_labels"].get(NODEGROUP_MARK)}
            unmarked = self.account.run(vks_nodegroup.main, cluster=CLUSTER, name=args["name"], node_labels=mark)
            assert not unmarked.get("failed"), unmarked
        done = f"{owner}: {args} -> {result.get('msg') or result['nodegroup']['action']}"
        assert not result.get("failed") or drainer.drained or UNPROVEN in result["msg"], done
        after = self.account.groups()
        for name in after.keys() - before.keys():
            self.owner[name] = owner
        others = {name for name in before if self.owner[name] != owner}
        assert {name: after.get(name) for name in others} == {name: before[name] for name in others}, done
        assert {nodes[node] for node in drainer.drained if node in nodes}.isdisjoint(others), done
        ids = {before[name]["id"] for name in others}
        written = [request.path for request in cloud_requests.writes(self.account.lab, since, "accel.gpu/")]
        assert not [path for path in written if ids & set(path.partition("?")[0].split("/"))], done
        gone = before.keys() - after.keys()
        assert gone <= {text.partition(" ")[0] for text in result.get("nodegroup", {}).get("deletes", gone)}, done
        self.deleted += gone
        return done

    def settled(self, owner: str, name: str) -> None:
        """After a run that is not killed, the declared group is one group."""
        args: Object = {"name": name, "flavor": FLAVORS[0], **SETTINGS, "node_count": 1, "recreate": True}
        self.monkeypatch.setattr(DrainingModule, "drainer", Drainer(self.account, fails=False))
        options: Object = {"cluster": CLUSTER, "wait_sleep": 1, "wait_timeout": 60, **args}
        result = self.account.run(vks_nodegroup.main, **options)
        if UNPROVEN in result.get("msg", ""):
            for copied in sorted(name for name in self.account.groups() if f"{name} has the " in result["msg"]):
                assert self.owner.pop(copied) == "person"
                assert self.account.run(
                    vks_nodegroup.main, cluster=CLUSTER, name=copied, state="absent", confirm=[CLUSTER], wait_sleep=1
                )["changed"]
            result = self.account.run(vks_nodegroup.main, **options)
        assert not result.get("failed"), result
        self.owner.update(dict.fromkeys(self.account.groups().keys() - self.owner.keys(), owner))
        again = self.account.run(vks_nodegroup.main, **options)
        assert (again["changed"], again["nodegroup"]["name"]) == (False, result["nodegroup"]["name"])

    def _of_an_inventory(self, owner: str) -> Object:
        name = self.chance.choice(DECLARED[owner])
        if self.chance.random() < 0.2:
            return {"name": name, "state": "absent"}
        flavor, count = self.chance.choice(FLAVORS), self.chance.randint(1, 2)
        return {"name": name, "flavor": flavor, **SETTINGS, "node_count": count, "recreate": True}

    def _of_a_person(self) -> Object:
        """Create a group with a suggestive name, often as a copy of another group with all its labels, or delete one."""
        groups = self.account.groups()
        own = sorted(name for name in groups if self.owner[name] == "person")
        if own and (len(own) >= MOST_OF_A_PERSON or self.chance.random() < 0.3):
            return {"name": self.chance.choice(own), "state": "absent"}
        bases = [name for names in DECLARED.values() for name in names if len(name) <= 10]
        name = f"{self.chance.choice(bases)}-{self.chance.randrange(16**4):04x}"
        copied = groups[self.chance.choice(sorted(groups))]
        labels = copied["labels"] if self.chance.random() < 0.7 else {}
        return {"name": name, "flavor": FLAVORS[0], **SETTINGS, "node_count": 1, "node_labels": labels or {}}

    def _nodes(self) -> dict[str, str]:
        """The group of each node."""
        with self.account.fake.state.lock:
            groups = list(self.account.fake.state.groups.values())
            return {node["name"]: group["name"] for group in groups for node in group["nodes"]}


@pytest.mark.parametrize("count", [25, pytest.param(1500, marks=[pytest.mark.soak, pytest.mark.timeout(7200)])])
def test_no_operation_touches_a_group_of_another(account: Account, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    chance = random.Random(os.environ["ACCEL_GPU_SEED"])
    shared = Shared(account, chance, monkeypatch)
    for dummy in range(count):
        shared.operate(chance.choice(["first", "first", "second", "second", "person"]))
    for owner, names in DECLARED.items():
        for name in names:
            shared.settled(owner, name)
    inventories = [name for name in account.groups() if shared.owner[name] in ("first", "second")]
    assert len(inventories) == sum(len(names) for names in DECLARED.values())
    assert shared.deleted
