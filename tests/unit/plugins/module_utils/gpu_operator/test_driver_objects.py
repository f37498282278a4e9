# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVIDIADriver objects of the pools: which change, on which nodes the driver restarts, what stays, and what is rejected."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.cluster_policy import driver_of_nodes
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.driver_objects import (
    DEFAULT_NAME,
    DriverObjects,
    object_name,
    plan_driver_objects,
    recorded_driver,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node, parse_node
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Plan

Object = dict[str, Any]

GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
TEAM = {"key": "team", "operator": "Equal", "value": "x", "effect": "NoSchedule"}
TAINT = {"key": "restricted", "value": "yes", "effect": "NoSchedule"}
A100 = {"name": "a100", "match": {"labels": {"rack": "a"}}}
B200 = {"name": "b200", "match": {"labels": {"rack": "b"}}}


def plan(*pools: Object, version: str = "v25.10.1") -> Plan:
    return derive({"name": "lab", "operator": {"version": version}}, {}, list(pools))


def policy(switched: bool = True, release: str = "v25.10.1", **driver: Any) -> Object:
    return {
        "metadata": {"name": "cluster-policy", "labels": {"app.kubernetes.io/version": release}},
        "spec": {
            "daemonsets": {"tolerations": [GPU, TEAM]},
            "driver": {
                "version": "580.105.08",
                "repository": "nvcr.io/nvidia",
                "image": "driver",
                "usePrecompiled": False,
                "useNvidiaDriverCRD": switched,
                **driver,
            },
        },
    }


def node(name: str, rack: str = "", pool: str = "", **labels: str) -> Node:
    own = {
        "rack": rack,
        "accel.gpu/pool": pool,
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.deploy.driver": "true",
    }
    return parse_node({"metadata": {"name": name, "labels": {**{k: v for k, v in own.items() if v}, **labels}}})


NODES = [node("a-1", "a", "a100"), node("a-2", "a", "a100"), node("b-1", "b", "b200")]
DRIVER_570, DRIVER_575 = {"driver": {"version": "570.148.08"}}, {"driver": {"version": "575.57.08"}}


def applied(actual: DriverObjects, live: list[Object] | None = None) -> list[Object]:
    """The objects after the changes, as the server keeps them."""
    objects = {item["metadata"]["name"]: item for item in live or []}
    for change in actual.changes:
        item = copy.deepcopy(change.body)
        fields: Object = {"f:spec": {f"f:{key}": {} for key in item["spec"]}}
        item["metadata"]["managedFields"] = [{"manager": "accel.gpu", "operation": "Apply", "fieldsV1": fields}]
        objects[change.name] = item
    return list(objects.values())


def test_silence_changes_nothing() -> None:
    for switched in (False, True):
        actual = plan_driver_objects(plan(A100, B200), policy(switched), [], NODES)
        assert (actual.changes, actual.label_edits, actual.problems, actual.notes) == ((), (), (), ())


def test_one_object_for_each_pool_and_a_second_run_changes_nothing() -> None:
    declared = plan({**A100, **DRIVER_570}, B200)
    actual = plan_driver_objects(declared, policy(switched=False), [], NODES)
    bodies = {change.name: change.body["spec"] for change in actual.changes}
    assert {name: spec["version"] for name, spec in bodies.items()} == {
        "accel-gpu-a100": "570.148.08",
        "accel-gpu-b200": "580.105.08",
    }
    assert bodies["accel-gpu-a100"] == {
        "driverType": "gpu",
        "repository": "nvcr.io/nvidia",
        "image": "driver",
        "version": "570.148.08",
        "usePrecompiled": False,
        "nodeSelector": {"accel.gpu/pool": "a100"},
        "tolerations": [TEAM],
    }
    # The switch of the ClusterPolicy restarts the driver, and is counted there.
    assert actual.rolled_nodes == frozenset()
    assert not plan_driver_objects(declared, policy(), applied(actual), NODES).changes


def test_a_change_rolls_only_its_pool() -> None:
    live = applied(plan_driver_objects(plan({**A100, **DRIVER_570}, B200), policy(), [], NODES))
    actual = plan_driver_objects(plan({**A100, **DRIVER_575}, B200), policy(), live, NODES)
    assert [change.name for change in actual.changes] == ["accel-gpu-a100"]
    assert actual.rolled_nodes == {"a-1", "a-2"}
    assert actual.reasons == ("version 570.148.08 becomes 575.57.08 in NVIDIADriver accel-gpu-a100",)
    assert actual.nodes_by_owner() == {"accel-gpu-a100": 2}
    assert actual.without_rolled().changes == ()


def test_a_taint_reaches_the_driver_of_its_pool_only() -> None:
    live = applied(plan_driver_objects(plan({**A100, **DRIVER_570}, B200), policy(), [], NODES))
    actual = plan_driver_objects(plan({**A100, **DRIVER_570}, {**B200, "taints": [TAINT]}), policy(), live, NODES)
    assert actual.rolled_nodes == {"b-1"}
    assert actual.reasons == ("tolerations in NVIDIADriver accel-gpu-b200",)


def test_a_removed_taint_stays_tolerated_while_a_node_has_it() -> None:
    """The driver pod of the node could not be replaced, and the operator would upgrade no driver any longer."""
    live = applied(plan_driver_objects(plan({**A100, **DRIVER_570, "taints": [TAINT]}, B200), policy(), [], NODES))
    removed = plan({**A100, **DRIVER_570}, B200)
    tainted = [dataclasses.replace(each, taints=(TAINT,)) if each.name == "a-2" else each for each in NODES]
    assert not plan_driver_objects(removed, policy(), live, tainted).changes
    elsewhere = [dataclasses.replace(each, taints=(TAINT,)) if each.name == "b-1" else each for each in NODES]
    for nodes in (elsewhere, NODES):
        assert plan_driver_objects(removed, policy(), live, nodes).rolled_nodes == {"a-1", "a-2"}


def test_a_new_object_keeps_the_tolerations_that_its_nodes_had_from_the_policy() -> None:
    toleration = {"key": "restricted", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
    declared = plan({**A100, **DRIVER_570})
    kept = dataclasses.replace(declared, policy=dataclasses.replace(declared.policy, kept_tolerations=(toleration,)))
    tainted = [dataclasses.replace(each, taints=(TAINT,)) if each.name == "a-2" else each for each in NODES]
    (change,) = plan_driver_objects(kept, policy(), [], tainted).changes
    assert toleration in change.body["spec"]["tolerations"]
    (change,) = plan_driver_objects(kept, policy(), [], NODES).changes
    assert toleration not in change.body["spec"]["tolerations"]


def test_the_pace_of_an_upgrade_rolls_nothing() -> None:
    v26: Object = {"version": "v26.7.0"}
    slow = {"driver": {"version": "570.148.08", "upgrade": {"max_parallel": 1}}}
    fast = {"driver": {"version": "570.148.08", "upgrade": {"max_parallel": 3}}}
    live = applied(plan_driver_objects(plan({**A100, **slow}, **v26), policy(), [], NODES))
    actual = plan_driver_objects(plan({**A100, **fast}, **v26), policy(), live, NODES)
    assert [change.body["spec"]["upgradePolicy"] for change in actual.changes] == [{"maxParallelUpgrades": 3}]
    assert not actual.rolled_nodes


def test_a_pool_without_its_driver_keeps_it_and_says_so() -> None:
    live = applied(plan_driver_objects(plan({**A100, **DRIVER_570}, B200), policy(), [], NODES))
    actual = plan_driver_objects(plan(A100, B200), policy(), live, NODES)
    assert not actual.changes
    assert (
        "Pool a100 no longer declares its driver; its nodes keep the driver of NVIDIADriver accel-gpu-a100"
        in actual.notes[0]
    )
    # A pool that never declared one follows the ClusterPolicy.
    moved = plan_driver_objects(plan(A100, B200), policy(version="590.10.01"), live, NODES)
    assert moved.rolled_nodes == {"b-1"}
    # An empty driver is a declaration: that of the ClusterPolicy.
    assert plan_driver_objects(plan({**A100, "driver": {}}, B200), policy(), live, NODES).rolled_nodes == {"a-1", "a-2"}


def test_the_object_of_a_removed_pool_stays() -> None:
    live = applied(plan_driver_objects(plan({**A100, **DRIVER_570}, B200), policy(), [], NODES))
    actual = plan_driver_objects(plan(B200), policy(), live, NODES)
    assert not actual.changes
    assert actual.notes[0].startswith(
        "NVIDIADriver accel-gpu-a100 belongs to no declared pool; its nodes keep their driver"
    )
    assert "a-1, a-2" in actual.notes[0]


def test_nodes_get_the_label_of_their_pool_first() -> None:
    nodes = [node("a-1", "a"), node("b-1", "b", "b200"), node("cpu-1", "", "", **{"nvidia.com/gpu.present": "false"})]
    actual = plan_driver_objects(plan({**A100, **DRIVER_570}, B200), policy(), [], nodes)
    assert [(edit.name, edit.labels) for edit in actual.label_edits] == [("a-1", {"accel.gpu/pool": "a100"})]


def test_the_first_driver_of_a_pool_replaces_all_drivers_at_the_pace_of_the_release() -> None:
    nodes = [node(f"n-{number}", "a" if number < 15 else "", "a100" if number < 15 else "") for number in range(20)]
    slow = policy(False, upgradePolicy={"autoUpgrade": True, "maxParallelUpgrades": 1})
    old = plan_driver_objects(plan({**A100, **DRIVER_570}), slow, [], nodes)
    rollout = old.switch(slow["spec"], 20, ["the switch"])
    assert rollout.max_parallel == 20
    assert "on 20 nodes, at the same time: the switch" in str(rollout)
    # Since v26.7 each object replaces the drivers of its nodes according to its own policy: the pool's, and the default one.
    slow["metadata"]["labels"]["app.kubernetes.io/version"] = "v26.7.0"
    declared = {"driver": {"version": "570.148.08", "upgrade": {"max_parallel": 2}}}
    new = plan_driver_objects(plan({**A100, **declared}, version="v26.7.0"), slow, [], nodes)
    rollout = new.switch(slow["spec"], 20, ["the switch"])
    assert rollout.max_parallel == 3
    assert rollout.announcement == (
        "The driver restarts on 20 nodes, at most 3 at a time: the switch. GPU pods are evicted from each node first."
    )
    # Objects that exist already, and do not change, have their policies, too.
    live = applied(new)
    again = plan_driver_objects(plan({**A100, **declared}, version="v26.7.0"), slow, live, nodes)
    assert not again.changes
    assert again.switch(slow["spec"], 20, []).max_parallel == 3


FOREIGN = {"metadata": {"name": "default"}, "spec": {"version": "580.105.08"}}
CHART = {"meta.helm.sh/release-name": "gpu-operator", "meta.helm.sh/release-namespace": "gpu-operator"}


def test_a_foreign_object_for_the_same_nodes_is_refused_and_any_other_stays() -> None:
    declared = plan({**A100, **DRIVER_570}, B200)
    problem = plan_driver_objects(declared, policy(), [FOREIGN], NODES).problems[0]
    assert problem.startswith("NVIDIADriver default selects nodes of pool a100 and b200")
    by_chart = {
        **FOREIGN,
        "metadata": {"name": "default", "labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": CHART},
    }
    assert "deployDefaultCR: false" in plan_driver_objects(declared, policy(), [by_chart], NODES).problems[0]
    other = {**FOREIGN, "spec": {"nodeSelector": {"rack": "c"}}}
    actual = plan_driver_objects(declared, policy(), [other], NODES)
    assert not actual.problems
    assert "default" not in {change.name for change in actual.changes}


def test_a_foreign_object_with_the_name_of_a_required_one_is_refused() -> None:
    declared = plan({**A100, **DRIVER_570}, B200, version="v26.7.0")
    v26 = policy(release="v26.7.0")
    foreign = {"metadata": {"name": "accel-gpu-a100"}, "spec": {"nodeSelector": {"rack": "x"}, "version": "1"}}
    actual = plan_driver_objects(declared, v26, [foreign], NODES)
    assert actual.problems == (
        "NVIDIADriver accel-gpu-a100 was not created by this collection, but pool a100 needs its name. Delete this object, and create it again under another "
        "name if other nodes need it; or hand it over to this collection: kubectl label --overwrite nvidiadriver accel-gpu-a100 "
        "app.kubernetes.io/managed-by=accel.gpu",
    )
    assert "accel-gpu-a100" not in {change.name for change in actual.changes}
    default: Object = {"metadata": {"name": DEFAULT_NAME}, "spec": {"nodeSelector": {"rack": "x"}, "default": False}}
    actual = plan_driver_objects(declared, v26, [default], NODES)
    assert actual.problems[0].startswith(
        f"NVIDIADriver {DEFAULT_NAME} was not created by this collection, but the default"
    )
    assert len(actual.problems) == 1
    assert DEFAULT_NAME not in {change.name for change in actual.changes}
    # A foreign default object of that name is as good as one of another name.
    default["spec"]["default"] = True
    actual = plan_driver_objects(declared, v26, [default], NODES)
    assert not actual.problems
    assert DEFAULT_NAME not in {change.name for change in actual.changes}
    # An object that is handed over is corrected as a managed one.
    handed = {
        **foreign,
        "metadata": {"name": "accel-gpu-a100", "labels": {"app.kubernetes.io/managed-by": "accel.gpu"}},
    }
    actual = plan_driver_objects(declared, v26, [handed], NODES)
    assert not actual.problems
    change = next(change for change in actual.changes if change.name == "accel-gpu-a100")
    assert not change.is_new
    assert change.correction["spec"] == {"nodeSelector": {"rack": None}}


def test_foreign_keys_of_a_selector_are_removed() -> None:
    declared = plan({**A100, **DRIVER_570}, B200)
    live = applied(plan_driver_objects(declared, policy(), [], NODES))
    live[0]["spec"]["nodeSelector"]["rack"] = "a"
    live[0]["metadata"]["resourceVersion"] = "7"
    actual = plan_driver_objects(declared, policy(), live, NODES)
    assert [change.name for change in actual.changes] == ["accel-gpu-a100"]
    change = actual.changes[0]
    assert change.correction == {"metadata": {"resourceVersion": "7"}, "spec": {"nodeSelector": {"rack": None}}}
    assert change.before["spec"]["nodeSelector"] == {"accel.gpu/pool": "a100", "rack": "a"}
    assert change.after["spec"]["nodeSelector"] == {"accel.gpu/pool": "a100"}
    # The nodes of the pool match the foreign key, so their driver pods restart with the template.
    assert actual.rolled_nodes == {"a-1", "a-2"}
    assert actual.reasons == ("nodeSelector.rack in NVIDIADriver accel-gpu-a100",)
    # Without a driver, nothing restarts.
    live[0]["spec"]["nodeSelector"]["rack"] = "x"
    actual = plan_driver_objects(declared, policy(), live, NODES)
    assert [change.name for change in actual.changes] == ["accel-gpu-a100"]
    assert not actual.rolled_nodes
    # The driver of the default object is replaced.
    default = {"metadata": {"name": "other"}, "spec": {"default": True}}
    assert plan_driver_objects(declared, policy(), [*live, default], NODES).rolled_nodes == {"a-1", "a-2"}


def test_what_was_created_without_an_apply_is_applied_before_a_change() -> None:
    declared = plan({**A100, "driver": {"version": "570.148.08", "secret_env": "s"}}, B200)
    live = applied(plan_driver_objects(declared, policy(), [], NODES))
    for item in live:
        item["metadata"]["managedFields"][0]["operation"] = "Update"
    assert not plan_driver_objects(declared, policy(), live, NODES).changes
    actual = plan_driver_objects(plan({**A100, **DRIVER_570}, B200), policy(), live, NODES)
    change = actual.changes[0]
    assert "secretEnv" not in change.after["spec"]
    assert [entry["operation"] for entry in change.correction["metadata"]["managedFields"]] == ["Apply"]
    assert "spec" not in change.correction


def test_nodes_that_would_lose_their_driver_prevent_the_switch() -> None:
    stray = node("c-1", "c")
    declared = plan({**A100, **DRIVER_570}, B200)
    actual = plan_driver_objects(declared, policy(switched=False), [], [*NODES, stray])
    assert "c-1: no NVIDIADriver would select" in actual.problems[0]
    host = node("c-1", "c", **{"nvidia.com/gpu.deploy.driver": "pre-installed"})
    assert not plan_driver_objects(declared, policy(switched=False), [], [*NODES, host]).problems
    # From v26.7 on, a default object has them.
    new = plan({**A100, **DRIVER_570}, B200, version="v26.7.0")
    actual = plan_driver_objects(new, policy(False, release="v26.7.0"), [], [*NODES, stray])
    assert not actual.problems
    default = next(change for change in actual.changes if change.name == DEFAULT_NAME)
    assert default.body["spec"]["default"] is True
    assert "nodeSelector" not in default.body["spec"]


PROBLEMS: list[tuple[Object, Object, str]] = [
    (
        {"precompiled": True, "version": "580"},
        {},
        "usePrecompiled of NVIDIADriver accel-gpu-a100 cannot change from false to true",
    ),
    (
        {"type": "vgpu", "repository": "registry.example.com/x"},
        {},
        "driverType of NVIDIADriver accel-gpu-a100 cannot change",
    ),
    ({}, {"version": None}, "neither its driver nor the ClusterPolicy has a version"),
]


@pytest.mark.parametrize(("driver", "of_policy", "problem"), PROBLEMS)
def test_what_the_operator_would_refuse(driver: Object, of_policy: Object, problem: str) -> None:
    live = applied(plan_driver_objects(plan({**A100, **DRIVER_570}), policy(), [], NODES[:2]))
    actual = plan_driver_objects(plan({**A100, "driver": driver}), policy(**of_policy), live, NODES[:2])
    assert problem in "\n".join(actual.problems)


def test_precompiled_drivers_exclude_gpudirect_storage() -> None:
    live = policy()
    live["spec"]["gds"] = {"enabled": True, "version": "2.26.6"}
    actual = plan_driver_objects(plan({**A100, "driver": {"precompiled": True, "version": "580"}}), live, [], NODES[:2])
    assert "refuses GPUDirect Storage and GDRCopy with a precompiled driver" in actual.problems[0]


@given(st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=63))
def test_names_of_objects_are_values_of_labels(pool: str) -> None:
    assert len(object_name(pool)) <= 63
    assert object_name(pool) != DEFAULT_NAME


@given(
    st.lists(st.sampled_from(["", "570.148.08", "575.57.08"]), min_size=1, max_size=4),
    st.lists(st.integers(0, 5), max_size=12),
)
def test_objects_never_overlap_and_cover_every_node_of_a_pool(versions: list[str], racks: list[int]) -> None:
    pools = [
        {
            "name": f"p{index}",
            "match": {"labels": {"rack": str(index)}},
            **({"driver": {"version": version}} if version else {}),
        }
        for index, version in enumerate(versions)
    ]
    nodes = [
        node(f"n{number}", str(rack), f"p{rack}" if rack < len(pools) else "") for number, rack in enumerate(racks)
    ]
    actual = plan_driver_objects(plan(*pools), policy(), [], nodes)
    live = applied(actual)
    if not any(versions):
        assert not live
        return
    selecting = driver_of_nodes(live, [(item.name, item.labels) for item in nodes])
    for item in nodes:
        pool = item.labels.get("accel.gpu/pool")
        assert selecting[item.name] == ([object_name(pool)] if pool else [])
    assert {item["metadata"]["name"]: recorded_driver(item) for item in live} == {
        object_name(f"p{index}"): {"version": version} if version else None for index, version in enumerate(versions)
    }
