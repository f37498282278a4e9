# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pods that run validation programs on nodes (pure)."""

from __future__ import annotations

import hashlib
import typing as t
from dataclasses import dataclass, replace

from ..catalog.names import VALIDATION_LABEL
from ..catalog.openshift import MACHINE_ANNOTATION, REQUIRED_SCC
from ..catalog.releases import parse_cuda_version, runs_on_cuda
from ..catalog.taints import STARTUP_TAINT_KEY, format_taint, untolerated_taints
from ..core.errors import InvalidOptions
from ..core.messages import abbreviate, field_path, is_whole, nearest, option_of_role, quote
from ..core.types import from_json, is_blank, to_integer
from ..nodes.node import Node, is_openshift
from ..nodes.node_check import device_count
from ..nodes.pods import GpuRequest
from ..pools.plan import POOL_KEYS
from ..schema import validators
from ..schema.validation_programs import DEVICE_PROGRAMS, KERNEL, PROGRAMS, Number

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan, ValidationPlan
    from ..schema.validation_programs import DeviceProgram, NodeProgram, Options, Program

# Specifies and checks all options of gpu_validation, except those of the connection, the variables and the Lease (pure).

# A user ID without permissions in most images.
UNPRIVILEGED_UID = 65534
# The largest user ID that Kubernetes accepts (validation of securityContext.runAsUser).
_MAX_UID = 2**31 - 1

# A boolean is the default of a switch, and a tuple is the default of a list of names. For the options of a program, see validation_programs.
OPTIONS: t.Mapping[str, Number | bool | tuple[str, ...]] = {
    "force": False,
    "image_pull_secrets": (),
    "run_as_user": Number(UNPRIVILEGED_UID, 0, _MAX_UID),
    "max_pods": Number(8, 1, 1000),
    "hold_seconds": Number(10, 1, 3600),
    "wait_timeout": Number(300, 1, 86400),
    "wait_sleep": Number(1, 1, 60),
    **{name: option for program in PROGRAMS for name, option in program.options.items()},
}


def option_spec() -> dict[str, dict[str, t.Any]]:
    """These options in the form of Ansible's argument specification."""
    return {name: _spec_of(option) for name, option in OPTIONS.items()}


def read_options(params: t.Mapping[str, t.Any], pools: t.Collection[str]) -> dict[str, t.Any]:
    """The values of all options; raises InvalidOptions with all invalid values. `pools`: the names of the pools."""
    values: dict[str, t.Any] = {}
    problems: list[str] = []
    for name, option in OPTIONS.items():
        values[name] = params[name]
        if isinstance(option, Number):
            values[name] = _numbers(params[name], option) if option.per_pool else params[name]
            problems += _problems(name, values[name], option, pools)
        elif isinstance(option, tuple):
            problems += (
                f"{_variable(name)}: {quote(item)} {problem}"
                for item in params[name]
                if (problem := validators.object_name(item))
            )
    if problems:
        raise InvalidOptions(problems)
    return values


def options_of_pool(options: t.Mapping[str, t.Any], pool: str) -> dict[str, t.Any]:
    """The options, with the pool's number in place of each map by pool."""
    return {
        name: value.get(pool, _default(name)) if isinstance(value, t.Mapping) else value
        for name, value in options.items()
    }


def _spec_of(option: Number | bool | tuple[str, ...]) -> dict[str, t.Any]:
    if isinstance(option, Number):
        return {"type": "raw" if option.per_pool else "int", "default": option.default}
    if isinstance(option, bool):
        return {"type": "bool", "default": option}
    # Without no_log: False, Ansible may mistake the option for a password because of its name.
    return {"type": "list", "elements": "str", "default": list(option), "no_log": False}


def _default(name: str) -> int:
    option = OPTIONS[name]
    return option.default if isinstance(option, Number) else 0


def _variable(option: str) -> str:
    return option_of_role(f"gpu_validation_{option}", option)


def _numbers(value: t.Any, option: Number) -> t.Any:
    """A number or a map of numbers by pool, which templates and surveys pass as text; other values are returned unchanged."""
    if value is None or is_blank(value):
        return option.default
    if isinstance(value, str):
        parsed = from_json(value)
        value = value if parsed is None else parsed
    if isinstance(value, t.Mapping):
        return {pool: _number(number) for pool, number in value.items()}
    return _number(value)


def _number(value: t.Any) -> t.Any:
    number = to_integer(value) if isinstance(value, str) else None
    return value if number is None else number


def _problems(name: str, value: t.Any, option: Number, pools: t.Collection[str]) -> t.Iterator[str]:
    if not isinstance(value, t.Mapping) or not option.per_pool:
        yield from _number_problems(_variable(name), value, option)
        return
    for pool, number in value.items():
        path = field_path(f"gpu_validation_{name}", pool)
        if pool not in pools:
            near = nearest(str(pool), pools)
            yield f"{path}: no pool has this name{f'; did you mean {near}?' if near else ''}"
        yield from _number_problems(path, number, replace(option, per_pool=False))


def _number_problems(subject: str, value: t.Any, option: Number) -> t.Iterator[str]:
    if not is_whole(value) or not (option.low <= value <= option.high or (option.or_zero and not value)):
        also = "0, or " if option.or_zero else ""
        by_pool = ", or a map of such numbers by pool" if option.per_pool else ""
        yield f"{subject}: {quote(value)} is not allowed; use {also}a number from {option.low} to {option.high}{by_pool}"


# Chooses the image of a program that fits a node's driver and GPUs (pure).


def choose_image(images: t.Mapping[str, str], node: Node) -> str:
    """The image with the newest CUDA version that the node's driver and GPUs support.

    If no image fits, or if the driver's version is unknown, the image with the oldest version is returned, which has the lowest requirements for the driver.
    """
    driver, compute = parse_cuda_version(node.cuda), parse_cuda_version(node.compute)
    by_version = {parse_cuda_version(text) or (0, 0): image for text, image in images.items()}
    fitting = [
        version for version in by_version if driver is not None and version <= driver and runs_on_cuda(version, compute)
    ]
    return by_version[max(fitting)] if fitting else by_version[min(by_version)]


# Chooses the nodes on which a pool is validated, and the resources that the pods request there (pure).

# The names of the negative checks in the results: one pod more than there are units, and a request for two shares.
ONE_MORE, TWO_SHARES = "one_more", "two_shares"

UsedGpus = t.Mapping[str, t.Sequence[GpuRequest]]


@dataclass(frozen=True)
class PodRequest:
    """One pod: its name within the test, its requested resource and count, and whether it holds the resource for a few seconds."""

    name: str
    resource: str
    count: int = 1
    holds: bool = True


@dataclass(frozen=True)
class ValidationSite:
    """The node on which a pool is validated, and the resource that each pod requests.

    `one_more`: the resource that these pods exhaust, so an additional pod must wait. `two_shares`: the resource
    for which a request for two shares must be rejected. If one of these is empty, its check cannot be run on this node.
    """

    node: Node
    resources: tuple[str, ...]
    one_more: str = ""
    two_shares: str = ""

    @property
    def pods(self) -> int:
        """The number of pods that run together."""
        return len(self.resources)

    @property
    def holders(self) -> tuple[PodRequest, ...]:
        """The pods that run together."""
        return tuple(PodRequest(str(index), resource) for index, resource in enumerate(self.resources))

    @property
    def negative_checks(self) -> tuple[PodRequest, ...]:
        """The pods that the node must not run at the same time; if they run anyway, they end immediately."""
        requests = (
            PodRequest(ONE_MORE, self.one_more, holds=False),
            PodRequest(TWO_SHARES, self.two_shares, count=2, holds=False),
        )
        return tuple(request for request in requests if request.resource)


@dataclass(frozen=True)
class NodeProgramSite:
    """The nodes of one run of a program, in the order of their ranks, and the number of GPUs on each."""

    program: NodeProgram
    pool: PoolPlan
    nodes: tuple[Node, ...]
    gpus: int

    def __str__(self) -> str:
        return f"{self.program.title} over {self.gpus * len(self.nodes)} GPUs of {', '.join(node.name for node in self.nodes)}"


@dataclass(frozen=True)
class NotTestable:
    """The reason why a pool cannot be validated now; busy: whether the pool's GPUs are in use, which is not a failure."""

    reason: str
    busy: bool = False


def schedulable_nodes(pool: PoolPlan, nodes: t.Iterable[Node]) -> list[Node] | NotTestable:
    """The nodes to which the pool's validation pods can be scheduled, or the reason why there are none.

    The startup taint keeps workloads away until a node is verified; other taints may indicate maintenance.
    """
    ready = [node for node in nodes if node.ready and not node.unschedulable and not node.has_taint(STARTUP_TAINT_KEY)]
    if not ready:
        return NotTestable("no node of the pool is ready and schedulable")
    taints = {node.name: untolerated_taints(pool.tolerations, node.taints) for node in ready}
    if not all(taints.values()):
        return [node for node in ready if not taints[node.name]]
    texts = [f"{', '.join(map(format_taint, taints[name]))} on {name}" for name in sorted(taints)]
    machine = next(
        (node.annotations[MACHINE_ANNOTATION] for node in ready if MACHINE_ANNOTATION in node.annotations), ""
    )
    first = (
        f"first from spec.taints of their Machines ({machine}), because the Machine API restores them, then "
        if machine
        else ""
    )
    return NotTestable(
        f"all nodes have taints that the pool does not declare: {abbreviate(texts, separator='; ')}. Remove them {first}with kubectl taint, "
        "or declare them in taints of the pool"
    )


def free_resources(pool: PoolPlan, node: Node, used: UsedGpus) -> dict[str, int]:
    """The number of units on the node that no pod holds, for each of the pool's resources."""
    return {
        name: node.allocatable.get(name, 0)
        - sum(request.count for request in used.get(node.name, ()) if request.resource == name)
        for name in pool.resources
    }


def choose_node(pool: PoolPlan, nodes: t.Sequence[Node], used: UsedGpus, limit: int) -> ValidationSite | NotTestable:
    """The node with the most free shares (then by name) and its pods, or the reason why there is none."""
    schedulable = schedulable_nodes(pool, nodes)
    if isinstance(schedulable, NotTestable):
        return schedulable
    allocatable = {node.name: {name: node.allocatable.get(name, 0) for name in pool.resources} for node in schedulable}
    candidates = [node for node in schedulable if any(allocatable[node.name].values())]
    if not candidates:
        return NotTestable(f"no node of the pool has allocatable {' or '.join(pool.resources)}")
    free = {node.name: free_resources(pool, node, used) for node in candidates}
    best = min(candidates, key=lambda node: (-sum(max(0, count) for count in free[node.name].values()), node.name))
    # Sharing can only be verified with at least one pod more than there are devices.
    pods = max(limit, device_count(best, pool) + 1) if pool.sharing.shared else limit
    # Takes one free unit of each resource in turn.
    turns = range(max(free[best.name].values()))
    resources = tuple(name for turn in turns for name, count in free[best.name].items() if count > turn)[:pods]
    if not resources:
        total = sum(sum(allocatable[node.name].values()) for node in candidates)
        return NotTestable(f"all {total} {' or '.join(pool.resources)} of the pool are in use", busy=True)
    return ValidationSite(best, resources, *_negative_checks(pool, allocatable[best.name], free[best.name], resources))


def _negative_checks(
    pool: PoolPlan, allocatable: t.Mapping[str, int], free: t.Mapping[str, int], resources: t.Sequence[str]
) -> tuple[str, str]:
    """The resources of the negative checks that can be run (one more pod, two shares).

    The scheduler may evict workloads with a lower priority in favor of a waiting pod, so no pod waits on a node where other pods hold a share.
    """
    alone = free == allocatable
    one_more = next(
        (name for name, count in allocatable.items() if alone and count and resources.count(name) == count), ""
    )
    two_shares = ""
    if pool.sharing.shared and pool.sharing.fail_requests_greater_than_one:
        name = resources[0]
        if free[name] - resources.count(name) > 1 or (alone and allocatable[name] > 1):
            two_shares = name
    return one_more, two_shares


def choose_nodes(
    program: NodeProgram, pool: PoolPlan, nodes: t.Sequence[Node], used: UsedGpus, options: Options
) -> NodeProgramSite | str:
    """The schedulable nodes with the most free GPUs for a program, or the reason why the program cannot run."""
    if pool.sharing.shared or pool.sharing.layout or pool.sharing.demand:
        return f"its GPUs are shared or partitioned, and {program.title} needs whole GPUs"
    count = program.node_count(options)
    free = {node.name: free_resources(pool, node, used)[pool.resource] for node in nodes}
    schedulable = schedulable_nodes(pool, nodes)
    if isinstance(schedulable, NotTestable):
        return schedulable.reason
    best = sorted(schedulable, key=lambda node: (-free[node.name], node.name))[:count]
    gpus = min((free[node.name] for node in best), default=0)
    if len(best) < count or gpus < program.min_gpus:
        return f"fewer than {count} of its nodes have {program.min_gpus} or more free GPUs"
    return NodeProgramSite(program, pool, tuple(best), gpus)


# Composes the pods that validate a pool (pure).

RUN_LABEL = "accel.gpu/run"
_LIST_DEVICES = "nvidia-smi -L"


@dataclass(frozen=True)
class Workload:
    """The settings for the pods of all pools: those of the cluster (gpu_cluster.validation) and the options of the run."""

    settings: ValidationPlan
    run_id: str
    options: Options

    def options_of(self, pool: PoolPlan) -> Options:
        """The values for the programs of one pool: the options of the run, the keys of the pool and, if not set there, those of gpu_cluster.validation."""
        keys = {key: value for key in POOL_KEYS if (value := getattr(pool, key)) is not None}
        return {**vars(self.settings), **keys, **options_of_pool(self.options, pool.name)}

    def user_on(self, node: Node) -> int | None:
        """The user ID of pods on a node; None if the platform assigns it.

        OpenShift assigns a user ID to each namespace (SCC restricted-v2, MustRunAsRange) and rejects the fixed default.
        """
        user: int = self.options["run_as_user"]
        return None if not user or (user == UNPRIVILEGED_UID and is_openshift(node)) else user

    def image(self, program: Program, node: Node) -> str:
        """The image of a program on a node."""
        return choose_image(self.settings.images[program.image], node)

    def device_programs(self, pool: PoolPlan) -> list[DeviceProgram]:
        """The requested programs of the pods that run together."""
        options = self.options_of(pool)
        return [program for program in DEVICE_PROGRAMS if program.requested(options)]

    def timeout(self, pool: PoolPlan) -> int:
        """The seconds within which these pods must complete."""
        options = self.options_of(pool)
        return int(options["wait_timeout"]) + sum(program.seconds(options) for program in self.device_programs(pool))


def pod_name(pool: PoolPlan, workload: Workload, suffix: str) -> str:
    """The name of a pod, unique for its pool, run and suffix."""
    return f"accel-gpu-validation-{pool.name}-{run_label(workload.run_id)}-{suffix.replace('_', '-')}"


def device_pod(pool: PoolPlan, site: ValidationSite, request: PodRequest, workload: Workload) -> dict[str, t.Any]:
    """A pod that lists its device, runs the kernel on it, keeps it for a few seconds, and exits.

    The other programs are init containers, which exit before the kernel starts. All containers use the same device (kubelet, device
    manager: devices of init containers are reused), so that a quota counts it once.
    """
    options, kernel, before = workload.options_of(pool), _LIST_DEVICES, []
    if request.holds:
        kernel = f"{_LIST_DEVICES} && {KERNEL.command(options)} && sleep {options['hold_seconds']}"
        before = [program for program in workload.device_programs(pool) if program is not KERNEL]

    def container_of(program: DeviceProgram, script: str) -> dict[str, t.Any]:
        return _container(program, workload.image(program, site.node), script, request)

    pod = _pod(pool, site.node, workload, request.name, workload.timeout(pool) + options["hold_seconds"])
    pod["spec"]["containers"] = [container_of(KERNEL, kernel)]
    if before:
        pod["spec"]["initContainers"] = [container_of(program, program.command(options)) for program in before]
    return pod


def node_program_pod(site: NodeProgramSite, rank: int, address: str, workload: Workload) -> dict[str, t.Any]:
    """The pod of one rank; `address`: the address of rank 0, empty for rank 0 itself, whose pod reads its own address."""
    program, node, options = site.program, site.nodes[rank], workload.options_of(site.pool)
    script = f"{_LIST_DEVICES} && {program.command(rank, site.gpus, options)}"
    request = PodRequest(program.name, site.pool.resource, count=site.gpus)
    main = _container(program, workload.image(program, node), script, request)
    source = {"value": address} if address else {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    # Open MPI and PyTorch write to the home folder, and NCCL writes to /dev/shm, which has 64 MiB in a container.
    values = {"HOME": "/tmp", **program.env}
    main["env"] = [{"name": name, "value": value} for name, value in values.items()] + [{"name": "RANK_0", **source}]
    main["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]
    pod = _pod(site.pool, node, workload, f"{program.name}-{rank}", options[program.timeout])
    pod["spec"].update(containers=[main], volumes=[{"name": "shm", "emptyDir": {"medium": "Memory"}}])
    return pod


def _container(program: Program, image: str, script: str, request: PodRequest) -> dict[str, t.Any]:
    """A container that runs a shell script with the requested devices."""
    return {
        "name": program.container,
        "image": image,
        "command": ["sh", "-c", script],
        "resources": {"limits": {request.resource: str(request.count)}, "requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _pod(pool: PoolPlan, node: Node, workload: Workload, suffix: str, deadline: int) -> dict[str, t.Any]:
    """A pod without containers, for one node of a pool, with the settings that all validation pods share."""
    security: dict[str, t.Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    user = workload.user_on(node)
    if user is not None:
        security.update(runAsUser=user, runAsGroup=user)
    annotations = {"annotations": dict(REQUIRED_SCC)} if user is None and is_openshift(node) else {}
    spec: dict[str, t.Any] = {
        "restartPolicy": "Never",
        "securityContext": security,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        # If the run is killed, its pods release their GPUs after this time.
        "activeDeadlineSeconds": deadline,
        "tolerations": [dict(toleration) for toleration in pool.tolerations],
        # The scheduler places the pod, so that its decisions are tested; DaemonSets use the same field.
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]}
                    ]
                }
            }
        },
    }
    pull_secrets = workload.options["image_pull_secrets"] or workload.settings.image_pull_secrets
    if pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in pull_secrets]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(pool, workload, suffix),
            "namespace": workload.settings.namespace,
            "labels": {
                VALIDATION_LABEL: pool.name,
                RUN_LABEL: run_label(workload.run_id),
                "app.kubernetes.io/managed-by": "accel.gpu",
            },
            **annotations,
        },
        "spec": spec,
    }


def run_label(run_id: str) -> str:
    """A run ID as a short label value."""
    return hashlib.sha256(run_id.encode()).hexdigest()[:8]
