# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds NVIDIA's failing pods on nodes, and reads the end of their logs."""

from __future__ import annotations

import re
import typing as t

from ..cluster_state.operand_pods import operand_failures, with_meaning
from ..kube.errors import ApiError
from ..kube.paths import NAMESPACES
from ..schema.messages import abbreviate
from .pods_on_nodes import pods_by_node, pods_on

if t.TYPE_CHECKING:
    from ..cluster_state.operand_pods import ContainerFailure
    from ..kube.client import Client

# Up to this number of nodes, one list request per node is cheaper than a list of the operator's whole namespace.
_MAX_LISTS = 5
_MAX_LOGS = 5
_LOG_LINES = 3
_MAX_LOG_CHARS = 400
# The containers that copy the configuration in the node's label for the device plugin and gpu-feature-discovery (config-manager, config-manager-init).
_CONFIG_MANAGER = "config-manager"

# The messages of a driver that cannot be unloaded while it is in use (gpu-driver-container nvidia-driver, _unload_driver; k8s-driver-manager
# cmd/driver-manager/main.go, uninstallDriver).
_CANNOT_UNLOAD = re.compile(
    "could not unload NVIDIA driver|unable to (?:unload|cleanup) driver|failed to (?:unload|uninstall) (?:nvidia )?driver",
    re.IGNORECASE,
)

Object = t.Mapping[str, t.Any]

# Seconds between two calls of failing_operands() during a wait for nodes.
OPERANDS_INTERVAL = 5.0


def operand_pods(client: Client, namespace: str, nodes: t.Collection[str]) -> list[Object]:
    """The pods on these nodes in the operator's namespace."""
    path = f"{NAMESPACES}/{namespace}/pods"
    if len(nodes) <= _MAX_LISTS:
        return [pod for node in sorted(nodes) for pod in client.list(path, field_selector=f"spec.nodeName={node}")]
    return [pod for pod in client.list(path) if (pod.get("spec") or {}).get("nodeName") in nodes]


def failing_operands(
    client: Client, namespace: str, nodes: t.Collection[str], now: float, configured: t.Collection[str] = ()
) -> dict[str, str]:
    """For each node with a failing NVIDIA pod, a description of the pod with the reason; other nodes are not included.

    `configured`: nodes whose label selects the desired configuration. A pod there that failed because of an earlier configuration starts again soon.
    """
    failures = operand_failures(operand_pods(client, namespace, nodes), now) if nodes else {}
    lasting = {
        name: failure
        for name, failure in failures.items()
        if name not in configured or not failure.container.startswith(_CONFIG_MANAGER)
    }
    return describe_failures(client, namespace, lasting)


def describe_failures(client: Client, namespace: str, failures: t.Mapping[str, ContainerFailure]) -> dict[str, str]:
    """For each node, a description of its failure; the first few descriptions include the end of the log, and the pods that keep a driver in use."""
    texts = {node: str(failure) for node, failure in failures.items()}
    for node in sorted(failures)[:_MAX_LOGS]:
        failure = failures[node]
        log = log_end(client, namespace, failure.pod, failure.container, previous=bool(failure.restarts))
        if log and log not in texts[node]:
            texts[node] += f"; its log ends: {log}"
        if _CANNOT_UNLOAD.search(texts[node]):
            texts[node] += gpu_holders(client, namespace, node)
    return {node: with_meaning(text) for node, text in texts.items()}


def gpu_holders(client: Client, namespace: str, node: str) -> str:
    """The pods that hold a GPU of the node and prevent that its driver is unloaded, as the end of a message; empty if there are none or they cannot be read."""
    try:
        pods = pods_by_node(client, pods_on(client, node), namespace)
    except ApiError:
        return ""
    held = [f"{pod.full_name} ({', '.join(pod.access)})" for pod in pods.gpu_pods.get(node, ())]
    held += [
        f"{pod.full_name} (maybe: {', '.join(pod.possible_access)})" for pod in pods.possible_holders.get(node, ())
    ]
    return f"; pods that hold a GPU of the node: {abbreviate(held)}; delete them, or drain the node" if held else ""


def log_end(client: Client, namespace: str, pod: str, container: str, *, previous: bool) -> str:
    """The last lines of the log of a container, or of its previous instance, as one line; empty if the log cannot be read."""
    query = {"container": container, "previous": "true" if previous else "false", "tailLines": _LOG_LINES}
    try:
        text = client.text(f"{NAMESPACES}/{namespace}/pods/{pod}/log", query)
    except ApiError:
        # The container may be gone, or the permission to read logs may be missing. The message is useful even without the log.
        return ""
    return " | ".join(line.strip() for line in text.splitlines() if line.strip())[-_MAX_LOG_CHARS:]
