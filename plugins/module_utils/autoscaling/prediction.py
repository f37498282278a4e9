# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Predicts the autoscaler's objects after a run of the playbook site, so that a plan can show which findings will remain (pure).

The MachineSets are computed by the module machineset, the other objects by plan_scaling_changes(), which the module autoscaling also uses.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..catalog.cluster_autoscaler import KIND, MACHINE_AUTOSCALER_KIND
from ..catalog.machine_api import CAPACITY_CPU, CAPACITY_MEMORY, CPU, GPU, MEMORY_MB
from ..cluster_state.autoscaling import ScalingExplanation, belongs_to, explain_scaling, targets_of
from ..cluster_state.node_template import parse_machine_set
from ..cluster_state.scaling_checks import MAX_SIZE, MIN_SIZE
from .objects import AutoscalerChange, bounds_of
from .scaling_changes import ClusterObjects, ScalingChanges, ScalingOptions, plan_scaling_changes

if t.TYPE_CHECKING:
    from ..pools.plan import Plan, PoolPlan

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]
# Placeholders for a MachineSet that does not exist yet: the platform's controller will set CPU and memory from the machine type.
_MEASURED_LATER = {CPU: "1", MEMORY_MB: "1024", CAPACITY_CPU: "1", CAPACITY_MEMORY: str(1024**3)}


def explain_pools(plan: Plan, objects: ClusterObjects, machine_sets: t.Sequence[Document]) -> list[ScalingExplanation]:
    """The explanations of all pools, each with the findings that remain after a run of site.

    `machine_sets` contains the MachineSets after the run.
    """
    state = objects.state
    predicted = objects_after_run(plan, objects, machine_sets).state
    explanations: list[ScalingExplanation] = []
    for pool in plan.pools:
        after = {item.machine_set: item for item in explain_scaling(pool, predicted)}
        for now in explain_scaling(pool, state):
            later = after.get(now.machine_set, now)
            # For a MachineSet that does not exist, the node of the future MachineSet is described.
            shown = now if now.exists else replace(later, findings=now.findings, exists=False)
            explanations.append(
                replace(
                    shown,
                    after_run=later.findings,
                    bounds_after_run=later.bounds,
                    limit_after_run=later.limit,
                )
            )
    return explanations


def objects_after_run(plan: Plan, objects: ClusterObjects, machine_sets: t.Sequence[Document]) -> ClusterObjects:
    """The objects after the run. If a problem would make the module autoscaling fail, the module's objects are returned unchanged."""
    existing = {item["metadata"]["name"] for item in objects.machine_sets}
    new = tuple(
        dict(item) if item["metadata"]["name"] in existing else _measured(item, plan.pools) for item in machine_sets
    )
    after = replace(objects, machine_sets=new)
    planned = ScalingChanges() if plan.autoscaler is None else plan_scaling_changes(plan, after, ScalingOptions(), {})
    if not planned.problems:
        for change in planned.changes:
            after = _applied(after, change)
    created = {item["metadata"]["name"] for item in new} - existing
    # Existing MachineSets already contain the bounds of unchanged MachineAutoscalers, so only new MachineSets need these bounds.
    scalers = {
        name: planned.scaled.get(name) or next(iter(targets_of(after.machine_autoscalers, name)), None)
        for name in {*planned.scaled, *created}
    }
    bounds = {name: bounds_of(scaler) for name, scaler in scalers.items() if scaler and not planned.problems}
    return replace(after, machine_sets=tuple(_bounded(item, bounds) for item in new))


def _applied(objects: ClusterObjects, change: AutoscalerChange) -> ClusterObjects:
    """The objects after one change."""
    if change.kind == KIND:
        return replace(objects, cluster_autoscaler=change.desired)
    if change.kind == MACHINE_AUTOSCALER_KIND:
        others = (item for item in objects.machine_autoscalers if item is not change.live)
        return replace(objects, machine_autoscalers=(*others, *([change.desired] if change.desired else [])))
    return replace(objects, priorities=change.desired)


def _measured(machine_set: Document, pools: t.Iterable[PoolPlan]) -> Object:
    """A new MachineSet with the annotations that its platform's controller will write; controllers count whole GPUs."""
    parsed = parse_machine_set(machine_set)
    pool = next((pool for pool in pools if belongs_to(parsed, pool)), None)
    whole = None
    if pool is not None and GPU in parsed.controller_annotations:
        whole = pool.gpus_per_node or (pool.nodegroup.flavor_gpus if pool.nodegroup else None)
    annotations = {**_MEASURED_LATER, **parsed.annotations, **({GPU: str(whole)} if whole else {})}
    return {**machine_set, "metadata": {**machine_set["metadata"], "annotations": annotations}}


def _bounded(machine_set: Object, bounds: t.Mapping[str, tuple[int, int]]) -> Object:
    """A MachineSet with the bounds that the operator will copy from its MachineAutoscaler."""
    metadata = machine_set["metadata"]
    if metadata["name"] not in bounds:
        return machine_set
    low, high = bounds[metadata["name"]]
    annotations = {**(metadata.get("annotations") or {}), MIN_SIZE: str(low), MAX_SIZE: str(high)}
    return {**machine_set, "metadata": {**metadata, "annotations": annotations}}
