# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workloads that no node can run after a change of sharing, with the field to change."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import classify_pods, demands_of, parse_pods
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Membership
from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import (
    ChangePlan,
    ConfigMaps,
    plan_sharing_changes,
)
from tests.helpers.fleet import node, pod

Object = dict[str, t.Any]
PRODUCT = "nvidia.com/gpu.product"
SELECTOR = f"spec.nodeSelector[{PRODUCT}]"
AFFINITY = f"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution ({PRODUCT})"
LIMIT = "spec.containers[].resources.limits[nvidia.com/gpu]"


def workload(spec: Object | None = None, gpus: int = 1, on: str = "n1", owner: str = "serve") -> Object:
    actual = pod(f"{owner}-7d9-x", on, limits={"nvidia.com/gpu": gpus} if gpus else {})
    actual["spec"].update(spec or {})
    actual["metadata"]["labels"] = {"pod-template-hash": "7d9"}
    controller = {"kind": "ReplicaSet", "name": f"{owner}-7d9", "controller": True}
    actual["metadata"]["ownerReferences"] = [controller]
    return actual


def affinity(operator: str, *values: str) -> Object:
    terms = [{"matchExpressions": [{"key": PRODUCT, "operator": operator, "values": list(values)}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def changes(pods: list[Object], sharing: Object, model: str = "Tesla-T4", others: t.Sequence[t.Any] = ()) -> ChangePlan:
    """The changes when the pool of node n1, whose GPUs are whole, gets this sharing; `others` are nodes without a pool."""
    pool = {"name": "a", "match": {"model": model}, "sharing": sharing}
    plan = derive({"name": "lab"}, {}, [pool])
    membership = Membership(by_pool={"a": ["n1"]})
    by_node = classify_pods(parse_pods(pods, operator_namespace="gpu-operator"))
    return plan_sharing_changes(plan, [node(model=model, gpus=2), *others], membership, ConfigMaps(), pods=by_node)


SHARED: Object = {"mode": "time-slicing", "replicas": 4}
RENAMED: Object = {**SHARED, "rename": True}


@pytest.mark.parametrize(
    ("pods", "sharing", "field", "value", "fitting"),
    [
        (workload({"nodeSelector": {PRODUCT: "Tesla-T4"}}), SHARED, SELECTOR, "Tesla-T4", "Tesla-T4-SHARED"),
        (
            workload(affinity("In", "Tesla-T4", "Tesla-V100")),
            SHARED,
            AFFINITY,
            "In Tesla-T4, Tesla-V100",
            "Tesla-T4-SHARED",
        ),
        (workload(affinity("NotIn", "Tesla-T4-SHARED")), SHARED, AFFINITY, "NotIn Tesla-T4-SHARED", ""),
        (workload(), RENAMED, LIMIT, "1", "nvidia.com/gpu.shared: 1"),
        (workload(gpus=2), SHARED, LIMIT, "2", "1, since the device plugin rejects requests for several shares"),
        # A pod without a GPU request, such as an exporter, also loses its node.
        (workload({"nodeSelector": {PRODUCT: "Tesla-T4"}}, gpus=0), SHARED, SELECTOR, "Tesla-T4", "Tesla-T4-SHARED"),
    ],
)
def test_a_workload_that_fits_nowhere_afterwards(
    pods: Object, sharing: Object, field: str, value: str, fitting: str
) -> None:
    (actual,) = changes([pods], sharing).unfit
    assert actual.as_dict() == {"owner": "Deployment default/serve", "field": field, "value": value, "fitting": fitting}


def test_a_request_for_whole_gpus_that_become_mig_devices() -> None:
    sharing = {"mode": "mig", "layout": {"3g.40gb": 2}, "strategy": "mixed"}
    (actual,) = changes([workload()], sharing, "NVIDIA-H100-80GB-HBM3").unfit
    assert (actual.field, actual.fitting) == (LIMIT, "nvidia.com/mig-3g.40gb: 1")


@pytest.mark.parametrize(
    "pods",
    [
        workload(),
        workload(affinity("In", "Tesla-T4", "Tesla-T4-SHARED")),
        workload(affinity("Exists")),
        workload({"nodeSelector": {"kubernetes.io/os": "windows"}}, gpus=0),
    ],
)
def test_a_workload_that_still_fits(pods: Object) -> None:
    assert changes([pods], SHARED).unfit == ()


def test_a_workload_that_fits_another_node_is_not_listed() -> None:
    pods = [workload({"nodeSelector": {PRODUCT: "Tesla-T4"}})]
    assert changes(pods, SHARED, others=[node("n2")]).unfit == ()


def test_a_workload_that_fits_no_node_already_is_not_blamed_on_the_change() -> None:
    assert changes([workload({"nodeSelector": {PRODUCT: "Tesla-V100"}})], SHARED).unfit == ()


@pytest.mark.parametrize("former", ["tesla-t4", None])
def test_a_released_node_with_its_former_configuration_is_not_judged(former: str | None) -> None:
    record = {"accel.gpu/pool-labels": '["accel.gpu/pool", "nvidia.com/device-plugin.config"]'}
    if former:
        record["accel.gpu/former-labels"] = f'{{"labels": {{"nvidia.com/device-plugin.config": "{former}"}}}}'
    labels = {
        "accel.gpu/pool": "gone",
        "nvidia.com/device-plugin.config": "time-slicing-4-x",
        PRODUCT: "Tesla-T4-SHARED",
    }
    released = node(gpus=2, labels=labels, annotations=record, allocatable={"nvidia.com/gpu": 8})
    pods = classify_pods(
        parse_pods([workload({"nodeSelector": {PRODUCT: "Tesla-T4-SHARED"}})], operator_namespace="gpu-operator")
    )
    plan = derive({"name": "lab"}, {}, [])
    unfit = plan_sharing_changes(
        plan, [released], Membership(by_pool={}), ConfigMaps({"data": {"tesla-t4": "version: v1"}}), pods=pods
    ).unfit
    # Without a former configuration, its GPUs become whole.
    assert bool(unfit) is (former is None)


def test_each_controller_is_listed_once_and_the_list_is_limited() -> None:
    selecting = {"nodeSelector": {PRODUCT: "Tesla-T4"}}
    same = [workload(selecting), workload(selecting)]
    plan = changes(same, SHARED)
    assert len(plan.unfit) == 1
    (line,) = plan.diff()[1]["workloads_without_node"]
    assert line.startswith(
        f"Deployment default/serve: {SELECTOR}: Tesla-T4 fits no node after the change; change it to"
    )
    many = [workload(selecting, owner=f"serve{number}") for number in range(150)]
    assert len(changes(many, SHARED).unfit) == 100


def test_owners_are_named_as_users_know_them() -> None:
    bare = pod("train", "n1", limits={"nvidia.com/gpu": 1})
    demands = demands_of(bare, {"nvidia.com/gpu": 1})
    assert demands is not None
    assert demands.owner == "Pod default/train"
    bare["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "exporter", "controller": True}]
    named = demands_of(bare, {"nvidia.com/gpu": 1})
    assert named is not None
    assert named.owner == "DaemonSet default/exporter"
    assert demands_of(pod("web", "n1"), {}) is None
