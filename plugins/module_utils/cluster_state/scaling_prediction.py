# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Predicts what the autoscaler reads after a run of the playbook site, so that a plan only reports what the run does not correct (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..catalog import cluster_autoscaler as autoscaler
from ..catalog.machine_api import (
    ACCELERATOR_LABEL,
    CAPACITY_CPU,
    CAPACITY_LABELS,
    CAPACITY_MEMORY,
    CPU,
    GPU,
    MACHINE_API_NAMESPACE,
    MEMORY_MB,
    ZONE_LABEL,
    AutoscalerRules,
)
from ..catalog.taints import merge_taints
from ..pools.nodegroup_names import is_group_or_replacement
from ..pools.scale_from_zero import capacity_annotations, future_node, parse_labels
from .autoscaling import (
    AutoscalerState,
    ScalingExplanation,
    explain_scaling,
    gpus_of_node,
    machine_sets_of,
    missing_members,
    targets_of,
)
from .node_template import MachineSet, node_template
from .scaling_checks import MAX_SIZE, MIN_SIZE

if t.TYPE_CHECKING:
    from ..pools.plan import NodeGroupMember, PoolPlan

Document = t.Mapping[str, t.Any]
# For a MachineSet that does not exist: the controller of the platform sets CPU and memory of its machine type.
_MEASURED_LATER = {CPU: "1", MEMORY_MB: "1024", CAPACITY_CPU: "1", CAPACITY_MEMORY: "1Gi"}
# A ClusterAutoscaler that a run creates leaves time for the driver.
_NEW_SPEC: Document = {"maxNodeProvisionTime": "30m", "scaleDown": {"enabled": True, "delayAfterAdd": "20m"}}


def explain_pools(
    pools: t.Sequence[PoolPlan], state: AutoscalerState, declared: Document | None = None
) -> list[ScalingExplanation]:
    """The explanations of all pools, each with the findings that remain after a run of site with these pools.

    `declared` are the declared fields in the spec of the ClusterAutoscaler.
    """
    predicted = state_after_run(pools, state, declared or {})
    found: list[ScalingExplanation] = []
    for pool in pools:
        after = {item.machine_set: item for item in explain_scaling(pool, predicted)}
        for now in explain_scaling(pool, state):
            later = after.get(now.machine_set, now)
            # Of a MachineSet that does not exist, only the future node can be described.
            shown = now if now.exists else replace(later, findings=now.findings, exists=False)
            found.append(replace(shown, after_run=later.findings))
    return found


def state_after_run(pools: t.Sequence[PoolPlan], state: AutoscalerState, declared: Document) -> AutoscalerState:
    """The state with the MachineSets, and the objects of the autoscaler, that the variables declare."""
    machine_sets = {item.name: item for item in state.machine_sets}
    for pool in pools:
        if pool.nodegroup is None:
            continue
        existing = machine_sets_of(pool, state)
        for machine_set in existing:
            machine_sets[machine_set.name] = _reconciled(pool, machine_set, _member(pool, machine_set.name), state)
        for member in missing_members(pool, existing):
            machine_sets[member.name] = _created(pool, member, state)
    after = replace(state, machine_sets=tuple(machine_sets.values()))
    scaled = [pool for pool in pools if pool.nodegroup and pool.nodegroup.autoscaled]
    if not scaled:
        return after
    return replace(after, cluster_autoscaler=_cluster_autoscaler(scaled, after, declared))


def _member(pool: PoolPlan, name: str) -> NodeGroupMember | None:
    members = pool.nodegroup.members if pool.nodegroup else ()
    return next((member for member in members if is_group_or_replacement(name, member.name)), None)


def _created(pool: PoolPlan, member: NodeGroupMember, state: AutoscalerState) -> MachineSet:
    """A MachineSet that the run creates as a copy: in the zone of the member, otherwise in the zone of its source."""
    like = pool.nodegroup.settings.get("like") if pool.nodegroup else None
    source = next((item for item in state.machine_sets if item.name == like), None)
    # All MachineSets of a cluster are of one platform.
    platform = source or next(iter(state.machine_sets), None)
    set_by_controller = platform.controller_annotations if platform else frozenset()
    zone = {ZONE_LABEL: member.zone} if member.zone else dict(source.zone_labels) if source else {}
    # The controller of a cloud counts whole GPUs.
    whole = (
        (pool.gpus_per_node or (pool.nodegroup.flavor_gpus if pool.nodegroup else None))
        if GPU in set_by_controller
        else None
    )
    annotations = {**_MEASURED_LATER, **({GPU: str(whole)} if whole else {})}
    empty = MachineSet(
        name=member.name,
        namespace=platform.namespace if platform else MACHINE_API_NAMESPACE,
        replicas=member.node_count,
        annotations=annotations,
        labels={},
        taints=(),
        zone_labels=zone,
        controller_annotations=set_by_controller,
    )
    return _reconciled(pool, empty, member, state)


def _reconciled(
    pool: PoolPlan, machine_set: MachineSet, member: NodeGroupMember | None, state: AutoscalerState
) -> MachineSet:
    """A MachineSet with the labels, taints, annotations and bounds that the pool declares; those of others stay."""
    node = future_node(pool)
    labels = {**machine_set.labels, **machine_set.zone_labels, **pool.registration.node_labels}
    labels.pop(ACCELERATOR_LABEL, None)
    if node.accelerator:
        labels[ACCELERATOR_LABEL] = node.accelerator
    taints, dummy = merge_taints(machine_set.taints, (), pool.registration.taints, lambda identity: False)
    annotations = {
        **machine_set.annotations,
        **_capacity(machine_set, labels, node.resources, node.labels, state.rules),
    }
    # The MachineAutoscaler of someone else keeps its bounds.
    foreign = targets_of(state.machine_autoscalers, machine_set.name)
    has_foreign = any((item.get("metadata") or {}).get("name") != machine_set.name for item in foreign)
    if member is not None and member.max_node_count is not None and not has_foreign:
        annotations |= {MIN_SIZE: str(member.min_node_count), MAX_SIZE: str(member.max_node_count)}
    return replace(machine_set, labels=labels, taints=tuple(taints or machine_set.taints), annotations=annotations)


def _capacity(
    machine_set: MachineSet,
    labels: t.Mapping[str, str],
    resources: t.Mapping[str, int] | None,
    discovered: t.Mapping[str, str],
    rules: AutoscalerRules,
) -> dict[str, str]:
    former = dict(machine_set.annotations)
    if ACCELERATOR_LABEL not in labels and CAPACITY_LABELS in former:
        kept = {key: value for key, value in parse_labels(former[CAPACITY_LABELS]).items() if key != ACCELERATOR_LABEL}
        former[CAPACITY_LABELS] = ",".join(f"{key}={value}" for key, value in kept.items())
    found = capacity_annotations(resources, {**labels, **discovered}, rules, former)
    # What the platform's controller sets again and again is left to it.
    return {
        key: value for key, value in found.items() if not (key in machine_set.controller_annotations and key in former)
    }


def _cluster_autoscaler(scaled: t.Sequence[PoolPlan], state: AutoscalerState, declared: Document) -> dict[str, t.Any]:
    """The ClusterAutoscaler of the run: with the declared fields, and limits of GPUs that allow for the maximum size of every pool."""
    live = _NEW_SPEC if state.cluster_autoscaler is None else state.cluster_autoscaler.get("spec") or {}
    spec = _merged(live, declared)
    needed: dict[str, int] = {}
    for machine_set in state.machine_sets:
        kind, count = gpus_of_node(machine_set, node_template(machine_set, state.rules), state)
        if kind and any(machine_set in machine_sets_of(pool, state) for pool in scaled):
            needed[kind] = needed.get(kind, 0) + count * int(machine_set.annotations.get(MAX_SIZE) or 0)
    limits = dict(spec.get("resourceLimits") or {})
    entries = {entry.get("type"): dict(entry) for entry in limits.get("gpus") or ()}
    for kind, count in needed.items():
        entry = entries.setdefault(kind, {"type": kind, "min": 0, "max": 0})
        entry["max"] = max(int(entry.get("max") or 0), count)
    limits["gpus"] = list(entries.values())
    spec["resourceLimits"] = limits
    return {**(state.cluster_autoscaler or {"metadata": {"name": autoscaler.NAME}}), "spec": spec}


def _merged(live: Document, declared: Document) -> dict[str, t.Any]:
    merged = dict(live)
    for key, value in declared.items():
        below = merged.get(key)
        merged[key] = _merged(below, value) if isinstance(value, dict) and isinstance(below, dict) else value
    return merged
