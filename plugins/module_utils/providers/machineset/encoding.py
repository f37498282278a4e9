# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derives the state of a node group from its MachineSet and Machines (pure)."""

from __future__ import annotations

import datetime
import typing as t

from ...catalog.machine_api import CPU, MEMORY_MB
from ...catalog.names import NODEGROUP_LABEL, NODEGROUP_MARK, POOL_LABEL
from ...cluster_state.label_selector import selects
from ...cluster_state.ownership import machine_set_owner
from ...common.nested import get_nested
from ...kube.metadata import controller_of, is_deleting, name_of
from ...nodegroups.spec import NodeGroupState
from ...pools.nodegroup_names import claimed_owner
from .machines import DELETING, FAILED, RUNNING, Machine, machine_problems, node_of, phase_of
from .machineset_object import (
    Path,
    annotations_of,
    decode,
    group_label_of,
    machine_settings,
    nodegroup_of,
    platform_of_object,
    provider_spec_of,
)


def machines_of(machineset: t.Mapping[str, t.Any], machines: t.Iterable[Machine]) -> list[Machine]:
    """The Machines of a MachineSet: those whose controller it is and, like its own controller, those without a controller that its selector selects."""
    uid, selector = machineset["metadata"].get("uid"), get_nested(machineset, "spec", "selector") or {}
    return [
        machine
        for machine in machines
        if ((owner := controller_of(machine)) is not None and owner.get("uid") == uid)
        or (owner is None and selects(selector, machine["metadata"].get("labels") or {}))
    ]


def state_of(
    machineset: t.Mapping[str, t.Any],
    machines: t.Sequence[Machine],
    now: datetime.datetime,
    *,
    paths: t.Mapping[str, Path],
    declared: t.Collection[str] = (),
    autoscaled: bool = False,
    awaits_capacity: bool = False,
    ignored: t.Collection[str] = (),
    pooled: bool = False,
) -> NodeGroupState:
    """The state of the node group.

    machines: the Machines of the MachineSet. paths: the paths of the declared values in the providerSpec. declared: the names of the declared fields.
    autoscaled: whether an autoscaler chooses the number of Machines. It can create Machines at any time, so their number and phases are ignored.
    awaits_capacity: whether the platform's controller is still expected to set the annotations that contain the size of the Machines. ignored: the
    names of the Machines that had failed before the run. pooled: whether the nodes belong to a pool.
    """
    phases = {name_of(machine): phase_of(machine) for machine in machines}
    live = [machine for machine in machines if phase_of(machine) != DELETING]
    count = int(get_nested(machineset, "spec", "replicas") or 0)
    nodes = tuple(sorted(node for machine in live if (node := node_of(machine))))
    deleting = is_deleting(machineset)
    failures = {name for name, phase in phases.items() if phase == FAILED and name not in ignored}
    failed = not deleting and not autoscaled and bool(failures)
    complete = autoscaled or (len(machines) == count and all(phase in (RUNNING, FAILED) for phase in phases.values()))
    settled = not deleting and complete and _is_observed(machineset) and not awaits_capacity
    return NodeGroupState(
        id=name_of(machineset),
        name=name_of(machineset),
        status=_status(deleting, failed, settled, len(live), count),
        settled=settled,
        failed=failed,
        count=count,
        reason=" ".join(f"{text}." for text in machine_problems(machines, now)),
        fields=decode(machineset, paths),
        machines=nodes,
        without_node=max(0, len(live) - len(nodes)),
        outdated=_outdated(machineset, live, paths, declared),
        owner=nodegroup_of(machineset) or "",
        marked=machine_set_owner(machineset, new=True) is not None,
        claims={
            f"label {NODEGROUP_LABEL}": group_label_of(machineset) or "",
            f"annotation {NODEGROUP_MARK}": claimed_owner(annotations_of(machineset).get(NODEGROUP_MARK)),
        },
        adopted=_without_pool_label(live) if pooled else (),
    )


def _status(deleting: bool, failed: bool, settled: bool, machines: int, count: int) -> str:
    if deleting:
        return "DELETING"
    if failed:
        return "FAILED"
    if settled:
        return "READY"
    return "SCALING" if machines != count else "PROVISIONING"


def _is_observed(machineset: t.Mapping[str, t.Any]) -> bool:
    """Whether the MachineSet's controller has observed the latest change."""
    generation = machineset["metadata"].get("generation") or 0
    return int(get_nested(machineset, "status", "observedGeneration") or 0) >= int(generation)


def controller_size(machineset: t.Mapping[str, t.Any]) -> tuple[str | None, ...]:
    """The size of the Machines, read from the annotations that the platform's controller sets. It is empty if the controller sets none."""
    platform = platform_of_object(machineset)
    keys = [key for key in (CPU, MEMORY_MB) if platform and key in platform.controller_annotations]
    return tuple(annotations_of(machineset).get(key) for key in keys)


def _without_pool_label(machines: t.Iterable[Machine]) -> tuple[str, ...]:
    """The names of the nodes whose Machines were created before the MachineSet got the label of its pool."""
    return tuple(
        sorted(
            node
            for machine in machines
            if (node := node_of(machine)) and get_nested(machine, "spec", "metadata", "labels", POOL_LABEL) is None
        )
    )


def _outdated(
    machineset: t.Mapping[str, t.Any],
    machines: t.Iterable[Machine],
    paths: t.Mapping[str, Path],
    declared: t.Collection[str],
) -> tuple[str, ...]:
    """The names of the nodes whose Machines differ from new Machines in the declared fields.

    If a Machine has no node, the name of the Machine is returned instead.
    """

    def settings(provider_spec: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        return {field: value for field, value in machine_settings(provider_spec, paths).items() if field in declared}

    current = settings(provider_spec_of(machineset))
    return tuple(
        sorted(
            node_of(machine) or name_of(machine)
            for machine in machines
            if settings(get_nested(machine, "spec", "providerSpec", "value") or {}) != current
        )
    )
