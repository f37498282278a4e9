# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's agents that read the device plugin's config on each node, and what ails them (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

PLUGIN = "nvidia-device-plugin-daemonset"
DISCOVERY = "gpu-feature-discovery"
MIG_MANAGER = "nvidia-mig-manager"
MPS_DAEMON = "nvidia-device-plugin-mps-control-daemon"
DRIVER = "nvidia-driver-daemonset"
VALIDATOR = "nvidia-operator-validator"
# NVIDIA's pods by their label app (gpu-operator assets/*/*daemonset.yaml); on OpenShift a driver's has its system behind it.
OPERANDS = (
    *(DRIVER, PLUGIN, DISCOVERY, MIG_MANAGER, MPS_DAEMON, VALIDATOR),
    *("nvidia-container-toolkit-daemonset", "nvidia-dcgm", "nvidia-dcgm-exporter", "nvidia-node-status-exporter"),
)
# What the MIG manager stops or deletes for a change (mig-parted pkg/mig/reconfigure), and itself, which is started anew.
STOPPED_FOR_MIG = frozenset({PLUGIN, DISCOVERY, "nvidia-dcgm", "nvidia-dcgm-exporter", VALIDATOR, MIG_MANAGER})
# The pods that mount our ConfigMaps (gpu-operator assets/state-device-plugin, gpu-feature-discovery, state-mig-manager).
SELECTOR = f"app in ({PLUGIN},{DISCOVERY},{MIG_MANAGER})"

Pod = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class ContainerFailure:
    """Why an agent's pod does not do its work; container and previous say whose log tells more."""

    node: str
    pod: str
    container: str
    reason: str
    restarts: int = 0

    def __str__(self) -> str:
        again = f", {self.restarts} restarts" if self.restarts else ""
        return f"pod {self.pod} container {self.container}: {self.reason}{again}"


def node_of(pod: Pod) -> str:
    """The node that a pod is bound to; empty while it is not."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def container_failures(pods: t.Iterable[Pod]) -> dict[str, list[ContainerFailure]]:
    """What is wrong with the agents' pods, by node; running and ready pods are not named."""
    found: dict[str, list[ContainerFailure]] = {}
    for pod in pods:
        for ailment in _of_pod(pod):
            found.setdefault(ailment.node, []).append(ailment)
    return found


def missing(pods: t.Iterable[Pod], nodes: t.Iterable[str]) -> list[str]:
    """The nodes on which no device plugin runs at all."""
    served = {node_of(pod) for pod in pods if app_of(pod) == PLUGIN}
    return [name for name in nodes if name not in served]


def is_ready(pod: Pod) -> bool:
    """Whether the kubelet says that a pod is ready."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def pod_of(pods: t.Iterable[Pod], app: str, node: str) -> str | None:
    """The name of this agent's pod on a node."""
    return next((pod["metadata"]["name"] for pod in pods if app_of(pod) == app and node_of(pod) == node), None)


def _of_pod(pod: Pod) -> t.Iterator[ContainerFailure]:
    name = pod["metadata"]["name"]
    status = pod.get("status") or {}
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        ended = _ended(container)
        restarts = int(container.get("restartCount") or 0)
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            last = f" ({ended})" if ended else f" ({waiting['message']})" if waiting.get("message") else ""
            yield ContainerFailure(node_of(pod), name, container["name"], f"{waiting['reason']}{last}", restarts)
        elif ended and restarts and not container.get("ready"):
            yield ContainerFailure(node_of(pod), name, container["name"], ended, restarts)
    if not containers and status.get("phase") != "Running":
        yield ContainerFailure(node_of(pod), name, "-", f"{status.get('phase') or 'unknown'}{_why(status)}")


def _ended(container: t.Mapping[str, t.Any]) -> str:
    for state in (container.get("state") or {}, container.get("lastState") or {}):
        terminated = state.get("terminated")
        if terminated and terminated.get("exitCode"):
            message = str(terminated.get("message") or terminated.get("reason") or "").strip()
            return f"exit {terminated['exitCode']}" + (f": {message[-400:]}" if message else "")
    return ""


def _why(status: t.Mapping[str, t.Any]) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("status") == "False" and condition.get("message"):
            return f": {condition['message']}"
    return ""


def operands(pods: t.Iterable[Pod]) -> dict[str, list[str]]:
    """The apps of NVIDIA's pods, one for each pod, by node."""
    found: dict[str, list[str]] = {}
    for pod in pods:
        app = app_of(pod)
        known = DRIVER if app.startswith(f"{DRIVER}-") else app
        if known in OPERANDS and node_of(pod):
            found.setdefault(node_of(pod), []).append(known)
    return found


def app_of(pod: Pod) -> str:
    """The label by which NVIDIA's pods are told apart."""
    return str((pod["metadata"].get("labels") or {}).get("app") or "")
