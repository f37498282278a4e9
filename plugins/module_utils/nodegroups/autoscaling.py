# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sets up autoscaling on OpenShift, and explains why a pool can or cannot scale."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t
from dataclasses import dataclass, field, replace

from ..catalog.openshift import (
    ACCELERATOR_LABEL,
    API_VERSION,
    AUTOSCALER_ANNOTATIONS,
    AUTOSCALER_KIND,
    AUTOSCALER_NAME,
    CAPACITY_CPU,
    CAPACITY_MEMORY,
    CLUSTER_AUTOSCALER_PATH,
    CLUSTER_AUTOSCALERS_PATH,
    CLUSTER_VERSION_PATH,
    CPU,
    GPU,
    MACHINE_ANNOTATION,
    MACHINE_API_PATH,
    MACHINE_API_VERSION,
    MACHINE_AUTOSCALER_API_VERSION,
    MACHINE_AUTOSCALER_KIND,
    MEMORY_MB,
    OPENSHIFT,
    PRIORITY_CONFIGMAP,
    PRIORITY_EXPANDER,
    AutoscalerRules,
    machine_autoscalers_path,
    machine_sets_path,
)
from ..core.errors import InvalidOptions
from ..core.messages import diff_of, join_words
from ..core.values import Document, Object, get_nested
from ..core.waits import StateTimer, WaitOptions, WaitTimeout
from ..kube.errors import ApiError, retry_conflicts
from ..kube.fields import is_deleting, name_of
from ..kube.objects import write_or_dry_run
from ..kube.paths import NODES, object_path
from ..nodes.node import Node, is_openshift, parse_node
from ..nodes.ownership import assign_pools, machine_set_owner
from ..pools.plan import machine_namespace
from ..schema.providers import PROVIDERS, newer_key_problems
from .autoscaling_objects import (
    SCALE_DOWN_ENABLED,
    AutoscalerChange,
    Target,
    bounds_of,
    cluster_autoscaler_change,
    deletion,
    desired_limits,
    expression_of,
    find_targets,
    machine_autoscaler_change,
    owner_of,
    priorities_change,
    priorities_of,
    recorded_priorities,
    types_in_use,
)
from .scaling_state import (
    MAX_SIZE,
    MIN_SIZE,
    AutoscalerState,
    ScalingExplanation,
    belongs_to,
    explain_scaling,
    machine_sets_of,
    recorded_limits,
    scaled_machine_set,
    targets_of,
)
from .spec import parse_machine_set

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..pools.plan import Plan, PoolPlan

# Plans all changes to the autoscaler's objects that the pools require, and finds the objects that are not changed (pure).


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
                f"{AUTOSCALER_KIND} {AUTOSCALER_NAME} removes no nodes (scaleDown.enabled is false), so the other fields of scale_down have no effect. Declare "
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
        if cluster is None or not (desired or recorded_priorities(live)):
            return None
        expanders = get_nested(cluster.desired or {}, "spec", "expanders") or ["Random (default)"]
        if desired and PRIORITY_EXPANDER not in expanders and self.options.present:
            self.result.warnings.append(
                f"autoscale.priority of the pools has no effect: {AUTOSCALER_KIND} {AUTOSCALER_NAME} has the expanders {join_words(expanders)}. Declare "
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


# Reads and writes the objects of OpenShift's cluster autoscaler, and waits until its operator has written the bounds into the MachineSets.

_MIN, _MAX, _OWNER = AUTOSCALER_ANNOTATIONS


class AutoscalingClient:
    """Accesses the autoscaler's objects in one cluster."""

    def __init__(self, client: Client, plan: Plan) -> None:
        """Store the arguments; no request is sent yet."""
        self._client = client
        namespace = plan.autoscaler.namespace if plan.autoscaler else ""
        self.namespace = namespace
        pools = [pool for pool in plan.pools if pool.nodegroup]
        self._scales = any(pool.nodegroup and pool.nodegroup.autoscaled for pool in pools)
        self._plan = plan
        self._machine_sets = machine_sets_path(namespace)
        self._machine_autoscalers = machine_autoscalers_path(namespace)
        self._configmaps = f"/api/v1/namespaces/{namespace}/configmaps"
        self._version: str | None = None

    def read(self) -> ClusterObjects:
        """Read all objects; raises InvalidOptions if the cluster does not have the API."""
        machine_sets = self._list(self._machine_sets, "MachineSets", MACHINE_API_VERSION)
        scalers = self._list(self._machine_autoscalers, "MachineAutoscalers", MACHINE_AUTOSCALER_API_VERSION)
        cluster = self._client.get(CLUSTER_AUTOSCALER_PATH)
        if not self._scales and not scalers and not recorded_limits(cluster or {}):
            return ClusterObjects(machine_sets=machine_sets, cluster_autoscaler=cluster)
        reads_priorities = uses_priorities(self._plan, cluster)
        nodes = self._client.list(NODES, label_selector=ACCELERATOR_LABEL)
        return ClusterObjects(
            version=self._read_version(),
            machine_sets=machine_sets,
            machine_autoscalers=scalers,
            cluster_autoscaler=cluster,
            priorities=self._client.get(f"{self._configmaps}/{PRIORITY_CONFIGMAP}") if reads_priorities else None,
            nodes=tuple(parse_node(raw) for raw in nodes),
        )

    def send(self, change: AutoscalerChange, *, check: bool) -> str | None:
        """Create, change or delete an object, in check mode as a dry run. Returns the reason if the server did not check the change."""
        return write_or_dry_run(lambda: self._send(change, check), check=check)

    def _send(self, change: AutoscalerChange, check: bool) -> None:
        collection = self._collection(change.kind)
        path = f"{collection}/{change.name}"
        if change.live is None:
            self._client.create(collection, change.desired or {}, dry_run=check, field_validation="Strict")
        elif change.desired is None:
            body = {"preconditions": {"uid": change.live["metadata"]["uid"]}}
            self._client.delete(path, body=body, dry_run=check)
        else:
            self._client.patch(path, change.patch, dry_run=check, field_validation="Strict")

    def await_bounds(
        self, planned: ScalingChanges, waiting: WaitOptions, first: t.Sequence[Object] | None = None
    ) -> None:
        """Wait until the operator has written the bounds of each MachineAutoscaler into its MachineSet. `first`: the MachineSets, if they were just read."""
        if not planned.scaled:
            return
        timer, unread = StateTimer(), list(first or ())

        def read() -> list[str]:
            items = list(unread) or list(self._client.list(self._machine_sets))
            unread.clear()
            by_name = {item["metadata"]["name"]: item for item in items}
            states = {name: _missing_bounds(by_name.get(name), scaler) for name, scaler in planned.scaled.items()}
            return [
                f"MachineSet {name} {state} (for at least {timer.seconds(name, state):.0f} s)."
                for name, state in sorted(states.items())
                if state
            ]

        waiting.until(
            read,
            lambda missing: not missing,
            describe=lambda missing: (
                f"{' '.join(missing)} The cluster-autoscaler-operator writes the range of a {MACHINE_AUTOSCALER_KIND} into its MachineSet. Check the events of "
                f"the {MACHINE_AUTOSCALER_KIND} (oc -n {self.namespace} get events), and the log of the operator (oc -n {self.namespace} logs "
                "deployment/cluster-autoscaler-operator)."
            ),
            progress_text=lambda missing: f"waiting for the ranges of {len(missing)} MachineSet(s)",
        )

    def _collection(self, kind: str) -> str:
        if kind == AUTOSCALER_KIND:
            return CLUSTER_AUTOSCALERS_PATH
        return self._machine_autoscalers if kind == MACHINE_AUTOSCALER_KIND else self._configmaps

    def _list(self, path: str, title: str, api_version: str) -> tuple[Object, ...]:
        try:
            return tuple(self._client.list(path))
        except ApiError as error:
            if not error.not_found:
                raise
            raise InvalidOptions(
                [
                    f"The cluster has no {title} ({api_version}), and this run does not install this API. Only OpenShift clusters have it; on others, "
                    f"remove gpu_cluster.cloud.machineset. On OpenShift, the MachineAPI capability provides the API {API_VERSION}."
                ]
            ) from error

    def _read_version(self) -> str:
        """The version of OpenShift; empty if the user is not allowed to read it."""
        if self._version is None:
            try:
                cluster_version = self._client.get_once(CLUSTER_VERSION_PATH)
            except ApiError as error:
                if not error.lacks_right:
                    raise
                cluster_version = None
            self._version = str(get_nested(cluster_version, "status", "desired", "version") or "")
        return self._version


def _missing_bounds(machine_set: Object | None, scaler: Document) -> str:
    """The end of a sentence that describes how a MachineSet's range differs from the range of its MachineAutoscaler; empty if it does not."""
    if machine_set is None:
        return "does not exist"
    annotations = machine_set["metadata"].get("annotations") or {}
    name = f"{scaler['metadata']['namespace']}/{scaler['metadata']['name']}"
    owner = annotations.get(_OWNER)
    if owner is not None and owner != name:
        return f"belongs to {MACHINE_AUTOSCALER_KIND} {owner} (annotation {_OWNER})"
    low, high = bounds_of(scaler)
    if (annotations.get(_MIN), annotations.get(_MAX), owner) == (str(low), str(high), name):
        return ""
    bounds = (
        f"the range {annotations[_MIN]} to {annotations[_MAX]}" if {_MIN, _MAX} <= annotations.keys() else "no range"
    )
    return f"has {bounds}, but {MACHINE_AUTOSCALER_KIND} {name} sets {low} to {high} nodes"


# Predicts the autoscaler's objects after a run of the playbook site, so that a plan can show which findings will remain (pure).
#
# The MachineSets are computed by the module machineset, the other objects by plan_scaling_changes(), which the module autoscaling also uses.

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
    if change.kind == AUTOSCALER_KIND:
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


# Implements a run: compares the autoscaler's objects with the pools, writes the changes, and waits for the operator.

_TITLE = "The pools cannot be scaled:"


class AutoscalingRun:
    """The state of one run; `client` is None if the cluster has no node groups that this autoscaler scales."""

    def __init__(
        self, client: Client | None, plan: Plan, options: ScalingOptions, predicted: t.Mapping[str, t.Any]
    ) -> None:
        """Store the arguments; no request is sent yet."""
        self._cluster = AutoscalingClient(client, plan) if client is not None else None
        self._plan, self._options, self._predicted = plan, options, predicted
        self._found = ClusterObjects()
        self._written: dict[str, AutoscalerChange] = {}
        self._unchecked: str | None = None
        self.planned = ScalingChanges()

    def compare(self) -> None:
        """Read the objects and plan the changes; raises InvalidOptions with all problems."""
        self._check_names()
        if self._cluster is None:
            return
        self._found = self._cluster.read()
        self.planned = plan_scaling_changes(self._plan, self._found, self._options, self._predicted)
        if self.planned.problems:
            raise InvalidOptions(self.planned.problems, _TITLE)

    def deleted(self) -> list[str]:
        """The objects that the planned changes delete."""
        return [change.label for change in self._changes() if change.action == "deleted"]

    def _check_names(self) -> None:
        known = [pool.name for pool in self._plan.pools if pool.nodegroup]
        unknown = sorted(self._options.pool_names - {*known})
        if unknown:
            listed, verb = ", ".join(known) or "none", "is not the name" if len(unknown) == 1 else "are not names"
            raise InvalidOptions(
                [f"pool_names: {', '.join(unknown)} {verb} of a declared pool with nodes. Pools with nodes: {listed}"]
            )

    def preview(self) -> None:
        """Let the server check the changes with dry runs."""
        changes = self._changes()
        self._written.update({change.label: change for change in changes})
        with self._result_in_errors():
            for change in changes:
                self._unchecked = self._send(change, check=True) or self._unchecked

    def apply(self, lease: Lease) -> None:
        """Plan the changes again from the current state of the cluster, and write them; after a conflict, both steps are repeated."""

        def send_all(changes: list[AutoscalerChange]) -> None:
            # The server checks all changes, for example with an admission policy, before the first change is written.
            if len(changes) > 1:
                for change in changes:
                    self._send(change, check=True)
            for change in changes:
                lease.check()
                self._send(change, check=False)
                first = self._written.get(change.label, change)
                self._written[change.label] = dataclasses.replace(change, live=first.live)

        with self._result_in_errors():
            retry_conflicts(send_all, self._compared(), self._compared)

    @contextlib.contextmanager
    def _result_in_errors(self) -> t.Iterator[None]:
        """Add the result so far to errors of the API server."""
        try:
            yield
        except ApiError as error:
            error.partial = {**error.partial, **self.result()}
            raise

    def _compared(self) -> list[AutoscalerChange]:
        self.compare()
        return self._changes()

    def await_bounds(self, waiting: WaitOptions) -> None:
        """Wait until the operator has written the bounds; if nothing was changed, the MachineSets that were already read are checked first."""
        if self._cluster is None:
            return
        try:
            self._cluster.await_bounds(self.planned, waiting, None if self._written else self._found.machine_sets)
        except WaitTimeout as error:
            error.partial = {**error.partial, **self.result()}
            raise

    def _changes(self) -> list[AutoscalerChange]:
        return [change for change in self.planned.changes if change.changed]

    def _send(self, change: AutoscalerChange, *, check: bool) -> str | None:
        return self._cluster.send(change, check=check) if self._cluster is not None else None

    def result(self) -> dict[str, t.Any]:
        """The module's result."""
        written = list(self._written.values())
        actions = {change.label: change.action for change in self.planned.changes}
        actions |= {change.label: change.action for change in written}
        pools = {target.name: target.pool.name for target in self.planned.targets}
        return {
            "changed": bool(written),
            "autoscaling": {
                "objects": actions,
                "machine_sets": {
                    name: {
                        "pool": pools.get(name, ""),
                        "min": bounds_of(scaler)[0],
                        "max": bounds_of(scaler)[1],
                        "machine_autoscaler": scaler["metadata"]["name"],
                    }
                    for name, scaler in sorted(self.planned.scaled.items())
                },
                "limits": self.planned.limits,
                "undeclared": self.planned.undeclared,
                "unmanaged": self.planned.unmanaged,
                **({"unchecked": self._unchecked} if self._unchecked else {}),
            },
            "diff": diff_of(
                {change.label: change.before for change in written if change.before},
                {change.label: change.after for change in written if change.after},
                "autoscaling",
            ),
        }


# Reads the objects that OpenShift's cluster autoscaler uses, and explains for a report whether it scales the pools up from zero nodes.

T = t.TypeVar("T")
MachineSetPreview = t.Callable[[t.Sequence[Object], t.Sequence[Object], AutoscalerRules], list[Object]]

_VERSION = "ClusterVersion"


def add_scaling(
    client: Client, plan: Plan, nodes: t.Sequence[Node], info: Object, preview: MachineSetPreview
) -> AutoscalerRules | None:
    """Add the explanations of all pools to the result of gpu_info; returns the autoscaler's rules, or None if they are not known.

    Sends no request if the cluster is not OpenShift, or if the cloud scales node groups itself; otherwise four requests, and another one for the ConfigMap
    of the Priority expander if the autoscaler uses it or will use it. `preview` returns the MachineSets after a run of the module machineset.
    """
    cloud = plan.cluster.cloud
    if not plan.pools or (cloud is not None and not PROVIDERS[cloud.provider].scaled_by_openshift):
        return None
    if plan.cluster.distribution != OPENSHIFT and not any(map(is_openshift, nodes)):
        return None
    objects, problems = read_objects(client, plan, nodes, machine_namespace(cloud))
    state = objects.state
    explained: list[ScalingExplanation] = []
    if MACHINE_API_PATH not in problems:
        members = assign_pools(plan.pools, nodes).by_pool
        relevant = {pool.name for pool in plan.pools if _is_relevant(pool, state, members[pool.name])}
        after = preview(plan.nodegroups, objects.machine_sets, state.rules)
        explained = [item for item in explain_pools(plan, objects, after) if item.pool in relevant]
    info["autoscaling"] = {
        "version": state.version,
        "not_read": list(problems.values()),
        "machine_sets": [item.as_dict() for item in explained],
    }
    return state.rules if len(state.possible_rules) == 1 else None


def read_objects(
    client: Client, plan: Plan, nodes: t.Sequence[Node], namespace: str
) -> tuple[ClusterObjects, dict[str, str]]:
    """The objects that the autoscaler reads, and a sentence for each kind that could not be read, by kind (for MachineSets, by MACHINE_API_PATH)."""
    problems: dict[str, str] = {}
    none: tuple[Object, ...] = ()

    def read(key: str, what: str, request: t.Callable[[], T], instead: T) -> T:
        try:
            return request()
        except ApiError as error:
            if not error.lacks_right:
                raise
            problems[key] = f"{what} could not be read: {error.message}"
            return instead

    def machine_sets() -> tuple[Object, ...]:
        return tuple(client.list(machine_sets_path(namespace)))

    try:
        listed = read(MACHINE_API_PATH, "MachineSets", machine_sets, none)
    except ApiError as error:
        if not error.not_found:
            raise
        problems[MACHINE_API_PATH] = (
            "the cluster has no MachineSets (machine.openshift.io/v1beta1), which its autoscaler scales"
        )
        return ClusterObjects(), problems
    version = read(_VERSION, "ClusterVersion version", lambda: client.get_once(CLUSTER_VERSION_PATH), None)
    scalers = read(
        MACHINE_AUTOSCALER_KIND,
        "MachineAutoscalers",
        lambda: client.list_known(machine_autoscalers_path(namespace)),
        none,
    )
    cluster = read(
        AUTOSCALER_KIND,
        f"ClusterAutoscaler {AUTOSCALER_NAME}",
        lambda: client.get(CLUSTER_AUTOSCALER_PATH),
        None,
    )
    priorities = None
    if uses_priorities(plan, cluster):
        path = object_path("v1", "ConfigMap", PRIORITY_CONFIGMAP, namespace)
        name = f"ConfigMap {namespace}/{PRIORITY_CONFIGMAP}"
        priorities = read(PRIORITY_CONFIGMAP, name, lambda: client.get(path), None)
    objects = ClusterObjects(
        version=str(get_nested(version, "status", "desired", "version") or ""),
        machine_sets=listed,
        machine_autoscalers=scalers,
        cluster_autoscaler=cluster,
        priorities=priorities,
        nodes=tuple(nodes),
        unread=frozenset(set(problems) - {_VERSION}),
    )
    return objects, problems


def _is_relevant(pool: PoolPlan, state: AutoscalerState, members: t.Collection[str]) -> bool:
    """Whether MachineSets create, or could create, nodes of the pool. If none of the pool's nodes has a Machine, they cannot."""
    if pool.nodegroup is not None or machine_sets_of(pool, state):
        return True
    if state.cluster_autoscaler is None and not state.machine_autoscalers:
        return False
    nodes = [node for node in state.nodes if node.name in members]
    return not nodes or any(MACHINE_ANNOTATION in node.annotations for node in nodes)
