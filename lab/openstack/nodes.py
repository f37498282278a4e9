# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines of Magnum's node groups, as Nodes of the lab's cluster: which there are to be, and how they are born."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from .. import flavors
from ..layout import Lab
from ..machines import Machines, address
from .places import CLOUD
from .seed import flavor_id

# What Magnum's own driver had the kubelet say (magnum/drivers/common/templates/kubernetes/fragments/
# configure-kubernetes-minion.sh and -master.sh, until Magnum 22).
ROLE_LABEL, GROUP_LABEL = "magnum.openstack.org/role", "magnum.openstack.org/nodegroup"
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
_LONGEST = 63


@dataclass(frozen=True)
class Group:
    """What of a node group decides its machines."""

    id: str
    name: str
    role: str
    count: int
    # Name or id.
    flavor: str
    # Of the stack that its machines belong to: Magnum's Heat driver named them so, with 12 characters of its own.
    stack: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()


class Nodes:
    """Makes the machines of node groups what they are to be."""

    def __init__(self, lab: Lab) -> None:
        self._machines = Machines(lab, CLOUD)
        self._names = {flavor_id(name): name for name in flavors.load()}

    def settle(self, group: Group, unwanted: Collection[str] = ()) -> bool:
        """Make and end machines until there are `count`; tell whether they are, and all ready.

        When there are too many, those go first that `unwanted` names (or numbers), then the youngest.
        """
        live = sorted(self._machines.names(group.id), key=_number)
        chosen = [name for name in live if name in unwanted or str(_number(name)) in unwanted]
        surplus = max(0, len(live) - group.count)
        gone = [*chosen, *reversed([name for name in live if name not in chosen])][:surplus]
        kept = [name for name in live if name not in gone]
        if gone:
            self._machines.delete(gone)
        if missing := group.count - len(kept):
            self._make(group, _free(group, kept, missing))
        return len(self._machines.ready(group.id)) == group.count

    def end(self, group_id: str) -> None:
        """End all machines of a node group."""
        self._machines.delete(self._machines.names(group_id))

    def addresses(self, group_id: str) -> list[str]:
        """Return the addresses of a node group's machines."""
        return [address(name) for name in sorted(self._machines.names(group_id), key=_number)]

    def _make(self, group: Group, names: Sequence[str]) -> None:
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


def _free(group: Group, taken: Collection[str], count: int) -> list[str]:
    """Return the first names of a node group's machines that are not taken."""
    stem = re.sub(r"[^a-z0-9]+", "-", group.stack.lower()).strip("-")
    kind = "master" if group.role == "master" else "node"
    names = (f"{stem[: _LONGEST - 12]}-{kind}-{number}" for number in range(count + len(taken)))
    return [name for name in names if name not in taken][:count]


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


def _value(text: str) -> str:
    """Return a text as the value of a label: a kubelet would not start with any other."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:_LONGEST].strip("-_.")
