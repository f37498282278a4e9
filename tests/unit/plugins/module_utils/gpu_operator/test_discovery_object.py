# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NodeFeatureDiscovery: a new one, and what the pools change in an existing one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.node_feature_discovery import (
    choose_object,
    desired_tolerations,
    has_worker_tolerations,
    new_object,
    plan_discovery,
    unreached_taints,
)
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Plan

Object = dict[str, Any]
YES = {"key": "restrictedaccess", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
THEIRS = {"key": "node-role.kubernetes.io/ai", "operator": "Exists"}
NOTE, CREATED = "accel.gpu/tolerations", "accel.gpu/created"


def planned(*taints: Object, **nfd: Any) -> Plan:
    pool = {"name": "p", "match": {"model": "T4"}, "taints": list(taints), "sharing": {"mode": "none"}}
    return derive({"name": "c", "distribution": "openshift", "nfd": nfd}, {}, [pool])


TAINT = {"key": "restrictedaccess", "value": "yes", "effect": "NoSchedule"}
EVICTING = {"key": "gpu-only", "effect": "NoExecute"}


def live(
    tolerations: list[Object] | None = None, noted: list[Object] | None = None, *, created: bool = False
) -> Object:
    annotations = {} if noted is None else {NOTE: json.dumps(noted, sort_keys=True)}
    if created:
        annotations[CREATED] = "true"
    operand = {"image": "x", **({} if tolerations is None else {"workerTolerations": tolerations})}
    config = planned().nfd.values["workerConfig"] if created else {"configData": "core: {}"}
    return {
        "apiVersion": "nfd.openshift.io/v1",
        "kind": "NodeFeatureDiscovery",
        "metadata": {"name": "nfd-instance", "namespace": "openshift-nfd", "resourceVersion": "7", "annotations": annotations},
        "spec": {"operand": operand, "workerConfig": config},
    }  # fmt: skip


CHANGES: list[tuple[str, Object, Plan, list[Object] | None, list[Object]]] = [
    # what, live, plan -> tolerations to write (None: no change at all), managed entries
    ("no taint", live(), planned(), None, []),
    ("a taint", live(), planned(TAINT), [YES], [YES]),
    ("beside theirs", live([THEIRS]), planned(TAINT), [THEIRS, YES], [YES]),
    ("an equal one of theirs", live([YES], []), planned(TAINT), None, []),
    ("done", live([YES], [YES]), planned(TAINT), None, [YES]),
    ("the taint is taken out", live([THEIRS, YES], [YES]), planned(), [THEIRS], []),
    ("theirs stays", live([THEIRS, YES], []), planned(), None, []),
]


@pytest.mark.parametrize(("before", "plan", "written", "owned"), [case[1:] for case in CHANGES], ids=[case[0] for case in CHANGES])  # fmt: skip
def test_only_our_tolerations_change(
    before: Object, plan: Plan, written: list[Object] | None, owned: list[Object]
) -> None:
    change = plan_discovery(before, plan)
    assert change.changed == (written is not None)
    if change.body is None:
        return
    assert change.body["spec"] == {"operand": {"workerTolerations": written}}, "only the list of a foreign object"
    assert json.loads(change.body["metadata"]["annotations"][NOTE]) == owned
    assert change.body["metadata"]["resourceVersion"] == "7"
    assert change.before["spec"].get("operand", {}).get("workerTolerations") == before["spec"]["operand"].get("workerTolerations")  # fmt: skip


def test_an_object_that_was_created_keeps_the_declared_fields() -> None:
    assert not plan_discovery(live([YES], [YES], created=True), planned(TAINT)).changed
    plan = planned(TAINT, values={"workerConfig": {"configData": "core: {sleepInterval: 5m}"}})
    change = plan_discovery(live([YES], [YES], created=True), plan)
    assert change.body is not None
    assert change.body["spec"]["workerConfig"]["configData"] == "core: {sleepInterval: 5m}"
    assert CREATED in change.body["metadata"]["annotations"]
    assert not plan_discovery(live([YES], [YES]), plan).changed, "a foreign object keeps its configuration"


def test_an_operator_without_the_field_gets_no_tolerations() -> None:
    plan = planned(TAINT, EVICTING)
    assert not plan_discovery(live(), plan, tolerates=False).changed
    assert unreached_taints(plan) == ["gpu-only:NoExecute"], "its workers tolerate every NoSchedule"
    created = new_object(plan, None, _definition("image"))
    assert "operand" not in created.after["spec"]


def test_a_new_object_has_what_the_example_has() -> None:
    example = {
        "kind": "NodeFeatureDiscovery",
        "metadata": {"name": "nfd-instance", "namespace": "elsewhere"},
        "spec": {
            "operand": {"image": "quay.io/x:4.18", "servicePort": 12000},
            "workerConfig": {"configData": "old"},
            "customConfig": {},
        },
    }
    change = new_object(planned(TAINT), example, _definition("image", "servicePort", "workerTolerations"))
    assert change.body is not None
    assert change.body["metadata"]["namespace"] == "openshift-nfd"
    assert "customConfig" not in change.body["spec"], "an example may have fields that the CRD does not have"
    assert change.body["spec"]["operand"] == {
        "image": "quay.io/x:4.18",
        "servicePort": 12000,
        "workerTolerations": [YES],
    }
    assert "deviceLabelFields:" in change.body["spec"]["workerConfig"]["configData"]
    assert new_object(planned(TAINT), None, None).after == change.after, "check mode predicts it without the example"


def _definition(*fields: str) -> Object:
    properties: Object = {"operand": {"properties": {name: {} for name in fields}}, "workerConfig": {}}
    schema = {"openAPIV3Schema": {"properties": {"spec": {"properties": properties}}}}
    return {"spec": {"versions": [{"name": "v1", "schema": schema}]}}


@pytest.mark.parametrize(
    ("definition", "has"),
    [
        (_definition("image", "servicePort"), False),
        (_definition("image", "workerTolerations"), True),
        (None, True),
        ({"spec": {"versions": [{"schema": {}}]}}, True),
    ],
)
def test_has_worker_tolerations(definition: Object | None, has: bool) -> None:
    assert has_worker_tolerations(definition) == has


def test_the_object_of_the_namespace_comes_first() -> None:
    def item(namespace: str, created: str) -> Object:
        return {"metadata": {"name": "nfd-instance", "namespace": namespace, "creationTimestamp": created}}

    mine, old, new = item("openshift-nfd", "2"), item("a", "1"), item("b", "3")
    assert choose_object([old, mine, new], "openshift-nfd") == mine
    assert choose_object([new, old], "openshift-nfd") == old
    assert choose_object([], "openshift-nfd") is None


taints = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from(["a", "b"]), "effect": st.sampled_from(["NoSchedule", "NoExecute"])},
        optional={"value": st.sampled_from(["1", "2"])},
    ),
    max_size=4,
    unique_by=lambda taint: (taint["key"], taint["effect"]),
)


@given(taints, taints, st.booleans())
def test_writing_twice_changes_nothing_and_theirs_stays(
    before: list[Object], after: list[Object], created: bool
) -> None:
    theirs = [THEIRS]
    state = live(theirs, created=created)
    for declared in (before, after):
        change = plan_discovery(state, planned(*declared))
        if change.body is not None:
            state["metadata"]["annotations"].update(change.body["metadata"].get("annotations", {}))
            state["spec"]["operand"].update(change.body["spec"].get("operand", {}))
        assert not plan_discovery(state, planned(*declared)).changed
    written = state["spec"]["operand"]["workerTolerations"]
    assert THEIRS in written
    assert {json.dumps(item, sort_keys=True) for item in written if item != THEIRS} == {
        json.dumps(item, sort_keys=True) for item in desired_tolerations(planned(*after))
    }
