# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluates the results of validation programs, explains failures, and keeps the evidence."""

from __future__ import annotations

import hashlib
import json
import re
import time
import typing as t
from collections import Counter
from dataclasses import dataclass, field, replace

from ..catalog import models
from ..catalog.names import MPS_MODE
from ..catalog.releases import CudaVersion, parse_cuda_version
from ..core.messages import MAX_NAMED, abbreviate
from ..core.values import parse_json
from ..kube.paths import object_path
from ..nodes.node_check import device_count, expected_gpus
from ..nodes.pods import NEVER_STARTED
from ..schema.validation_programs import KERNEL, PROGRAMS, excerpt
from .pods import ONE_MORE, TWO_SHARES, PodRequest, ValidationSite, Workload, choose_image, pod_name

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..nodes.node import Node
    from ..pools.plan import Membership, Plan, PoolPlan
    from ..schema.validation_programs import Options, Program

# Describes failures of pods with their devices, logs and remedies, one by one or grouped by cause (pure).


@dataclass(frozen=True)
class ExplainedFailure:
    """The reason why a pod has failed, with the UUID of its device, its log (None: no log) and the remedy, as far as they are known."""

    pod: str
    reason: str
    device: str = ""
    log: str | None = None
    remedy: str = ""

    def __str__(self) -> str:
        log = "" if self.log is None else f"; its log: {excerpt(self.log)}"
        return self._with_remedy(f"{self.pod}{f' on {self.device}' if self.device else ''}: {self.reason}{log}")

    def describe_group(self, others: t.Sequence[ExplainedFailure], total: int) -> str:
        """The description of this failure and of the `others` with the same cause, out of `total` pods."""
        group = [self, *others]
        devices = list(dict.fromkeys(each.device for each in group if each.device))
        kind = "GPU" if all(device.startswith("GPU-") for device in devices) else "device"
        where = (
            f" on {len(devices)} {kind}{'' if len(devices) == 1 else 's'} ({abbreviate(devices)})" if devices else ""
        )
        names = "" if devices else f" ({abbreviate([each.pod for each in group])})"
        log = "" if self.log is None else f"; log of {self.pod}: {excerpt(self.log)}"
        return self._with_remedy(f"{len(group)} of {total} pods{where}{names}: {self.reason}{log}")

    def _with_remedy(self, text: str) -> str:
        return f"{text}. {self.remedy}" if self.remedy else text


def group_failures(failures: t.Iterable[ExplainedFailure], total: int) -> tuple[str, ...]:
    """One description for each cause (reason and remedy), with the number of its pods and their devices; `total` is the number of all pods."""
    groups: dict[tuple[str, str], list[ExplainedFailure]] = {}
    for failure in failures:
        groups.setdefault((failure.reason, failure.remedy), []).append(failure)
    return tuple(
        str(group[0]) if len(group) == 1 else group[0].describe_group(group[1:], total) for group in groups.values()
    )


# Evaluates the pods that validate a pool (pure).
#
# The pods must run together, each with its own device. A node must not run more pods than it has shares, and must reject a request for two shares of a
# device.

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
    count = device_count(node, pool)
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


# Explains why a program failed, based on its output, and names the remedy (pure).

# In coreutils, timeout exits with 124 if its signal ended the program, and with 137 if the program had to be killed.
_TIMEOUT_CODES = (124, 137)
_COMMANDS = "|".join(["timeout", *(command for program in PROGRAMS for command in program.commands)])

# An image's requirement in a message of nvidia-container-cli, and the CUDA version in an image's tag.
_REQUIREMENT = re.compile(r"unsatisfied condition: cuda>=(\d{1,4}\.\d{1,4})")
_TAG = re.compile(r"cuda-?(\d{1,4}\.\d{1,4})", re.IGNORECASE)

_REPAIR = (
    "cordon the node, look for XIDs in its kernel log (dmesg | grep NVRM) and for errors in nvidia-smi -q -d ECC,ROW_REMAPPER, "
    "run dcgmi diag -r 3, then reset or replace the GPU"
)


@dataclass(frozen=True)
class _Finding:
    """A pattern in a log or message, and its explanation, into which the values of _values() are inserted.

    `if_supported`: the explanation if the driver of the node supports the required CUDA version.
    """

    pattern: re.Pattern[str]
    meaning: str
    if_supported: str = ""


def _finding(pattern: str, meaning: str, if_supported: str = "") -> _Finding:
    return _Finding(re.compile(pattern, re.IGNORECASE), meaning, if_supported)


# The failures that any program can have; for the program's own messages, see Program.failures. CUDA's messages are those of
# cudaGetErrorString; "requirement error" is a message of nvidia-container-cli.
_FINDINGS = (
    _finding(
        r"exceeded quota",
        "Raise the limit of this ResourceQuota in the namespace of the pods (gpu_cluster.validation.namespace), "
        "or lower gpu_validation_max_pods. One more pod than GPUs or shares is created to verify that it must wait",
    ),
    _finding(
        r"driver version is insufficient|unsatisfied condition: cuda|PTX was compiled with an unsupported toolchain",
        "Driver {driver} supports CUDA {cuda}, and {image} needs a newer one. Update the driver (driver.version of the pool, or "
        "gpu_cluster.operator.driver.version), or set {variable} to an image for CUDA {cuda} or older",
        "Driver {driver} supports CUDA {cuda}, which is sufficient for {image}, so the container does not use this driver. Look for an older "
        "libcuda.so or CUDA compatibility libraries in the image and in its LD_LIBRARY_PATH, check the container toolkit's pod on the node, "
        "and compare the node's label nvidia.com/cuda.driver-version.full with nvidia-smi on the node",
    ),
    _finding(
        r"ECC error|hardware stack error|GPU is lost|unspecified launch failure", "The GPU reports errors: {repair}"
    ),
    _finding(
        r"no kernel image is available",
        "{image} has no code for {model} (compute capability {compute}). Set {variable} to an image of "
        "a CUDA version that supports it",
    ),
    _finding(
        r"system not yet initialized|system has unsupported",
        "NVSwitch is not initialized: check on the node that Fabric Manager runs in the driver's version (nvidia-smi -q | grep -A2 Fabric)",
    ),
    _finding(
        r"devices?(?:\(s\))? (?:is/are |are )?busy or unavailable|exclusive-process",
        "Another process holds the GPU in exclusive mode: check nvidia-smi -q -d COMPUTE and the MPS control daemon on the node",
    ),
    _finding(r"out of memory", "Other processes use the GPU's memory: list them with nvidia-smi on the node"),
    _finding(
        r"no CUDA-capable device|unknown error|initialization error|operation not supported|driver/library version mismatch",
        "CUDA cannot use the device that nvidia-smi lists: check the driver's and the container toolkit's pods on the node, "
        "and reboot it if the driver was replaced while it was in use",
    ),
    _finding(
        r"nvidia-smi.*(?:not found|no such file)|executable file not found",
        "The container toolkit has not mounted the driver into the container: check the toolkit's pod and the RuntimeClass nvidia",
    ),
    _finding(
        rf"(?:{_COMMANDS})\b.*(?:not found|no such file)",
        "{image} lacks this program. Remove {variable} to use NVIDIA's image, or set it to one with the program in its PATH",
    ),
    _finding(
        r"OOMKilled", "The pod reached its memory limit: raise the default limit of the LimitRange in its namespace"
    ),
)


def required_cuda(text: str, image: str) -> CudaVersion | None:
    """The CUDA version that a message requires, or otherwise the version in the image's tag; None if neither is known."""
    match = _REQUIREMENT.search(text) or _TAG.search(image.rpartition(":")[2])
    return parse_cuda_version(match[1]) if match else None


def diagnose(text: str, node: Node, program: Program, image: str, exit_code: int | None = None) -> str:
    """The cause of a program's failure on a node, with the remedy, as a sentence; empty if it is unknown."""
    own = (_finding(pattern, meaning) for pattern, meaning in program.failures.items())
    for finding in (*own, *_FINDINGS):
        if finding.pattern.search(text):
            required, supported = required_cuda(text, image), parse_cuda_version(node.cuda)
            is_supported = required is not None and supported is not None and required <= supported
            meaning = finding.if_supported if finding.if_supported and is_supported else finding.meaning
            return f"{meaning.format(**_values(node, program, image))}."
    return (program.timeout_remedy or hang(node)) if exit_code in _TIMEOUT_CODES else ""


def _values(node: Node, program: Program, image: str) -> dict[str, str]:
    return {
        "image": image,
        "variable": f"gpu_cluster.validation.{program.image}",
        "driver": node.driver or "(unknown)",
        "cuda": node.cuda or "(unknown)",
        "compute": node.compute or "unknown",
        "model": node.model or "the GPU",
        "repair": _REPAIR,
    }


def hang(node: Node) -> str:
    """The remedy for a program that does not end."""
    mps = " With MPS, processes of another user id wait for each other: set gpu_validation_run_as_user to that of the workloads."
    return f"The GPU does not respond: {_REPAIR}.{mps if node.mode == MPS_MODE else ''}"


# Defines the stored results of validations, with a hash of their inputs: while the hash is unchanged, a verified pool is not validated again.

VERIFIED, FAILED = "verified", "failed"
# Results that an entry contains only if they apply.
_RESULTS = ("image", *(program.name for program in PROGRAMS), ONE_MORE, TWO_SHARES)


def fingerprint_inputs(pool: PoolPlan, nodes: t.Iterable[Node], images: t.Mapping[str, str]) -> dict[str, t.Any]:
    """The data that the result of a validation depends on: the pool's declaration and each kind of node in it, without the nodes' names.

    If a setting that affects the result is missing here, a verified pool is not validated again after the setting changes.
    `images`: the kernel's images by CUDA version. The nodes of a pool are alike, so an additional node does not require another validation.
    """
    kinds = {
        json.dumps(
            {
                "model": node.model,
                "driver": node.driver,
                "gpus": expected_gpus(node, pool),
                "allocatable": {name: node.allocatable.get(name, 0) for name in pool.resources},
                "mode": node.mode,
                "replicas": node.replicas,
                "image": choose_image(images, node),
            },
            sort_keys=True,
        )
        for node in nodes
    }
    return {
        "mode": pool.mode,
        "replicas": pool.sharing.replicas,
        "mig": pool.mig_key,
        **({"demand": dict(pool.sharing.demand)} if pool.sharing.demand else {}),
        "tolerations": list(pool.tolerations),
        "nodes": [json.loads(kind) for kind in sorted(kinds)],
    }


def inputs_by_pool(plan: Plan, nodes: t.Mapping[str, Node], membership: Membership) -> dict[str, dict[str, t.Any]]:
    """The result of fingerprint_inputs() for each pool, by pool name; `nodes` are given by name."""
    images = plan.validation.images[KERNEL.image]
    return {
        pool.name: fingerprint_inputs(pool, [nodes[name] for name in membership.by_pool[pool.name]], images)
        for pool in plan.pools
    }


def fingerprint(inputs: t.Mapping[str, t.Any]) -> str:
    """The hash of the inputs that fingerprint_inputs() returns."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=dict).encode()).hexdigest()[:16]


def verified_entry(
    inputs: t.Mapping[str, t.Any], node: str, devices: t.Mapping[str, int], results: t.Mapping[str, t.Any]
) -> dict[str, t.Any]:
    """The evidence of a verified pool; `results`: the results of the programs and negative checks."""
    return {"evidence": fingerprint(inputs), "inputs": inputs, "node": node, "devices": dict(devices), **results}


def failed_entry(
    inputs: t.Mapping[str, t.Any], node: str, devices: t.Mapping[str, int], problems: t.Sequence[str], seconds: float
) -> dict[str, t.Any]:
    """The record of a failed validation, which is shown until the pool is verified; `seconds` is its time in seconds since 1970."""
    failure = {"status": FAILED, "problems": [" ".join(problem.split()) for problem in problems]}
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    return verified_entry(inputs, node, devices, {**failure, "time": when})


def is_verified(entry: t.Mapping[str, t.Any] | None, inputs: t.Mapping[str, t.Any]) -> bool:
    """Whether an entry is evidence that a pool with these inputs was verified."""
    return entry is not None and not has_failed(entry) and entry.get("evidence") == fingerprint(inputs)


def has_failed(entry: t.Mapping[str, t.Any]) -> bool:
    """Whether an entry is the record of a failed validation."""
    return entry.get("status") == FAILED


def read_evidence(configmap: t.Mapping[str, t.Any] | None) -> dict[str, dict[str, t.Any]]:
    """The entries of earlier runs by pool; unreadable entries are ignored."""
    entries = {pool: parse_json(text, dict) for pool, text in ((configmap or {}).get("data") or {}).items()}
    return {pool: entry for pool, entry in entries.items() if entry is not None}


def validated_pools(
    client: Client, plan: Plan, nodes: t.Iterable[Node], membership: Membership
) -> dict[str, dict[str, t.Any]]:
    """The `status` and results of each pool's last validation, and whether the results are still `current`, by pool.

    The nodes of a pool are alike, so the results are current even if their node has left the pool (`in_pool`).
    """
    configmap = client.get(object_path("v1", "ConfigMap", plan.validation.configmap, plan.validation.namespace))
    inputs = inputs_by_pool(plan, {node.name: node for node in nodes}, membership)
    return {
        pool: {
            "status": FAILED if has_failed(entry) else VERIFIED,
            **entry_results(entry),
            **({key: entry.get(key) for key in ("problems", "time")} if has_failed(entry) else {}),
            "current": entry.get("evidence") == fingerprint(inputs[pool]),
            "in_pool": entry.get("node") in membership.by_pool[pool],
        }
        for pool, entry in read_evidence(configmap).items()
        if pool in inputs
    }


def entry_results(entry: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The results in an entry, without negative checks that could not be run."""
    results = {key: entry[key] for key in _RESULTS if key in entry}
    return {"node": entry.get("node"), "devices": entry.get("devices") or {}, **results}


def evidence_covers(entry: t.Mapping[str, t.Any], options: Options) -> bool:
    """Whether an entry contains the results of all programs that are requested now."""
    return all(program.covers(entry.get(program.name), options) for program in PROGRAMS if program.requested(options))
