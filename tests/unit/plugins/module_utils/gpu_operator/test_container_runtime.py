# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the runtime class works, and which path of the container toolkit is wrong on which node."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.cluster_policy_client import (
    handlers_of,
    host_paths,
    missing_runtime_classes,
    toolkit_problems,
)

Object = dict[str, t.Any]
POLICY = [{"kind": "ClusterPolicy"}]
CREATED, LATER = "2026-01-01T00:00:00Z", 1767225600.0 + 120


def daemonset(name: str, runtime_class: str | None = None, owners: list[Object] | None = None) -> Object:
    spec = {"runtimeClassName": runtime_class} if runtime_class else {}
    return {
        "metadata": {"name": name, "ownerReferences": POLICY if owners is None else owners},
        "spec": {"template": {"spec": spec}},
    }


def toolkit(
    socket: str = "/run/containerd", config: str = "/etc/containerd", drop_in: str = "/etc/containerd/conf.d"
) -> Object:
    volumes = {"containerd-socket": socket, "containerd-config": config, "containerd-drop-in-config": drop_in}
    env = {
        "CONTAINERD_SOCKET": "/runtime/sock-dir/containerd.sock",
        "CONTAINERD_CONFIG": "/runtime/config-dir/config.toml",
        "RUNTIME_DROP_IN_CONFIG": "/runtime/config-dir.d/99-nvidia.toml",
    }
    container = {
        "name": "nvidia-container-toolkit-ctr",
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in volumes.items()],
    }
    return {"metadata": {"name": "nvidia-container-toolkit-daemonset"}, "spec": {"template": {"spec": spec}}}


def node(name: str, kubelet: str, runtime: str = "containerd://2.1.4") -> Object:
    info = {"kubeletVersion": kubelet, "containerRuntimeVersion": runtime}
    return {"metadata": {"name": name}, "status": {"nodeInfo": info}}


def crashing(name: str, restarts: int = 3) -> Object:
    waiting = {"reason": "CrashLoopBackOff"}
    status = {"name": "nvidia-container-toolkit-ctr", "restartCount": restarts, "state": {"waiting": waiting}}
    return {"metadata": {"name": "t"}, "spec": {"nodeName": name}, "status": {"containerStatuses": [status]}}


def without_sandbox(name: str, runtime_class: str | None = "nvidia", created: str = CREATED) -> Object:
    conditions = [{"type": "PodReadyToStartContainers", "status": "False"}]
    spec = {"nodeName": name, **({"runtimeClassName": runtime_class} if runtime_class else {})}
    return {
        "metadata": {"name": "p", "creationTimestamp": created},
        "spec": spec,
        "status": {"phase": "Pending", "conditions": conditions},
    }


def test_host_paths() -> None:
    assert host_paths(toolkit("/run/k0s", "/tmp")) == {
        "CONTAINERD_SOCKET": "/run/k0s/containerd.sock",
        "CONTAINERD_CONFIG": "/tmp/config.toml",
        "RUNTIME_DROP_IN_CONFIG": "/etc/containerd/conf.d/99-nvidia.toml",
    }
    assert host_paths(daemonset("x")) == {}


@pytest.mark.parametrize(
    ("classes", "missing", "handlers"),
    [
        ([], ["RuntimeClass nvidia does not exist"], {}),
        ([{"metadata": {"name": "nvidia"}, "handler": "nvidia"}], [], {"nvidia": "nvidia"}),
        ([{"metadata": {"name": "kata"}, "handler": "kata"}], ["RuntimeClass nvidia does not exist"], {}),
    ],
)
def test_runtime_classes(classes: list[Object], missing: list[str], handlers: dict[str, str]) -> None:
    daemonsets = [daemonset("a", "nvidia"), daemonset("b"), daemonset("c", "theirs", [])]
    result = missing_runtime_classes(daemonsets, classes)
    assert [line.partition(",")[0] for line in result] == missing
    assert handlers_of(daemonsets, classes) == handlers


@pytest.mark.parametrize(
    ("operand", "pods", "kubelet", "words"),
    [
        (
            toolkit(),
            [crashing("a")],
            "v1.33.5+k3s1",
            "containerd.sock instead of /run/k3s/containerd/containerd.sock (CONTAINERD_SOCKET) on",
        ),
        (toolkit(), [crashing("a")], "v1.33.5+rke2r1", "set gpu_cluster.distribution: rke2"),
        (toolkit(), [without_sandbox("a")], "v1.33.5+k3s1", "node a: the container toolkit expects"),
        (
            toolkit("/run/k0s"),
            [without_sandbox("a")],
            "v1.33.4+k0s.0",
            "drop-in configuration at /etc/containerd/conf.d/99-nvidia.toml",
        ),
        # The paths fit, or those of the node are unknown: the reason is another one.
        (toolkit("/run/k3s/containerd"), [crashing("a")], "v1.33.5+k3s1", ""),
        (toolkit("/run/elsewhere"), [crashing("a")], "v1.33.5", ""),
        # Nothing fails, or not for long.
        (toolkit(), [], "v1.33.5+k3s1", ""),
        (toolkit(), [crashing("other")], "v1.33.5+k3s1", ""),
        (toolkit(), [crashing("a", 1)], "v1.33.5+k3s1", ""),
        (toolkit(), [without_sandbox("a", created="2026-01-01T00:01:30Z")], "v1.33.5+k3s1", ""),
        (toolkit(), [without_sandbox("a", None)], "v1.33.5+k3s1", ""),
    ],
)
def test_paths_that_are_wrong(operand: Object, pods: list[Object], kubelet: str, words: str) -> None:
    problems = toolkit_problems(operand, pods, [node("a", kubelet), node("b", kubelet)], "v25.10.1", LATER)
    assert len(problems) == bool(words)
    assert words in " ".join(problems)


def test_cri_o_has_no_socket() -> None:
    nodes = [node("a", "v1.33.5+k3s1", "cri-o://1.33")]
    assert toolkit_problems(toolkit(), [crashing("a")], nodes, "v25.10.1", LATER) == []
