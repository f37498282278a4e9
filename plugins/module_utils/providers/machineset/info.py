# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the MachineSets of a cluster, with their Machines, for the module machineset_info."""

from __future__ import annotations

import datetime
import typing as t

from ...catalog.machine_api import ZONE_LABEL
from ...catalog.names import POOL_LABEL
from ...cluster_state.ownership import machine_set_owner
from ...common.nested import get_nested
from ...kube.metadata import name_of
from .client import MachineApi
from .encoding import machines_of, state_of
from .machines import machine_problems, node_of, phase_of
from .machineset_object import LABELS, platform_of_object
from .sources import zone_of


def machinesets_info(api: MachineApi) -> dict[str, dict[str, t.Any]]:
    """All MachineSets of the namespace, by name, in the format of the module's result."""
    objects, autoscalers, infrastructure = api.read(), api.autoscalers(), api.infrastructure()
    now = datetime.datetime.now(datetime.UTC)
    by_name: dict[str, dict[str, t.Any]] = {}
    for machineset in objects.machinesets:
        name, platform = name_of(machineset), platform_of_object(machineset)
        machines = machines_of(machineset, objects.machines)
        state = state_of(machineset, machines, now, paths={})
        by_name[name] = {
            "id": name,
            "status": state.status,
            "group": machine_set_owner(machineset, new=True),
            "pool": get_nested(machineset, *LABELS, POOL_LABEL),
            "platform": platform.name if platform else None,
            "zone": zone_of(machineset, infrastructure).labels.get(ZONE_LABEL),
            "autoscaler": next(map(name_of, autoscalers.get(name, ())), None),
            **state.to_result(),
            "machines": [
                {"name": name_of(machine), "phase": phase_of(machine), "node": node_of(machine)} for machine in machines
            ],
            "problems": [f"{text}." for text in machine_problems(machines, now)],
        }
    return by_name
