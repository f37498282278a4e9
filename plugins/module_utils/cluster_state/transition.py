# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What another way of sharing does to one node, and which of those who use its GPUs cannot stay (pure).

| from -> to | who has to go |
|---|---|
| other MIG devices, or the MIG mode | everybody who uses a GPU: a device in use cannot be taken apart |
| into MPS, out of it, or another configuration of it | everybody: its daemon takes the card for itself, and its clients end with it |
| from containers to virtual machines, or without a driver | everybody: the driver is unloaded |
| the resource gets another name | who holds the name that is no longer offered: the GPU is offered anew as if it were free |
| fewer shares than are held | as many as are too many: the most important stay, of those the oldest |
| anything else | nobody: the plugin changes what it offers, and a pod keeps the device that it has |
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
from ..nvidia_config.device_plugin import MPS
from ..schema.operand_labels import without_discovery
from . import expected_state
from .pool_release import is_abandoned, is_cut

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan
    from .gpu_pods import PodOnNode
    from .node import Node
    from .ownership import NodeEdit

LABELS, PLUGIN, GEOMETRY, MODE = "labels", "plugin", "mig-geometry", "mig-mode"
# NFD says so of a processor that belongs to a virtual machine (node-feature-discovery source/cpu, cpuid).
_VIRTUAL = ("feature.node.kubernetes.io/cpu-cpuid.HYPERVISOR", "true")


@dataclass(frozen=True)
class Transition:
    """`kind` is LABELS, PLUGIN, GEOMETRY or MODE; `offers` is how much of each resource the node has afterwards.

    `may_reboot`: the MIG mode is switched on GPUs that are reset for it and belong to a virtual machine, which may not be able
    to (MIG user guide, "Enable MIG Mode").
    """

    kind: str
    everybody: bool = False
    offers: t.Mapping[str, int] = field(default_factory=dict)
    resets: bool = False
    may_reboot: bool = False

    @property
    def cuts(self) -> bool:
        """Whether the node's GPUs are cut anew."""
        return self.kind in (GEOMETRY, MODE)


def transition(node: Node, pool: PoolPlan | None, change: NodeEdit | None, *, again: bool = False) -> Transition:
    """What the change does to a node, judged by what the node shows; a node of no pool is to have whole GPUs.

    `again`: the MIG manager is to do once more what it was told before.
    """
    labels = change.labels if change else {}
    before, after = named(node.mig_devices), named(expected_state.expected_devices(node, pool)) if pool else {}
    offers = expected_state.resources(node, pool) if pool else {GPU_RESOURCE: node.noted_gpus or node.gpus}
    if pool is None and (is_cut(node) or is_abandoned(node)):
        return _switched(node, offers)
    if ((again and pool is not None) or MIG_CONFIG_LABEL in labels) and before != after:
        if bool(before) != bool(after):
            return _switched(node, offers)
        return Transition(GEOMETRY, True, offers)
    if _takes_gpus_away(node, labels):
        return Transition(PLUGIN, True, offers)
    if CONFIG_LABEL in labels:
        wanted = pool.mode if pool else ""
        return Transition(PLUGIN, MPS in (node.mode, wanted), offers)
    return Transition(PLUGIN if MIG_CONFIG_LABEL in labels else LABELS, offers=offers)


def _takes_gpus_away(node: Node, labels: t.Mapping[str, str | None]) -> bool:
    """Whether the operator unloads the driver, or gives the GPUs to virtual machines, because of these labels."""
    driver = labels.get(DRIVER_DEPLOY_LABEL) == "false" or labels.get(OPERANDS_LABEL) == "false"
    workload = WORKLOAD_LABEL in labels and without_discovery(_labels_after(node, labels)) != without_discovery(
        node.labels
    )
    return driver or workload


def _labels_after(node: Node, labels: t.Mapping[str, str | None]) -> dict[str, str]:
    """The node's labels once these are set, or taken out (None)."""
    return {key: value for key, value in {**node.labels, **labels}.items() if value is not None}


def _switched(node: Node, offers: t.Mapping[str, int]) -> Transition:
    """The MIG mode is switched on or off."""
    resets = node.labels.get(FAMILY_LABEL) in RESET_FAMILIES
    virtual = node.labels.get(_VIRTUAL[0]) == _VIRTUAL[1]
    return Transition(MODE, True, offers, resets, resets and virtual)


def displaced_pods(change: Transition, users: t.Sequence[PodOnNode]) -> tuple[PodOnNode, ...]:
    """Those of the node's users who cannot stay; in the order of their names."""
    if change.kind == LABELS:
        return ()
    if change.everybody:
        return tuple(sorted(users, key=_name))
    gone = [
        user for user in users if any(expected_state.of_gpus(of) and not change.offers.get(of) for of in user.resources)
    ]
    rest = [user for user in users if user not in gone]
    for resource, offered in change.offers.items():
        holding = _least_first(user for user in rest if user.resources.get(resource))
        room = offered
        # The most important stay as long as there is room, then whoever still fits.
        for user in reversed(holding):
            if user.resources[resource] <= room:
                room -= user.resources[resource]
            else:
                gone.append(user)
                rest.remove(user)
    return tuple(sorted(gone, key=_name))


def named(devices: t.Mapping[str, int]) -> dict[str, int]:
    """MIG devices by profile as GFD writes it, without those of which there are none."""
    return {name.replace("+", "."): count for name, count in devices.items() if count}


def _least_first(users: t.Iterable[PodOnNode]) -> list[PodOnNode]:
    """In the order in which they are given up: what a drain leaves alone last, then the least important, then the youngest."""
    youngest = sorted(users, key=lambda user: (user.created, _name(user)), reverse=True)
    return sorted(youngest, key=lambda user: (bool(user.kept), user.priority))


def _name(user: PodOnNode) -> tuple[str, str]:
    return user.namespace, user.name
