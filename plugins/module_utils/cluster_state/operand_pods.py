# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the state of the GPU operator's operands: their pods on each node, the pods' failures, and the status of their DaemonSets (pure)."""

from __future__ import annotations

import datetime
import functools
import typing as t
from dataclasses import dataclass

from ..catalog.operands import (
    APPS,
    DCGM,
    DCGM_EXPORTER,
    DISCOVERY,
    DRIVER,
    MIG_MANAGER,
    PLUGIN,
    TOOLKIT,
    VALIDATOR,
)
from .node import ready_condition

# The prefixes of the driver pods' apps, for a ClusterPolicy and for NVIDIADriver objects (gpu-operator internal/state/driver.go, getDriverAppName).
_DRIVER_PREFIXES = (DRIVER, "nvidia-gpu-driver-", "nvidia-vgpu-driver-")
# The operands that the MIG manager stops or deletes for a change (mig-parted pkg/mig/reconfigure), and the MIG manager
# itself, which is restarted.
STOPPED_FOR_MIG = frozenset({PLUGIN, DISCOVERY, DCGM, DCGM_EXPORTER, VALIDATOR, MIG_MANAGER})
# The pods that mount the managed ConfigMaps (gpu-operator assets/state-device-plugin, gpu-feature-discovery, state-mig-manager).
CONFIGMAP_PODS_SELECTOR = f"app in ({PLUGIN},{DISCOVERY},{MIG_MANAGER})"

Pod = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class ContainerFailure:
    """The reason why an operand's pod does not work; details are in the log of the container."""

    node: str
    pod: str
    container: str
    reason: str
    restarts: int = 0

    @property
    def in_back_off(self) -> bool:
        """Whether the kubelet delays the container's next start because earlier starts failed. A running container, such as a driver's, may just be slow."""
        return self.reason.startswith((_BACK_OFF, *NEVER_STARTED))

    def __str__(self) -> str:
        restarts = f", {self.restarts} restarts" if self.restarts else ""
        return f"pod {self.pod} container {self.container}: {self.reason}{restarts}"


# Known messages in the log of a failed container, and their explanations (gpu-operator issues 141 and 1726: Secure Boot).
_SECURE_BOOT = (
    "Secure Boot rejects the unsigned kernel module: use a driver with signed modules (driver.precompiled, or one that is installed on the node), "
    "or disable Secure Boot"
)
_MEANINGS = (
    ("Key was rejected by service", _SECURE_BOOT),
    ("Loading of unsigned module is rejected", _SECURE_BOOT),
    ("not signed by a key that is trusted by the kernel", _SECURE_BOOT),
)


def with_meaning(text: str) -> str:
    """The description of a failure, followed by the explanation and the remedy if it contains a known message."""
    meaning = next((meaning for known, meaning in _MEANINGS if known in text), "")
    return f"{text} ({meaning})" if meaning else text


def node_of(pod: Pod) -> str:
    """The node of a pod; empty before it is scheduled."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def container_failures(pods: t.Iterable[Pod]) -> dict[str, list[ContainerFailure]]:
    """The failures of the pods, by node; nodes without failures are not included."""
    failures: dict[str, list[ContainerFailure]] = {}
    for pod in pods:
        for failure in _pod_failures(pod):
            failures.setdefault(failure.node, []).append(failure)
    return failures


def is_ready(pod: Pod) -> bool:
    """Whether the condition Ready of a pod is true."""
    return ready_condition(pod).get("status") == "True"


def pod_of(pods: t.Iterable[Pod], app: str, node: str) -> str | None:
    """The name of this operand's pod on a node; None if there is none."""
    return next((pod["metadata"]["name"] for pod in pods if app_of(pod) == app and node_of(pod) == node), None)


def _pod_failures(pod: Pod) -> t.Iterator[ContainerFailure]:
    status = pod.get("status") or {}
    failure = functools.partial(ContainerFailure, node_of(pod), pod["metadata"]["name"])
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        termination = _termination(container)
        restarts = int(container.get("restartCount") or 0)
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            details = termination or waiting.get("message")
            reason = f"{waiting['reason']} ({details})" if details else waiting["reason"]
            yield failure(container["name"], reason, restarts)
        elif termination and restarts and not container.get("ready"):
            yield failure(container["name"], termination, restarts)
    if not containers and status.get("phase") != "Running":
        conditions = status.get("conditions") or ()
        unmet = (entry.get("message") for entry in conditions if entry.get("status") == "False")
        yield failure("-", ": ".join(filter(None, (status.get("phase") or "unknown", next(filter(None, unmet), "")))))


def _termination(container: t.Mapping[str, t.Any]) -> str:
    for state in (container.get("state") or {}, container.get("lastState") or {}):
        terminated = state.get("terminated")
        if terminated and terminated.get("exitCode"):
            message = str(terminated.get("message") or terminated.get("reason") or "").strip()
            return f"exit {terminated['exitCode']}" + (f": {message[-400:]}" if message else "")
    return ""


def operands_by_node(pods: t.Iterable[Pod]) -> dict[str, list[str]]:
    """The apps of the operand pods on each node."""
    apps: dict[str, list[str]] = {}
    for pod in pods:
        known = _operand(app_of(pod))
        if known in APPS and node_of(pod):
            apps.setdefault(node_of(pod), []).append(known)
    return apps


def _operand(app: str) -> str:
    """The operand for a value of the label app. The driver's value has a suffix on OpenShift, and differs if NVIDIADriver objects are used."""
    return DRIVER if app.startswith(_DRIVER_PREFIXES) else app


def app_of(pod: Pod) -> str:
    """The value of the pod's label app, which identifies the operand."""
    return str((pod["metadata"].get("labels") or {}).get("app") or "")


# A container with this number of restarts waits at least 40 seconds before its next start (the kubelet waits 10 seconds at first, and twice as long
# each time).
_MIN_RESTARTS = 3
_BACK_OFF = "CrashLoopBackOff"
# The reasons for images that cannot be pulled and for containers that cannot be created; these containers have no restarts.
NEVER_STARTED = (
    *("ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName"),
    *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
)
# The minimum age, in seconds, of a pod that fails for one of these reasons.
_MIN_AGE = 60.0
# Each operand waits for the previous one. If several operands fail, the first one is therefore the cause.
_START_ORDER = (DRIVER, TOOLKIT, VALIDATOR, DISCOVERY)


def operand_failures(pods: t.Iterable[Pod], now: float) -> dict[str, ContainerFailure]:
    """For each node, the lasting failure of the first failing operand in start order; `now` is in seconds since 1970."""
    first: dict[str, ContainerFailure] = {}
    for pod in sorted(pods, key=_start_position):
        for failure in _pod_failures(pod):
            if failure.node and _lasts(pod, failure, now):
                first.setdefault(failure.node, failure)
    return first


def unready_operands(pods: t.Iterable[Pod], nodes: t.Collection[str]) -> dict[str, set[str]]:
    """For each app, the nodes in `nodes` on which its pod exists but is not ready."""
    unready: dict[str, set[str]] = {}
    for pod in pods:
        node = node_of(pod)
        if node in nodes and not is_ready(pod):
            unready.setdefault(app_of(pod), set()).add(node)
    return unready


def _start_position(pod: Pod) -> int:
    known = _operand(app_of(pod))
    return _START_ORDER.index(known) if known in _START_ORDER else len(_START_ORDER)


def _lasts(pod: Pod, failure: ContainerFailure, now: float) -> bool:
    if failure.restarts >= _MIN_RESTARTS:
        return True
    created = pod["metadata"].get("creationTimestamp")
    if not created or not failure.reason.startswith(NEVER_STARTED):
        return False
    return now - datetime.datetime.fromisoformat(created).timestamp() >= _MIN_AGE


class DaemonSetStatus(t.NamedTuple):
    """The numbers of nodes that the controller reports; `current`: whether they refer to the current generation of the DaemonSet."""

    scheduled: int
    desired: int
    updated: int
    available: int
    current: bool

    @property
    def is_outdated(self) -> bool:
        """Whether pods of an older template remain."""
        return self.updated < self.desired


def daemonset_status(daemonset: t.Mapping[str, t.Any]) -> DaemonSetStatus:
    """The status of a DaemonSet; counts that are not written yet are 0."""
    status = daemonset.get("status") or {}
    return DaemonSetStatus(
        scheduled=int(status.get("currentNumberScheduled") or 0),
        desired=int(status.get("desiredNumberScheduled") or 0),
        updated=int(status.get("updatedNumberScheduled") or 0),
        available=int(status.get("numberAvailable") or 0),
        current=int(status.get("observedGeneration") or 0) >= int(daemonset["metadata"].get("generation") or 0),
    )
