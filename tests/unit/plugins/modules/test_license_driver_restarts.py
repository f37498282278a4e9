# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module license_rotation with restart_drivers: which nodes are drained, in which order, and what stops it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import PartialFailure
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import LeaseLost
from ansible_collections.accel.gpu.plugins.module_utils.licensing.container import RestartBlocked
from ansible_collections.accel.gpu.plugins.module_utils.licensing.diagnosis import TOKEN_PATH
from tests.helpers.driver_restarts import CLIENT, NEW, NOTE, changes_of, gpu_pod, passing_time
from tests.helpers.driver_restarts import restart_module as module


@pytest.fixture(autouse=True)
def no_pause() -> Iterator[None]:
    """Let the time of a drain pass without waiting."""
    with passing_time():
        yield


def test_each_node_is_drained_before_its_driver_restarts() -> None:
    actual = module()
    actual.add(gpu_pod("a", "n0"), gpu_pod("b", "n1"))
    result = actual.work()["license_rotation"]
    assert (result["rotated"], result["restarted"], result["evicted"]) == (
        ["n0", "n1"],
        ["n0", "n1"],
        ["team/a", "team/b"],
    )
    assert actual.requests == [
        request
        for node, pod in (("n0", "a"), ("n1", "b"))
        for request in (f"patch {node}", f"evict {pod}", f"delete driver-{node}", f"patch {node}")
    ]
    assert actual.cordons() == {}
    assert {each.loaded[TOKEN_PATH] for each in actual.containers.by_node.values()} == {NEW.encode()}
    actual.requests.clear()
    assert not actual.work()["changed"]
    assert actual.requests == []


def test_check_mode_names_the_nodes_and_pods() -> None:
    actual = module(check_mode=True)
    actual.add(gpu_pod("a", "n0"))
    result = actual.work()
    assert (result["license_rotation"]["restarted"], result["license_rotation"]["evicted"]) == (
        ["n0", "n1"],
        ["team/a"],
    )
    assert result["diff"]["before"]["n0"]["pods"] == ["team/a"]
    assert (result["diff"]["after"]["n0"]["pods"], result["diff"]["after"]["n0"]["driver_pod"]) == (
        "evicted",
        "restarted",
    )
    assert "pods" not in result["diff"]["before"]["n1"]
    assert actual.requests == []


def test_without_the_option_no_pod_is_evicted() -> None:
    actual = module(params={"restart_drivers": False})
    actual.add(gpu_pod("a", "n0", owner=""), gpu_pod("b", "n1"))
    assert actual.work()["license_rotation"]["restarted"] == []
    assert sorted(actual.pods) == ["a", "b"]
    assert not list(changes_of(actual.requests, "patch", "delete", "evict"))


def in_daemonset(name: str, node: str, **spec: Any) -> dict[str, Any]:
    return gpu_pod(name, node, owner="DaemonSet", **spec)


@pytest.mark.parametrize(
    ("pod", "rollout", "message"),
    [
        (gpu_pod("a", "n1", owner=""), {}, "team/a (no controller recreates it)"),
        (gpu_pod("a", "n1", owner=""), {"force": True}, ""),
        (in_daemonset("a", "n1"), {"force": True}, "team/a (DaemonSet owner)"),
        (gpu_pod("a", "n1"), {}, ""),
    ],
)
def test_pods_that_block_a_drain(pod: dict[str, Any], rollout: dict[str, Any], message: str) -> None:
    actual = module(rollout=rollout)
    actual.add(pod)
    if not message:
        assert actual.work()["license_rotation"]["evicted"] == ["team/a"]
        return
    with pytest.raises(RestartBlocked) as error:
        actual.work()
    assert "(option node_names of the module).\nnode n1: These pods use the node's GPUs" in str(error.value)
    assert message in str(error.value)
    assert error.value.partial["license_rotation"]["pending"] == ["n0", "n1"]
    assert actual.requests == []


def test_clients_of_daemonsets_are_stopped_and_started() -> None:
    actual = module(1)
    actual.nodes["n0"]["metadata"]["labels"][CLIENT] = "true"
    actual.add(in_daemonset("a", "n0", nodeSelector={CLIENT: "true"}))
    patch = actual.patch

    def stop_pods(path: str, body: dict[str, Any], **options: Any) -> dict[str, Any]:
        if (body["metadata"].get("labels") or {}).get(CLIENT) == "paused-for-mig-change":
            actual.pods.clear()
        return patch(path, body, **options)

    actual.patch = stop_pods  # type: ignore[method-assign]
    assert actual.work()["license_rotation"]["evicted"] == []
    assert actual.nodes["n0"]["metadata"]["labels"][CLIENT] == "true"
    assert actual.cordons() == {}


def test_a_budget_stops_the_run_and_the_node_is_uncordoned() -> None:
    actual = module(rollout={"drain_timeout": 1})
    actual.add(gpu_pod("a", "n0"), gpu_pod("b", "n1"), gpu_pod("c", "n0"))
    actual.protected = {"a"}
    with pytest.raises(PartialFailure) as error:
        actual.work()
    assert "The rotation stopped at node n0, while it was drained: Node n0 was not drained within " in str(error.value)
    assert "PodDisruptionBudget team/web" in str(error.value)
    assert "The node was uncordoned again." in str(error.value)
    assert "stays cordoned" not in str(error.value)
    result = error.value.partial["license_rotation"]
    assert (result["reached"], result["restarted"], result["pending"]) == ("draining", [], ["n1"])
    assert result["evicted"] == ["team/c"]
    assert actual.cordons() == {}
    assert list(changes_of(actual.requests, "delete", "evict")) == ["evict c"]


def refuse(path: str) -> None:
    raise ApiError('cannot create resource "pods/eviction"', status=403, method="POST", path=path)


def reject(path: str) -> None:
    raise ApiError("admission webhook denied the request", status=403, method="POST", path=path)


def lose_response(path: str) -> None:
    raise ApiError("connection reset", reason="Broken", method="DELETE", path=path)


@dataclass(frozen=True)
class Failed:
    """A request of the first node that fails, and the cordon and the evicted pods afterwards; `done`: whether the request was carried out."""

    method: str
    name: str
    failure: Callable[[str], None]
    evicted: list[str]
    cordoned: bool = False
    done: bool = False
    foreign: bool = False


FAILED_REQUESTS = {
    "the right to evict is missing": Failed("evict", "a", refuse, []),
    "the right to evict the second pod is missing": Failed("evict", "b", refuse, ["team/a"]),
    "a webhook rejects the eviction of the second pod": Failed("evict", "b", reject, ["team/a"]),
    "the right to delete the driver pod is missing": Failed("delete", "driver-n0", refuse, ["team/a", "team/b"]),
    "the response to an eviction is lost": Failed("evict", "a", lose_response, ["team/a", "team/b"], done=True),
    "the response to the deletion is lost": Failed(
        "delete", "driver-n0", lose_response, ["team/a", "team/b"], cordoned=True, done=True
    ),
    "the node was cordoned before": Failed("evict", "a", refuse, [], cordoned=True, foreign=True),
}


@pytest.mark.parametrize("case", FAILED_REQUESTS.values(), ids=FAILED_REQUESTS)
def test_a_failed_request_is_reported_with_the_cordon_and_the_evicted_pods(case: Failed) -> None:
    actual = module()
    actual.add(gpu_pod("a", "n0"), gpu_pod("b", "n0"), gpu_pod("c", "n1"))
    if case.foreign:
        actual.nodes["n0"]["spec"]["unschedulable"] = True
        actual.nodes["n0"]["metadata"]["labels"][CLIENT] = "paused-for-mig-change"
    send, pending = getattr(actual, case.method), [case.name]

    def fail_once(path: str, *body: Any, **options: Any) -> Any:
        if f"/{case.name}" not in path or not pending:
            return send(path, *body, **options)
        pending.clear()
        if case.done:
            send(path, *body, **options)
        return case.failure(path)

    setattr(actual, case.method, fail_once)
    if case.method == "evict" and case.done:
        assert actual.work()["license_rotation"]["evicted"] == [*case.evicted, "team/c"]
        return
    with pytest.raises(PartialFailure) as error:
        actual.work()
    assert error.value.partial["license_rotation"]["evicted"] == case.evicted
    assert ("n0" in actual.cordons()) == case.cordoned
    assert ("The node was uncordoned again." in str(error.value)) == (not case.cordoned)
    assert ("The node stays cordoned." in str(error.value)) == case.cordoned


@pytest.mark.parametrize("refused", [False, True])
def test_a_lost_lease_leaves_the_node_cordoned(refused: bool) -> None:
    actual = module()
    actual.add(gpu_pod("a", "n0"), gpu_pod("b", "n0"))
    evict = actual.evict

    def lose_lease(path: str, body: dict[str, Any]) -> None:
        evict(path, body)
        actual.lease_of_run.lost = LeaseLost("The Lease was lost.")
        if refused:
            # The run notices it when it uncordons the node.
            refuse(path)

    actual.evict = lose_lease  # type: ignore[method-assign]
    with pytest.raises(LeaseLost, match=r"while it was drained: The Lease was lost\. The node stays cordoned") as error:
        actual.work()
    assert error.value.partial["license_rotation"]["evicted"] == ([] if refused else ["team/a"])
    assert list(actual.cordons()) == ["n0"]


def test_a_drain_that_only_waits_names_its_option() -> None:
    actual = module(rollout={"drain": "none", "drain_timeout": 1})
    actual.add(gpu_pod("a", "n0"))
    with pytest.raises(PartialFailure, match=r"Not done within 1 s \(rollout\.drain_timeout\)\. team/a has not"):
        actual.work()


@pytest.mark.parametrize("seconds", [0, 3])
def test_a_driver_is_not_deleted_beneath_a_pod_that_has_returned(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    actual = module()
    actual.add(gpu_pod("a", "n0"))
    evict, sleep, remaining = actual.evict, time.sleep, [seconds]

    def return_later(duration: float) -> None:
        sleep(duration)
        remaining[0] -= 1
        if not remaining[0] and not actual.pods:
            actual.add(gpu_pod("a-2", "n0"))

    def return_immediately(path: str, body: dict[str, Any]) -> None:
        evict(path, body)
        if not seconds:
            actual.add(gpu_pod("a-2", "n0"))

    monkeypatch.setattr(time, "sleep", return_later)
    actual.evict = return_immediately  # type: ignore[method-assign]
    with pytest.raises(PartialFailure) as error:
        actual.work()
    assert (
        "The rotation stopped at node n0, while it was drained: The driver was not restarted, because these pods were scheduled to the node during the drain: team/a-2. A pod "
        "that tolerates the cordon is scheduled to the node again. Remove its toleration or nodeSelector, or scale its workload down. The node was uncordoned again."
    ) in str(error.value)
    assert actual.cordons() == {}
    assert list(changes_of(actual.requests, "delete")) == []


def test_a_foreign_cordon_stays() -> None:
    actual = module()
    actual.nodes["n0"]["spec"]["unschedulable"] = True
    actual.add(gpu_pod("a", "n0"))
    assert actual.work()["license_rotation"]["restarted"] == ["n0", "n1"]
    assert actual.cordons() == {"n0": None}
    assert actual.nodes["n0"]["metadata"]["annotations"] == {}


def test_an_unfinished_run_of_another_kind_is_not_disturbed() -> None:
    actual = module()
    actual.nodes["n1"]["spec"]["unschedulable"] = True
    actual.nodes["n1"]["metadata"]["annotations"] = {NOTE: "the machine is being removed from the cluster"}
    with pytest.raises(
        RestartBlocked, match="node n1: The node is cordoned by a run that has not finished: the machine"
    ):
        actual.work()
    assert actual.requests == []
