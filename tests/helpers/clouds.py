# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clouds of a lab for runs that are killed: a proxy in front of each, and its node groups, read without any module."""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lab.api import Api, Object
from lab.layout import Lab as LabLayout
from lab.nodes import CLOUD_LABEL, NODE_GROUP_ANNOTATION, NODES, is_ready
from lab.openstack import layout
from lab.openstack.rest import Rest
from tests.faults.api_proxy import Proxy
from tests.helpers.playbook_kills import StartProxy
from tests.labs import Lab

_SECONDS = 60.0


@dataclass(frozen=True)
class Group:
    """A node group as its cloud returns it: its id, its desired number of nodes, and whether no operation is in progress."""

    id: str
    count: int
    settled: bool


@dataclass(frozen=True)
class Provider:
    """A cloud of the lab; its cluster with the lab's name is the lab's own Kubernetes.

    flavors: two of its flavors with GPUs. settings: required settings of a pool for a new group, besides its flavor.
    """

    name: str
    start_proxy: StartProxy
    listed: Callable[[LabLayout], list[tuple[str, Group]]]
    flavors: tuple[str, str]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def groups(self, lab: Lab) -> dict[str, Group]:
        """The groups of the lab's own cluster by name; two groups of one name fail the test."""
        actual = self.listed(LabLayout.named(lab.name))
        twice = [name for name, number in Counter(name for name, _group in actual).items() if number > 1]
        assert not twice, f"{self.name} has more than one node group {twice}"
        return dict(actual)

    def nodes(self, lab: Lab) -> dict[str, Object]:
        """The nodes of the cluster that are machines of this cloud, by name."""
        listed = Api(LabLayout.named(lab.name)).list(NODES, labelSelector=f"{CLOUD_LABEL}={self.name}")
        return {node["metadata"]["name"]: node for node in listed}

    def settled(self, lab: Lab) -> dict[str, Group]:
        """The groups, once no operation is in progress."""
        deadline = time.monotonic() + _SECONDS
        while True:
            actual = self.groups(lab)
            if all(group.settled for group in actual.values()):
                return actual
            assert time.monotonic() < deadline, f"node groups of {self.name} do not settle: {actual}"
            time.sleep(0.2)

    def require_no_orphan(self, lab: Lab) -> None:
        """Each group has its desired number of nodes, all ready, and no node belongs to another group."""
        desired = Counter({group.id: group.count for group in self.groups(lab).values()})
        nodes = self.nodes(lab)
        assert Counter(group_of(node) for node in nodes.values()) == +desired
        assert [name for name, node in nodes.items() if not is_ready(node)] == []


def group_of(node: Object) -> str:
    """The id of a node's group."""
    return str(node["metadata"]["annotations"][NODE_GROUP_ANNOTATION])


@contextmanager
def _to_magnum(lab: Lab, folder: Path) -> Iterator[tuple[Proxy, dict[str, str]]]:
    """The address of Magnum is in Keystone's catalog, unless the client's configuration sets it."""
    proxy = Proxy(layout.url(LabLayout.named(lab.name), "magnum"))
    with proxy.running():
        document = yaml.safe_load(Path(lab.env["OS_CLIENT_CONFIG_FILE"]).read_text())
        for cloud in document["clouds"].values():
            cloud["container_infrastructure_management_endpoint_override"] = proxy.url
        path = folder / "proxied-clouds.yaml"
        path.write_text(yaml.safe_dump(document))
        yield proxy, {"OS_CLIENT_CONFIG_FILE": str(path)}


@contextmanager
def _to_vks(lab: Lab, folder: Path) -> Iterator[tuple[Proxy, dict[str, str]]]:
    proxy = Proxy(lab.env["VKS_URL"])
    with proxy.running():
        yield proxy, {"VKS_URL": proxy.url}


def _of_magnum(lab: LabLayout) -> list[tuple[str, Group]]:
    rows = Rest(lab, "demo", "demo").get("magnum", f"/clusters/{lab.name}/nodegroups")["nodegroups"]
    # A row has no status until its driver starts.
    return [
        (row["name"], Group(row["uuid"], row["node_count"], (row["status"] or "").endswith("_COMPLETE")))
        for row in rows
    ]


def _of_vks(lab: LabLayout) -> list[tuple[str, Group]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{lab.ports()['vks']}/lab/state", timeout=_SECONDS) as answer:
        state = json.load(answer)
    own = {identity for identity, name in state["clusters"].items() if name == lab.name}
    return [
        (row["name"], Group(row["id"], row["numNodes"], row["status"] == "ACTIVE"))
        for row in state["groups"]
        if row["clusterId"] in own
    ]


MAGNUM = Provider("magnum", _to_magnum, _of_magnum, ("g2.5xlarge", "g4.p2.40g"))
VKS = Provider(
    "vks",
    _to_vks,
    _of_vks,
    ("g1-standard-4x16-1rtx2080ti", "g2-standard-16x64-1rtx4090"),
    {"disk_type": "nvme-iops3000", "ssh_key": "lab"},
)
