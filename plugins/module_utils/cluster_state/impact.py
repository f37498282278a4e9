# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Computes the impact of changes: which pods of a node lose their GPUs, and how many nodes and pods of each pool a run affects (pure).

| change | evicted pods |
|---|---|
| different MIG devices, or a different MIG mode | all pods that use a GPU: a device in use cannot be destroyed |
| to MPS, from MPS, or between MPS configurations | all: the MPS daemon takes the whole GPU, and its clients end when it stops |
| from containers to virtual machines, or removal of the driver | all: the driver is unloaded |
| a different resource name | pods that request the old resource, which is no longer offered: their GPUs would be allocated a second time |
| fewer shares than are in use | as many as necessary: pods with a higher priority stay, then older pods |
| any other change | none: the plugin changes the offered resources, and pods keep their devices |
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog import names
from ..catalog.mig import RESET_FAMILIES
from ..catalog.operands import DRIVER
from ..schema.operand_labels import reason_without_discovery
from ..sharing_modes.modes import MODES
from . import expected_state
from .operand_pods import STOPPED_FOR_MIG
from .pool_release import is_abandoned, is_partitioned

if t.TYPE_CHECKING:
    from ..pools.membership import Membership
    from ..pools.plan import PoolPlan
    from .gpu_pods import PodOnNode
    from .node import Node
    from .ownership import NodeEdit

LABELS, PLUGIN, GEOMETRY, MODE = "labels", "plugin", "mig-geometry", "mig-mode"
# NFD sets this label on nodes that are virtual machines (node-feature-discovery source/cpu, cpuid).
_VIRTUAL = ("feature.node.kubernetes.io/cpu-cpuid.HYPERVISOR", "true")
# The key for nodes without a pool; no pool has this name.
NO_POOL = ""
# The counts that describe an impact, with their column titles in the table of a plan.
COUNTS = {
    "driver_restarts": "DRIVER RESTARTS",
    "pods": "PODS LOSE GPU",
    "operand_pods": "OPERAND PODS",
    "repartitioned_nodes": "NODES REPARTITIONED",
    "resets": "GPU RESETS",
}


@dataclass(frozen=True)
class Transition:
    """The effect of a change on a node: `kind` is LABELS, PLUGIN, GEOMETRY or MODE; `offers` contains the amount of each resource after the change.

    `resets`: whether the MIG mode changes on GPUs that must be reset for this. `may_reboot`: whether these GPUs also belong to a virtual machine, which
    may not support the reset (MIG user guide, "Enable MIG Mode").
    """

    kind: str
    evicts_all: bool = False
    offers: t.Mapping[str, int] = field(default_factory=dict)
    resets: bool = False
    may_reboot: bool = False

    @property
    def repartitions(self) -> bool:
        """Whether the MIG layout of the node's GPUs changes."""
        return self.kind in (GEOMETRY, MODE)


def transition(node: Node, pool: PoolPlan | None, change: NodeEdit | None, *, repeat: bool = False) -> Transition:
    """The effect of the change on a node with its current labels; the GPUs of a node without a pool become whole.

    `repeat`: whether the MIG manager must apply the node's current configuration again.
    """
    labels = change.labels if change else {}
    before = node.mig_devices
    after = expected_state.devices_in_labels(node, pool) if pool else {}
    offers = (
        expected_state.expected_offers(node, pool) if pool else {names.GPU_RESOURCE: expected_state.physical_gpus(node)}
    )
    if pool is None and (is_partitioned(node) or is_abandoned(node)):
        return _mode_switch(node, offers)
    if ((repeat and pool is not None) or names.MIG_CONFIG_LABEL in labels) and before != after:
        if bool(before) != bool(after):
            return _mode_switch(node, offers)
        return Transition(GEOMETRY, True, offers)
    if _removes_gpus(node, labels):
        return Transition(PLUGIN, True, offers)
    if names.CONFIG_LABEL in labels:
        modes = (node.mode, pool.mode if pool else "")
        return Transition(PLUGIN, any(name in MODES and MODES[name].evicts_all_pods for name in modes), offers)
    return Transition(PLUGIN if names.MIG_CONFIG_LABEL in labels else LABELS, offers=offers)


def _removes_gpus(node: Node, labels: t.Mapping[str, str | None]) -> bool:
    """Whether these labels make the operator unload the driver, or give the GPUs to virtual machines."""
    if labels.get(names.DRIVER_DEPLOY_LABEL) == "false" or labels.get(names.OPERANDS_LABEL) == "false":
        return True
    after = {key: value for key, value in {**node.labels, **labels}.items() if value is not None}
    return names.WORKLOAD_LABEL in labels and reason_without_discovery(after) != reason_without_discovery(node.labels)


def _mode_switch(node: Node, offers: t.Mapping[str, int]) -> Transition:
    resets = node.labels.get(names.FAMILY_LABEL) in RESET_FAMILIES
    is_virtual = node.labels.get(_VIRTUAL[0]) == _VIRTUAL[1]
    return Transition(MODE, True, offers, resets, resets and is_virtual)


def displaced_pods(change: Transition, pods: t.Sequence[PodOnNode]) -> tuple[PodOnNode, ...]:
    """The node's GPU pods that the change displaces, sorted by namespace and name.

    The most important pods stay: first pods that a drain does not evict, then pods with the highest priority, then the oldest.
    """
    if change.kind == LABELS:
        return ()
    if change.evicts_all:
        return tuple(sorted(pods, key=_name))
    by_importance = sorted(pods, key=lambda pod: (not pod.keep_reason, -pod.priority, pod.created, _name(pod)))
    evicted = [
        pod
        for pod in by_importance
        if any(expected_state.is_gpu_resource(name) and not change.offers.get(name) for name in pod.resources)
    ]
    for resource, offered in change.offers.items():
        free = offered
        # The most important pods stay as long as there is capacity, followed by less important pods that still fit.
        for pod in by_importance:
            if pod in evicted or not pod.resources.get(resource):
                continue
            if pod.resources[resource] <= free:
                free -= pod.resources[resource]
            else:
                evicted.append(pod)
    return tuple(sorted(evicted, key=_name))


def _name(pod: PodOnNode) -> tuple[str, str]:
    return pod.namespace, pod.name


@dataclass(frozen=True)
class OperandRestart:
    """The operands that the operator restarts on every node: if `every`, all operands including the driver, otherwise those in `apps`.

    `in_place`: the driver stays loaded while its pod restarts, so no pod loses a GPU.
    `driver_nodes` contains the names of individual nodes whose driver is also restarted, because their NVIDIADriver object changes.
    """

    apps: frozenset[str] = frozenset()
    every: bool = False
    in_place: bool = False
    driver_nodes: frozenset[str] = frozenset()

    @property
    def driver(self) -> bool:
        """Whether the operator restarts the driver."""
        return self.every or DRIVER in self.apps

    @property
    def any(self) -> bool:
        """Whether anything is restarted."""
        return self.every or bool(self.apps) or bool(self.driver_nodes)


class NodeImpact(t.NamedTuple):
    """The change to one node, and the pods that lose a GPU because of this change."""

    transition: Transition
    evicted: t.Sequence[PodOnNode]


class RunningPods(t.NamedTuple):
    """The running pods by node: the app of each operand pod, and the pods that use GPUs."""

    operands: t.Mapping[str, t.Sequence[str]]
    gpu_pods: t.Mapping[str, t.Sequence[PodOnNode]]


def impact(
    nodes: t.Iterable[Node], changes: t.Mapping[str, NodeImpact], restart: OperandRestart, running: RunningPods
) -> dict[str, int]:
    """The impact on these nodes: a number for each key in COUNTS.

    `driver_restarts`: nodes whose driver is restarted. `pods`: pods that lose a GPU because of the driver or the new sharing.
    `operand_pods`: pods of operands that are restarted. `repartitioned_nodes`: nodes whose MIG layout changes. `resets`: repartitioned nodes
    whose GPUs must be reset.
    """
    counts = dict.fromkeys(COUNTS, 0)
    for node in nodes:
        apps = running.operands.get(node.name, ())
        change = changes.get(node.name)
        driver_restarts = DRIVER in apps and (restart.driver or node.name in restart.driver_nodes)
        repartitions = change is not None and change.transition.repartitions
        counts["driver_restarts"] += driver_restarts
        counts["repartitioned_nodes"] += repartitions
        counts["resets"] += change is not None and change.transition.resets
        counts["operand_pods"] += sum(
            restart.every
            or app in restart.apps
            or (driver_restarts and app == DRIVER)
            or (repartitions and app in STOPPED_FOR_MIG)
            for app in apps
        )
        unloads = driver_restarts and not restart.in_place
        evicted = running.gpu_pods.get(node.name, ()) if unloads else change.evicted if change else ()
        counts["pods"] += len(evicted)
    return counts


def impact_by_pool(
    pools: t.Iterable[PoolPlan],
    nodes: t.Iterable[Node],
    membership: Membership,
    changes: t.Mapping[str, NodeImpact],
    restart: OperandRestart,
    running: RunningPods,
) -> dict[str, dict[str, int]]:
    """The impact on each pool, by the pool's name; the key NO_POOL contains the impact on all other nodes."""
    by_name = {node.name: node for node in nodes}
    counts = {
        pool.name: impact([by_name.pop(name) for name in membership.by_pool[pool.name]], changes, restart, running)
        for pool in pools
    }
    return {**counts, NO_POOL: impact(by_name.values(), changes, restart, running)}


def total_impact(pools: t.Collection[t.Mapping[str, int]]) -> dict[str, int]:
    """The sum of the counts of all pools."""
    return {name: sum(counts[name] for counts in pools) for name in COUNTS}
