# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the pods of a validation show: whether they ran together, on which devices, or why not (pure)."""

from __future__ import annotations

import re
import typing as t
from collections import Counter
from dataclasses import dataclass, field

from ..cluster_state import expected_state
from ..cluster_state.node import Node

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan

_DEVICE = re.compile(r"^\s*(?P<what>GPU|MIG)\b(?P<name>.*?)\(UUID: (?P<uuid>(?:GPU|MIG)-[^)\s]+)\)", re.MULTILINE)
_STUCK = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError")

_MIG_UUID = "MIG-"

Pod = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class PodObservation:
    """One look at the pods of one pool."""

    phases: t.Mapping[str, int]
    together: bool
    ended: bool
    refusals: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{count} {phase}" for phase, count in sorted(self.phases.items())) or "none seen"


@dataclass(frozen=True)
class DeviceCheck:
    """What the logs of a pool's pods prove; problems empty: the mode holds."""

    devices: t.Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def observe(pods: t.Sequence[Pod], wanted: int) -> PodObservation:
    """Where a pool's pods stand; together once all of them have been running at one moment."""
    statuses = [(pod["metadata"]["name"], pod.get("status") or {}) for pod in pods]
    phases = Counter(str(status.get("phase") or "Pending") for dummy, status in statuses)
    refusals = tuple(f"{name}: {refusal(status)}" for name, status in statuses if status.get("phase") == "Failed")
    return PodObservation(
        phases=dict(phases),
        together=len(pods) == wanted and _together([status for dummy, status in statuses]),
        ended=len(pods) == wanted and phases["Succeeded"] + phases["Failed"] == wanted,
        refusals=refusals + tuple(f"{name}: {why}" for name, status in statuses for why in _stuck(status)),
        waiting=tuple(f"{name}: {waiting(status)}" for name, status in statuses if _is_waiting(status)),
    )


def devices(log: str) -> list[tuple[str, str]]:
    """The (name, UUID) of each device that nvidia-smi -L lists; MIG devices stand for the GPU they are on."""
    found = list(_DEVICE.finditer(log))
    slices = [(match["name"].split()[0], match["uuid"]) for match in found if match["what"] == "MIG"]
    return slices or [(match["name"].split(":", 1)[-1].strip(), match["uuid"]) for match in found]


def check_devices(pool: PoolPlan, node: Node, logs: t.Mapping[str, str]) -> DeviceCheck:
    """Judge the logs: one device a pod; distinct devices when exclusive, as many holders each as the mode says."""
    problems: list[str] = []
    seen: Counter[str] = Counter()
    for pod, log in sorted(logs.items()):
        listed = devices(log)
        if len(listed) != 1:
            problems.append(f"{pod} lists {len(listed)} devices, 1 is expected; its log: {excerpt(log)}")
            continue
        name, uuid = listed[0]
        seen[uuid] += 1
        if uuid.startswith(_MIG_UUID):
            if name not in pool.sharing.profiles:
                problems.append(f"{pod} was given a MIG device {name}, which is not in the pool's layout")
        elif name and not _same_model(name, node.model):
            problems.append(f"{pod} was given a {name}, the node is labelled {node.model}")
    if not problems:
        problems.extend(_counts(pool, node, seen))
    return DeviceCheck(dict(sorted(seen.items())), tuple(problems))


def excerpt(log: str, limit: int = 300) -> str:
    """The end of a log on one line."""
    text = " | ".join(line.strip() for line in log.splitlines() if line.strip())
    return text[-limit:] or "(empty)"


def _counts(pool: PoolPlan, node: Node, seen: Counter[str]) -> t.Iterator[str]:
    replicas = pool.sharing.replicas
    devices = expected_state.parts(node, pool)
    if len(seen) > devices:
        yield f"the pods saw {len(seen)} devices, {node.name} has {devices}"
    for uuid, holders in sorted(seen.items()):
        if holders > replicas:
            allowed = "one pod" if replicas == 1 else f"{replicas} pods"
            yield f"{uuid} was given to {holders} pods at once, mode {pool.mode} allows {allowed}"


def _same_model(name: str, model: str) -> bool:
    return _plain(name) == _plain(model)


def _plain(name: str) -> str:
    return name.replace(" ", "-").lower().removeprefix("nvidia-")


def _together(statuses: t.Sequence[t.Mapping[str, t.Any]]) -> bool:
    """All run at this moment, or the last began before the first ended (whole seconds: strictly before)."""
    if statuses and all(status.get("phase") == "Running" for status in statuses):
        return True
    found = [span for status in statuses for span in spans(status)]
    if len(found) != len(statuses) or not found:
        return False
    ends = [end for dummy, end in found if end]
    return not ends or max(start for start, dummy in found) < min(ends)


def spans(status: t.Mapping[str, t.Any]) -> t.Iterator[tuple[str, str]]:
    """When each container has begun and ended (empty: it still runs), in the form of the API, which sorts by time."""
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        if state.get("running", {}).get("startedAt"):
            yield state["running"]["startedAt"], ""
        elif state.get("terminated", {}).get("startedAt"):
            yield state["terminated"]["startedAt"], state["terminated"].get("finishedAt", "")


def refusal(status: t.Mapping[str, t.Any]) -> str:
    """Why a pod has failed."""
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return f"ended with exit code {ended['exitCode']} ({ended.get('reason', 'Error')})"
    return f"refused: {status.get('reason', 'Failed')}: {status.get('message', 'no message')}"


def _stuck(status: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _STUCK:
            yield f"{waiting['reason']}: {waiting.get('message', 'no message')}"


def _is_waiting(status: t.Mapping[str, t.Any]) -> bool:
    return (status.get("phase") or "Pending") == "Pending"


def waiting(status: t.Mapping[str, t.Any]) -> str:
    """Why a pod does not run yet."""
    for condition in status.get("conditions") or ():
        if condition.get("status") == "False" and condition.get("message"):
            return f"Pending, {condition.get('reason')}: {condition['message']}"
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            return f"Pending, {waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    return "Pending, not looked at by the scheduler yet"
