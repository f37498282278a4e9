# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module license_rotation with restart_drivers: which nodes are drained, in which order, what stops it, and its continuation after an end at any request."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.common.errors import PartialFailure
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import LeaseLost
from ansible_collections.accel.gpu.plugins.module_utils.licensing.driver_pods import TOKEN_PATH
from ansible_collections.accel.gpu.plugins.module_utils.licensing.driver_restart import RestartBlocked
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from tests.helpers.driver_restarts import NOTE, RestartModule, changes_of, gpu_pod
from tests.helpers.license_api import vgpu_pool
from tests.helpers.license_nodes import Container, Containers, Killed, initial_files
from tests.helpers.license_tokens import make_token

OLD, NEW = (make_token(hosts=[f"{name}.example.com"]) for name in ("old", "new"))
CONFIG = "FeatureType=1\n"
CLIENT = "nvidia.com/gpu.deploy.client"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time of a drain pass without waiting."""
    real, passed = time.monotonic, 0.0

    def pass_time(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    monkeypatch.setattr(time, "sleep", pass_time)
    monkeypatch.setattr(time, "monotonic", lambda: real() + passed)


def module(count: int = 2, token: str = NEW, rollout: dict[str, Any] | None = None, **options: Any) -> RestartModule:
    containers = Containers({f"n{index}": Container(initial_files(OLD, CONFIG)) for index in range(count)})
    found = RestartModule(containers, token, CONFIG, **options)
    found.plan = derive({"name": "prod"}, {}, [{**vgpu_pool("vdi", "licensing-config"), "rollout": rollout or {}}])
    return found


def test_each_node_is_drained_before_its_driver_restarts() -> None:
    found = module()
    found.add(gpu_pod("a", "n0"), gpu_pod("b", "n1"))
    result = found.work()["license_rotation"]
    assert (result["rotated"], result["restarted"], result["evicted"]) == (
        ["n0", "n1"],
        ["n0", "n1"],
        ["team/a", "team/b"],
    )
    assert found.requests == [
        request
        for node, pod in (("n0", "a"), ("n1", "b"))
        for request in (f"patch {node}", f"evict {pod}", f"delete driver-{node}", f"patch {node}")
    ]
    assert found.cordons() == {}
    assert {each.loaded[TOKEN_PATH] for each in found.containers.by_node.values()} == {NEW.encode()}
    found.requests.clear()
    assert not found.work()["changed"]
    assert found.requests == []


def test_check_mode_names_the_nodes_and_pods() -> None:
    found = module(check_mode=True)
    found.add(gpu_pod("a", "n0"))
    result = found.work()
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
    assert found.requests == []


def test_without_the_option_no_pod_is_evicted() -> None:
    found = module(params={"restart_drivers": False})
    found.add(gpu_pod("a", "n0", owner=""), gpu_pod("b", "n1"))
    assert found.work()["license_rotation"]["restarted"] == []
    assert sorted(found.pods) == ["a", "b"]
    assert not list(changes_of(found.requests, "patch", "delete", "evict"))


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
    found = module(rollout=rollout)
    found.add(pod)
    if not message:
        assert found.work()["license_rotation"]["evicted"] == ["team/a"]
        return
    with pytest.raises(RestartBlocked) as error:
        found.work()
    assert "(option node_names of the module).\nnode n1: These pods use the node's GPUs" in str(error.value)
    assert message in str(error.value)
    assert error.value.partial["license_rotation"]["pending"] == ["n0", "n1"]
    assert found.requests == []


def test_clients_of_daemonsets_are_stopped_and_started() -> None:
    found = module(1)
    found.nodes["n0"]["metadata"]["labels"][CLIENT] = "true"
    found.add(in_daemonset("a", "n0", nodeSelector={CLIENT: "true"}))
    patch = found.patch

    def stop_pods(path: str, body: dict[str, Any], **options: Any) -> dict[str, Any]:
        if (body["metadata"].get("labels") or {}).get(CLIENT) == "paused-for-mig-change":
            found.pods.clear()
        return patch(path, body, **options)

    found.patch = stop_pods  # type: ignore[method-assign]
    assert found.work()["license_rotation"]["evicted"] == []
    assert found.nodes["n0"]["metadata"]["labels"][CLIENT] == "true"
    assert found.cordons() == {}


def test_a_budget_stops_the_run_and_the_node_is_uncordoned() -> None:
    found = module(rollout={"drain_timeout": 1})
    found.add(gpu_pod("a", "n0"), gpu_pod("b", "n1"), gpu_pod("c", "n0"))
    found.protected = {"a"}
    with pytest.raises(PartialFailure) as error:
        found.work()
    assert "The rotation stopped at node n0, while it was drained: Node n0 was not drained within " in str(error.value)
    assert "PodDisruptionBudget team/web" in str(error.value)
    assert "The node was uncordoned again." in str(error.value)
    assert "stays cordoned" not in str(error.value)
    result = error.value.partial["license_rotation"]
    assert (result["reached"], result["restarted"], result["pending"]) == ("draining", [], ["n1"])
    assert result["evicted"] == ["team/c"]
    assert found.cordons() == {}
    assert list(changes_of(found.requests, "delete", "evict")) == ["evict c"]


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
    found = module()
    found.add(gpu_pod("a", "n0"), gpu_pod("b", "n0"), gpu_pod("c", "n1"))
    if case.foreign:
        found.nodes["n0"]["spec"]["unschedulable"] = True
        found.nodes["n0"]["metadata"]["labels"][CLIENT] = "paused-for-mig-change"
    send, pending = getattr(found, case.method), [case.name]

    def fail_once(path: str, *body: Any, **options: Any) -> Any:
        if f"/{case.name}" not in path or not pending:
            return send(path, *body, **options)
        pending.clear()
        if case.done:
            send(path, *body, **options)
        return case.failure(path)

    setattr(found, case.method, fail_once)
    if case.method == "evict" and case.done:
        assert found.work()["license_rotation"]["evicted"] == [*case.evicted, "team/c"]
        return
    with pytest.raises(PartialFailure) as error:
        found.work()
    assert error.value.partial["license_rotation"]["evicted"] == case.evicted
    assert ("n0" in found.cordons()) == case.cordoned
    assert ("The node was uncordoned again." in str(error.value)) == (not case.cordoned)
    assert ("The node stays cordoned." in str(error.value)) == case.cordoned


@pytest.mark.parametrize("refused", [False, True])
def test_a_lost_lease_leaves_the_node_cordoned(refused: bool) -> None:
    found = module()
    found.add(gpu_pod("a", "n0"), gpu_pod("b", "n0"))
    evict = found.evict

    def lose_lease(path: str, body: dict[str, Any]) -> None:
        evict(path, body)
        found.lease_of_run.lost = LeaseLost("The Lease was lost.")
        if refused:
            # The run notices it when it uncordons the node.
            refuse(path)

    found.evict = lose_lease  # type: ignore[method-assign]
    with pytest.raises(LeaseLost, match=r"while it was drained: The Lease was lost\. The node stays cordoned") as error:
        found.work()
    assert error.value.partial["license_rotation"]["evicted"] == ([] if refused else ["team/a"])
    assert list(found.cordons()) == ["n0"]


def test_a_drain_that_only_waits_names_its_option() -> None:
    found = module(rollout={"drain": "none", "drain_timeout": 1})
    found.add(gpu_pod("a", "n0"))
    with pytest.raises(PartialFailure, match=r"Not done within 1 s \(rollout\.drain_timeout\)\. team/a has not"):
        found.work()


@pytest.mark.parametrize("seconds", [0, 3])
def test_a_driver_is_not_deleted_beneath_a_pod_that_has_returned(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    found = module()
    found.add(gpu_pod("a", "n0"))
    evict, sleep, left = found.evict, time.sleep, [seconds]

    def return_later(duration: float) -> None:
        sleep(duration)
        left[0] -= 1
        if not left[0] and not found.pods:
            found.add(gpu_pod("a-2", "n0"))

    def return_immediately(path: str, body: dict[str, Any]) -> None:
        evict(path, body)
        if not seconds:
            found.add(gpu_pod("a-2", "n0"))

    monkeypatch.setattr(time, "sleep", return_later)
    found.evict = return_immediately  # type: ignore[method-assign]
    with pytest.raises(PartialFailure) as error:
        found.work()
    assert (
        "The rotation stopped at node n0, while it was drained: These pods came to the node during its drain, so its driver was not restarted: team/a-2. A pod "
        "that tolerates the cordon returns: remove its toleration or its nodeSelector, or scale it down. The node was uncordoned again."
    ) in str(error.value)
    assert found.cordons() == {}
    assert list(changes_of(found.requests, "delete")) == []


def test_pods_that_prevent_the_start_of_a_driver_are_named_and_evicted_by_the_next_restart() -> None:
    found = module(1, params={"restart_timeout": 0.1})
    delete = found.delete

    def use_gpu(path: str, **options: Any) -> bool:
        delete(path, **options)
        found.add(gpu_pod("a", "n0"))
        return True

    found.delete = use_gpu  # type: ignore[method-assign]
    found.delay_driver("n0")
    named = "These pods use its GPUs, so its driver may not start: team/a. A pod that tolerates the cordon returns"
    with pytest.raises(PartialFailure, match="after its driver pod was deleted: .*" + named):
        found.work()
    found.params["restart_drivers"] = False
    with pytest.raises(PartialFailure, match=named) as error:
        found.work()
    assert "at node n0, while an unfinished restart of its driver was completed: " in str(error.value)
    assert "The node stays cordoned until a run completes its rotation" in str(error.value)
    assert error.value.partial["license_rotation"]["reached"] == "unfinished"
    found.params.update(restart_drivers=True)
    # NVIDIA's driver manager may have uncordoned the node.
    del found.nodes["n0"]["spec"]["unschedulable"]
    found.requests.clear()
    with pytest.raises(PartialFailure) as error:
        found.work()
    assert error.value.partial["license_rotation"]["evicted"] == ["team/a"]
    assert "These pods" not in str(error.value)
    assert found.requests == ["patch n0", "evict a"]
    assert list(found.cordons()) == ["n0"]
    found.containers.starting["n0"] = 0
    assert found.work()["license_rotation"]["rotated"] == ["n0"]
    assert found.cordons() == {}


def test_a_foreign_cordon_stays() -> None:
    found = module()
    found.nodes["n0"]["spec"]["unschedulable"] = True
    found.add(gpu_pod("a", "n0"))
    assert found.work()["license_rotation"]["restarted"] == ["n0", "n1"]
    assert found.cordons() == {"n0": None}
    assert found.nodes["n0"]["metadata"]["annotations"] == {}


def test_an_unfinished_restart_on_a_node_with_a_foreign_cordon_is_completed() -> None:
    found = module(1, params={"restart_timeout": 0.1})
    found.nodes["n0"]["spec"]["unschedulable"] = True
    found.nodes["n0"]["metadata"]["labels"][CLIENT] = "paused-for-mig-change"
    found.delay_driver("n0")
    with pytest.raises(PartialFailure, match="The node stays cordoned until a run completes its rotation"):
        found.work()
    found.containers.starting["n0"] = 0
    found.params["restart_drivers"] = False
    result = found.work()
    assert (result["changed"], result["license_rotation"]["rotated"]) == (True, ["n0"])
    assert "cordoned" not in str(result["diff"])
    assert found.nodes["n0"]["metadata"]["labels"][CLIENT] == "true"
    assert found.nodes["n0"]["metadata"]["annotations"] == {}
    assert found.cordons() == {"n0": None}
    assert not found.work()["changed"]


def test_an_unfinished_run_of_another_kind_is_not_disturbed() -> None:
    found = module()
    found.nodes["n1"]["spec"]["unschedulable"] = True
    found.nodes["n1"]["metadata"]["annotations"] = {NOTE: "its machine is being removed from the cluster"}
    with pytest.raises(
        RestartBlocked, match="node n1: The node is cordoned by a run that has not finished: its machine"
    ):
        found.work()
    assert found.requests == []


def test_a_driver_that_does_not_start_leaves_its_node_cordoned() -> None:
    found = module(params={"restart_timeout": 0.1})
    found.delay_driver("n0")
    with pytest.raises(PartialFailure) as error:
        found.work()
    assert (
        "The rotation stopped at node n0, after its driver pod was deleted: Not done within 0 s (restart_timeout). The driver pod driver-n0 was replaced. "
        "The driver does not run: "
    ) in str(error.value)
    assert "The node stays cordoned until a run completes its rotation; a cordon from before the restart stays." in str(
        error.value
    )
    assert found.cordons() == {"n0": "its driver is being restarted to load a licensing token"}
    assert found.nodes["n0"]["metadata"]["annotations"]["accel.gpu/driver-restart"] == "driver-n0"
    # The next run waits for this node before it drains the next one.
    found.containers.starting["n0"] = 3
    found.requests.clear()
    assert found.work()["license_rotation"]["rotated"] == ["n0", "n1"]
    assert found.requests == ["patch n0", "patch n1", "delete driver-n1", "patch n1"]
    assert found.cordons() == {}


def test_a_restart_is_not_advised_again() -> None:
    found = module(1)
    delete = found.delete

    def without_client(path: str, **options: Any) -> bool:
        delete(path, **options)
        found.containers.by_node["n0"].hidden = True
        return True

    found.delete = without_client  # type: ignore[method-assign]
    # The second run only completes the restart of the first one.
    for restarts in (True, False):
        found.params["restart_drivers"] = restarts
        with pytest.raises(PartialFailure, match=r"does not run\. Check the log of pod driver-n0\+1\.") as error:
            found.work()
        assert "gpu_licensing_restart_drivers" not in str(error.value)


def test_the_next_node_is_drained_once_the_device_plugin_is_ready() -> None:
    found = filled(plugin_delay=3)
    assert found.work()["license_rotation"]["restarted"] == ["n0", "n1"]
    found = filled(plugin_delay=1_000_000, params={"restart_timeout": 0.1})
    with pytest.raises(PartialFailure, match="The driver runs, but the device plugin is not ready") as error:
        found.work()
    assert error.value.partial["license_rotation"]["pending"] == ["n1"]
    assert list(found.cordons()) == ["n0"]
    found.plugin_delay = 0
    assert found.work()["license_rotation"]["rotated"] == ["n0", "n1"]


def filled(**options: Any) -> RestartModule:
    found = module(**options)
    found.add(gpu_pod("a", "n0"), gpu_pod("b", "n1"))
    return found


def number_of_changes() -> int:
    found = filled()
    found.work()
    return len(found.requests)


@pytest.mark.parametrize("starting", [0, 4])
@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("number", range(1, number_of_changes() + 1))
def test_a_run_that_is_killed_after_any_change_is_continued(number: int, again: bool, starting: int) -> None:
    found = filled(kill_after=number)
    with pytest.raises(Killed):
        found.work()
    running = set(found.pods)
    found.kill_after, found.params["restart_drivers"] = None, again
    found.containers.starting = dict.fromkeys(found.containers.starting, starting)
    found.work()
    assert found.cordons() == {}
    assert all(each.licensed and each.loaded[TOKEN_PATH] == NEW.encode() for each in found.containers.by_node.values())
    # A driver that has restarted does not restart again; without the option, no further pod is evicted.
    restarted = [request.partition("+")[0] for request in changes_of(found.requests, "delete")]
    assert len(set(restarted)) == len(restarted)
    assert set(found.pods) == (set() if again else running)
    assert not found.work()["changed"]
