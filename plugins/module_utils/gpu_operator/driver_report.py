# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adds NVIDIADriver objects to a report: their nodes, their states, and the changes that a run would make."""

from __future__ import annotations

import typing as t

from ..catalog.taints import format_toleration
from ..cluster_state.nvidia_driver import driver_results
from ..common.nested import get_nested
from ..kube.client import Client
from .cluster_policy import planned_upgrade, policy_version, with_planned_values
from .cluster_policy_client import ClusterPolicyClient
from .driver_object_writer import refused_objects
from .driver_objects import DriverObjects, plan_driver_objects

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..pools.plan import Plan

Object = dict[str, t.Any]


def add_driver_objects(
    client: Client, plan: Plan, policy: Object | None, nodes: t.Sequence[Node], info: Object
) -> DriverObjects:
    """Return the changes that the pools require, and add the objects, the problems that would fail a run, and the notes to the report."""
    drivers = ClusterPolicyClient(client, plan.operator.namespace).read_drivers(plan, policy)
    if drivers:
        info["nvidia_drivers"] = driver_results(drivers, [(node.name, node.labels) for node in nodes])
    objects = DriverObjects()
    if policy:
        # A run applies the Helm values first, so the objects inherit from the resulting policy.
        objects = plan_driver_objects(plan, with_planned_values(policy, plan), drivers, nodes)
    info.setdefault("tolerations", []).extend(_toleration_changes(objects))
    problems = objects.problems
    if policy and not problems and planned_upgrade(policy, plan) is None:
        # If an upgrade is planned, the check is skipped, because the upgrade first applies the CRDs of its chart.
        problems = tuple(refused_objects(client, objects, policy_version(policy), check=True))
    info["warnings"] += [*problems, *objects.notes]
    return objects


def _toleration_changes(objects: DriverObjects) -> t.Iterator[Object]:
    """The tolerations that existing objects gain or lose; new objects are omitted, because they are created with their tolerations."""
    for change in objects.changes:
        if change.is_new:
            continue
        before, after = (get_nested(side, "spec", "tolerations") or () for side in (change.before, change.body))
        adds, removes = (
            [format_toleration(item) for item in one if item not in other]
            for one, other in ((after, before), (before, after))
        )
        if adds or removes:
            yield {
                "object": f"NVIDIADriver {change.name}",
                "adds": adds,
                "removes": removes,
                "restarts": f"the driver restarts on {len(change.nodes)} node(s) of pool {change.pool}"
                if change.pool
                else "the driver restarts on its nodes",
            }
