# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks whether NVIDIA's runtime class exists and whether the container toolkit can configure the containerd of each node (pure).

The operator mounts the folders of containerd's socket and configuration into the toolkit's pod and passes the paths within the pod to the toolkit
(gpu-operator v25.10.1 controllers/object_controls.go, transformForRuntime).
"""

from __future__ import annotations

import datetime
import posixpath
import typing as t

from ..catalog.distributions import CONFIG, DEFAULT_SOCKET, DROP_IN, SOCKET
from ..catalog.operands import PLUGIN, TOOLKIT
from ..cluster_state.distribution import CONTAINERD, distribution_of
from ..cluster_state.node import Node, parse_node
from ..cluster_state.operand_pods import container_failures, is_ready, node_of
from ..schema.messages import abbreviate_nodes
from .daemonsets import is_operand

Document = t.Mapping[str, t.Any]

# The volume of each path, by the environment variable that contains the path.
_PATHS = {SOCKET: "containerd-socket", CONFIG: "containerd-config", DROP_IN: "containerd-drop-in-config"}
_TITLES = {SOCKET: "socket", CONFIG: "configuration", DROP_IN: "drop-in configuration"}
_DEFAULTS = {
    SOCKET: DEFAULT_SOCKET,
    CONFIG: "/etc/containerd/config.toml",
    DROP_IN: "/etc/containerd/conf.d/99-nvidia.toml",
}
_CONTAINER = "nvidia-container-toolkit-ctr"
# Selects the toolkit's pods and the pods of one operand that uses the runtime class.
SELECTOR = f"app in ({TOOLKIT},{PLUGIN})"
# A toolkit container that has restarted this number of times has a lasting problem, because each attempt takes 30 seconds.
_MIN_RESTARTS = 2
# The minimum age in seconds of a pod without a sandbox; the kubelet creates the sandbox immediately if the runtime knows the handler.
_MIN_AGE = 60.0


def runtime_classes_of(daemonsets: t.Iterable[Document]) -> set[str]:
    """The runtime classes that the operands' pods refer to."""
    specs = (item["spec"]["template"]["spec"] for item in daemonsets if is_operand(item))
    return {str(name) for spec in specs if (name := spec.get("runtimeClassName"))}


def missing_runtime_classes(daemonsets: t.Iterable[Document], classes: t.Iterable[Document]) -> list[str]:
    """A message for each runtime class that operands refer to but that does not exist; the API server rejects their pods."""
    existing = {item["metadata"]["name"] for item in classes}
    return [
        f"RuntimeClass {name} does not exist, so the API server rejects the operands' pods; the operator creates it"
        for name in sorted(runtime_classes_of(daemonsets) - existing)
    ]


def handlers_of(daemonsets: t.Iterable[Document], classes: t.Iterable[Document]) -> dict[str, str]:
    """The handlers of the existing runtime classes that operands refer to, by class name."""
    named = runtime_classes_of(daemonsets)
    return {
        item["metadata"]["name"]: str(item.get("handler") or "")
        for item in classes
        if item["metadata"]["name"] in named
    }


def host_paths(toolkit: Document) -> dict[str, str]:
    """The paths on the node that the toolkit's DaemonSet uses, by the environment variable that sets them."""
    spec = toolkit["spec"]["template"]["spec"]
    folders = {
        volume["name"]: str((volume.get("hostPath") or {}).get("path") or "") for volume in spec.get("volumes") or ()
    }
    container: Document = next((item for item in spec.get("containers") or () if item["name"] == _CONTAINER), {})
    variables = {entry["name"]: str(entry.get("value") or "") for entry in container.get("env") or ()}
    return {
        name: posixpath.join(folders[volume], posixpath.basename(variables[name]))
        for name, volume in _PATHS.items()
        if folders.get(volume) and variables.get(name)
    }


def toolkit_problems(
    toolkit: Document, pods: t.Iterable[Document], nodes: t.Iterable[Document], version: str, now: float
) -> list[str]:
    """Messages about nodes that cannot start pods with the runtime class because their containerd is not where the toolkit expects it.

    `pods` contains the pods that SELECTOR selects; only nodes on which one of them keeps failing are considered. `version` is the operator's version.
    """
    failing = failing_nodes(pods, now)
    if not failing:
        return []
    paths = host_paths(toolkit)
    by_reason: dict[str, list[str]] = {}
    for node in map(parse_node, nodes):
        if node.name in failing and (reason := _mismatch(node, paths, version)):
            by_reason.setdefault(reason, []).append(node.name)
    return [f"{abbreviate_nodes(names)}: {reason}" for reason, names in sorted(by_reason.items())]


def failing_nodes(pods: t.Iterable[Document], now: float) -> set[str]:
    """The nodes on which the toolkit's container exits repeatedly or on which the runtime creates no sandbox for a pod with a runtime class."""
    return {node_of(pod) for pod in pods if not is_ready(pod) and (_crashes(pod) or _lacks_sandbox(pod, now))}


def _crashes(pod: Document) -> bool:
    return any(
        failure.container == _CONTAINER and failure.restarts >= _MIN_RESTARTS
        for failure in container_failures([pod]).get(node_of(pod), ())
    )


def _lacks_sandbox(pod: Document, now: float) -> bool:
    """Whether a pod with a runtime class still has no sandbox; the kubelet reports this as the condition PodReadyToStartContainers."""
    conditions = {item["type"]: item["status"] for item in (pod.get("status") or {}).get("conditions") or ()}
    created = pod["metadata"].get("creationTimestamp")
    if not created or not pod["spec"].get("runtimeClassName") or conditions.get("PodReadyToStartContainers") != "False":
        return False
    return now - datetime.datetime.fromisoformat(created).timestamp() >= _MIN_AGE


def _mismatch(node: Node, paths: t.Mapping[str, str], version: str) -> str:
    distribution = distribution_of(node)
    if distribution is None or not node.container_runtime.startswith(CONTAINERD):
        return ""
    needed = {SOCKET: DEFAULT_SOCKET, **distribution.toolkit_variables(version)}
    wrong = [
        f"{_TITLES[name]} at {paths[name]} instead of {needed[name]} ({name})"
        for name in _PATHS
        if name in paths and name in needed and paths[name] != needed[name]
    ]
    if not wrong:
        return ""
    return (
        f"the container toolkit expects containerd's {' and '.join(wrong)} on these nodes ({distribution.title}, kubelet "
        f"{node.kubelet_version}); set gpu_cluster.distribution: {distribution.name}, or correct toolkit.env in gpu_cluster.operator.values"
    )
