# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Composes the pods that validate a pool (pure)."""

from __future__ import annotations

import hashlib
import typing as t
from dataclasses import dataclass

from ..catalog.olm import REQUIRED_SCC
from ..cluster_state.distribution import is_openshift
from ..cluster_state.node import Node
from ..pools.plan import POOL_KEYS
from ..validation_programs.programs import DEVICE_PROGRAMS, KERNEL
from .images import choose_image
from .options import UNPRIVILEGED_UID, options_of_pool
from .sites import PodRequest

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan, ValidationPlan
    from ..validation_programs.program import DeviceProgram, Options, Program
    from .sites import NodeProgramSite, ValidationSite

POOL_LABEL = "accel.gpu/validation"
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
                POOL_LABEL: pool.name,
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
