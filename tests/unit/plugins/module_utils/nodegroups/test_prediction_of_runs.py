# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_info predicts the objects that the module autoscaling plans, in check mode and after the MachineSets exist."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.clouds.machineset_groups import Cluster, spec_of
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.autoscaling import (
    ClusterObjects,
    ScalingOptions,
    plan_scaling_changes,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.autoscaling_objects import priorities_of
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Plan
from tests.helpers.machine_sets import MAX_SIZE, MIN_SIZE, cluster_autoscaler, machine_autoscaler, machine_set
from tests.helpers.scaling_cases import VERSIONS, after_run, explained

Object = dict[str, Any]
NAMESPACE, SOURCE, KIND = "openshift-machine-api", "prod-worker-us-east-2a", "Tesla-T4-SHARED"
ZONES = ["us-east-2a", "us-east-2b"]
WORKERS = tuple(machine_set(f"prod-worker-{zone}", bounds=None, zone=zone) for zone in ZONES)
PRIORITY: Object = {"expanders": ["Priority"]}

PLANS: dict[str, tuple[Object, Object]] = {
    "shared": ({}, {}),
    "whole": ({}, {"sharing": None}),
    "renamed": ({}, {"sharing": {"mode": "time-slicing", "replicas": 4, "rename": True}}),
    "zones": ({}, {"nodes": {"like": SOURCE, "flavor": "g4dn.xlarge", "zones": ZONES}}),
    "delays": ({"max_node_provision_time": "45m", "scale_down": {"enabled": False}}, {}),
    "priority": (PRIORITY, {"autoscale": {"min": 0, "max": 4, "priority": 50}}),
    "priority without expander": ({}, {"autoscale": {"min": 0, "max": 4, "priority": 50}}),
    "fixed": ({}, {"nodes": {"flavor": "g4dn.xlarge", "count": 1}, "autoscale": None}),
}
OWN_FIELDS = [{"manager": "accel.gpu", "fieldsV1": {"f:spec": {"f:maxNodeProvisionTime": {}}}}]
AUTOSCALERS: dict[str, Object | None] = {
    "none": None,
    "without limits": cluster_autoscaler(),
    "limit of others": cluster_autoscaler([{"type": KIND, "min": 0, "max": 1}]),
    "own limit": cluster_autoscaler([{"type": KIND, "min": 0, "max": 1}, {"type": "gone", "min": 0, "max": 8}]),
    "expander": cluster_autoscaler(expanders=["LeastWaste", "Priority"]),
}
_OWN = AUTOSCALERS["own limit"]
if _OWN is not None:
    _OWN["metadata"] |= {
        "annotations": {"accel.gpu/gpu-limits": json.dumps({KIND: {"max": 1}, "gone": {"max": 8}})},
        "managedFields": OWN_FIELDS,
    }
PRIORITIES = {"none": None, "of others": "10:\n  - .*\n", "malformed": "- a", "of this pool": "50:\n  - .*t4.*\n"}


def planned(name: str) -> Plan:
    autoscaler, pool = PLANS[name]
    declared = {
        "name": "t4",
        "model": "T4",
        "gpus_per_node": 1,
        "nodes": {"like": SOURCE, "flavor": "g4dn.xlarge"},
        "autoscale": {"min": 0, "max": 4},
        "sharing": {"mode": "time-slicing", "replicas": 4},
        **pool,
    }
    declared = {key: value for key, value in declared.items() if value is not None}
    return derive({"name": "lab", "cloud": {"machineset": {}}, "autoscaler": autoscaler}, {}, [declared])


def objects(version: str, autoscaler: str = "none", priorities: str = "none", **more: Any) -> ClusterObjects:
    text = PRIORITIES[priorities]
    metadata = {"name": "cluster-autoscaler-priority-expander", "namespace": NAMESPACE}
    configmap = None if text is None else {"metadata": metadata, "data": {"priorities": text}}
    live = copy.deepcopy(AUTOSCALERS[autoscaler])
    return ClusterObjects(version, WORKERS, cluster_autoscaler=live, priorities=configmap, **more)


def results_of_machineset(plan: Plan, actual: ClusterObjects) -> dict[str, Object]:
    """The result of the module machineset in check mode for MachineSets that it would create."""
    cluster = Cluster([dict(item) for item in actual.machine_sets], actual.state.rules, None)
    results = {}
    for group in plan.nodegroups:
        spec, problems, dummy = spec_of({"state": "present", "recreate": False, **group}, None, cluster)
        assert not problems
        fields = spec.fields
        results[spec.name] = {
            "action": "create",
            "name": spec.name,
            "node_labels": fields["node_labels"],
            "annotations": fields.get("annotations", {}),
            "node_count": spec.desired_count(None),
        }
    return results


def compared(actual: ClusterObjects) -> Object:
    """The objects that the prediction and the module have in common."""
    scalers = {item["metadata"]["name"]: item for item in actual.machine_autoscalers}
    return {"cluster": actual.cluster_autoscaler, "priorities": actual.priorities, "scalers": scalers}


def written(plan: Plan, actual: ClusterObjects, predicted: dict[str, Object]) -> Object:
    """The objects after the changes of the module autoscaling; nothing if it refuses the run."""
    made = plan_scaling_changes(plan, actual, ScalingOptions(), predicted)
    if made.problems:
        return compared(actual)
    after = {change.label: change.desired for change in made.changes}
    kept = [item for item in actual.machine_autoscalers if not any(change.live is item for change in made.changes)]
    scalers = [item for label, item in after.items() if label.startswith("MachineAutoscaler ") and item]
    return {
        "cluster": after.get("ClusterAutoscaler default", actual.cluster_autoscaler),
        "priorities": after.get(f"ConfigMap {NAMESPACE}/cluster-autoscaler-priority-expander", actual.priorities),
        "scalers": {item["metadata"]["name"]: item for item in [*kept, *scalers]},
    }


@given(
    st.sampled_from(sorted(PLANS)),
    st.sampled_from(sorted(AUTOSCALERS)),
    st.sampled_from(sorted(PRIORITIES)),
    st.sampled_from(VERSIONS),
)
def test_a_first_plan_predicts_the_objects_that_check_mode_previews(
    plan: str, autoscaler: str, priorities: str, version: str
) -> None:
    declared, actual = planned(plan), objects(version, autoscaler, priorities)
    assert compared(after_run(declared, actual)) == written(declared, actual, results_of_machineset(declared, actual))


@given(
    st.sampled_from(sorted(PLANS)),
    st.sampled_from(sorted(AUTOSCALERS)),
    st.sampled_from(sorted(PRIORITIES)),
    st.sampled_from(["own", "of others", "both", "none"]),
    st.integers(0, 5),
)
def test_a_later_plan_predicts_what_the_module_writes(
    plan: str, autoscaler: str, priorities: str, scaler: str, replicas: int
) -> None:
    declared, fresh = planned(plan), objects("4.20.3", autoscaler, priorities)
    existing = [copy.deepcopy(dict(item)) for item in after_run(declared, fresh).machine_sets]
    for item in existing:
        item["spec"]["replicas"] = replicas
        for key in (MIN_SIZE, MAX_SIZE):
            item["metadata"]["annotations"].pop(key, None)
    own = machine_autoscaler("t4", low=0, high=2, labels={"accel.gpu/nodegroup": "t4"}, managedFields=[])
    scalers = {"own": (own,), "of others": (machine_autoscaler("theirs", "t4"),), "none": ()}
    scalers["both"] = (*scalers["own"], *scalers["of others"])
    actual = dataclasses.replace(fresh, machine_sets=tuple(existing), machine_autoscalers=scalers[scaler])
    assert compared(after_run(declared, actual)) == written(declared, actual, {})


@pytest.mark.parametrize("name", ["shared", "zones", "priority"])
def test_after_the_predicted_run_another_one_changes_nothing(name: str) -> None:
    declared = planned(name)
    first = after_run(declared, objects("4.20.3"))
    assert compared(after_run(declared, first)) == compared(first)
    second = after_run(declared, first)
    for item in (*first.machine_sets, *second.machine_sets):
        # The record also names what the controller of the platform has added.
        item["metadata"]["annotations"].pop("accel.gpu/registration", None)
    assert second.machine_sets == first.machine_sets


def test_a_plan_predicts_the_priority_of_a_pool() -> None:
    """Without a priority, another MachineSet is preferred as soon as the ConfigMap names others."""
    actual = objects("4.20.3", "expander", "of this pool")
    actual = dataclasses.replace(
        actual, priorities={**(actual.priorities or {}), "data": {"priorities": "1:\n  - worker\n"}}
    )
    for name, expected in (("shared", ["expander_priority"]), ("priority", [])):
        (explanation,) = explained(planned(name), actual)
        assert [finding.code for finding in explanation.after_run if "priority" in finding.code] == expected
    after = after_run(planned("priority"), actual)
    assert priorities_of(after.priorities) == {1: ["worker"], 50: ["^MachineSet/openshift-machine-api/t4$"]}


def test_a_run_that_fails_changes_no_object_of_the_autoscaler() -> None:
    """A MachineSet of the pool's name that was not created by the collection."""
    actual = objects("4.20.3")
    actual = dataclasses.replace(actual, machine_sets=(*WORKERS, machine_set("t4", bounds=None)))
    assert compared(after_run(planned("shared"), actual)) == compared(actual)
    (explanation,) = explained(planned("shared"), actual)
    assert {"cluster_autoscaler", "machine_autoscaler"} <= {finding.code for finding in explanation.after_run}


def test_a_configmap_that_could_not_be_read_is_not_predicted() -> None:
    actual = objects("4.20.3", "expander", unread=frozenset({"cluster-autoscaler-priority-expander"}))
    assert after_run(planned("priority"), actual).state.priorities is None
