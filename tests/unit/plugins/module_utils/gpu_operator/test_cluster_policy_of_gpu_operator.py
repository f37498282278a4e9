# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The changes of a ClusterPolicy: the owners of entries, the requests, the diff and the impact."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog.taints import is_covered
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.cluster_policy import (
    DesiredPolicy,
    initial_change,
    merge_tolerations,
    new_policy,
    plan_change,
    policy_changes,
    policy_tolerations,
)
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive

Object = dict[str, Any]

GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
TEAM = {"key": "team", "operator": "Equal", "value": "research", "effect": "NoSchedule"}
THEIRS = {"key": "example.org/maintenance", "operator": "Exists"}
NOTE = "accel.gpu/tolerations"
CONFIG = {"devicePlugin": {"config": {"name": "accel-gpu-device-plugin", "default": ""}}}


def policy(tolerations: list[Object] | None = None, noted: list[Object] | None = None, **spec: Any) -> Object:
    annotations = {} if noted is None else {NOTE: json.dumps(noted, sort_keys=True)}
    daemonsets = {} if tolerations is None else {"daemonsets": {"tolerations": tolerations, "priorityClassName": "x"}}
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {
            "name": "cluster-policy",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": annotations,
        },
        "spec": {**daemonsets, **spec},
    }


MERGES = [
    # held, recorded as managed, wanted -> written, managed
    ([], [], [GPU], [GPU], [GPU]),
    ([GPU], [], [GPU], [GPU], []),
    ([GPU, THEIRS], [], [GPU, TEAM], [GPU, THEIRS, TEAM], [TEAM]),
    ([GPU, TEAM, THEIRS], [TEAM], [GPU], [GPU, THEIRS], []),
    # An equal foreign entry is not managed, and stays when the managed entry is no longer wanted.
    ([GPU, TEAM], [], [GPU], [GPU, TEAM], []),
    ([GPU, TEAM], [], [GPU, TEAM], [GPU, TEAM], []),
    # Operator Equal is what no operator means.
    ([{"key": "team", "value": "research", "effect": "NoSchedule"}], [], [TEAM], None, []),
    # A foreign entry tolerates the taint already; another entry would restart every driver for nothing.
    ([{"operator": "Exists"}], [], [GPU, TEAM], [{"operator": "Exists"}], []),
    ([{"key": "team", "operator": "Exists"}], [], [GPU, TEAM], [{"key": "team", "operator": "Exists"}, GPU], [GPU]),
    # A managed entry that is there already stays.
    ([{"operator": "Exists"}, TEAM], [TEAM], [TEAM], None, [TEAM]),
    # Removed manually: it is restored.
    ([GPU], [GPU, TEAM], [GPU, TEAM], [GPU, TEAM], [GPU, TEAM]),
]


@pytest.mark.parametrize(("held", "noted", "expected", "written", "managed"), MERGES)
def test_merge(
    held: list[Object], noted: list[Object], expected: list[Object], written: list[Object] | None, managed: list[Object]
) -> None:
    assert merge_tolerations(held, noted, expected) == (held if written is None else written, managed)


_entries = st.lists(
    st.sampled_from([GPU, TEAM, THEIRS, {"operator": "Exists"}, {**TEAM, "value": "teaching"}]),
    max_size=4,
    unique_by=lambda entry: json.dumps(entry, sort_keys=True),
)


@given(_entries, _entries, _entries)
def test_what_others_put_there_survives_any_number_of_pools(
    theirs: list[Object], first: list[Object], second: list[Object]
) -> None:
    held, managed = merge_tolerations(theirs, [], first)
    held, managed = merge_tolerations(held, managed, second)
    assert all(entry in held for entry in theirs)
    assert all(entry in held or is_covered(entry, theirs) for entry in second)
    held, managed = merge_tolerations(held, managed, [])
    assert held == theirs
    assert managed == []


def test_a_new_policy_shows_all_managed_fields() -> None:
    change = initial_change(DesiredPolicy(CONFIG, (GPU, TEAM)))
    assert change.before == {}
    assert change.after["spec"] == {**CONFIG, "daemonsets": {"tolerations": [GPU, TEAM]}}
    assert json.loads(change.after["metadata"]["annotations"][NOTE]) == [GPU, TEAM]


def test_what_the_chart_made_of_our_own_installation_ends_as_predicted() -> None:
    expected = DesiredPolicy(CONFIG, (GPU, TEAM))
    change = plan_change(policy([GPU, TEAM], devicePlugin={"enabled": True}), expected, seeded=True)
    assert change.after == initial_change(expected).after
    assert change.before["spec"] == {"daemonsets": {"tolerations": [GPU, TEAM]}}
    assert not change.driver_paths
    assert change.body is not None
    assert change.body["metadata"]["resourceVersion"] == "7"
    assert "daemonsets" not in change.body["spec"], "a list that does not change is not taken over"


def test_equal_entries_of_a_foreign_installation_are_not_managed() -> None:
    change = plan_change(policy([GPU, TEAM]), DesiredPolicy(CONFIG, (GPU, TEAM)), seeded=False)
    assert json.loads(change.after["metadata"]["annotations"][NOTE]) == []


def test_nothing_is_sent_when_nothing_differs() -> None:
    live = policy([GPU, THEIRS, TEAM], noted=[TEAM], **CONFIG)
    change = plan_change(live, DesiredPolicy(CONFIG, (GPU, TEAM)), seeded=False)
    assert (change.changed, change.body, change.before, change.after) == (False, None, {}, {})


def test_a_new_toleration_reaches_the_driver_and_can_be_held_back() -> None:
    live = policy([GPU], noted=[])
    expected = DesiredPolicy(CONFIG, (GPU, TEAM))
    change = plan_change(live, expected, seeded=False)
    assert change.driver_paths
    assert change.body is not None
    assert change.body["spec"]["daemonsets"] == {"tolerations": [GPU, TEAM]}
    held = plan_change(live, expected, seeded=False, hold_driver=True)
    assert held.body is not None
    assert held.body["spec"] == CONFIG
    assert not held.driver_paths
    assert json.loads(held.body["metadata"]["annotations"][NOTE]) == []
    assert not plan_change(policy([GPU], noted=[], **CONFIG), expected, seeded=False, hold_driver=True).changed


@pytest.mark.parametrize("listed", [None, []])
@pytest.mark.parametrize("seeded", [False, True])
def test_the_operators_default_toleration_is_no_change(listed: list[Object] | None, seeded: bool) -> None:
    live = policy(listed)
    change = plan_change(live, DesiredPolicy(CONFIG, (GPU,)), seeded=seeded)
    assert change.body is not None
    assert change.body["spec"] == change.after["spec"] == CONFIG
    assert json.loads(change.after["metadata"]["annotations"][NOTE]) == []
    assert not change.driver_paths
    assert policy_tolerations(change.after) == [GPU]
    applied = policy(listed, noted=[], **CONFIG)
    assert not plan_change(applied, DesiredPolicy(CONFIG, (GPU,)), seeded=seeded).changed


def test_a_list_that_replaces_the_operators_default_contains_it() -> None:
    live, expected = policy([]), DesiredPolicy(CONFIG, (GPU, TEAM))
    change = plan_change(live, expected, seeded=False)
    assert change.driver_paths == (("daemonsets", "tolerations"),)
    assert change.body is not None
    assert change.body["spec"]["daemonsets"] == {"tolerations": [GPU, TEAM]}
    # The list was empty, so it is empty again once both entries are removed.
    assert json.loads(change.after["metadata"]["annotations"][NOTE]) == [GPU, TEAM]
    held = plan_change(live, expected, seeded=False, hold_driver=True)
    assert held.body is not None
    assert held.body["spec"] == held.after["spec"] == CONFIG


def test_a_list_once_applied_stays_in_what_is_applied() -> None:
    live = policy([GPU, TEAM, THEIRS], noted=[TEAM], **CONFIG)
    live["metadata"]["managedFields"] = [
        {
            "manager": "accel.gpu",
            "operation": "Apply",
            "fieldsV1": {
                "f:spec": {"f:daemonsets": {"f:tolerations": {}}, "f:devicePlugin": {"f:config": {"f:name": {}}}}
            },
        }
    ]
    change = plan_change(live, DesiredPolicy(CONFIG, (GPU,)), seeded=False)
    assert change.body is not None
    assert change.body["spec"]["daemonsets"]["tolerations"] == [GPU, THEIRS]
    # Held back it is carried along as it is, or the server would take it away.
    held = plan_change(
        live, DesiredPolicy({"devicePlugin": {"config": {"name": "other"}}}, (GPU,)), seeded=False, hold_driver=True
    )
    assert held.body is not None
    assert held.body["spec"]["daemonsets"]["tolerations"] == [GPU, TEAM, THEIRS]
    assert json.loads(held.body["metadata"]["annotations"][NOTE]) == [TEAM]


def test_managed_fields_that_are_no_longer_wanted_are_shown_and_removed() -> None:
    live = policy(
        [GPU], noted=[], devicePlugin={"config": {"name": "accel-gpu-device-plugin", "default": ""}, "image": "x"}
    )
    live["metadata"]["managedFields"] = [
        {
            "manager": "accel.gpu",
            "operation": "Apply",
            "fieldsV1": {"f:spec": {"f:devicePlugin": {"f:config": {"f:name": {}}}}},
        }
    ]
    change = plan_change(live, DesiredPolicy({}, (GPU,)), seeded=False)
    assert change.before["spec"]["devicePlugin"] == {"config": {"name": "accel-gpu-device-plugin"}}
    assert "devicePlugin" not in change.after["spec"]


@pytest.mark.parametrize("text", ["", "no json", '{"a": 1}', "[1, null]"])
def test_a_spoilt_note_claims_nothing(text: str) -> None:
    live = policy([GPU, TEAM])
    live["metadata"]["annotations"] = {NOTE: text}
    change = plan_change(live, DesiredPolicy(CONFIG, (GPU,)), seeded=True)
    assert change.body is not None
    assert "daemonsets" not in change.body["spec"]


MIG = {"config": {"name": "accel-gpu-mig-parted"}}


def test_a_cluster_wide_mig_strategy_is_removed_regardless_of_its_owner() -> None:
    live = policy([GPU], [GPU], mig={"strategy": "single"}, **CONFIG)
    assert not plan_change(live, DesiredPolicy(CONFIG, (GPU,)), seeded=True).changed
    change = plan_change(live, DesiredPolicy({**CONFIG, "migManager": MIG}, (GPU,), mig_by_node=True), seeded=True)
    assert change.removal == {"spec": {"mig": {"strategy": None}}}
    assert change.before["spec"]["mig"] == {"strategy": "single"}
    assert "mig" not in change.after["spec"]
    assert change.after["spec"]["migManager"] == MIG
    assert not change.driver_paths
    gone = policy([GPU], [GPU], mig={}, **CONFIG)
    assert plan_change(gone, DesiredPolicy(CONFIG, (GPU,), mig_by_node=True), seeded=True).removal is None


def test_a_mig_strategy_that_all_pools_declare_stays_for_the_nodes_outside_the_pools() -> None:
    live = policy([GPU], [GPU], mig={"strategy": "mixed"}, **CONFIG)
    uniform, both = frozenset({"mixed"}), frozenset({"mixed", "single"})
    kept = DesiredPolicy(OUR_MIG, (GPU,), mig_by_node=True, adopted=True, mig_strategies=uniform)
    change = plan_change(live, kept, seeded=True)
    assert change.body is not None
    assert change.removal is None
    assert "mig" not in json.loads(change.body["metadata"]["annotations"].get(FORMER, "{}"))
    assert plan_change(live, replace(kept, mig_strategies=both), seeded=True).removal is not None


def test_our_mig_configuration_stays_named_after_the_last_pool_with_mig() -> None:
    live = policy([GPU], [GPU], migManager={**MIG, "enabled": True})
    change = plan_change(live, DesiredPolicy(CONFIG, (GPU,)), seeded=True)
    assert change.body is not None
    assert change.body["spec"]["migManager"] == MIG
    theirs = policy([GPU], [GPU], migManager={"config": {"name": "theirs"}})
    change = plan_change(theirs, DesiredPolicy(CONFIG, (GPU,)), seeded=True)
    assert change.body is not None
    assert "migManager" not in change.body["spec"]


FORMER = "accel.gpu/former"
THEIR_MIG: Object = {
    "mig": {"strategy": "single"},
    "migManager": {"config": {"name": "theirs", "default": "all-disabled"}},
}
OUR_MIG: Object = {**CONFIG, "migManager": {"config": {"name": "accel-gpu-mig-parted"}}}


def test_replaced_values_of_an_adopted_policy_are_recorded() -> None:
    expected = DesiredPolicy(OUR_MIG, (GPU,), mig_by_node=True, adopted=True)
    change = plan_change(policy([GPU], **THEIR_MIG), expected, seeded=False)
    assert change.body is not None
    note = json.loads(change.body["metadata"]["annotations"][FORMER])
    assert note == {"mig": {"strategy": "single"}, "migManager": {"config": {"name": "theirs"}}}


def test_every_changed_field_is_named_for_the_plan() -> None:
    expected = DesiredPolicy(OUR_MIG, (GPU,), mig_by_node=True, adopted=True)
    texts = policy_changes(policy([GPU], **THEIR_MIG), expected)
    title = "ClusterPolicy cluster-policy: "
    assert f'{title}mig.strategy "single" is removed' in texts
    assert f'{title}migManager.config.name "theirs" becomes "accel-gpu-mig-parted"' in texts
    assert any(text.startswith(f"{title}devicePlugin.config.name is set to") for text in texts)
    assert policy_changes(policy([GPU], [GPU], **CONFIG), DesiredPolicy(CONFIG, (GPU,))) == []
    # The tolerations are reported with the pods that they restart.
    assert policy_changes(policy([], None, **CONFIG), DesiredPolicy(CONFIG, (GPU,))) == []


def test_the_record_stays_after_the_managed_value_is_set() -> None:
    live = policy([GPU], **{**THEIR_MIG, **OUR_MIG, "mig": {}})
    noted = {"migManager": {"config": {"name": "theirs"}}}
    live["metadata"]["annotations"][FORMER] = json.dumps(noted)
    change = plan_change(live, DesiredPolicy({}, (GPU, TEAM), adopted=True), seeded=False)
    assert change.body is not None
    assert json.loads(change.body["metadata"]["annotations"][FORMER]) == noted


def test_a_policy_of_our_own_release_needs_no_such_note() -> None:
    change = plan_change(policy([GPU], **THEIR_MIG), DesiredPolicy(OUR_MIG, (GPU,), mig_by_node=True), seeded=False)
    assert change.body is not None
    assert FORMER not in change.body["metadata"]["annotations"]


EXAMPLE: Object = {
    "kind": "ClusterPolicy",
    "metadata": {"name": "gpu-cluster-policy"},
    "spec": {
        "operator": {"use_ocp_driver_toolkit": True},
        "mig": {"strategy": "single"},
        "daemonsets": {"updateStrategy": "RollingUpdate", "tolerations": [THEIRS]},
        "devicePlugin": {"enabled": True, "config": {"name": "", "default": ""}},
    },
}


def test_a_new_policy_is_the_example_with_the_desired_fields() -> None:
    spec = {**CONFIG, "driver": {"version": "580"}}
    created = new_policy(EXAMPLE, DesiredPolicy(spec, (GPU, TEAM), name="x"))
    assert created["metadata"]["name"] == "gpu-cluster-policy"
    assert created["metadata"]["annotations"]["accel.gpu/created"] == "true"
    assert json.loads(created["metadata"]["annotations"][NOTE]) == [GPU, TEAM]
    assert created["spec"]["daemonsets"] == {"updateStrategy": "RollingUpdate", "tolerations": [THEIRS, GPU, TEAM]}
    assert created["spec"]["devicePlugin"] == {"enabled": True, **CONFIG["devicePlugin"]}
    assert created["spec"]["driver"] == {"version": "580"}
    assert created["spec"]["mig"] == {"strategy": "single"}
    by_node = new_policy(EXAMPLE, DesiredPolicy(spec, (GPU,), mig_by_node=True))
    assert by_node["spec"]["mig"] == {}, "a strategy would override the configuration of each node"
    assert EXAMPLE["spec"]["mig"] == {"strategy": "single"}


def test_a_policy_that_was_created_has_the_fields_of_the_variables() -> None:
    values = {"driver": {"version": "580"}, "daemonsets": {"priorityClassName": "p", "tolerations": [THEIRS]}}
    cluster = {"name": "c", "distribution": "openshift", "operator": {"values": values}}
    plan = derive(cluster, {}, [{"name": "p", "match": {"model": "T4"}, "taints": [{"key": "team", "value": "research", "effect": "NoSchedule"}], "sharing": {"mode": "none"}}])  # fmt: skip
    desired = DesiredPolicy.derive(plan, None)
    assert (desired.name, desired.adopted) == ("gpu-cluster-policy", False)
    assert desired.spec["driver"]["version"] == "580"
    assert desired.spec["daemonsets"] == {"priorityClassName": "p"}
    assert desired.tolerations == (GPU, TEAM, THEIRS)
    created, foreign = policy([]), policy([])
    created["metadata"]["annotations"]["accel.gpu/created"] = "true"
    assert DesiredPolicy.derive(plan, created).spec == desired.spec
    assert DesiredPolicy.derive(plan, foreign).spec == plan.policy.spec
    assert DesiredPolicy.derive(plan, foreign).adopted


def test_a_change_that_is_held_back_keeps_what_was_applied() -> None:
    live = policy([GPU], noted=[GPU], driver={"version": "580", "manager": {"x": 1}}, **CONFIG)
    live["metadata"]["managedFields"] = [
        {"manager": "accel.gpu", "operation": "Apply", "fieldsV1": {"f:spec": {"f:driver": {"f:version": {}}}}}
    ]
    desired = DesiredPolicy({"devicePlugin": {"config": {"name": "other"}}, "driver": {"version": "590"}}, (GPU,))
    held = plan_change(live, desired, seeded=False, hold_driver=True)
    assert held.body is not None
    assert held.body["spec"]["driver"] == {"version": "580"}, "an apply without it would remove it"
    assert not held.driver_paths
