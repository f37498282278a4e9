# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two inventories and a person share a Magnum cluster: no operation touches a node group, node or pod of another."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab import cloud_requests
from lab.nodes import is_ready
from tests.helpers.clouds import MAGNUM, group_of
from tests.helpers.magnum import Magnum, main_of
from tests.helpers.playbook_kills import kubernetes_proxy, proxied
from tests.helpers.shared_clusters import MOST_OF_A_PERSON, SERVICE, Object, SharedKubernetes

# What a person copies from a node group; Magnum assigns the rest.
COPIED = ("flavor_id", "image_id", "role", "labels", "node_labels", "node_taints", "docker_volume_size")
NODE_LABELS = ("magnum.openstack.org/nodegroup", "accel.gpu/pool")


class SharedMagnum(SharedKubernetes):
    """Node groups of the cluster whose nodes are those of the lab's Kubernetes, and who owns them."""

    flavors = MAGNUM.flavors
    settings: Mapping[str, Any] = {}

    def __init__(self, magnum: Magnum, *args: Any) -> None:
        """Read with the client of the test, whose requests are not those of the collection."""
        self._magnum = magnum
        self._path = f"/clusters/{magnum.lab.name}/nodegroups"
        super().__init__(magnum.lab, *args)

    def listed(self) -> dict[str, Object]:
        rows = (self._magnum.api.get(self._path) or {})["nodegroups"]
        details = [self._magnum.api.get(f"{self._path}/{row['uuid']}") for row in rows]
        ready = [group_of(node) for node in MAGNUM.nodes(self.lab).values() if is_ready(node)]
        for group in details:
            if group is None or not (group["status"] or "").endswith("_COMPLETE"):
                return {}
            if ready.count(group["uuid"]) != group["node_count"]:
                return {}
        return {group["name"]: {**group, "id": group["uuid"]} for group in details if group}

    def group_of(self, node: Object, groups: Mapping[str, Object]) -> str:
        identity = group_of(node)
        return next(name for name, group in groups.items() if group["id"] == identity)

    def identifiers(self, name: str, group: Object) -> set[str]:
        return {*super().identifiers(name, group), *({name, group["id"]} if name else ())}

    def mark(self) -> Any:
        return cloud_requests.mark(self.layout), super().mark()

    def written(self, since: Any) -> set[str]:
        sent = cloud_requests.writes(self.layout, since[0], "accel.gpu")
        parts = {part for request in sent for part in request.path.partition("?")[0].split("/")}
        return parts | super().written(since[1])

    def declare(self, name: str) -> Object:
        if not self._magnum.has_node_labels:
            return super().declare(name)
        return {**super().declare(name), "node_labels": {"team": self.chance.choice(["a", "b"])}}

    def module(self, groups: Sequence[Object], drain: Object) -> tuple[Callable[[], Any], Object]:
        kubernetes = {"kubeconfig": self.environ["KUBECONFIG"], "drain": drain, "lease_wait_timeout": 60}
        options = {
            "cloud": "lab",
            "cluster": self.lab.name,
            "confirm": [self.lab.name],
            "wait_sleep": 1,
            "timeout": 120,
        }
        return main_of("nodegroup"), {**options, "kubernetes": kubernetes, "nodegroups": groups}

    def act_as_person(self, groups: Mapping[str, Object]) -> str:
        own, kind = self.owned(groups), self.chance.random()
        if own and (len(own) >= MOST_OF_A_PERSON or kind < 0.2):
            name = self.chance.choice(own)
            self._magnum.api.delete(self.lab.name, groups[name]["id"])
            return f"{name} is deleted"
        if own and kind < 0.35:
            name, count = self.chance.choice(own), self.chance.randint(1, 2)
            self._magnum.api.resize(self.lab.name, name, count)
            return f"{name} gets {count} nodes"
        if own and kind < 0.55:
            return self.label_a_node(groups, NODE_LABELS)
        source = self.source([name for name in groups if not groups[name].get("is_default")])
        name = self.suggestive_name(source)
        copied = {key: groups[source][key] for key in COPIED if groups[source].get(key)}
        self._magnum.api.create(self.lab.name, name, copied.pop("flavor_id"), **copied)
        self._magnum.api.settled(self.lab.name, name)
        return f"{name} is created as a copy of {source}"

    def close(self) -> None:
        """Delete the groups of all owners, and the pods."""
        for name, group in self.groups().items():
            if self.owner.get(name) != SERVICE:
                self._magnum.api.delete(self.lab.name, group["id"])


@pytest.fixture
def shared(magnum: Magnum, tmp_path: Path) -> Iterator[SharedMagnum]:
    with proxied(magnum.lab, [MAGNUM.start_proxy, kubernetes_proxy], tmp_path) as (proxies, environ):
        actual = SharedMagnum(magnum, proxies, environ, random.Random(os.environ["ACCEL_GPU_SEED"]))
        yield actual
        actual.close()


@pytest.mark.usual(40)
@pytest.mark.parametrize("count", [10, pytest.param(1500, marks=[pytest.mark.soak, pytest.mark.timeout(7200)])])
def test_no_operation_touches_anything_of_another(shared: SharedMagnum, count: int) -> None:
    shared.play(count)
