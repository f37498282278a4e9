# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wait for whole GPUs: a MIG manager that has failed is restarted once, and a second failure ends the run with its reasons."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import PartialFailure
from ansible_collections.accel.gpu.plugins.module_utils.core.waits import WaitOptions, WaitTimeout
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import POOL_OWNER
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.removal import MigReset
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.stages import driver_warning

Object = dict[str, Any]

MIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"


class Progress:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def report(self, text: str, *_counts: int) -> None:
        self.lines.append(text)


def pod(name: str, node: str, *, namespace: str = "team", **more: Any) -> Object:
    spec = {"nodeName": node, "containers": [{"name": "main"}], **more.pop("spec", {})}
    return {"metadata": {"name": name, "namespace": namespace, **more}, "spec": spec, "status": {"phase": "Running"}}


def manager(node: str) -> Object:
    return pod(f"mig-{node}", node, namespace="gpu-operator", labels={"app": "nvidia-mig-manager"})


class FakeClient:
    """Nodes whose MIG state is the result of a function of (node, reading), and pods."""

    def __init__(self, states: dict[str, Sequence[str]], pods: Iterable[Object] = (), *, log: str | None = "") -> None:
        self._states = {name: list(sequence) for name, sequence in states.items()}
        self._pods = list(pods)
        self._log = log

    def list(self, path: str, **options: Any) -> list[Object]:
        if path.endswith("/nodes"):
            return [self._node(name) for name in self._states]
        place = str(options.get("field_selector") or "").partition("spec.nodeName=")[2]
        selector = str(options.get("label_selector") or "").removeprefix("app=")
        return [
            item
            for item in self._pods
            if (not place or item["spec"]["nodeName"] == place)
            and (not selector or item["metadata"].get("labels", {}).get("app") == selector)
        ]

    def list_known(self, path: str, **_options: Any) -> Sequence[Object]:
        raise AssertionError(path)

    def text(self, path: str, query: Object) -> str:
        assert path.endswith("/log")
        if self._log is None:
            raise ApiError("forbidden", status=403)
        return self._log

    def _node(self, name: str) -> Object:
        states = self._states[name]
        state = states.pop(0) if len(states) > 1 else states[0]
        labels = {MIG: "all-disabled", **({STATE: state} if state else {})}
        return {"metadata": {"name": name, "labels": labels, "annotations": {POOL_OWNER.labels: json.dumps([MIG])}}}


def reset(client: FakeClient, restart: Callable[[Sequence[Node]], None], timeout: float = 5) -> list[Node]:
    waiting = WaitOptions(timeout, 0.001, cast(Any, Progress()))
    return MigReset(cast(Client, client), ["a", "b"], "gpu-operator", restart, waiting).wait()


def test_nothing_is_restarted_where_the_mig_manager_succeeds() -> None:
    restarted: list[Node] = []
    actual = reset(FakeClient({"a": ["", "pending", "success"], "b": ["success"], "c": ["failed"]}), restarted.extend)
    assert {node.name for node in actual} == {"a", "b", "c"}
    assert restarted == []


@pytest.mark.parametrize("states", [["failed", "success"], ["pending", "failed", "pending", "success"]])
def test_a_mig_manager_that_failed_is_restarted_once(states: list[str]) -> None:
    """Whether this run or one before it has seen the failure."""
    restarted: list[str] = []
    reset(
        FakeClient({"a": states, "b": ["success"]}),
        lambda nodes: restarted.extend(node.name for node in nodes),
    )
    assert restarted == ["a"]


def test_failed_mig_managers_are_restarted_together() -> None:
    calls: list[list[str]] = []
    reset(
        FakeClient({"a": ["failed", "success"], "b": ["failed", "success"]}),
        lambda nodes: calls.append([node.name for node in nodes]),
    )
    assert calls == [["a", "b"]]


GPU = {"resources": {"limits": {"nvidia.com/mig-3g.40gb": "1"}}, "name": "main"}
PRIVILEGED = {"securityContext": {"privileged": True}, "name": "main"}
DAEMON = {"kind": "DaemonSet", "name": "cni", "controller": True}
PODS = [
    pod("train-0", "a", spec={"containers": [GPU]}),
    pod("debug", "a", spec={"containers": [PRIVILEGED]}),
    pod("cni-a", "a", namespace="kube-system", spec={"containers": [PRIVILEGED]}, ownerReferences=[DAEMON]),
    pod("elsewhere", "b", spec={"containers": [GPU]}),
    manager("a"),
]


def test_a_second_failure_ends_the_wait_at_once_with_its_reasons() -> None:
    restarted: list[str] = []
    client = FakeClient({"a": ["failed"], "b": ["pending"]}, PODS, log="one\ntwo\n")
    with pytest.raises(PartialFailure) as failure:
        reset(client, lambda nodes: restarted.extend(node.name for node in nodes), timeout=60)
    assert restarted == ["a"]
    message = str(failure.value)
    assert message.startswith("The MIG manager has failed to reset the layout of node a, even after a restart.")
    assert (
        "pods that use its GPUs: team/debug (privileged container main), team/train-0 (requests nvidia.com/mig-3g.40gb)"
        in message
    )
    assert "may hold one, since they are privileged: kube-system/cni-a" in message
    assert "the MIG manager's log ends: one | two" in message
    assert "elsewhere" not in message
    assert "Delete these pods, or drain the nodes, and run the playbook again" in message
    assert "reset_mig: false" in message


def test_an_unreadable_log_is_left_out() -> None:
    client = FakeClient({"a": ["failed"], "b": ["success"]}, [manager("a")], log=None)
    with pytest.raises(PartialFailure, match="no pod is known to use its GPUs, so a host process may hold one"):
        reset(client, lambda nodes: None)


def test_a_timeout_names_the_pods() -> None:
    with pytest.raises(WaitTimeout, match=r"a: pending for .* team/train-0 \(requests"):
        reset(FakeClient({"a": ["pending"], "b": ["success"]}, PODS), lambda nodes: None, timeout=0.05)


# Who loses the driver

ACCESS: list[tuple[str, Object]] = [
    (
        "requests nvidia.com/gpu",
        {"spec": {"containers": [{"name": "m", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}},
    ),
    ("privileged container main", {"spec": {"containers": [PRIVILEGED]}}),
    (
        "mounts /dev/nvidia0",
        {
            "spec": {
                "containers": [{"name": "m", "volumeMounts": [{"name": "gpu", "mountPath": "/dev/nvidia0"}]}],
                "volumes": [{"name": "gpu", "hostPath": {"path": "/dev/nvidia0"}}],
            }
        },
    ),
    ("annotation cdi.k8s.io/a: nvidia.com/gpu=0", {"annotations": {"cdi.k8s.io/a": "nvidia.com/gpu=0"}}),
    ("runtimeClassName nvidia", {"spec": {"runtimeClassName": "nvidia"}}),
]
GPU_NODE = Node("a", {"nvidia.com/gpu.present": "true"})


@pytest.mark.parametrize(("way", "more"), ACCESS, ids=[way for way, _more in ACCESS])
def test_pods_that_lose_the_driver_are_named(way: str, more: Object) -> None:
    client = cast(Client, FakeClient({}, [pod("one", "a", **more), pod("two", "cpu", **more), manager("a")]))
    assert driver_warning(client, "gpu-operator", [GPU_NODE, Node("cpu")]) == (
        f"1 pod on node a can use GPUs, and loses the driver: team/one ({way}). "
        "First delete these pods, or drain their nodes."
    )


def test_only_the_first_pods_are_named() -> None:
    client = cast(Client, FakeClient({}, [pod(f"p{number}", "a", spec={"containers": [GPU]}) for number in range(9)]))
    warning = driver_warning(client, "gpu-operator", [GPU_NODE])
    assert warning.startswith("9 pods on node a can use GPUs, and lose the driver: team/p0")
    assert " and 4 more. " in warning


def test_no_pod_loses_the_driver() -> None:
    cni = pod("cni", "a", namespace="kube-system", spec={"containers": [PRIVILEGED]}, ownerReferences=[DAEMON])
    client = cast(Client, FakeClient({}, [pod("web", "a"), cni, manager("a")]))
    assert driver_warning(client, "gpu-operator", [GPU_NODE]) == ""
