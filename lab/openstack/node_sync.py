# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Synchronizes Magnum's node groups with Nodes of the lab's cluster."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from .. import flavors
from ..layout import Lab
from ..machines import Machines, address
from .layout import CLOUD
from .seed import flavor_id

# The labels that Magnum's own driver set through the kubelet (magnum/drivers/common/templates/kubernetes/fragments/
# configure-kubernetes-minion.sh and -master.sh, up to Magnum 22).
ROLE_LABEL, GROUP_LABEL = "magnum.openstack.org/role", "magnum.openstack.org/nodegroup"
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
_LONGEST = 63


@dataclass(frozen=True)
class NodegroupSpec:
    """The properties of a node group that determine its machines."""

    id: str
    name: str
    role: str
    count: int
    # Name or id.
    flavor: str
    # Name of the stack, the prefix of machine names: Magnum's Heat driver appended 12 characters to the name.
    stack: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()


class MagnumNodeSync:
    """Creates and deletes the machines of node groups."""

    def __init__(self, lab: Lab) -> None:
        self._machines = Machines(lab, CLOUD)
        self._names = {flavor_id(name): name for name in flavors.load()}

    def reconcile(self, group: NodegroupSpec, nodes_to_remove: Collection[str] = ()) -> bool:
        """Create and delete machines until `count` exist; return whether all exist and are ready.

        A scale-down first deletes the nodes in `nodes_to_remove` (names or numbers), then the newest.
        """
        live = sorted(self._machines.names(group.id), key=_number)
        chosen = [name for name in live if name in nodes_to_remove or str(_number(name)) in nodes_to_remove]
        surplus = max(0, len(live) - group.count)
        gone = [*chosen, *reversed([name for name in live if name not in chosen])][:surplus]
        kept = [name for name in live if name not in gone]
        if gone:
            self._machines.delete(gone)
        if missing := group.count - len(kept):
            self._make(group, _free(group, kept, missing))
        return len(self._machines.ready(group.id)) == group.count

    def delete_all(self, group_id: str) -> None:
        """Delete all machines of a node group."""
        self._machines.delete(self._machines.names(group_id))

    def addresses(self, group_id: str) -> list[str]:
        """Return the addresses of a node group's machines."""
        return [address(name) for name in sorted(self._machines.names(group_id), key=_number)]

    def _make(self, group: NodegroupSpec, names: Sequence[str]) -> None:
        own = {ROLE_LABEL: _value(group.role), GROUP_LABEL: _value(group.name)}
        taints = list(group.taints)
        if group.role == "master":
            own[_CONTROL_PLANE] = ""
            taints.append({"key": _CONTROL_PLANE, "effect": "NoSchedule"})
        self._machines.create(
            group.id,
            names,
            self._names.get(group.flavor, group.flavor),
            labels={**group.labels, **own},
            taints=taints,
            provider_ids={name: f"openstack:///{uuid.uuid4()}" for name in names},
        )


def _free(group: NodegroupSpec, taken: Collection[str], count: int) -> list[str]:
    """Return the first unused names for machines of a node group."""
    stem = re.sub(r"[^a-z0-9]+", "-", group.stack.lower()).strip("-")
    kind = "master" if group.role == "master" else "node"
    names = (f"{stem[: _LONGEST - 12]}-{kind}-{number}" for number in range(count + len(taken)))
    return [name for name in names if name not in taken][:count]


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


def _value(text: str) -> str:
    """Convert a text to a valid label value: a kubelet would not start with an invalid one."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:_LONGEST].strip("-_.")
