# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluates the pods of a validation: whether they ran together, on which devices, or why not (pure)."""

from __future__ import annotations

import re
import typing as t
from collections import Counter
from dataclasses import dataclass, field

from ..cluster_state import expected_state
from ..cluster_state.node import Node

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan

_DEVICE = re.compile(r"^\s*(?P<kind>GPU|MIG)\b(?P<name>.*?)\(UUID: (?P<uuid>(?:GPU|MIG)-[^)\s]+)\)", re.MULTILINE)
_FINAL_WAITS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
)

_MIG_UUID = "MIG-"

Pod = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class PodObservation:
    """One reading of the pods of one pool."""

    phases: t.Mapping[str, int]
    together: bool
    ended: bool
    failures: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{count} {phase}" for phase, count in sorted(self.phases.items())) or "no pods"


@dataclass(frozen=True)
class DeviceCheck:
    """The devices in the logs of a pool's pods; without problems the mode is verified."""

    devices: t.Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def observe(pods: t.Sequence[Pod], expected: int) -> PodObservation:
    """The state of a pool's pods; `together` if all of them have been running at the same time."""
    statuses = [(pod["metadata"]["name"], pod.get("status") or {}) for pod in pods]
    phases = Counter(str(status.get("phase") or "Pending") for dummy, status in statuses)
    failures = tuple(
        f"{name}: {failure_reason(status)}" for name, status in statuses if status.get("phase") == "Failed"
    )
    return PodObservation(
        phases=dict(phases),
        together=len(pods) == expected and _ran_together([status for dummy, status in statuses]),
        ended=len(pods) == expected and phases["Succeeded"] + phases["Failed"] == expected,
        failures=failures + tuple(f"{name}: {reason}" for name, status in statuses for reason in _final_waits(status)),
        waiting=tuple(
            f"{name}: {waiting_reason(status)}"
            for name, status in statuses
            if (status.get("phase") or "Pending") == "Pending"
        ),
    )


def devices(log: str) -> list[tuple[str, str]]:
    """The (name, UUID) of each device that nvidia-smi -L lists; MIG devices replace the GPU that they are on."""
    matches = list(_DEVICE.finditer(log))
    slices = [(match["name"].split()[0], match["uuid"]) for match in matches if match["kind"] == "MIG"]
    return slices or [(match["name"].split(":", 1)[-1].strip(), match["uuid"]) for match in matches]


def check_devices(pool: PoolPlan, node: Node, logs: t.Mapping[str, str]) -> DeviceCheck:
    """Verify the logs: one device for each pod, and at most as many pods for each device as the mode allows."""
    problems: list[str] = []
    holders: Counter[str] = Counter()
    for pod, log in sorted(logs.items()):
        listed = devices(log)
        if len(listed) != 1:
            problems.append(f"{pod} lists {len(listed)} devices, 1 is expected; its log: {excerpt(log)}")
            continue
        name, uuid = listed[0]
        holders[uuid] += 1
        if uuid.startswith(_MIG_UUID):
            if name not in pool.sharing.profiles:
                problems.append(f"{pod} was given a MIG device {name}, which is not in the pool's layout")
        elif name and _plain(name) != _plain(node.model):
            problems.append(f"{pod} was given a {name}, but the node is labelled {node.model}")
    if not problems:
        problems.extend(_surplus_holders(pool, node, holders))
    return DeviceCheck(dict(sorted(holders.items())), tuple(problems))


def excerpt(log: str, limit: int = 300) -> str:
    """The end of a log on one line."""
    text = " | ".join(line.strip() for line in log.splitlines() if line.strip())
    return text[-limit:] or "(empty)"


def _surplus_holders(pool: PoolPlan, node: Node, holders: Counter[str]) -> t.Iterator[str]:
    replicas = pool.sharing.replicas
    count = expected_state.device_count(node, pool)
    if len(holders) > count:
        yield f"the pods were given {len(holders)} devices, but {node.name} has {count}"
    for uuid, pods in sorted(holders.items()):
        if pods > replicas:
            allowed = "one pod" if replicas == 1 else f"{replicas} pods"
            yield f"{uuid} was given to {pods} pods at once, mode {pool.mode} allows {allowed}"


def _plain(name: str) -> str:
    return name.replace(" ", "-").lower().removeprefix("nvidia-")


def _ran_together(statuses: t.Sequence[t.Mapping[str, t.Any]]) -> bool:
    """Whether all run now, or the last one started before the first one ended (whole seconds: strictly before)."""
    if statuses and all(status.get("phase") == "Running" for status in statuses):
        return True
    times = [time for status in statuses for time in run_times(status)]
    if len(times) != len(statuses) or not times:
        return False
    ends = [end for dummy, end in times if end]
    return not ends or max(start for start, dummy in times) < min(ends)


def run_times(status: t.Mapping[str, t.Any]) -> t.Iterator[tuple[str, str]]:
    """Start and end of each container (empty while it runs) as texts of the API, which sort by time."""
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        if state.get("running", {}).get("startedAt"):
            yield state["running"]["startedAt"], ""
        elif state.get("terminated", {}).get("startedAt"):
            yield state["terminated"]["startedAt"], state["terminated"].get("finishedAt", "")


def failure_reason(status: t.Mapping[str, t.Any]) -> str:
    """Why a pod has failed."""
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return f"ended with exit code {ended['exitCode']} ({ended.get('reason', 'Error')})"
    return f"refused: {status.get('reason', 'Failed')}: {status.get('message', 'no message')}"


def _final_waits(status: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _FINAL_WAITS:
            yield f"{waiting['reason']}: {waiting.get('message', 'no message')}"


def waiting_reason(status: t.Mapping[str, t.Any]) -> str:
    """Why a pod is not running yet."""
    for condition in status.get("conditions") or ():
        if condition.get("status") == "False" and condition.get("message"):
            return f"Pending, {condition.get('reason')}: {condition['message']}"
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            return f"Pending, {waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    return "Pending, not processed by the scheduler yet"
