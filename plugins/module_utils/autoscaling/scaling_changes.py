# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans all changes to the autoscaler's objects that the pools require, and finds the objects that are not changed (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.cluster_autoscaler import KIND, NAME, PRIORITY_CONFIGMAP, PRIORITY_EXPANDER
from ..catalog.machine_api import ACCELERATOR_LABEL
from ..cluster_state.autoscaling import AutoscalerState, scaled_machine_set, targets_of
from ..cluster_state.expander_priorities import expression_of, priorities_of, record_of
from ..cluster_state.node import Node
from ..cluster_state.node_template import parse_machine_set
from ..cluster_state.ownership import machine_set_owner
from ..common.nested import get_nested
from ..kube.metadata import is_deleting, name_of
from ..schema.autoscaler import newer_key_problems
from ..schema.messages import join_words
from .objects import (
    SCALE_DOWN_ENABLED,
    AutoscalerChange,
    bounds_of,
    cluster_autoscaler_change,
    deletion,
    machine_autoscaler_change,
    priorities_change,
)
from .targets import Target, desired_limits, find_targets, owner_of, types_in_use

if t.TYPE_CHECKING:
    from ..pools.plan import Plan

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class ScalingOptions:
    """The options of one run.

    `pool_names`: the pools whose MachineAutoscalers are changed; empty for all pools. `change_foreign`: whether declared fields that other managers have
    set are changed. `adopt`: whether foreign MachineAutoscalers of the pools' MachineSets are adopted.
    """

    present: bool = True
    pool_names: frozenset[str] = frozenset()
    change_foreign: bool = False
    adopt: bool = False

    def selects(self, pool: str) -> bool:
        """Whether the run changes the MachineAutoscalers of this pool."""
        return not self.pool_names or pool in self.pool_names


@dataclass(frozen=True)
class ClusterObjects:
    """The objects of one cluster. `unread` contains the kinds that the user is not allowed to read (PRIORITY_CONFIGMAP for the ConfigMap)."""

    version: str = ""
    machine_sets: tuple[Object, ...] = ()
    machine_autoscalers: tuple[Object, ...] = ()
    cluster_autoscaler: Object | None = None
    priorities: Object | None = None
    nodes: tuple[Node, ...] = ()
    unread: frozenset[str] = frozenset()

    @property
    def state(self) -> AutoscalerState:
        """The objects in the form that explain_scaling() requires."""
        return AutoscalerState(
            version=self.version,
            machine_sets=tuple(parse_machine_set(item) for item in self.machine_sets),
            machine_autoscalers=self.machine_autoscalers,
            cluster_autoscaler=self.cluster_autoscaler,
            # If the ConfigMap cannot be read, only the priorities of the MachineSets are unknown.
            priorities=None if PRIORITY_CONFIGMAP in self.unread else priorities_of(self.priorities),
            nodes=self.nodes,
            unread=self.unread - {PRIORITY_CONFIGMAP},
        )


@dataclass
class ScalingChanges:
    """The changes in the order in which they are made, the MachineAutoscaler of each target, and messages.

    scaled: the changed MachineAutoscalers, by MachineSet. undeclared: this collection's MachineAutoscalers that no pool declares any longer.
    unmanaged: foreign MachineAutoscalers for MachineSets of the pools; they are not changed.
    """

    changes: list[AutoscalerChange] = field(default_factory=list)
    scaled: dict[str, Object] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)
    undeclared: list[str] = field(default_factory=list)
    unmanaged: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether any request is needed."""
        return any(change.changed for change in self.changes)


def plan_scaling_changes(
    plan: Plan, objects: ClusterObjects, options: ScalingOptions, predicted: t.Mapping[str, Document]
) -> ScalingChanges:
    """Compare the objects with the pools. `predicted`: see find_targets()."""
    return _Comparison(plan, objects, options, predicted).compare()


def uses_priorities(plan: Plan, cluster_autoscaler: Document | None) -> bool:
    """Whether the Priority expander's ConfigMap must be read: the declared or actual expanders include it, or a pool declares a priority."""
    declared = plan.autoscaler.spec if plan.autoscaler else {}
    expanders = [
        *(get_nested(declared, "expanders") or ()),
        *(get_nested(cluster_autoscaler, "spec", "expanders") or ()),
    ]
    return PRIORITY_EXPANDER in expanders or any(
        pool.nodegroup and pool.nodegroup.priority is not None for pool in plan.pools
    )


class _Comparison:
    def __init__(
        self, plan: Plan, objects: ClusterObjects, options: ScalingOptions, predicted: t.Mapping[str, Document]
    ) -> None:
        self.namespace = plan.autoscaler.namespace if plan.autoscaler else ""
        self.declared = plan.autoscaler.spec if plan.autoscaler else {}
        self.plan, self.objects, self.options = plan, objects, options
        targets, problems = find_targets(plan, objects.machine_sets, predicted, self.namespace)
        removed = [] if options.present else [target for target in targets if options.selects(target.pool.name)]
        self.targets = [target for target in targets if target not in removed]
        if options.present:
            problems += [f"{problem}." for problem in newer_key_problems(self.declared, objects.version)]
        self.result = ScalingChanges(targets=self.targets, problems=problems if options.present else [])
        # The MachineAutoscalers that will exist after the run, with their MachineSets.
        self.remaining = {item["metadata"]["name"]: scaled_machine_set(item) for item in self._live()}

    def compare(self) -> ScalingChanges:
        for target in self.targets:
            if self.options.present and self.options.selects(target.pool.name):
                self._scale(target)
        self._sort_out_others()
        cluster = self._cluster_autoscaler()
        priorities = self._priorities(cluster)
        # The ClusterAutoscaler comes first, so that no node is added before its limits and delays apply.
        self.result.changes = [
            *([cluster] if cluster else []),
            *([priorities] if priorities else []),
            *self.result.changes,
        ]
        for change in self.result.changes:
            self._warn_of_foreign_fields(change)
        return self.result

    def _live(self) -> list[Object]:
        return [item for item in self.objects.machine_autoscalers if not is_deleting(item)]

    def _scale(self, target: Target) -> None:
        references = targets_of(self._live(), target.name)
        own = [t.cast("Object", item) for item in references if owner_of(item) is not None]
        own.sort(key=lambda item: (item["metadata"]["name"] != target.name, item["metadata"]["name"]))
        foreign = [t.cast("Object", item) for item in references if owner_of(item) is None]
        live = own[0] if own else None
        if foreign and (own or not self.options.adopt):
            self._report_unmanaged(target, foreign, has_own=bool(own))
            if live is None:
                return
        elif len(foreign) > 1:
            names = join_words(item["metadata"]["name"] for item in foreign)
            self.result.problems.append(
                f"Pool {target.pool.name}: {names} refer to MachineSet {target.name}, and only one of them has an effect. Delete all but one; that one "
                "can then be adopted."
            )
            return
        elif foreign:
            live = foreign[0]
        if live is None and target.name in self.remaining:
            self.result.problems.append(
                f"Pool {target.pool.name}: MachineAutoscaler {self.namespace}/{target.name} refers to MachineSet {self.remaining[target.name]}, so no "
                f"MachineAutoscaler of that name can be created for MachineSet {target.name}. Delete the existing one, or recreate it under a different name."
            )
            return
        change = machine_autoscaler_change(target, live, self.namespace, change_foreign=self.options.change_foreign)
        self.result.changes.append(change)
        self.result.scaled[target.name] = change.desired or {}
        self.remaining[change.name] = target.name

    def _report_unmanaged(self, target: Target, foreign: t.Sequence[Object], *, has_own: bool) -> None:
        names = [f"{self.namespace}/{item['metadata']['name']}" for item in foreign]
        self.result.unmanaged += names
        if has_own:
            self.result.warnings.append(
                f"In addition to its managed MachineAutoscaler, MachineSet {target.name} has foreign MachineAutoscaler {join_words(names)}; only one of them "
                "has an effect. Delete the foreign one."
            )
            return
        low, high = bounds_of(foreign[0])
        self.result.warnings.append(
            f"MachineSet {target.name} is scaled by foreign MachineAutoscaler {join_words(names)} between {low} and {high} nodes; pool "
            f"{target.pool.name} declares {target.low} to {target.high}. The MachineAutoscaler is not changed. Set gpu_autoscaling_adopt: true to manage it."
        )

    def _sort_out_others(self) -> None:
        """Delete MachineAutoscalers that this run replaces or removes; report those that no pool declares."""
        groups = {member.name: pool for pool in self.plan.pools if pool.nodegroup for member in pool.nodegroup.members}
        names = {item["metadata"]["name"] for item in self.objects.machine_sets}
        names |= {target.name for target in self.targets}
        for item in self._live():
            group = owner_of(item)
            pool = groups.get(group or "")
            if group is None or any(change.live is item for change in self.result.changes):
                continue
            if pool is not None and not self.options.selects(pool.name):
                continue
            # When a MachineSet is replaced, the new one has a different name.
            superseded = bool(
                pool and pool.nodegroup and pool.nodegroup.autoscaled and scaled_machine_set(item) not in names
            )
            if pool is not None and (not self.options.present or superseded) and self._scales_own_group(item, group):
                self.result.changes.append(deletion(item))
                del self.remaining[item["metadata"]["name"]]
            elif self.options.present:
                self._report_left(
                    item, f"pool {pool.name} has no autoscale" if pool else f"no pool has node group {group}"
                )

    def _scales_own_group(self, item: Object, group: str) -> bool:
        """Whether a managed MachineAutoscaler scales a MachineSet of its node group, or one that no longer exists; a copied one scales another MachineSet."""
        scaled = next((each for each in self.objects.machine_sets if name_of(each) == scaled_machine_set(item)), None)
        return scaled is None or group in (name_of(scaled), machine_set_owner(scaled, new=True))

    def _report_left(self, item: Object, reason: str) -> None:
        name = f"{self.namespace}/{item['metadata']['name']}"
        low, high = bounds_of(item)
        self.result.undeclared.append(name)
        self.result.warnings.append(
            f"MachineAutoscaler {name} still scales MachineSet {scaled_machine_set(item)} between {low} and {high} nodes, but {reason}. It is kept. To "
            f"remove it, run oc -n {self.namespace} delete machineautoscaler {item['metadata']['name']}"
        )

    def _cluster_autoscaler(self) -> AutoscalerChange | None:
        live = self.objects.cluster_autoscaler
        if live is None and not (self.targets and self.options.present):
            return None
        machine_sets = [parse_machine_set(item) for item in self.objects.machine_sets]
        predicted = {target.name: target.machine_set for target in self.targets}
        machine_sets = [*(item for item in machine_sets if item.name not in predicted), *predicted.values()]
        state = AutoscalerState(
            self.objects.version,
            tuple(machine_sets),
            self.objects.machine_autoscalers,
            live,
            # The autoscaler counts GPUs only on nodes with this label.
            nodes=tuple(node for node in self.objects.nodes if ACCELERATOR_LABEL in node.labels),
        )
        limits = desired_limits(self.targets, state)
        self.result.limits = limits
        used = types_in_use(machine_sets, set(self.remaining.values()))
        declared = self.declared if self.options.present else {}
        change = cluster_autoscaler_change(live, declared, limits, used, change_foreign=self.options.change_foreign)
        scale_down = declared.get("scaleDown") or {}
        if scale_down and "enabled" not in scale_down and get_nested(change.desired, *SCALE_DOWN_ENABLED) is False:
            self.result.warnings.append(
                f"{KIND} {NAME} removes no nodes (scaleDown.enabled is false), so the other fields of scale_down have no effect. Declare "
                "gpu_cluster.autoscaler.scale_down.enabled: true to let it remove nodes."
            )
        return change

    def _priorities(self, cluster: AutoscalerChange | None) -> AutoscalerChange | None:
        live = self.objects.priorities
        desired = {
            expression_of(self.namespace, target.name): target.priority
            for target in self.targets
            if target.priority is not None
        }
        if cluster is None or not (desired or record_of(live)):
            return None
        expanders = get_nested(cluster.desired or {}, "spec", "expanders") or ["Random (default)"]
        if desired and PRIORITY_EXPANDER not in expanders and self.options.present:
            self.result.warnings.append(
                f"autoscale.priority of the pools has no effect: {KIND} {NAME} has the expanders {join_words(expanders)}. Declare "
                f"gpu_cluster.autoscaler.expanders with {PRIORITY_EXPANDER}."
            )
            return None
        # The expression of a MachineSet that no pool declares any longer is kept as long as its MachineAutoscaler is kept.
        undeclared = {*self.remaining.values()} - {target.name for target in self.targets}
        kept = {expression_of(self.namespace, name) for name in undeclared}
        change, problem = priorities_change(live, desired, kept, self.namespace)
        if problem:
            self.result.problems.append(
                f"ConfigMap {self.namespace}/{PRIORITY_CONFIGMAP}: the text of its key priorities {problem}. Correct or delete it."
            )
        return change

    def _warn_of_foreign_fields(self, change: AutoscalerChange) -> None:
        if not change.foreign:
            return
        kept = "They are not changed. Declare these values, or set gpu_autoscaling_force: true to change them."
        effect = "They are changed." if self.options.change_foreign else kept
        self.result.warnings.append(
            f"{change.label} has fields of another field manager: {'; '.join(map(str, change.foreign))}. {effect}"
        )
