# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cloud that the lab is not could not make: other drivers, other systems, volumes to start from, quotas."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.provider import ClusterNode
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import NodeGroupSpec, NodeGroupState
from ansible_collections.accel.gpu.plugins.module_utils.providers.magnum.checks import MagnumChecks
from ansible_collections.accel.gpu.plugins.module_utils.providers.magnum.provider import MagnumProvider
from ansible_collections.accel.gpu.plugins.module_utils.providers.magnum.specs import declared_group

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
class Told:
    """What Magnum, Nova and Glance tell, at once."""

    driver: str = "k8s_capi_helm_v1"
    distro: str = "flatcar"
    limits: Object = field(default_factory=dict)
    has_node_labels: bool = True
    resizes_to_zero: bool = True
    flavors = FLAVORS
    images = IMAGES

    def template(self, name: str) -> Object:
        return {"driver": self.driver, "cluster_distro": self.distro}

    def flavor(self, name: str) -> Object | None:
        return next((one for one in FLAVORS if name in (one["id"], one["name"])), None)

    def named(self, name: str) -> list[Object]:
        return [one for one in IMAGES if name in (one["id"], one["name"])]


def problems(told: Told, wish: NodeGroupSpec, live: NodeGroupState | None = None, **cluster: Any) -> list[str]:
    whole = {"name": "c", "uuid": "u", "status": "CREATE_COMPLETE", "flavor_id": "cpu", "labels": {}, **cluster}
    return MagnumChecks(cast("Any", told), cast("Any", told), cast("Any", told), whole).problems([(wish, live)])


def group(count: int = 1, **more: Any) -> NodeGroupState:
    return NodeGroupState("u", "g", "CREATE_COMPLETE", True, False, count, **more)


@pytest.mark.parametrize(
    ("fields", "cluster", "said"),
    [
        ({}, {}, None),
        ({"image": "flatcar"}, {}, None),
        ({"image": "flatcar", "flavor": "gpu"}, {}, "NVIDIA publishes no driver container"),
        ({"image": "flatcar", "flavor": "gpu", "labels": {"nvidia_gpu_enabled": "true"}}, {}, None),
        ({"image": "flatcar", "flavor": "gpu"}, {"labels": {"nvidia_gpu_enabled": "True"}}, None),
        ({"image": "twice"}, {}, "2 images are called twice: b, c; name one by its id"),
        ({"image": "b"}, {}, None),
        ({"image": "queued"}, {}, "is queued"),
        ({"image": "large", "flavor": "gpu"}, {"labels": {"boot_volume_size": "50"}}, "needs 9000 MB of ram"),
        ({"flavor": "nodisk"}, {}, "a disk of 0 GB"),
        ({"flavor": "nodisk"}, {"labels": {"boot_volume_size": "20"}}, None),
        ({}, {"status": "CREATE_FAILED", "status_reason": "no"}, "Cluster c is CREATE_FAILED: no."),
    ],
)
def test_new_groups(fields: Object, cluster: Object, said: str | None) -> None:
    found = problems(Told(), NodeGroupSpec("g", fields=fields), **cluster)
    assert (said in found[0]) if said else not found


def test_zero_where_the_driver_cannot() -> None:
    scaled = NodeGroupSpec("g", low=0, high=3, autoscaled=True)
    [refused] = problems(Told(), scaled)
    assert "magnum-capi-helm) cannot scale to zero by itself; declare min_node_count of 1 or more" in refused
    assert not problems(Told(driver="k8s_fedora_coreos_v1"), scaled)
    assert not problems(Told(), NodeGroupSpec("g", low=1, high=3, autoscaled=True))


def test_zero_where_magnum_cannot() -> None:
    old = Told(resizes_to_zero=False)
    assert "from microversion 1.10 on" in problems(old, NodeGroupSpec("g", count=0))[0]
    assert "from microversion 1.10 on" in problems(old, NodeGroupSpec("g", count=0), group())[0]
    assert not problems(old, NodeGroupSpec("g", low=0), group(0))


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
def test_the_quota_counts_what_is_added(limits: Object, refused: bool) -> None:
    grown = problems(Told(limits=limits), NodeGroupSpec("g", count=4), group(1, fields={"flavor": "cpu"}))
    assert bool(grown) is refused
    assert not problems(Told(limits=limits), NodeGroupSpec("g", count=0), group(1))


def cloud(*names: str, driver: str = "heat") -> MagnumProvider:
    told = cast("Any", Told(driver=driver))
    wishes = [declared_group({"name": name}, cluster_labels={}, node_labels=True) for name in names]
    return MagnumProvider(told, told, told, {"uuid": "u", "name": "c"}, wishes)


def test_whose_nodes_are_a_group_s() -> None:
    machines = [
        ClusterNode("by-address", True, ("10.0.0.5",), "", {}),
        ClusterNode("by-label", True, (), "", {"magnum.openstack.org/nodegroup": "g"}),
        ClusterNode("by-capi", True, (), "", {"capi.stackhpc.com/node-group": "g"}),
        ClusterNode("other", True, ("10.0.0.6",), "", {"magnum.openstack.org/nodegroup": "h"}),
    ]
    found = cloud().members(group(addresses=("10.0.0.5",)), machines)
    assert [machine.name for machine in found] == ["by-address", "by-label", "by-capi"]


@pytest.mark.parametrize(
    ("driver", "chosen"), [("heat", True), ("k8s_capi_helm_v1", False), ("k8s_cluster_api_ubuntu", False)]
)
def test_who_may_say_which_nodes_go(driver: str, chosen: bool) -> None:
    assert cloud(driver=driver).removes_chosen is chosen


def test_one_request_at_a_time() -> None:
    wish = NodeGroupSpec("g", count=5, low=4, high=6, fields={"node_labels": {"a": "b"}})
    labelled: Object = {"fields": {"node_labels": {"a": "b"}}}
    whats = [
        [step.what for step in cloud("g").steps(live, wish, ())]
        for live in (
            group(2, low=1, high=3, fields={"node_labels": {}}),
            group(2, low=1, high=6, **labelled),
            group(5, low=1, high=6, **labelled),
            group(5, low=4, high=6, **labelled),
        )
    ]
    assert whats == [
        ["change max_node_count, node_labels"],
        ["have 5 instead of 2 nodes"],
        ["change min_node_count"],
        [],
    ]


def test_what_had_failed_is_tried_again_once() -> None:
    told = cast("Any", Told())
    told.nodegroups = lambda cluster: [{"uuid": "u", "name": "g"}]
    told.whole = lambda cluster, ids: [{"uuid": "u", "name": "g", "status": "UPDATE_FAILED", "node_count": 2}]
    told.resize = lambda *dummy: None
    there = MagnumProvider(
        told,
        told,
        told,
        {"uuid": "u", "name": "c"},
        [declared_group({"name": "g"}, cluster_labels={}, node_labels=True)],
    )
    [failed] = there.survey(lambda name: True)
    [step] = there.steps(failed, NodeGroupSpec("g", count=2), ())
    assert step.what == "try again after UPDATE_FAILED"
    step.send()
    assert not there.steps(failed, NodeGroupSpec("g", count=2), ()), "what fails in this run is told"
