# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The effect of a change of sharing on one node, and the pods that lose their GPUs by it (pure).

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

from ..catalog.mig import RESET_FAMILIES
from ..catalog.names import (
    CONFIG_LABEL,
    DRIVER_DEPLOY_LABEL,
    FAMILY_LABEL,
    GPU_RESOURCE,
    MIG_CONFIG_LABEL,
    OPERANDS_LABEL,
    WORKLOAD_LABEL,
)
from ..schema.operand_labels import without_discovery
from ..sharing_modes.registry import MODES
from . import expected_state
from .pool_release import is_abandoned, is_partitioned

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan
    from .gpu_pods import PodOnNode
    from .node import Node
    from .ownership import NodeEdit

LABELS, PLUGIN, GEOMETRY, MODE = "labels", "plugin", "mig-geometry", "mig-mode"
# NFD sets it on nodes that are virtual machines (node-feature-discovery source/cpu, cpuid).
_VIRTUAL = ("feature.node.kubernetes.io/cpu-cpuid.HYPERVISOR", "true")


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
    before = device_counts(node.mig_devices)
    after = device_counts(expected_state.expected_devices(node, pool)) if pool else {}
    offers = expected_state.expected_offers(node, pool) if pool else {GPU_RESOURCE: node.recorded_gpus or node.gpus}
    if pool is None and (is_partitioned(node) or is_abandoned(node)):
        return _mode_switch(node, offers)
    if ((repeat and pool is not None) or MIG_CONFIG_LABEL in labels) and before != after:
        if bool(before) != bool(after):
            return _mode_switch(node, offers)
        return Transition(GEOMETRY, True, offers)
    if _removes_gpus(node, labels):
        return Transition(PLUGIN, True, offers)
    if CONFIG_LABEL in labels:
        modes = (node.mode, pool.mode if pool else "")
        return Transition(PLUGIN, any(name in MODES and MODES[name].evicts_all_pods for name in modes), offers)
    return Transition(PLUGIN if MIG_CONFIG_LABEL in labels else LABELS, offers=offers)


def _removes_gpus(node: Node, labels: t.Mapping[str, str | None]) -> bool:
    """Whether these labels make the operator unload the driver, or give the GPUs to virtual machines."""
    if labels.get(DRIVER_DEPLOY_LABEL) == "false" or labels.get(OPERANDS_LABEL) == "false":
        return True
    after = {key: value for key, value in {**node.labels, **labels}.items() if value is not None}
    return WORKLOAD_LABEL in labels and without_discovery(after) != without_discovery(node.labels)


def _mode_switch(node: Node, offers: t.Mapping[str, int]) -> Transition:
    resets = node.labels.get(FAMILY_LABEL) in RESET_FAMILIES
    is_virtual = node.labels.get(_VIRTUAL[0]) == _VIRTUAL[1]
    return Transition(MODE, True, offers, resets, resets and is_virtual)


def displaced_pods(change: Transition, pods: t.Sequence[PodOnNode]) -> tuple[PodOnNode, ...]:
    """Those of the node's GPU pods that cannot stay, by namespace and name."""
    if change.kind == LABELS:
        return ()
    if change.evicts_all:
        return tuple(sorted(pods, key=_name))
    evicted = [
        pod
        for pod in pods
        if any(expected_state.is_gpu_resource(name) and not change.offers.get(name) for name in pod.resources)
    ]
    remaining = [pod for pod in pods if pod not in evicted]
    for resource, offered in change.offers.items():
        holding = _least_important_first(pod for pod in remaining if pod.resources.get(resource))
        free = offered
        # The most important pods stay while there is capacity, then others that still fit.
        for pod in reversed(holding):
            if pod.resources[resource] <= free:
                free -= pod.resources[resource]
            else:
                evicted.append(pod)
                remaining.remove(pod)
    return tuple(sorted(evicted, key=_name))


def device_counts(devices: t.Mapping[str, int]) -> dict[str, int]:
    """MIG devices by profile in GFD's notation, without zero counts."""
    return {name.replace("+", "."): count for name, count in devices.items() if count}


def _least_important_first(pods: t.Iterable[PodOnNode]) -> list[PodOnNode]:
    """Pods that a drain does not evict come last; before them the order is by priority, then the youngest first."""
    youngest_first = sorted(pods, key=lambda pod: (pod.created, _name(pod)), reverse=True)
    return sorted(youngest_first, key=lambda pod: (bool(pod.keep_reason), pod.priority))


def _name(pod: PodOnNode) -> tuple[str, str]:
    return pod.namespace, pod.name
