# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The changes that the pools require of the autoscaler's objects, and the objects that are left and reported."""

from __future__ import annotations

import copy
import dataclasses
import json
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.autoscaling import (
    ClusterObjects,
    ScalingChanges,
    ScalingOptions,
    plan_scaling_changes,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import parse_node
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from tests.helpers.machine_api import marked

Object = dict[str, t.Any]
NAMESPACE, KIND = "openshift-machine-api", "Tesla-T4-SHARED"


def pool(name: str = "notebooks", scale: Object | None = None, **more: t.Any) -> Object:
    return {
        "name": name,
        "model": "T4",
        "nodes": {"flavor": "g4dn.xlarge", "count": 0},
        "autoscale": {"min": 0, "max": 3} if scale is None else scale or None,
        "sharing": {"mode": "time-slicing", "replicas": 4},
        **more,
    }


def machine_set(
    name: str = "notebooks", *, owner: str | None = "", kind: str = KIND, replicas: int = 0, **annotations: t.Any
) -> Object:
    labels = {} if owner is None else {"accel.gpu/nodegroup": owner or name}
    template = {"metadata": {"labels": {"cluster-api/accelerator": kind}}}
    metadata = {"name": name, "namespace": NAMESPACE, "uid": name, "labels": labels, "annotations": annotations}
    item = {"metadata": metadata, "spec": {"replicas": replicas, "template": {"spec": template}}}
    return item if owner is None else marked(item, owner or name)


def scaler(
    name: str = "notebooks", target: str = "", *, owner: str | None = "", bounds: tuple[int, int] = (0, 3)
) -> Object:
    labels = {} if owner is None else {"accel.gpu/nodegroup": owner or name}
    reference = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": target or name}
    low, high = bounds
    manager = "accel.gpu" if owner is not None else "by-hand"
    entry = {"manager": manager, "fieldsV1": {"f:spec": {"f:minReplicas": {}, "f:maxReplicas": {}}}}
    return {
        "apiVersion": "autoscaling.openshift.io/v1beta1",
        "kind": "MachineAutoscaler",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": name, "labels": labels, "managedFields": [entry]},
        "spec": {"minReplicas": low, "maxReplicas": high, "scaleTargetRef": reference},
    }


def made(
    *pools: Object,
    sets: t.Sequence[Object] = (),
    scalers: t.Sequence[Object] = (),
    autoscaler: Object | None = None,
    predicted: Object | None = None,
    cluster: Object | None = None,
    actual: Object | None = None,
    **options: t.Any,
) -> ScalingChanges:
    variables = {"name": "c", "cloud": {"machineset": {}}, **({"autoscaler": autoscaler} if autoscaler else {})}
    declared = [{key: value for key, value in item.items() if value is not None} for item in pools]
    objects = dataclasses.replace(ClusterObjects("4.18.7", tuple(sets), tuple(scalers), cluster), **(actual or {}))
    names = frozenset(options.pop("pool_names", ()))
    return plan_scaling_changes(
        derive(variables, {}, declared), objects, ScalingOptions(pool_names=names, **options), predicted or {}
    )


def actions(plan: ScalingChanges) -> dict[str, str]:
    return {f"{change.kind} {change.name}": change.action for change in plan.changes if change.changed}


def after(plan: ScalingChanges, kind: str = "ClusterAutoscaler") -> Object:
    return next(change.desired or {} for change in plan.changes if change.kind == kind)


def applied(plan: ScalingChanges) -> tuple[Object | None, list[Object]]:
    """The ClusterAutoscaler and the MachineAutoscalers after the changes, as if the collection had written all of their fields."""
    entry = {"manager": "accel.gpu", "fieldsV1": {"f:spec": {}}}
    objects = [copy.deepcopy(change.desired) for change in plan.changes if change.desired]
    for item in objects:
        item["metadata"].setdefault("managedFields", [entry])
    cluster = next((item for item in objects if item["kind"] == "ClusterAutoscaler"), None)
    return cluster, [item for item in objects if item["kind"] == "MachineAutoscaler"]


def test_everything_is_created_and_a_second_plan_changes_nothing() -> None:
    first = made(pool(), pool("train"), sets=[machine_set(), machine_set("train")])
    assert actions(first) == {
        "ClusterAutoscaler default": "created",
        "MachineAutoscaler notebooks": "created",
        "MachineAutoscaler train": "created",
    }
    assert first.limits == {KIND: 2 * 3 * 4}, "two pools with up to three nodes of four shares each"
    cluster, scalers = applied(first)
    again = made(pool(), pool("train"), sets=[machine_set(), machine_set("train")], cluster=cluster, scalers=scalers)
    assert actions(again) == {}
    assert again.warnings == []


def test_a_new_cluster_autoscaler_has_delays_for_the_driver_unless_they_are_declared() -> None:
    spec = after(made(pool(), sets=[machine_set()]))["spec"]
    assert spec["scaleDown"] == {"enabled": True, "delayAfterAdd": "20m"}
    declared = {"scale_down": {"enabled": False}, "max_node_provision_time": "45m"}
    spec = after(made(pool(), sets=[machine_set()], autoscaler=declared))["spec"]
    assert spec["scaleDown"] == {"enabled": False, "delayAfterAdd": "20m"}
    assert spec["maxNodeProvisionTime"] == "45m"


def test_each_zone_gets_its_part_of_the_range() -> None:
    zoned = pool(scale={"min": 1, "max": 5}, nodes={"flavor": "g4dn.xlarge", "zones": ["us-east-2a", "us-east-2b"]})
    names = ["notebooks-us-east-2a", "notebooks-us-east-2b"]
    plan = made(zoned, sets=[machine_set(name) for name in names])
    bounds = {
        change.name: (change.desired or {})["spec"] for change in plan.changes if change.kind == "MachineAutoscaler"
    }
    assert [(bounds[name]["minReplicas"], bounds[name]["maxReplicas"]) for name in names] == [(1, 3), (0, 2)]
    assert plan.limits == {KIND: 20}


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([], "there is no MachineSet notebooks in namespace openshift-machine-api. Run the role nodegroups first"),
        (
            [machine_set(owner=None)],
            "MachineSet notebooks in namespace openshift-machine-api was not created by this collection",
        ),
    ],
)
def test_a_pool_without_its_machine_set_is_a_problem(sets: list[Object], message: str) -> None:
    (problem,) = made(pool(), sets=sets).problems
    assert problem.startswith("Pool notebooks: ")
    assert message in problem


def test_a_machine_set_that_the_run_creates_is_previewed() -> None:
    labels = {"cluster-api/accelerator": KIND, "gone": None}
    predicted = {"notebooks": {"action": "create", "name": "notebooks", "node_labels": labels, "annotations": {}}}
    plan = made(pool(), predicted=predicted)
    assert plan.problems == []
    assert plan.changes == made(pool(), sets=[machine_set()]).changes


def test_a_replacement_gets_a_machine_autoscaler_and_the_old_one_is_deleted() -> None:
    plan = made(pool(), sets=[machine_set("notebooks-ab12", owner="notebooks")], scalers=[scaler()])
    assert actions(plan) == {
        "ClusterAutoscaler default": "created",
        "MachineAutoscaler notebooks-ab12": "created",
        "MachineAutoscaler notebooks": "deleted",
    }


def copied(name: str) -> Object:
    """A copy of the MachineSet of the group with all its labels and annotations, as `oc get -o yaml`, an editor and `oc create` make it."""
    copy = machine_set("notebooks")
    copy["metadata"] = {**copy["metadata"], "name": name, "uid": "another"}
    return copy


def test_a_copy_of_a_machineset_is_no_replacement_of_it() -> None:
    plan = made(pool(), sets=[copied("notebooks-ab12")])
    assert actions(plan) == {}
    assert "there is no MachineSet notebooks" in str(plan.problems)


def test_a_copied_machine_autoscaler_of_another_machineset_is_not_deleted() -> None:
    copies = scaler("notebooks-beef", owner="notebooks")
    scalers = [scaler(), copies, scaler("gone", owner="notebooks")]
    plan = made(pool(), sets=[machine_set(), copied("notebooks-beef")], scalers=scalers, present=False)
    assert {name for name, action in actions(plan).items() if action == "deleted"} == {
        "MachineAutoscaler notebooks",
        "MachineAutoscaler gone",
    }


def test_the_limit_is_never_below_what_is_in_use() -> None:
    bounds: dict[str, t.Any] = {"machine.openshift.io/cluster-api-autoscaler-node-group-max-size": "9"}
    used = machine_set(replicas=5, **bounds)
    used["metadata"]["annotations"]["machine.openshift.io/GPU"] = "4"
    assert made(pool(scale={"min": 0, "max": 1}), sets=[used]).limits == {KIND: 20}
    label = {"cluster-api/accelerator": KIND}
    status = {"allocatable": {"nvidia.com/gpu": "30"}, "conditions": [{"type": "Ready", "status": "True"}]}
    other = parse_node({"metadata": {"name": "bare-metal", "labels": label}, "status": status})
    assert made(pool(), sets=[machine_set()], actual={"nodes": (other,)}).limits == {KIND: 30}


def test_shares_that_a_node_offers_count_even_if_the_template_shows_whole_gpus() -> None:
    """The platform's controller measures whole GPUs, and a new node offers four shares."""
    assert made(pool(), sets=[machine_set(**t.cast("Object", {"machine.openshift.io/GPU": "1"}))]).limits == {KIND: 12}


def test_a_machine_autoscaler_of_others_is_reported_and_adopted_only_on_request() -> None:
    foreign = scaler("by-hand", "notebooks", owner=None, bounds=(1, 2))
    plan = made(pool(), sets=[machine_set()], scalers=[foreign])
    assert actions(plan) == {"ClusterAutoscaler default": "created"}
    assert plan.unmanaged == [f"{NAMESPACE}/by-hand"]
    assert "between 1 and 2 nodes; pool notebooks declares 0 to 3" in plan.warnings[0]
    adopted = made(pool(), sets=[machine_set()], scalers=[foreign], adopt=True)
    assert actions(adopted)["MachineAutoscaler by-hand"] == "updated"
    desired = after(adopted, "MachineAutoscaler")
    assert desired["metadata"]["labels"] == {"accel.gpu/nodegroup": "notebooks"}
    assert (desired["spec"]["minReplicas"], desired["spec"]["maxReplicas"]) == (0, 3)


def test_two_machine_autoscalers_for_one_machine_set_are_named() -> None:
    both = [scaler(), scaler("by-hand", "notebooks", owner=None)]
    plan = made(pool(), sets=[machine_set()], scalers=both, adopt=True)
    assert "only one of them has an effect. Delete the foreign one." in plan.warnings[0]
    assert "MachineAutoscaler by-hand" not in actions(plan)


def test_a_range_that_someone_has_changed_is_named_and_stays() -> None:
    edited = scaler(bounds=(0, 9))
    edited["metadata"]["managedFields"][0]["manager"] = "kubectl-edit"
    plan = made(pool(), sets=[machine_set()], scalers=[edited])
    assert "MachineAutoscaler notebooks" not in actions(plan)
    assert "spec.maxReplicas is 9 (set by kubectl-edit), but 3 is declared" in plan.warnings[0]
    forced = made(pool(), sets=[machine_set()], scalers=[edited], change_foreign=True)
    assert after(forced, "MachineAutoscaler")["spec"]["maxReplicas"] == 3


def test_silence_is_not_consent() -> None:
    cluster, scalers = applied(made(pool(), pool("former"), sets=[machine_set(), machine_set("former")]))
    sets = [machine_set(), machine_set("former")]
    plan = made(pool(scale={}), sets=sets, cluster=cluster, scalers=scalers)
    assert actions(plan) == {}
    assert plan.undeclared == [f"{NAMESPACE}/notebooks", f"{NAMESPACE}/former"]
    assert "pool notebooks has no autoscale" in plan.warnings[0]
    assert "oc -n openshift-machine-api delete machineautoscaler former" in plan.warnings[1]


def test_absent_removes_those_of_the_selected_pools_with_limits_that_no_other_pool_needs() -> None:
    pools = [pool(), pool("train", model="L4", nodes={"flavor": "g6.xlarge"}, sharing={"mode": "none"})]
    sets = [machine_set(), machine_set("train", kind="NVIDIA-L4")]
    cluster, scalers = applied(made(*pools, sets=sets))
    plan = made(*pools, sets=sets, cluster=cluster, scalers=scalers, present=False, pool_names=["train"])
    assert actions(plan) == {"ClusterAutoscaler default": "updated", "MachineAutoscaler train": "deleted"}
    assert [entry["type"] for entry in after(plan)["spec"]["resourceLimits"]["gpus"]] == [KIND]
    everything = made(*pools, sets=sets, cluster=cluster, scalers=scalers, present=False)
    assert "gpus" not in after(everything)["spec"]["resourceLimits"]
    assert "accel.gpu/gpu-limits" not in after(everything)["metadata"]["annotations"]


def test_priorities_need_the_expander() -> None:
    ranked = pool(scale={"min": 0, "max": 3, "priority": 50})
    ignored = made(ranked, sets=[machine_set()])
    assert "has the expanders Random (default)" in ignored.warnings[0]
    plan = made(ranked, sets=[machine_set()], autoscaler={"expanders": ["Priority"]})
    configmap = after(plan, "ConfigMap")
    assert configmap["data"]["priorities"] == "50:\n  - '^MachineSet/openshift-machine-api/notebooks$'\n"
    assert json.loads(configmap["metadata"]["annotations"]["accel.gpu/priorities"]) == {
        "^MachineSet/openshift-machine-api/notebooks$": 50
    }
    broken = {"metadata": {"name": "x"}, "data": {"priorities": "nonsense"}}
    refused = made(ranked, sets=[machine_set()], autoscaler={"expanders": ["Priority"]}, actual={"priorities": broken})
    assert "Correct or delete it." in refused.problems[0]


def test_the_patch_is_for_the_version_that_was_read() -> None:
    live = scaler(bounds=(1, 3))
    live["metadata"]["resourceVersion"] = "42"
    plan = made(pool(), sets=[machine_set()], scalers=[live])
    change = next(change for change in plan.changes if change.name == "notebooks")
    assert change.patch == {"metadata": {"resourceVersion": "42"}, "spec": {"minReplicas": 0}}
    assert dataclasses.replace(change, desired=None).action == "deleted"


@pytest.mark.parametrize(
    ("live", "declared", "enabled", "warns"),
    [
        ({}, {"delay_after_add": "25m"}, False, True),
        ({"scaleDown": {"enabled": True}}, {"delay_after_add": "25m"}, True, False),
        ({"scaleDown": {"enabled": False}}, {"delay_after_add": "25m"}, False, True),
        ({}, {"enabled": True}, True, False),
        ({}, {"enabled": False, "delay_after_add": "25m"}, False, False),
        ({}, None, None, False),
    ],
)
def test_a_declared_delay_does_not_switch_a_scale_down_on(
    live: Object, declared: Object | None, enabled: bool | None, warns: bool
) -> None:
    """The CRD requires scaleDown.enabled."""
    existing = {"metadata": {"name": "default", "managedFields": []}, "spec": live}
    autoscaler = {"scale_down": declared} if declared else None
    plan = made(pool(), sets=[machine_set()], cluster=existing, autoscaler=autoscaler, change_foreign=True)
    (change,) = [change for change in plan.changes if change.kind == "ClusterAutoscaler"]
    assert ((change.desired or {})["spec"].get("scaleDown") or {}).get("enabled") is enabled
    assert any("removes no nodes" in warning for warning in plan.warnings) is warns


@pytest.mark.parametrize(
    ("version", "options", "problems"),
    [
        (
            "4.15.60",
            {},
            [
                "gpu_cluster.autoscaler.expanders: is not supported by OpenShift 4.15.60; it was added in 4.16; remove it, or upgrade OpenShift."
            ],
        ),
        ("4.15.60", {"present": False}, []),
        ("4.16.0", {}, []),
        ("", {}, []),
    ],
)
def test_a_field_that_the_release_does_not_have_is_a_problem(
    version: str, options: Object, problems: list[str]
) -> None:
    declared = {"expanders": ["LeastWaste"], "max_nodes_total": 9}
    plan = made(pool(), sets=[machine_set()], autoscaler=declared, actual={"version": version}, **options)
    assert plan.problems == problems
