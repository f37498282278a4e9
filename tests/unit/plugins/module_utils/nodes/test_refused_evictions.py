# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The evictions that PodDisruptionBudgets refuse at the moment are named before a run."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.operands import DRIVER
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.nodes.impact import (
    OperandRestart,
    RunningPods,
    describe_refused,
    evictions_by_operator,
    refused_evictions,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import classify_pods, parse_pods
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Membership
from ansible_collections.accel.gpu.plugins.module_utils.report.facts import impact_lines
from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import (
    ChangePlan,
    ConfigMaps,
    plan_sharing_changes,
)
from ansible_collections.accel.gpu.plugins.module_utils.sharing.operation import read_refused_evictions
from tests.helpers.fleet import node, pod

Object = dict[str, Any]
READY = [{"type": "Ready", "status": "True"}]


def web(phase: str = "Running", ready: bool = True, deleting: bool = False, labels: Object | None = None) -> Object:
    actual = pod("web-0", "n1", phase, {"nvidia.com/gpu": 1}, conditions=READY if ready else [])
    actual["metadata"]["labels"] = {"app": "web", **(labels or {})}
    actual["metadata"]["ownerReferences"] = [{"kind": "StatefulSet", "name": "web", "controller": True}]
    if deleting:
        actual["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return actual


def budget(
    name: str = "web", allowed: int = 0, healthy: int = 1, needed: int = 1, namespace: str = "default", **spec: Any
) -> Object:
    spec = {"selector": {"matchLabels": {"app": "web"}}, **spec}
    status = {"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": needed}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": status}


NEEDED = "needs 1 healthy pod and has 1"
TWO = "more than one PodDisruptionBudget selects it, so it can never be evicted"


@pytest.mark.parametrize(
    ("one", "budgets", "reason"),
    [
        (web(), [], ""),
        (web(), [budget()], NEEDED),
        (web(), [budget(allowed=1)], ""),
        (web(), [budget(namespace="other")], ""),
        (web(), [budget(selector={})], NEEDED),
        (web(), [budget(selector=None)], ""),
        (web(), [budget(selector={"matchLabels": {"app": "db"}})], ""),
        (web(), [budget(selector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]})], NEEDED),
        (web(), [budget(selector={"matchExpressions": [{"key": "tier", "operator": "Exists"}]})], ""),
        # Its controller has not seen it yet.
        (web(), [{**budget(), "status": {}}], "needs 0 healthy pods and has 0"),
        (web(), [budget(allowed=1), budget("all", allowed=1, selector={})], TWO),
        # No budget applies to these pods.
        (web("Pending", ready=False), [budget()], ""),
        (web(deleting=True), [budget()], ""),
        # A pod that is not ready may be evicted while enough others are healthy, or if the budget allows it always.
        (web(ready=False), [budget()], ""),
        (web(ready=False), [budget(healthy=0)], "needs 1 healthy pod and has 0"),
        (web(ready=False), [budget(healthy=0, unhealthyPodEvictionPolicy="AlwaysAllow")], ""),
    ],
)
def test_a_budget_refuses_an_eviction_as_the_api_server_would(one: Object, budgets: list[Object], reason: str) -> None:
    refused = refused_evictions(parse_pods([one]), budgets)
    assert [each.reason for each in refused] == ([reason] if reason else [])
    if refused:
        assert (refused[0].pod, refused[0].node) == ("default/web-0", "n1")
        assert f"default/web-0 on n1 (default/{budgets[-1]['metadata']['name']}" in describe_refused(
            [each.as_dict() for each in refused]
        ).replace("default/web and default/all", "default/all")


def changes(sharing: Object, *pods: Object) -> ChangePlan:
    pool = {"name": "a", "match": {"model": "NVIDIA-A100-SXM4-40GB"}, "sharing": sharing}
    by_node = classify_pods(parse_pods(pods, operator_namespace="gpu-operator"))
    members = [node(model="NVIDIA-A100-SXM4-40GB", labels={"nvidia.com/mig.capable": "true"})]
    plan = derive({"name": "lab"}, {}, [pool])
    return plan_sharing_changes(plan, members, Membership(by_pool={"a": ["n1"]}), ConfigMaps(), pods=by_node)


class Lister:
    """Returns budgets, or refuses to, and counts the requests."""

    def __init__(self, *budgets: Object, status: int = 0) -> None:
        self.budgets, self.status, self.paths = budgets, status, list[str]()

    def list_known(self, path: str) -> tuple[Object, ...]:
        self.paths.append(path)
        if self.status:
            raise ApiError("poddisruptionbudgets.policy is forbidden", status=self.status)
        return self.budgets


MIG: Object = {"mode": "mig", "layout": {"1g.5gb": 7}}


def test_budgets_are_read_only_if_pods_are_evicted() -> None:
    lister = Lister(budget())
    for plan in (
        changes(MIG),
        changes({"mode": "none"}, web()),
        changes({"mode": "time-slicing", "replicas": 2}, web()),
    ):
        assert read_refused_evictions(cast("Any", lister), plan) == ([], [])
    assert lister.paths == []
    refused, (text,) = read_refused_evictions(cast("Any", lister), changes(MIG, web()))
    assert lister.paths == ["/apis/policy/v1/poddisruptionbudgets"]
    assert refused == [{"pod": "default/web-0", "node": "n1", "budgets": ["default/web"], "reason": NEEDED}]
    assert text.startswith(
        "1 pod to evict is protected by a PodDisruptionBudget that allows no eviction now: default/web-0"
    )
    assert "rollout.drain_timeout" in text


def test_a_missing_permission_is_a_note() -> None:
    refused, (text,) = read_refused_evictions(cast("Any", Lister(status=403)), changes(MIG, web()))
    assert (refused, "not allowed to list PodDisruptionBudgets" in text) == ([], True)
    with pytest.raises(ApiError):
        read_refused_evictions(cast("Any", Lister(status=500)), changes(MIG, web()))


def test_the_plan_shows_them() -> None:
    refused, dummy = read_refused_evictions(cast("Any", Lister(budget())), changes(MIG, web()))
    total = {"release": None, "upgrade": None, "refused_evictions": refused}
    counts = dict.fromkeys(("driver_restarts", "pods", "operand_pods", "repartitioned_nodes", "resets"), 0)
    info = {"impact": {**total, **counts}, "pools": {}, "released": [], "steps": {}}
    text = " ".join(" ".join(impact_lines(info, 100)).split())
    assert "BUDGETS: 1 pod to evict is protected" in text


WHOLE: Object = {"mode": "none"}


@pytest.mark.parametrize(
    ("restart", "apps", "pod", "evicted"),
    [
        (OperandRestart(), [DRIVER], web(), False),
        (OperandRestart(apps=frozenset({DRIVER})), [DRIVER], web(), True),
        (OperandRestart(every=True), [DRIVER], web(), True),
        # Only the NVIDIADriver object of another node changes.
        (OperandRestart(driver_nodes=frozenset({"n2"})), [DRIVER], web(), False),
        (OperandRestart(driver_nodes=frozenset({"n1"})), [DRIVER], web(), True),
        # The driver stays loaded, or is part of the node's image.
        (OperandRestart(every=True, in_place=True), [DRIVER], web(), False),
        (OperandRestart(every=True), ["nvidia-device-plugin-daemonset"], web(), False),
    ],
)
def test_the_pods_that_the_operator_evicts_before_it_replaces_the_driver(
    restart: OperandRestart, apps: list[str], pod: Object, evicted: bool
) -> None:
    pods = classify_pods(parse_pods([pod], operator_namespace="gpu-operator")).gpu_pods
    by_operator = evictions_by_operator(restart, RunningPods({"n1": apps}, pods))
    assert list(by_operator) == (["n1"] if evicted else [])
    lister = Lister(budget())
    refused, texts = read_refused_evictions(cast("Any", lister), changes(WHOLE), by_operator)
    assert len(refused) == len(lister.paths) == int(evicted)
    for each, text in zip(refused, texts, strict=True):
        assert (each["pod"], each["by"]) == ("default/web-0", "operator")
        assert "podDeletion.timeoutSeconds" in text
        assert "rollout.drain_timeout" not in text


def test_a_pod_that_the_operator_and_a_run_evict_is_named_once() -> None:
    pods = classify_pods(parse_pods([web()], operator_namespace="gpu-operator")).gpu_pods
    by_operator = evictions_by_operator(OperandRestart(every=True), RunningPods({"n1": [DRIVER]}, pods))
    refused, dummy = read_refused_evictions(cast("Any", Lister(budget())), changes(MIG, web()), by_operator)
    assert [(each["pod"], each["by"]) for each in refused] == [("default/web-0", "operator")]
