# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of NVIDIA's pods fail on a node for longer than a start takes (pure)."""

from __future__ import annotations

import datetime
import typing as t

from .operand_pods import (
    DISCOVERY,
    DRIVER,
    VALIDATOR,
    ContainerFailure,
    Pod,
    app_of,
    container_failures,
    is_ready,
    node_of,
)

# A container that has crashed so often is in a back-off of 40 seconds or more (kubelet: 10 seconds, doubled each time).
_RESTARTS = 3
# An image that cannot be pulled, or a container that cannot be made, is not counted by restarts: so many seconds after the pod was made.
_PATIENCE = 60.0
_NEVER_STARTED = (
    *("ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName"),
    *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
)
# In the order in which each waits for the one before it; of several that fail, the first is the cause.
_ORDER = (DRIVER, "nvidia-container-toolkit-daemonset", VALIDATOR, DISCOVERY)


def operand_failures(pods: t.Iterable[Pod], now: float) -> dict[str, ContainerFailure]:
    """By node, what fails there first in the order of NVIDIA's pods; `now` is in seconds since 1970."""
    found: dict[str, tuple[int, ContainerFailure]] = {}
    for pod in pods:
        place = _place(app_of(pod))
        for ailment in (of for listed in container_failures([pod]).values() for of in listed):
            if ailment.node and _lasts(pod, ailment, now) and place < found.get(ailment.node, (99, ailment))[0]:
                found[ailment.node] = (place, ailment)
    return {node: ailment for node, (dummy, ailment) in found.items()}


def unready(pods: t.Iterable[Pod], nodes: t.Collection[str]) -> dict[str, set[str]]:
    """By app, the nodes of these on which its pod is there and not ready."""
    found: dict[str, set[str]] = {}
    for pod in pods:
        node = node_of(pod)
        if node in nodes and not is_ready(pod):
            found.setdefault(app_of(pod), set()).add(node)
    return found


def _place(app: str) -> int:
    known = DRIVER if app.startswith((DRIVER, "nvidia-gpu-driver")) else app
    return _ORDER.index(known) if known in _ORDER else len(_ORDER)


def _lasts(pod: Pod, ailment: ContainerFailure, now: float) -> bool:
    if ailment.restarts >= _RESTARTS:
        return True
    created = pod["metadata"].get("creationTimestamp")
    if not created or not ailment.reason.startswith(_NEVER_STARTED):
        return False
    return now - datetime.datetime.fromisoformat(created.replace("Z", "+00:00")).timestamp() >= _PATIENCE
