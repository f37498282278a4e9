# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVIDIADriver objects in a plan: the planned Helm values reach the objects of pools that inherit them."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.cluster_policy_client import add_driver_objects
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.driver_objects import plan_driver_objects
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import parse_node
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Plan

Object = dict[str, Any]

POOLS = [
    {"name": "own", "match": {"labels": {"rack": "a"}}, "driver": {"version": "570.148.08"}},
    {"name": "same", "match": {"labels": {"rack": "b"}}},
]
LABELS = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.driver": "true"}
NODES = [
    parse_node({"metadata": {"name": pool, "labels": {**LABELS, "rack": rack, "accel.gpu/pool": pool}}})
    for pool, rack in (("own", "a"), ("same", "b"))
]


class Server:
    """A cluster with these NVIDIADriver objects, whose CRD has these fields."""

    def __init__(self, drivers: list[Object], fields: tuple[str, ...] = ()) -> None:
        self.drivers, self.fields = drivers, fields

    def list_known(self, path: str) -> tuple[Object, ...]:
        assert path.endswith("/nvidiadrivers")
        return tuple(self.drivers)

    def get(self, path: str) -> Object:
        properties: Object = {name: {} for name in self.fields}
        schema = {"openAPIV3Schema": {"properties": {"spec": {"properties": properties}}}}
        return {"spec": {"versions": [{"name": "v1alpha1", "schema": schema}]}}

    def apply(self, path: str, body: Object, *, dry_run: bool, field_validation: str) -> Object:
        assert dry_run
        assert field_validation == "Strict"
        return body


def planned(**driver: Any) -> Plan:
    return derive({"name": "c", "operator": {"driver": driver}}, {}, POOLS)


def policy(release: str = "gpu-operator") -> Object:
    annotations = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": "gpu-operator"}
    return {
        "metadata": {
            "name": "cluster-policy",
            "labels": {"app.kubernetes.io/version": "v25.10.1", "app.kubernetes.io/managed-by": "Helm"},
            "annotations": annotations,
        },
        "spec": {"driver": {"version": "580.105.08", "useNvidiaDriverCRD": True}},
    }


@pytest.mark.parametrize(
    ("driver", "release", "rolled"),
    [
        ({}, "gpu-operator", set()),
        ({"version": "580.105.08"}, "gpu-operator", set()),
        ({"version": "580.126.16"}, "gpu-operator", {"same"}),
        # Another Helm release does not get the planned values.
        ({"version": "580.126.16"}, "other", set()),
    ],
)
def test_planned_values_reach_the_pools_that_inherit_them(driver: Object, release: str, rolled: set[str]) -> None:
    live = policy(release)
    bodies = [copy.deepcopy(change.body) for change in plan_driver_objects(planned(), live, [], NODES).changes]
    info: Object = {"warnings": []}
    actual = add_driver_objects(cast("Client", Server(bodies)), planned(**driver), live, NODES, info)
    assert actual.rolled_nodes == rolled
    assert len(info["nvidia_drivers"]) == 2
    assert not info["warnings"]


def test_a_plan_shows_that_the_crd_is_older_than_the_operator() -> None:
    live = policy()
    bodies = [copy.deepcopy(change.body) for change in plan_driver_objects(planned(), live, [], NODES).changes]
    server = Server(bodies, ("version",))
    info: Object = {"warnings": []}
    add_driver_objects(cast("Client", server), planned(version="580.126.16"), live, NODES, info)
    assert info["warnings"] == [
        "The CRD nvidiadrivers.nvidia.com is older than operator v25.10.1: it has no spec.driverType, spec.image, spec.nodeSelector and "
        "spec.repository. Apply the CRDs of its chart, and run the playbook again."
    ]
    # The upgrade to another release applies the CRDs of its chart first.
    info = {"warnings": []}
    newer = derive({"name": "c", "operator": {"version": "v26.3.0", "driver": {"version": "580.126.16"}}}, {}, POOLS)
    add_driver_objects(cast("Client", server), newer, live, NODES, info)
    assert not info["warnings"]


def test_a_plan_shows_the_tolerations_that_objects_get_and_lose() -> None:
    taint = {"key": "restricted", "value": "yes", "effect": "NoSchedule"}
    other = {"key": "other", "effect": "NoExecute"}
    tainted, both = (
        derive({"name": "c"}, {}, [{**POOLS[0], "taints": taints}, POOLS[1]]) for taints in ([taint], [taint, other])
    )
    live = policy()

    def changes(before: Plan, after: Plan) -> list[Object]:
        bodies = [copy.deepcopy(change.body) for change in plan_driver_objects(before, live, [], NODES).changes]
        info: Object = {"warnings": [], "tolerations": []}
        add_driver_objects(cast("Client", Server(bodies)), after, live, NODES, info)
        return list(info["tolerations"])

    texts, restarts = ["restricted=yes:NoSchedule"], "the driver restarts on 1 node(s) of pool own"
    entry = {"object": "NVIDIADriver accel-gpu-own", "restarts": restarts}
    assert changes(planned(), tainted) == [{**entry, "adds": texts, "removes": []}]
    assert changes(both, tainted) == [{**entry, "adds": [], "removes": ["other:NoExecute"]}]
    assert changes(tainted, tainted) == []
