# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the operator's status counts as ready, as a table: each case breaks one condition of a ready cluster."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.readiness import (
    IgnoredNodes,
    assess,
    expected_nodes,
)
from tests.helpers.readiness import EFFECT, Object, Scenario, node, status


def test_everything_seen() -> None:
    verdict = Scenario().verdict()
    assert verdict.ready
    assert (verdict.gpu_nodes, verdict.pods, verdict.untolerated_nodes) == (3, (6, 6), ())


def _false_ready(scenario: Scenario) -> None:
    """As seen at 500 nodes: state ready, while the controller has written no desired count yet."""
    scenario.plugin["status"] = {}


def _desired_lags(scenario: Scenario) -> None:
    scenario.plugin["status"].update(desiredNumberScheduled=1, updatedNumberScheduled=1, numberAvailable=1)


def _old_generation(scenario: Scenario) -> None:
    scenario.plugin["metadata"]["generation"] = 3


def _not_updated(scenario: Scenario) -> None:
    scenario.driver["status"]["updatedNumberScheduled"] = 2


def _unavailable(scenario: Scenario) -> None:
    scenario.driver["status"]["numberAvailable"] = 2


def _stale_tolerations(scenario: Scenario) -> None:
    scenario.driver["spec"]["template"]["spec"]["tolerations"] = []


def _stale_volume(scenario: Scenario) -> None:
    scenario.plugin["spec"]["template"]["spec"]["volumes"] = []


def _no_status(scenario: Scenario) -> None:
    del scenario.policy["status"]


def _error(scenario: Scenario) -> None:
    scenario.policy = status("notReady", error="ReconcileFailed", message="open /host-etc/os-release: no such file")


def _not_ready(scenario: Scenario) -> None:
    scenario.policy["status"]["state"] = "notReady"


def _no_gpu_nodes(scenario: Scenario) -> None:
    scenario.policy = status(reason="NoGPUNodes")


def _nfd_missing(scenario: Scenario) -> None:
    scenario.policy = status(reason="NFDLabelsMissing")
    scenario.nodes = [node("cpu-0", gpu=False)]


def _unlabeled(scenario: Scenario) -> None:
    del scenario.nodes[0]["metadata"]["labels"]["nvidia.com/gpu.present"]


def _none_created(scenario: Scenario) -> None:
    for actual in (scenario.driver, scenario.plugin):
        actual["metadata"]["ownerReferences"] = []


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (_false_ready, "nvidia-device-plugin-daemonset: its controller has not processed the last change"),
        (_desired_lags, "scheduled to 1 nodes so far, but 3 nodes match"),
        (_old_generation, "its controller has not processed the last change"),
        (_not_updated, "nvidia-driver-daemonset: 2 of 3 pods are ready"),
        (_unavailable, "nvidia-driver-daemonset: 2 of 3 pods are ready"),
        (_stale_tolerations, "does not have the policy's tolerations yet"),
        (_stale_volume, "does not mount ConfigMap accel-gpu-device-plugin yet"),
        (_no_status, "has not processed ClusterPolicy cluster-policy yet"),
        (_error, "ReconcileFailed: open /host-etc/os-release: no such file"),
        (_not_ready, "reports state notReady"),
        (_no_gpu_nodes, "has not found any GPU node yet, even though NFD has labeled 3"),
        (_nfd_missing, "NFD has not labeled any node"),
        (_unlabeled, "has not labeled 1 GPU nodes yet: gpu-0"),
        (_none_created, "has not created any of its DaemonSets yet"),
    ],
)
def test_one_thing_is_missing(spoil: Callable[[Scenario], None], text: str) -> None:
    scenario = Scenario()
    spoil(scenario)
    verdict = scenario.verdict()
    assert not verdict.ready
    assert any(text in line for line in verdict.waiting), verdict.waiting


def test_no_gpu_node_is_ready_when_there_is_none() -> None:
    verdict = assess(status(reason="NoGPUNodes"), [], [node("cpu-0", gpu=False)], EFFECT)
    assert verdict.ready
    assert verdict.gpu_nodes == 0


def test_a_node_that_opted_out_is_not_waited_for() -> None:
    scenario = Scenario()
    out = node("gpu-9")
    out["metadata"]["labels"] = {
        "feature.node.kubernetes.io/pci-10de.present": "true",
        "nvidia.com/gpu.deploy.operands": "false",
    }
    scenario.nodes.append(out)
    assert scenario.verdict().ready


def test_a_taint_that_no_operand_tolerates_is_reported_without_a_wait() -> None:
    scenario = Scenario()
    scenario.nodes.append(node("gpu-3", taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}]))
    verdict = scenario.verdict()
    assert verdict.ready
    assert verdict.untolerated_nodes == ("gpu-3",)


@pytest.mark.parametrize("counted", [2, 3], ids=["looked again", "not looked again"])
def test_pods_that_outlive_a_new_taint_may_be_counted_or_not(counted: int) -> None:
    scenario = Scenario()
    scenario.nodes[0]["spec"]["taints"] = [{"key": "team", "value": "x", "effect": "NoSchedule"}]
    for actual in (scenario.driver, scenario.plugin):
        numbers = ("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable")
        actual["status"].update(dict.fromkeys(numbers, counted))
    verdict = scenario.verdict()
    assert verdict.ready
    assert verdict.untolerated_nodes == ("gpu-0",)


def test_a_taint_that_evicts_is_counted() -> None:
    scenario = Scenario()
    scenario.nodes[0]["spec"]["taints"] = [{"key": "team", "value": "x", "effect": "NoExecute"}]
    assert "scheduled to 3 nodes so far, but 2 nodes match" in " ".join(scenario.verdict().waiting)


IN_A_OR_B = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ["plain"]),
        ({"nodeSelector": {"zone": "a"}}, []),
        ({"tolerations": [{"operator": "Exists"}]}, ["plain", "tainted", "cordoned", "drained"]),
        ({"tolerations": [{"key": "team", "value": "x"}]}, ["plain", "tainted"]),
        ({"tolerations": [{"key": "team", "value": "y"}]}, ["plain"]),
        ({"tolerations": [{"key": "team", "operator": "Exists", "effect": "NoExecute"}]}, ["plain"]),
        ({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"zone": "a"}}, ["tainted"]),
        ({"tolerations": [{"operator": "Exists"}], "terms": [IN_A_OR_B]}, ["tainted", "drained"]),
        (
            {
                "tolerations": [{"operator": "Exists"}],
                "terms": [{"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}],
            },
            ["plain", "cordoned"],
        ),
        (
            {
                "tolerations": [{"operator": "Exists"}],
                "terms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["plain"]}]}],
            },
            ["plain"],
        ),
        (
            {
                "tolerations": [{"operator": "Exists"}],
                "terms": [{"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["3"]}]}],
            },
            ["drained"],
        ),
        ({"tolerations": [{"operator": "Exists"}], "terms": [{}]}, []),
    ],
)
def test_where_a_daemon_pod_belongs(spec: Object, expected: list[str]) -> None:
    def made(name: str, labels: Object, *taints: Object) -> Object:
        return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": list(taints)}}

    nodes = [
        made(
            "plain",
            {},
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
            {"key": "x", "effect": "PreferNoSchedule"},
        ),
        made("tainted", {"zone": "a"}, {"key": "team", "value": "x", "effect": "NoSchedule"}),
        made("cordoned", {}, {"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}),
        made("drained", {"zone": "b", "rank": "4"}, {"key": "example.org/out", "effect": "NoExecute"}),
    ]
    pod = dict(spec)
    terms = pod.pop("terms", None)
    if terms is not None:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        pod["affinity"] = {"nodeAffinity": required}
    assert expected_nodes({"spec": {"template": {"spec": pod}}}, nodes) == expected


def _fails_on_one_node(scenario: Scenario) -> None:
    """The driver's pod of gpu-2 fails, and what needs it waits."""
    scenario.policy = status("notReady", error="OperandNotReady", message="states not ready: [state-driver]")
    for actual in (scenario.driver, scenario.plugin):
        actual["status"]["numberAvailable"] = 2


ASIDE = IgnoredNodes(
    {"gpu-2": "pod nvidia-driver-x: CrashLoopBackOff"},
    {"nvidia-driver-daemonset": {"gpu-2"}, "nvidia-device-plugin-daemonset": {"gpu-2"}},
)


@pytest.mark.parametrize(
    ("spoil", "ready"),
    [
        (lambda scenario: None, True),
        # A second node is not ready and not quarantined.
        (lambda scenario: scenario.plugin["status"].update(numberAvailable=1), False),
        (lambda scenario: scenario.driver["status"].update(observedGeneration=1), False),
        (lambda scenario: scenario.driver["status"].update(updatedNumberScheduled=2), False),
        # The operator itself is in trouble.
        (lambda scenario: setattr(scenario, "policy", status("notReady", error="ReconcileFailed", message="x")), False),
    ],
)
def test_a_node_that_is_set_aside_is_not_waited_for(spoil: Callable[[Scenario], t.Any], ready: bool) -> None:
    scenario = Scenario()
    _fails_on_one_node(scenario)
    assert not scenario.verdict().ready
    spoil(scenario)
    actual = assess(scenario.policy, [scenario.driver, scenario.plugin], scenario.nodes, EFFECT, None, ASIDE)
    assert actual.ready is ready, actual.waiting
    assert actual.ignored_nodes == ASIDE.reasons


def test_a_driver_upgrade_that_failed_on_a_node_that_is_set_aside_halts_nothing() -> None:
    scenario = Scenario()
    _fails_on_one_node(scenario)
    scenario.nodes[2]["metadata"]["labels"]["nvidia.com/gpu-driver-upgrade-state"] = "upgrade-failed"
    actual = assess(scenario.policy, [scenario.driver, scenario.plugin], scenario.nodes, EFFECT, None, ASIDE)
    assert actual.ready, actual.waiting


@pytest.mark.parametrize(
    ("state", "reason", "ready"),
    [
        ("notReady", "DriverNotReady", True),
        ("notReady", "", True),
        ("notReady", "ReconcileFailed", False),
        ("", "", False),
    ],
)
def test_a_driver_object_that_is_not_ready_because_of_a_node_that_is_set_aside(
    state: str, reason: str, ready: bool
) -> None:
    scenario = Scenario()
    _fails_on_one_node(scenario)
    scenario.policy["spec"] = {"driver": {"useNvidiaDriverCRD": True}}
    error = {"type": "Error", "status": "True" if reason else "False", "reason": reason}
    driver = {"metadata": {"name": "all"}, "spec": {}, "status": {"state": state, "conditions": [error]}}
    daemonsets = [scenario.driver, scenario.plugin]
    actual = assess(scenario.policy, daemonsets, scenario.nodes, EFFECT, None, ASIDE, [driver])
    assert actual.ready is ready, actual.waiting
    scenario.plugin["status"]["numberAvailable"] = 1
    assert "NVIDIADriver all" in str(
        assess(scenario.policy, daemonsets, scenario.nodes, EFFECT, None, ASIDE, [driver]).waiting
    )


def test_nodes_that_the_object_of_their_pool_does_not_select() -> None:
    scenario = Scenario()
    scenario.policy["spec"] = {"driver": {"useNvidiaDriverCRD": True}}
    for item in scenario.nodes[:2]:
        item["metadata"]["labels"]["accel.gpu/pool"] = "train"
    driver = {
        "metadata": {"name": "accel-gpu-train", "labels": {"app.kubernetes.io/managed-by": "accel.gpu"}},
        "spec": {"nodeSelector": {"accel.gpu/pool": "train", "rack": "x"}},
        "status": {"state": "ready"},
    }
    waiting = assess(scenario.policy, [scenario.driver], scenario.nodes, EFFECT, drivers=[driver]).waiting
    lines = [line for line in waiting if "NVIDIADriver" in line]
    assert lines[0].startswith(
        "NVIDIADriver accel-gpu-train does not select gpu-0, gpu-1 of its pool, because they do not match"
    )
    assert "spec.nodeSelector (rack: x)" in lines[0]
    # The third node belongs to no pool.
    assert lines[1].startswith(
        "no NVIDIADriver selects node gpu-2, so the operator installs no driver there: declare a pool"
    )
    foreign = {**driver, "metadata": {"name": "x"}}
    waiting = assess(scenario.policy, [scenario.driver], scenario.nodes, EFFECT, drivers=[foreign]).waiting
    assert any(line.startswith("no NVIDIADriver selects 3 nodes, gpu-0, gpu-1, gpu-2") for line in waiting)
