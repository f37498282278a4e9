# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluates the pods that validate a pool (pure).

The pods must run together, each with its own device. A node must not run more pods than it has shares, and must reject a request for two shares of a
device.
"""

from __future__ import annotations

import re
import typing as t
from collections import Counter
from dataclasses import dataclass, field, replace

from ..catalog import models
from ..cluster_state import expected_state
from ..cluster_state.node import Node
from ..cluster_state.operand_pods import NEVER_STARTED
from ..schema.messages import MAX_NAMED
from ..validation_programs.program import excerpt
from .pods import Workload, pod_name
from .sites import ONE_MORE, TWO_SHARES, PodRequest, ValidationSite

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan

_DEVICE = re.compile(r"^\s*(?P<kind>GPU|MIG)\b(?P<name>.*?)\(UUID: (?P<uuid>(?:GPU|MIG)-[^)\s]+)\)", re.MULTILINE)
_MIG_UUID = "MIG-"
# Source: k8s-device-plugin internal/plugin/server.go, the same for time-slicing and MPS; observed on an H200.
_ONE_EACH = "maximum request size for shared resources is 1"
WAITED, REFUSED = "waited", "refused"
_UNANSWERED = {
    ONE_MORE: "the time limit was reached before it was known whether an additional pod must wait",
    TWO_SHARES: "the time limit was reached before it was known whether a request for two shares is rejected",
}

Pod = t.Mapping[str, t.Any]
Status = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class PodFailure:
    """The reason why a pod has failed or cannot start; `container` is the container that ended with an error, and `exit_code` is its exit code."""

    pod: str
    reason: str
    container: str = ""
    exit_code: int | None = None


@dataclass(frozen=True)
class PodObservation:
    """The state of the pods of one pool at one point in time."""

    phases: t.Mapping[str, int]
    together: bool
    ended: bool
    failures: tuple[PodFailure, ...] = ()
    waiting: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    # The pods whose main container has been started.
    started: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join(f"{count} {phase}" for phase, count in sorted(self.phases.items())) or "no pods"


@dataclass(frozen=True)
class DeviceCheck:
    """The devices in the logs of a pool's pods, and the results of `programs`; if there are no problems, the mode is verified.

    `summary`: the problems grouped by their cause, if the grouped form is shorter.
    """

    devices: t.Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    programs: t.Mapping[str, t.Any] = field(default_factory=dict)
    summary: tuple[str, ...] = ()

    @property
    def messages(self) -> list[str]:
        """The first MAX_NAMED problems and the number of remaining problems, for a message."""
        texts = list(self.summary or self.problems)
        more = len(texts) - MAX_NAMED
        return [*texts[:MAX_NAMED], *([f"and {more} more problems"] if more > 0 else [])]

    def with_problem(self, problem: str) -> DeviceCheck:
        """A copy with one more problem, which comes first in messages."""
        return replace(self, problems=(*self.problems, problem), summary=(problem, *(self.summary or self.problems)))


@dataclass(frozen=True)
class NegativeResult:
    """The cluster's reaction to the pod of a negative check; `problem` is empty if the reaction is correct."""

    answer: str
    problem: str = ""


@dataclass
class PoolTest:
    """The test of one pool: its pods on one node, and the results so far."""

    pool: PoolPlan
    site: ValidationSite
    workload: Workload
    ran_together: bool = False
    # The reasons why the API server has rejected pods, by name.
    rejected: dict[str, str] = field(default_factory=dict)
    observation: PodObservation = field(default_factory=lambda: PodObservation({}, together=False, ended=False))
    _answers: dict[str, NegativeResult] = field(default_factory=dict)
    _waiting: dict[str, str] = field(default_factory=dict)

    def pod_name(self, request: PodRequest) -> str:
        """The name of one of the pods."""
        return pod_name(self.pool, self.workload, request.name)

    @property
    def pod_names(self) -> tuple[str, ...]:
        """The names of all pods."""
        return tuple(map(self.pod_name, (*self.site.holders, *self.site.negative_checks)))

    def update(self, pods: t.Mapping[str, Pod]) -> None:
        """Evaluate the current pods, which are given by name."""
        holders = {request: pods[name] for request in self.site.holders if (name := self.pod_name(request)) in pods}
        self.observation = observe(list(holders.values()), self.site.pods)
        self.ran_together = self.ran_together or self.observation.together
        for request in self.site.negative_checks:
            pod = pods.get(self.pod_name(request))
            if pod is None or request.name in self._answers:
                continue
            if request.name == TWO_SHARES:
                answer = two_shares_result(pod, request.resource)
            else:
                rivals = [other for holder, other in holders.items() if holder.resource == request.resource]
                answer = one_more_result(
                    pod, rivals, request.resource, ran_together=self.ran_together, ended=self.observation.ended
                )
            if answer:
                self._answers[request.name] = answer
            else:
                self._waiting[request.name] = waiting_reason(pod.get("status") or {})

    @property
    def finished(self) -> bool:
        """Whether no more results can be expected. After a failure, the test waits for pods that still run the kernel, because they may also fail."""
        answered = len(self._answers) == len(self.site.negative_checks)
        failed = bool(self.failures) and not self.observation.running
        return failed or (self.observation.ended and answered)

    @property
    def failures(self) -> tuple[PodFailure, ...]:
        """The pods that have failed, cannot start or were rejected."""
        return (*self.observation.failures, *rejections(self.rejected))

    @property
    def disproves(self) -> bool:
        """Whether a failure disproves earlier evidence, because the devices were used and no quota or policy has rejected a pod."""
        return bool(self.observation.started) and not self.rejected

    @property
    def answers(self) -> dict[str, str]:
        """The results of the negative checks that could be run on this node."""
        return {name: result.answer for name, result in self._answers.items()}

    @property
    def problems(self) -> tuple[str, ...]:
        """Descriptions of the wrong and missing results of the negative checks."""
        wrong = [result.problem for result in self._answers.values() if result.problem]
        missing = [request.name for request in self.site.negative_checks if request.name not in self._answers]
        return (*wrong, *(f"{_UNANSWERED[name]}: {self._waiting.get(name, 'no pod')}" for name in missing))


def rejections(rejected: t.Mapping[str, str]) -> tuple[PodFailure, ...]:
    """The failures of pods that the API server has rejected, with the reasons by pod."""
    return tuple(PodFailure(pod, f"rejected: {reason}") for pod, reason in rejected.items())


def observe(pods: t.Sequence[Pod], expected: int) -> PodObservation:
    """The state of a pool's pods; `together` is true if all of them have been running at the same time."""
    statuses = [(pod["metadata"]["name"], pod.get("status") or {}) for pod in pods]
    phases = Counter(str(status.get("phase") or "Pending") for dummy, status in statuses)
    failures = tuple(pod_failure(name, status) for name, status in statuses if status.get("phase") == "Failed")
    return PodObservation(
        phases=dict(phases),
        together=len(pods) == expected and _ran_together([status for dummy, status in statuses]),
        ended=len(pods) == expected and phases["Succeeded"] + phases["Failed"] == expected,
        failures=failures
        + tuple(PodFailure(name, reason) for name, status in statuses for reason in _final_waits(status)),
        running=tuple(name for name, status in statuses if status.get("phase") == "Running"),
        started=tuple(name for name, status in statuses if any(run_times(status))),
        waiting=tuple(
            f"{name}: {waiting_reason(status)}"
            for name, status in statuses
            if (status.get("phase") or "Pending") == "Pending"
        ),
    )


def one_more_result(
    pod: Pod, holders: t.Sequence[Pod], resource: str, *, ran_together: bool, ended: bool
) -> NegativeResult | None:
    """Whether an additional pod had to wait while the `holders` held all units of the resource; None if this is not known yet.

    `ran_together`: all holders have been running at the same time; `ended`: all have terminated. The pod has waited if it was
    unschedulable while all holders ran, or started no sooner than the first of them ended (in whole seconds, on the node's clock).
    """
    status = pod.get("status") or {}
    if status.get("phase") == "Failed":
        reason = pod_failure("", status).reason
        return NegativeResult("failed", f"the pod in addition to {len(holders)} others did not wait: {reason}")
    started = [start for start, dummy in run_times(status)]
    if not started:
        waits = any(
            condition.get("reason") == "Unschedulable" and f"Insufficient {resource}" in condition.get("message", "")
            for condition in status.get("conditions") or ()
        )
        running = all((holder.get("status") or {}).get("phase") == "Running" for holder in holders)
        return NegativeResult(WAITED) if waits and (ended or running) else None
    ends = [end for holder in holders for dummy, end in run_times(holder.get("status") or {}) if end]
    if ends and started[0] >= min(ends):
        return NegativeResult(WAITED)
    if ran_together:
        return NegativeResult(
            "ran", f"one more pod ran in addition to the {len(holders)} that hold all {resource} of the node"
        )
    return None


def two_shares_result(pod: Pod, resource: str) -> NegativeResult | None:
    """Whether a request for two shares was rejected; None if this is not known yet."""
    status = pod.get("status") or {}
    if status.get("phase") == "Failed":
        reason = pod_failure("", status).reason
        if _ONE_EACH in reason:
            return NegativeResult(REFUSED)
        return NegativeResult(
            "failed", f"a request for two {resource} failed for a reason other than its size: {reason}"
        )
    if list(run_times(status)):
        return NegativeResult(
            "granted", f"a request for two {resource} was granted, even though failRequestsGreaterThanOne is set"
        )
    return None


def devices(log: str) -> list[tuple[str, str]]:
    """The (name, UUID) of each device that nvidia-smi -L lists; MIG devices are listed instead of their GPU."""
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
            problems.append(f"{pod} lists {len(listed)} devices, but 1 is expected; its log: {excerpt(log)}")
            continue
        name, uuid = listed[0]
        holders[uuid] += 1
        if uuid.startswith(_MIG_UUID):
            if name not in pool.sharing.profiles:
                problems.append(f"{pod} was given a MIG device {name}, which is not in the pool's layout")
        elif name and models.normalized(name) != models.normalized(node.model):
            problems.append(f"{pod} was given a {name}, but the node is labeled {node.model}")
    if not problems:
        problems.extend(_surplus_holders(pool, node, holders))
    return DeviceCheck(dict(sorted(holders.items())), tuple(problems))


def _surplus_holders(pool: PoolPlan, node: Node, holders: Counter[str]) -> t.Iterator[str]:
    replicas = pool.sharing.replicas
    count = expected_state.device_count(node, pool)
    if len(holders) > count:
        yield f"the pods were given {len(holders)} devices, but {node.name} has {count}"
    for uuid, pods in sorted(holders.items()):
        if pods > replicas:
            allowed = "one pod" if replicas == 1 else f"{replicas} pods"
            yield f"{uuid} was given to {pods} pods at the same time, but mode {pool.mode} allows {allowed}"


def _ran_together(statuses: t.Sequence[Status]) -> bool:
    """Whether all pods are running now, or the last one started before the first one ended (times are whole seconds, so strictly before)."""
    if statuses and all(status.get("phase") == "Running" for status in statuses):
        return True
    times = [time for status in statuses for time in run_times(status)]
    if len(times) != len(statuses) or not times:
        return False
    ends = [end for dummy, end in times if end]
    return not ends or max(start for start, dummy in times) < min(ends)


def run_times(status: Status) -> t.Iterator[tuple[str, str]]:
    """The start and the end (empty while it runs) of each container, as text in the API's format, which sorts by time."""
    for dummy, state in _container_states(status, ("containerStatuses",)):
        running, ended = state.get("running") or {}, state.get("terminated") or {}
        if running.get("startedAt"):
            yield running["startedAt"], ""
        elif ended.get("startedAt"):
            yield ended["startedAt"], ended.get("finishedAt", "")


def pod_failure(name: str, status: Status) -> PodFailure:
    """The reason why a pod has failed."""
    for container, state in _container_states(status):
        ended = state.get("terminated") or {}
        if code := ended.get("exitCode"):
            message = f": {ended['message'].strip()}" if ended.get("message") else ""
            reason = f"{container or 'it'} ended with exit code {code} ({ended.get('reason', 'Error')}){message}"
            return PodFailure(name, reason, container, int(code))
    return PodFailure(name, f"refused: {status.get('reason', 'Failed')}: {status.get('message', 'no message')}")


def waiting_reason(status: Status) -> str:
    """The reason why a pod is not running yet."""
    for condition in status.get("conditions") or ():
        if condition.get("status") == "False" and condition.get("message"):
            return f"Pending, {condition.get('reason')}: {condition['message']}"
    for dummy, state in _container_states(status):
        waiting = state.get("waiting") or {}
        if waiting.get("reason"):
            return f"Pending, {waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    return "Pending, not processed by the scheduler yet"


def _final_waits(status: Status) -> t.Iterator[str]:
    for dummy, state in _container_states(status):
        waiting = state.get("waiting") or {}
        if waiting.get("reason") in NEVER_STARTED:
            yield f"{waiting['reason']}: {waiting.get('message', 'no message')}"


def _container_states(
    status: Status, kinds: t.Sequence[str] = ("initContainerStatuses", "containerStatuses")
) -> t.Iterator[tuple[str, t.Mapping[str, t.Any]]]:
    """The name and the state of each container."""
    for kind in kinds:
        for container in status.get(kind) or ():
            yield container.get("name", ""), container.get("state") or {}
