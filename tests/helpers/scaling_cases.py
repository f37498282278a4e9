# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pools with their MachineSets and the ClusterAutoscaler, correct ones and with a mistake, for tests of scaling from zero."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.accel.gpu.plugins.module_utils.clouds.machineset_groups import machine_sets_after
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.autoscaling import (
    ClusterObjects,
    explain_pools,
    objects_after_run,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.scaling_state import (
    AutoscalerState,
    ScalingExplanation,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import parse_node
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Plan, PoolPlan

from .machine_sets import ACCELERATOR, MAX_SIZE, MIN_SIZE, NEW, OLD, ZONE, cluster_autoscaler, machine_set

Object = dict[str, Any]

TEAM = "example.com/team"
VERSIONS = ("4.16.20", "4.18.14", "4.20.3", "5.0.0")
TAINT = {"key": "restrictedaccess", "value": "yes", "effect": "NoSchedule"}

POOLS: dict[str, Object] = {
    # T4, each shared by four pods: a node offers four.
    "t4": {
        "match": {"model": "T4"},
        "gpus_per_node": 1,
        "labels": {TEAM: "a"},
        "taints": [TAINT],
        "sharing": {"mode": "time-slicing", "replicas": 4},
    },
    # The same, but renamed: nvidia.com/gpu.shared.
    "renamed": {
        "match": {"model": "T4"},
        "gpus_per_node": 1,
        "sharing": {"mode": "time-slicing", "replicas": 4, "rename": True},
    },
    "mixed": {
        "match": {"model": "A100-SXM4-80GB"},
        "gpus_per_node": 1,
        "sharing": {"mode": "mig", "strategy": "mixed", "layout": {"1g.10gb": 7}},
    },
    # A virtual machine with one vGPU.
    "vgpu": {"match": {"model": "A100-SXM4-80GB"}, "gpus_per_node": 1, "labels": {TEAM: "a"}},
}
RESOURCES = {
    "renamed": ("nvidia.com/gpu.shared", 4),
    "mixed": ("nvidia.com/mig-1g.10gb", 7),
    "t4": ("nvidia.com/gpu", 4),
}


@dataclass
class Scene:
    """The objects of one pool; tests change them in place."""

    pool: PoolPlan
    version: str
    machine_set: Object
    autoscaler: Object | None
    machine_autoscalers: list[Object] = field(default_factory=list)
    nodes: list[Object] = field(default_factory=list)

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of the MachineSet."""
        annotations: dict[str, str] = self.machine_set["metadata"]["annotations"]
        return annotations

    @property
    def template(self) -> Object:
        """The spec of its machines."""
        template: Object = self.machine_set["spec"]["template"]["spec"]
        return template

    @property
    def limits(self) -> Object:
        """The resource limits of the ClusterAutoscaler."""
        assert self.autoscaler is not None
        limits: Object = self.autoscaler["spec"]["resourceLimits"]
        return limits

    def objects(self) -> ClusterObjects:
        """The objects as they are read."""
        return ClusterObjects(
            self.version,
            (self.machine_set,),
            tuple(self.machine_autoscalers),
            self.autoscaler,
            nodes=tuple(parse_node(node) for node in self.nodes),
        )

    def state(self) -> AutoscalerState:
        """The objects as the explanation reads them."""
        return self.objects().state

    def set_label(self, key: str, value: str | None) -> None:
        """Set or remove a label in the template, and in the annotation for the autoscaler."""
        labels = self.template["metadata"]["labels"]
        labels.pop(key, None)
        if value is not None:
            labels[key] = value
        self.annotations[f"{NEW}labels"] = ",".join(f"{name}={text}" for name, text in labels.items())

    def remove(self, *keys: str) -> None:
        """Remove annotations."""
        for key in keys:
            self.annotations.pop(key, None)


def scene(pool: str, version: str) -> Scene:
    """A pool whose MachineSet has everything that the autoscaler needs."""
    plan = derive({"name": "lab"}, {}, [{"name": pool, **POOLS[pool]}]).pools[0]
    resource, count = RESOURCES.get(pool, ("nvidia.com/gpu", 1))
    labels = dict(plan.registration.node_labels)
    if resource == "nvidia.com/gpu":
        labels[ACCELERATOR] = plan.accelerator or ""
    raw = machine_set(
        pool, labels=labels, gpus=count, gpu_type=resource, taints=[dict(taint) for taint in plan.registration.taints]
    )
    raw["metadata"]["labels"] = {"accel.gpu/nodegroup": pool}
    limits: list[Object] = [
        {"type": plan.accelerator, "min": 0, "max": 4 * count},
        {"type": "other", "min": 0, "max": 1},
    ]
    return Scene(plan, version, raw, cluster_autoscaler(limits))


def explained(plan: Plan, actual: ClusterObjects) -> list[ScalingExplanation]:
    """The explanations of all pools, as the module gpu_info returns them."""
    return explain_pools(plan, actual, machine_sets_after(plan.nodegroups, actual.machine_sets, actual.state.rules))


def after_run(plan: Plan, actual: ClusterObjects) -> ClusterObjects:
    """The predicted objects."""
    return objects_after_run(plan, actual, machine_sets_after(plan.nodegroups, actual.machine_sets, actual.state.rules))


def node(name: str, *, machine: str = "", gpus: int = 0, accelerator: str = "") -> Object:
    """A node that is ready."""
    labels = {ACCELERATOR: accelerator} if accelerator else {}
    annotations = {"machine.openshift.io/machine": f"openshift-machine-api/{machine}"} if machine else {}
    return {
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus), "cpu": "4"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


Change = Callable[[Scene], None]


def _without_autoscaler(scene: Scene) -> None:
    scene.autoscaler = None


def _full(scene: Scene) -> None:
    scene.machine_set["spec"]["replicas"] = 4


def _limit_reached(scene: Scene) -> None:
    """Nodes of another pool use all GPUs of the type."""
    kind, most = scene.limits["gpus"][0]["type"], scene.limits["gpus"][0]["max"]
    scene.nodes.append(node("other", gpus=most, accelerator=kind))


def _too_many_nodes(scene: Scene) -> None:
    scene.limits["maxNodesTotal"] = 2
    scene.nodes += [node("a"), node("b")]


def _priority(scene: Scene) -> None:
    assert scene.autoscaler is not None
    scene.autoscaler["spec"]["podPriorityThreshold"] = 10


def _foreign_taint(scene: Scene) -> None:
    scene.template["taints"].append({"key": "dedicated", "value": "team-a", "effect": "NoSchedule"})


# A mistake, the code of its finding, the releases on which it prevents scaling, and the labels of the pods that it concerns (none: all pods).
@dataclass(frozen=True)
class Mistake:
    """One mistake in a scene."""

    code: str
    make: Change
    versions: tuple[str, ...] = VERSIONS
    labels: tuple[str, ...] = ()


OLD_VERSIONS, NEW_VERSIONS = ("4.16.20", "4.18.14"), ("5.0.0",)

MISTAKES: dict[str, Mistake] = {
    "no ClusterAutoscaler": Mistake("cluster_autoscaler", _without_autoscaler),
    "no MachineAutoscaler": Mistake("machine_autoscaler", lambda scene: scene.remove(MIN_SIZE, MAX_SIZE)),
    "fixed size": Mistake("fixed_size", lambda scene: scene.annotations.update({MIN_SIZE: "4"}), ("4.16.20",)),
    "maximum 0": Mistake("bounds", lambda scene: scene.annotations.update({MAX_SIZE: "0"})),
    "all nodes exist": Mistake("maximum", _full),
    "only old keys": Mistake(
        f"missing {NEW}cpu", lambda scene: scene.remove(*(f"{NEW}{key}" for key in ("cpu", "memory"))), NEW_VERSIONS
    ),
    "only new keys": Mistake(
        f"missing {OLD}vCPU", lambda scene: scene.remove(*(f"{OLD}{key}" for key in ("vCPU", "memoryMb"))), OLD_VERSIONS
    ),
    "unreadable memory": Mistake(
        f"unreadable {OLD}memoryMb", lambda scene: scene.annotations.update({f"{OLD}memoryMb": "16Gi"}), OLD_VERSIONS
    ),
    "no old GPU count": Mistake("gpu_count", lambda scene: scene.remove(f"{OLD}GPU"), OLD_VERSIONS),
    "no GPU count": Mistake("gpu_count", lambda scene: scene.remove(f"{OLD}GPU", f"{NEW}gpu-count")),
    "no GPU type": Mistake("gpu_type", lambda scene: scene.remove(f"{NEW}gpu-type"), NEW_VERSIONS),
    "wrong GPU type": Mistake(
        "gpu_type", lambda scene: scene.annotations.update({f"{NEW}gpu-type": "Tesla-T4"}), NEW_VERSIONS
    ),
    "illegal accelerator": Mistake(
        f"illegal {ACCELERATOR}", lambda scene: scene.set_label(ACCELERATOR, "nvidia.com/gpu")
    ),
    "no zone label": Mistake(f"label {ZONE}", lambda scene: scene.set_label(ZONE, None), labels=(ZONE,)),
    "zone label only in the template": Mistake(
        f"label {ZONE}", lambda scene: scene.remove(f"{NEW}labels"), NEW_VERSIONS, labels=(ZONE,)
    ),
    "no label of the pool": Mistake(f"label {TEAM}", lambda scene: scene.set_label(TEAM, None), labels=(TEAM,)),
    "foreign taint": Mistake("taint dedicated=team-a:NoSchedule", _foreign_taint),
    "GPU limit reached": Mistake("gpu_limit", _limit_reached),
    "node limit reached": Mistake("max_nodes_total", _too_many_nodes),
    "pod priority": Mistake("pod_priority", _priority),
}


def with_mistake(pool: str, version: str, mistake: str) -> Scene:
    """A scene with one mistake."""
    changed = copy.deepcopy(scene(pool, version))
    MISTAKES[mistake].make(changed)
    return changed
