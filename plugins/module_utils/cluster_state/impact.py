# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The impact of changes: on one node with the pods that lose their GPUs, and of a run on the nodes of a pool (pure).

| change | evicted pods |
|---|---|
| other MIG devices, or the MIG mode | all pods that use a GPU: a device in use cannot be destroyed |
| to MPS, from MPS, or between its configurations | all: its daemon takes the whole GPU, and its clients end with it |
| from containers to virtual machines, or without a driver | all: the driver is unloaded |
| another resource name | pods with the old resource, which is not offered any more: its GPU would be allocated again |
| fewer shares than are in use | as many as necessary: the most important pods stay, then the oldest |
| any other change | none: the plugin changes the offered resources, and pods keep their devices |
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog import names
from ..catalog.mig import RESET_FAMILIES
from ..schema.operand_labels import without_discovery
from ..sharing_modes.registry import MODES
from . import expected_state, operand_pods
from .pool_release import is_abandoned, is_partitioned

if t.TYPE_CHECKING:
    from ..pools.membership import Membership
    from ..pools.plan import PoolPlan
    from .gpu_pods import PodOnNode
    from .node import Node
    from .ownership import NodeEdit

LABELS, PLUGIN, GEOMETRY, MODE = "labels", "plugin", "mig-geometry", "mig-mode"
# NFD sets it on nodes that are virtual machines (node-feature-discovery source/cpu, cpuid).
_VIRTUAL = ("feature.node.kubernetes.io/cpu-cpuid.HYPERVISOR", "true")
# The key for nodes of no pool; no pool has this name.
NO_POOL = ""
COUNTS = ("drivers", "pods", "operand_pods", "repartitioned_nodes", "resets")


@dataclass(frozen=True)
class Transition:
    """`kind` is LABELS, PLUGIN, GEOMETRY or MODE; `offers` is how much of each resource the node offers afterwards.

    `resets`: the MIG mode is switched on GPUs that are reset for that. `may_reboot`: these belong to a virtual machine, which may not
    support the reset (MIG user guide, "Enable MIG Mode").
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
    """The effect of the change on a node, by the node's current labels; nodes of no pool get whole GPUs.

    `repeat`: the MIG manager has to apply its current configuration again.
    """
    labels = change.labels if change else {}
    before = node.mig_devices
    after = expected_state.devices_in_labels(node, pool) if pool else {}
    offers = (
        expected_state.expected_offers(node, pool) if pool else {names.GPU_RESOURCE: node.recorded_gpus or node.gpus}
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
    return names.WORKLOAD_LABEL in labels and without_discovery(after) != without_discovery(node.labels)


def _mode_switch(node: Node, offers: t.Mapping[str, int]) -> Transition:
    resets = node.labels.get(names.FAMILY_LABEL) in RESET_FAMILIES
    is_virtual = node.labels.get(_VIRTUAL[0]) == _VIRTUAL[1]
    return Transition(MODE, True, offers, resets, resets and is_virtual)


def displaced_pods(change: Transition, pods: t.Sequence[PodOnNode]) -> tuple[PodOnNode, ...]:
    """Those of the node's GPU pods that cannot stay, by namespace and name.

    The most important are pods that a drain does not evict, then those with the highest priority, then the oldest.
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
        # The most important pods stay while there is capacity, then others that still fit.
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
    """The operands that the operator restarts on every node: `every` one, the driver included, or some `apps`."""

    apps: frozenset[str] = frozenset()
    every: bool = False

    @property
    def driver(self) -> bool:
        """Whether the driver is among them."""
        return self.every or operand_pods.DRIVER in self.apps

    @property
    def any(self) -> bool:
        """Whether anything is restarted."""
        return self.every or bool(self.apps)


class NodeImpact(t.NamedTuple):
    """The change of one node, and the pods that lose a GPU by it."""

    transition: Transition
    evicted: t.Sequence[PodOnNode]


class RunningPods(t.NamedTuple):
    """The pods on the nodes: the apps of NVIDIA's operands, one for each pod, and the pods that use GPUs."""

    operands: t.Mapping[str, t.Sequence[str]]
    gpu_pods: t.Mapping[str, t.Sequence[PodOnNode]]


def impact(
    nodes: t.Iterable[Node], changes: t.Mapping[str, NodeImpact], restart: OperandRestart, running: RunningPods
) -> dict[str, int]:
    """The counts of COUNTS for some nodes.

    `drivers`: nodes whose driver is restarted. `pods`: pods that lose a GPU, because of the driver or the new sharing.
    `operand_pods`: operands' pods that are restarted. `repartitioned_nodes`: nodes whose MIG layout changes. `resets`: those among them
    whose GPUs have to be reset.
    """
    counts = dict.fromkeys(COUNTS, 0)
    for node in nodes:
        apps = running.operands.get(node.name, ())
        change = changes.get(node.name)
        driver_restarts = restart.driver and operand_pods.DRIVER in apps
        repartitions = change is not None and change.transition.repartitions
        counts["drivers"] += driver_restarts
        counts["repartitioned_nodes"] += repartitions
        counts["resets"] += change is not None and change.transition.resets
        counts["operand_pods"] += sum(
            restart.every or app in restart.apps or (repartitions and app in operand_pods.STOPPED_FOR_MIG)
            for app in apps
        )
        evicted = running.gpu_pods.get(node.name, ()) if driver_restarts else change.evicted if change else ()
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
    """The impact on each pool by its name, and under NO_POOL that on the other nodes."""
    by_name = {node.name: node for node in nodes}
    counts = {
        pool.name: impact([by_name.pop(name) for name in membership.by_pool[pool.name]], changes, restart, running)
        for pool in pools
    }
    return {**counts, NO_POOL: impact(by_name.values(), changes, restart, running)}


def total_impact(pools: t.Collection[t.Mapping[str, int]]) -> dict[str, int]:
    """The sum of the counts of all pools."""
    return {name: sum(counts[name] for counts in pools) for name in COUNTS}
