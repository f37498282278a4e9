# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds managed MachineSets of a pool that the pool no longer declares, for example those of a removed zone (pure).

The machines of these MachineSets cost money, and the run would create other machines in their place. An empty variable is enough to cause this.
"""

from __future__ import annotations

import typing as t

from ...catalog.names import POOL_LABEL
from ...cluster_state.ownership import machine_set_owner
from ...common.nested import get_nested
from ...kube.metadata import is_deleting, name_of
from ...pools.nodegroup_names import NODE_LABELS
from ...schema.messages import join_words
from .machineset_object import LABELS, Object


def undeclared_problems(
    machinesets: t.Iterable[Object], groups: t.Iterable[t.Mapping[str, t.Any]], declared: t.Collection[str]
) -> list[str]:
    """An error message for each pool of these groups that has managed MachineSets of undeclared node groups. Absent groups are ignored."""
    present = [group for group in groups if group.get("state") != "absent"]
    pools = dict.fromkeys((group.get(NODE_LABELS) or {}).get(POOL_LABEL) for group in present)
    by_pool: dict[str, list[str]] = {}
    for machineset in sorted(machinesets, key=name_of):
        pool, group = get_nested(machineset, *LABELS, POOL_LABEL), machine_set_owner(machineset, new=True)
        leaving = is_deleting(machineset)
        if group is not None and group not in declared and pool in pools and pool is not None and not leaving:
            count = get_nested(machineset, "spec", "replicas") or 0
            by_pool.setdefault(pool, []).append(f"{name_of(machineset)} ({count} node(s))")
    return [_message(pool, undeclared, declared) for pool, undeclared in by_pool.items()]


def _message(pool: str, undeclared: t.Sequence[str], declared: t.Collection[str]) -> str:
    one = len(undeclared) == 1
    return (
        f"Pool {pool}: {'MachineSet' if one else 'MachineSets'} {join_words(undeclared)} {'belongs' if one else 'belong'} to it, but the pool no longer "
        f"declares {'it' if one else 'them'} (declared: {join_words(sorted(declared)) or 'none'}). Declare nodes.zones and nodes.name as before, check for an "
        "empty variable, or delete what you no longer need: accel.gpu.machineset with state: absent deletes one MachineSet, and "
        "accel.gpu.delete_nodegroups deletes all MachineSets of the pool."
    )
