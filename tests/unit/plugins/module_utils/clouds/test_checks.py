# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks for clouds unlike the lab's: other drivers, other systems, boot volumes, quotas."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds import magnum_groups
from ansible_collections.accel.gpu.plugins.module_utils.clouds.magnum_groups import (
    MagnumChecks,
    MagnumProvider,
    spec_of,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import NodeGroupSpec, NodeGroupState
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node

Object = dict[str, Any]

FLAVORS: list[Object] = [
    {"id": "1", "name": "cpu", "disk": 20, "ram": 4096, "vcpus": 2, "extra_specs": {}},
    {"id": "2", "name": "gpu", "disk": 20, "ram": 8192, "vcpus": 8, "extra_specs": {"pci_passthrough:alias": "t4:1"}},
    {"id": "3", "name": "nodisk", "disk": 0, "ram": 4096, "vcpus": 2},
]
IMAGES: list[Object] = [
    {"id": "a", "name": "flatcar", "status": "active", "os_distro": "flatcar"},
    {"id": "b", "name": "twice", "status": "active"},
    {"id": "c", "name": "twice", "status": "active"},
    {"id": "d", "name": "large", "status": "active", "min_disk": 40, "min_ram": 9000},
    {"id": "e", "name": "queued", "status": "queued"},
]


@dataclass
class Cloud:
    """Responses of Magnum, Nova and Glance."""

    driver: str = "k8s_capi_helm_v1"
    distro: str = "flatcar"
    limits: Object = field(default_factory=dict)
    version: tuple[int, int] = (1, 14)
    resizes_to_zero: bool = True
    flavors = FLAVORS
    images = IMAGES

    def template(self, name: str) -> Object:
        return {"driver": self.driver, "cluster_distro": self.distro}

    def nodegroups(self, cluster: str) -> list[Object]:
        names = ("train", "train-2026", "pre-train", "default-worker")
        return [{"uuid": name, "name": name} for name in names]

    def complete_nodegroups(self, cluster: str, ids: list[str]) -> list[Object]:
        return []

    def flavor(self, name: str) -> Object | None:
        return next((one for one in FLAVORS if name in (one["id"], one["name"])), None)

    def named(self, name: str) -> list[Object]:
        return [one for one in IMAGES if name in (one["id"], one["name"])]


def problems(cloud: Cloud, spec: NodeGroupSpec, state: NodeGroupState | None = None, **cluster: Any) -> list[str]:
    whole = {"name": "c", "uuid": "u", "status": "CREATE_COMPLETE", "flavor_id": "cpu", "labels": {}, **cluster}
    return MagnumChecks(cast("Any", cloud), cast("Any", cloud), cast("Any", cloud), whole).problems([(spec, state)])


def group(count: int = 1, **more: Any) -> NodeGroupState:
    return NodeGroupState("u", "g", "CREATE_COMPLETE", True, False, count, **more)


@pytest.mark.parametrize(
    ("fields", "cluster", "message"),
    [
        ({}, {}, None),
        ({"image": "flatcar"}, {}, None),
        ({"image": "flatcar", "flavor": "gpu"}, {}, "NVIDIA publishes no driver container"),
        ({"image": "flatcar", "flavor": "gpu", "labels": {"nvidia_gpu_enabled": "true"}}, {}, None),
        ({"image": "flatcar", "flavor": "gpu"}, {"labels": {"nvidia_gpu_enabled": "True"}}, None),
        ({"image": "twice"}, {}, "2 images are called twice: b, c; specify the id"),
        ({"image": "b"}, {}, None),
        ({"image": "queued"}, {}, "is queued"),
        ({"image": "large", "flavor": "gpu"}, {"labels": {"boot_volume_size": "50"}}, "needs 9000 MB of ram"),
        ({"flavor": "nodisk"}, {}, "a disk of 0 GB"),
        ({"flavor": "nodisk"}, {"labels": {"boot_volume_size": "20"}}, None),
        ({}, {"status": "CREATE_FAILED", "status_reason": "no"}, "Cluster c is CREATE_FAILED: no."),
    ],
)
def test_new_groups(fields: Object, cluster: Object, message: str | None) -> None:
    messages = problems(Cloud(), NodeGroupSpec("g", fields=fields), **cluster)
    assert (message in messages[0]) if message else not messages


def test_drivers_that_cannot_scale_from_zero() -> None:
    scaled = NodeGroupSpec("g", min_count=0, max_count=3, autoscaled=True)
    [refused] = problems(Cloud(), scaled)
    assert "magnum-capi-helm) cannot scale from zero; declare min_node_count of 1 or more" in refused
    assert not problems(Cloud(driver="k8s_fedora_coreos_v1"), scaled)
    assert not problems(Cloud(), NodeGroupSpec("g", min_count=1, max_count=3, autoscaled=True))


def test_releases_without_empty_groups() -> None:
    old = Cloud(resizes_to_zero=False)
    assert "they require microversion 1.10" in problems(old, NodeGroupSpec("g", count=0))[0]
    assert "they require microversion 1.10" in problems(old, NodeGroupSpec("g", count=0), group())[0]
    assert not problems(old, NodeGroupSpec("g", min_count=0), group(0))


@pytest.mark.parametrize(
    ("limits", "refused"),
    [
        ({}, False),
        ({"maxTotalInstances": -1, "totalInstancesUsed": 99}, False),
        ({"maxTotalInstances": 10, "totalInstancesUsed": 7}, False),
        ({"maxTotalInstances": 10, "totalInstancesUsed": 8}, True),
        ({"maxTotalCores": 10, "totalCoresUsed": 4}, False),
        ({"maxTotalCores": 10, "totalCoresUsed": 5}, True),
        ({"maxTotalRAMSize": 12287, "totalRAMUsed": 0}, True),
    ],
)
def test_the_quota_counts_added_nodes(limits: Object, refused: bool) -> None:
    grown = problems(Cloud(limits=limits), NodeGroupSpec("g", count=4), group(1, fields={"flavor": "cpu"}))
    assert bool(grown) is refused
    assert not problems(Cloud(limits=limits), NodeGroupSpec("g", count=0), group(1))


def provider(*names: str, driver: str = "heat") -> MagnumProvider:
    cloud = cast("Any", Cloud(driver=driver))
    groups = [spec_of({"name": name}, cluster_labels={}, version=(1, 14)) for name in names]
    return MagnumProvider(cloud, cloud, cloud, {"uuid": "u", "name": "c"}, groups)


def test_members_of_a_group() -> None:
    by_heat, by_capi = {"magnum.openstack.org/nodegroup": "gpu_T4"}, {"capi.stackhpc.com/node-group": "gpu_T4"}
    nodes = [
        Node("by-address", addresses=("10.0.0.5",)),
        Node("prod-x2-gpu-t4-k8s5h-vx7kd", by_capi),
        Node("prod-x2-gpu-t4-new-node-0", by_heat),
        # Manually labeled: nodes of other groups.
        Node("prod-x2-node-1", by_heat, addresses=("10.0.0.6",)),
        Node("prod-x2-gpu-t40-k8s5h-vx7kd", by_capi),
        Node("gpu-t4", by_heat),
        # The name alone does not count either.
        Node("prod-x2-gpu-t4-other", {"magnum.openstack.org/nodegroup": "h"}, addresses=("10.0.0.7",)),
    ]
    state = dataclasses.replace(group(addresses=("10.0.0.5",)), name="gpu_T4")
    assert provider().members(state, nodes) == nodes[:3]
    assert provider().members(dataclasses.replace(state, addresses=()), nodes) == nodes[1:3]


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("prod-train-5c2f-node-0", True),
        ("prod-train-2026-5c2f-node-0", False),
        ("prod-pre-train-5c2f-node-0", False),
        # The name of the cluster shows nothing about the group.
        ("my-train-k8s-default-worker-5c2f-node-0", False),
        ("my-train-k8s-train-5c2f-node-0", True),
    ],
)
@pytest.mark.parametrize("key", ["magnum.openstack.org/nodegroup", "capi.stackhpc.com/node-group"])
def test_a_label_that_was_set_by_hand_does_not_move_a_node_of_a_group_with_a_longer_name(
    name: str, member: bool, key: str
) -> None:
    cloud = cast("Any", Cloud())
    cluster = {"uuid": "u", "name": "My_train.k8s"}
    group_provider = MagnumProvider(
        cloud, cloud, cloud, cluster, [spec_of({"name": "train"}, cluster_labels={}, version=(1, 14))]
    )
    assert group_provider.read(lambda group: group == "train") == []
    state = dataclasses.replace(group(), name="train")
    assert bool(group_provider.members(state, [Node(name, {key: "train"})])) is member


@pytest.mark.parametrize(
    ("driver", "chosen"), [("heat", True), ("k8s_capi_helm_v1", False), ("k8s_cluster_api_ubuntu", False)]
)
def test_which_drivers_let_us_choose_nodes(driver: str, chosen: bool) -> None:
    assert provider(driver=driver).can_choose_nodes is chosen


def test_one_request_at_a_time() -> None:
    spec = NodeGroupSpec("g", count=5, min_count=4, max_count=6, fields={"node_labels": {"a": "b"}})
    labeled: Object = {"fields": {"node_labels": {"a": "b"}}}
    descriptions = [
        [request.description for request in provider("g").requests(state, spec, ())]
        for state in (
            group(2, min_count=1, max_count=3, fields={"node_labels": {}}),
            group(2, min_count=1, max_count=6, **labeled),
            group(5, min_count=1, max_count=6, **labeled),
            group(5, min_count=4, max_count=6, **labeled),
        )
    ]
    assert descriptions == [
        ["change max_node_count, node_labels"],
        ["resize from 2 to 5 nodes"],
        ["change min_node_count"],
        [],
    ]


def test_a_failed_group_is_retried_once() -> None:
    cloud = cast("Any", Cloud())
    cloud.nodegroups = lambda cluster: [{"uuid": "u", "name": "g"}]
    cloud.complete_nodegroups = lambda cluster, ids: [
        {"uuid": "u", "name": "g", "status": "UPDATE_FAILED", "node_count": 2}
    ]
    cloud.resize = lambda *dummy: None
    existing = MagnumProvider(
        cloud,
        cloud,
        cloud,
        {"uuid": "u", "name": "c"},
        [spec_of({"name": "g"}, cluster_labels={}, version=(1, 14))],
    )
    [failed] = existing.read(lambda name: True)
    [request] = existing.requests(failed, NodeGroupSpec("g", count=2), ())
    assert request.description == "retry after UPDATE_FAILED"
    request.send()
    assert not existing.requests(failed, NodeGroupSpec("g", count=2), ()), "a failure of this run is reported"


def test_no_change_is_lost_when_no_request_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a new field with a request of its own, which this provider does not send yet."""
    spec = NodeGroupSpec("g", fields={"node_labels": {"a": "1"}})
    assert provider("g").requests(group(), spec, ())
    monkeypatch.setattr(magnum_groups, "SENT_FIELDS", frozenset())
    with pytest.raises(NotImplementedError, match="node_labels"):
        provider("g").requests(group(), spec, ())
