# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the pools' MachineSets that the autoscaler scales, and computes the GPU limits for them (pure)."""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass

from ..catalog.machine_api import ACCELERATOR_LABEL
from ..catalog.names import GPU_RESOURCE, NODEGROUP_LABEL
from ..cluster_state.autoscaling import AutoscalerState, gpus_in_use, gpus_of_node
from ..cluster_state.node_template import MachineSet, node_template, parse_machine_set
from ..cluster_state.ownership import machine_set_owner
from ..common.nested import get_nested
from ..kube.metadata import is_deleting
from ..pools.scale_from_zero import future_node

if t.TYPE_CHECKING:
    from ..pools.plan import NodeGroupMember, Plan, PoolPlan

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]
# The actions of the module machineset that create a new MachineSet.
_CREATED = ("create", "recreate")


@dataclass(frozen=True)
class Target:
    """A MachineSet that the autoscaler scales between `low` and `high` nodes. `group` is the declared name of its node group."""

    pool: PoolPlan
    group: str
    machine_set: MachineSet
    low: int
    high: int
    priority: int | None = None

    @property
    def name(self) -> str:
        """The name of the MachineSet, and of a new MachineAutoscaler for it."""
        return self.machine_set.name


def find_targets(
    plan: Plan, machine_sets: t.Sequence[Document], predicted: t.Mapping[str, Document], namespace: str
) -> tuple[list[Target], list[str]]:
    """The MachineSets of all pools with `autoscale`, and a problem for each node group of these pools that has no MachineSet.

    predicted: in check mode, the results of the module machineset by group name, for MachineSets that the run creates or changes.
    """
    targets: list[Target] = []
    problems: list[str] = []
    for pool in plan.pools:
        if pool.nodegroup is None or not pool.nodegroup.autoscaled:
            continue
        for member in pool.nodegroup.members:
            machine_set = _machine_set_of(pool, member, machine_sets, predicted.get(member.name) or {}, namespace)
            if isinstance(machine_set, str):
                problems.append(f"Pool {pool.name}: {machine_set}")
            else:
                low, high = member.min_node_count or 0, member.max_node_count or 1
                targets.append(Target(pool, member.name, machine_set, low, high, pool.nodegroup.priority))
    return targets, problems


def _machine_set_of(
    pool: PoolPlan,
    member: NodeGroupMember,
    machine_sets: t.Sequence[Document],
    predicted: Document,
    namespace: str,
) -> MachineSet | str:
    """The MachineSet of a node group in its state after the run, or the reason why there is none."""
    name = member.name
    own = [
        item
        for item in machine_sets
        if owner_of(item) == name
        and (item["metadata"]["name"] == name or machine_set_owner(item, new=True) == name)
        and not is_deleting(item)
    ]
    own.sort(key=lambda item: (item["metadata"]["name"] != name, item["metadata"]["name"]))
    if predicted.get("action") in _CREATED:
        return _predicted(
            pool, {"metadata": {"name": predicted.get("name") or name, "namespace": namespace}}, predicted
        )
    if own:
        return _predicted(pool, own[0], predicted) if predicted else parse_machine_set(own[0])
    if any(item["metadata"]["name"] == name for item in machine_sets):
        return (
            f"MachineSet {name} in namespace {namespace} was not created by this collection. Set nodes.adopt: true in the pool, and run the role "
            "nodegroups."
        )
    return f"there is no MachineSet {name} in namespace {namespace}. Run the role nodegroups first, which creates it."


def _predicted(pool: PoolPlan, live: Document, predicted: Document) -> MachineSet:
    """The MachineSet with the labels, annotations and node count that the run will set."""
    changed = copy.deepcopy(dict(live))
    annotations = {**(live["metadata"].get("annotations") or {}), **(predicted.get("annotations") or {})}
    changed["metadata"]["annotations"] = annotations
    labels = predicted.get("node_labels")
    if labels is None:
        labels = get_nested(changed, "spec", "template", "spec", "metadata", "labels") or {}
    template = changed.setdefault("spec", {}).setdefault("template", {}).setdefault("spec", {})
    template["metadata"] = {"labels": {key: value for key, value in labels.items() if value is not None}}
    changed["spec"]["replicas"] = predicted.get("node_count") or changed["spec"].get("replicas") or 0
    return parse_machine_set(changed)


def owner_of(item: Document) -> str | None:
    """The declared name of the node group that an object belongs to; None if it is not managed by this collection."""
    return t.cast("str | None", (item["metadata"].get("labels") or {}).get(NODEGROUP_LABEL))


def desired_limits(targets: t.Iterable[Target], state: AutoscalerState) -> dict[str, int]:
    """The limit for each GPU type: the GPUs of all pools with their maximum number of nodes, or the GPUs in use if there are more.

    The autoscaler counts the GPUs that the template expects until a node exists, and then the GPUs that a node offers. The larger number is used here.
    """
    limits: dict[str, int] = {}
    for target in targets:
        kind, count = _gpus_per_node(target, state)
        if kind and count:
            limits[kind] = limits.get(kind, 0) + count * target.high
    used: dict[str, int] = {}
    for kind, count in gpus_in_use(state):
        used[kind] = used.get(kind, 0) + count
    return {kind: max(count, used.get(kind, 0)) for kind, count in sorted(limits.items())}


def _gpus_per_node(target: Target, state: AutoscalerState) -> tuple[str, int]:
    machine_set = target.machine_set
    template = node_template(machine_set, state.rules)
    dummy, offered = gpus_of_node(machine_set, template, state)
    declared = (future_node(target.pool).resources or {}).get(GPU_RESOURCE, 0)
    expected = template.resources.get(GPU_RESOURCE, 0)
    return machine_set.labels.get(ACCELERATOR_LABEL, ""), max(offered, expected, declared)


def types_in_use(machine_sets: t.Iterable[MachineSet], scaled: t.Collection[str]) -> set[str]:
    """The GPU types of the MachineSets named in `scaled`."""
    types = {item.labels.get(ACCELERATOR_LABEL, "") for item in machine_sets if item.name in scaled}
    return types - {""}
