# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the cluster autoscaler sees of a pool: limits and mistakes (pure)."""

from __future__ import annotations

import copy
import re
import typing as t
from dataclasses import asdict, dataclass, field

from ..catalog.names import GPU_LIMITS_ANNOTATION, GPU_RESOURCE, POOL_LABEL
from ..catalog.openshift import (
    ACCELERATOR_LABEL,
    AUTOSCALER_ANNOTATIONS,
    AUTOSCALER_KIND,
    AUTOSCALER_NAME,
    AUTOSCALER_RULES,
    CAPACITY_LABELS,
    DEFAULT_DELAY_AFTER_ADD,
    DEFAULT_MAX_NODE_PROVISION_TIME,
    GPU_COUNT,
    GPU_TYPE,
    MACHINE_ANNOTATION,
    MACHINE_AUTOSCALER_KIND,
    MACHINE_SET_KIND,
    MEMORY_MB,
    PRIORITY_CONFIGMAP,
    PRIORITY_EXPANDER,
    AutoscalerRules,
    autoscaler_rules,
    openshift_release,
)
from ..catalog.taints import format_taint, untolerated_taints
from ..core.messages import join_words
from ..core.values import Document, Object, duration_seconds, get_nested, parse_json
from ..nodes.ownership import set_record
from ..pools.plan import future_node
from ..schema.validators import label_value
from .spec import MachineSet, NodeTemplate, node_template

if t.TYPE_CHECKING:
    from ..nodes.node import Node
    from ..pools.plan import NodeGroupMember, NodeGroupPlan, PoolPlan

# Reads and merges the collection's entries in resourceLimits.gpus of the ClusterAutoscaler (pure).
#
# The list is atomic in the CRD, so the entries are merged by their type. An annotation records the maxima that the collection has written, and the
# foreign entries that the collection has replaced. If another manager changes an entry after that, the entry belongs to that manager.

# By GPU type: `max` is the maximum that was written; `former` is the foreign entry that was replaced, if any.
Record = dict[str, Object]

LIMITS_PATH = ("spec", "resourceLimits", "gpus")


@dataclass(frozen=True)
class LimitChanges:
    """The list and the record after a merge, and the foreign entries whose maximum differs: type, foreign maximum, desired maximum."""

    entries: list[Object]
    record: Record
    foreign: tuple[tuple[str, int, int], ...] = ()


def limit_entries(live: Document) -> list[Object]:
    """The GPU limits of a ClusterAutoscaler."""
    return [dict(entry) for entry in get_nested(dict(live), *LIMITS_PATH) or ()]


def recorded_limits(live: Document) -> Record:
    """The recorded entries, without malformed ones."""
    text = get_nested(dict(live), "metadata", "annotations", GPU_LIMITS_ANNOTATION)
    record = parse_json(text, dict) or {}
    return {
        str(kind): dict(entry)
        for kind, entry in record.items()
        if isinstance(entry, dict) and isinstance(entry.get("max"), int) and isinstance(entry.get("former", {}), dict)
    }


def merge_limits(
    entries: t.Sequence[Document],
    record: Record,
    limits: t.Mapping[str, int],
    used: t.Collection[str],
    *,
    change_foreign: bool = False,
) -> LimitChanges:
    """Set the maxima in `limits`, by GPU type, and remove the recorded entries of all other types that are not in `used`.

    `used` contains the GPU types of the existing MachineSets. A foreign entry with a different maximum is changed only if `change_foreign` is set.
    """
    merged = [dict(entry) for entry in entries]
    kept: Record = copy.deepcopy(record)
    foreign: list[tuple[str, int, int]] = []
    for kind, high in sorted(limits.items()):
        entry = next((item for item in merged if item.get("type") == kind), None)
        if entry is None:
            merged.append({"type": kind, "min": 0, "max": high})
            kept[kind] = {"max": high}
            continue
        if entry.get("max") == high:
            continue
        own = kind in record and record[kind]["max"] == entry.get("max")
        if not own and not change_foreign:
            foreign.append((kind, int(entry.get("max") or 0), high))
            continue
        former = record[kind].get("former") if own else dict(entry)
        entry.update(max=high, min=min(int(entry.get("min") or 0), high))
        kept[kind] = {"max": high, **({"former": former} if former else {})}
    unneeded = [kind for kind in record if kind not in limits and kind not in used]
    rest = without_limits(merged, kept, unneeded)
    return LimitChanges(rest.entries, rest.record, tuple(foreign))


def without_limits(entries: t.Sequence[Document], record: Record, kinds: t.Collection[str]) -> LimitChanges:
    """The list without the collection's entries of these types; the foreign entries that the collection had replaced are restored."""
    merged: list[Object] = []
    for entry in entries:
        kind = str(entry.get("type"))
        known = record.get(kind) if kind in kinds else None
        if known is None or known["max"] != entry.get("max"):
            merged.append(dict(entry))
        elif known.get("former"):
            merged.append(dict(known["former"]))
    return LimitChanges(merged, {kind: entry for kind, entry in record.items() if kind not in kinds})


def with_limits(live: Document, changes: LimitChanges) -> Object:
    """The ClusterAutoscaler with this list and record; other fields are not changed."""
    desired = copy.deepcopy(dict(live))
    if changes.entries != limit_entries(live):
        limits = desired.setdefault("spec", {}).setdefault("resourceLimits", {})
        limits["gpus"] = changes.entries
        if not changes.entries:
            del limits["gpus"]
    set_record(desired, GPU_LIMITS_ANNOTATION, changes.record)
    return desired


# Checks whether a MachineSet and the autoscaler's delays allow nodes to be added for the pods of a pool (pure).

Findings = t.Iterator["Finding"]

# The pods for which a finding prevents a new node: all pods, the pods that select nodes by one label or request one resource, or no pods.
Effect = t.Literal["no_pod", "some_pods", "note"]
NO_POD: Effect = "no_pod"
SOME_PODS: Effect = "some_pods"
NOTE: Effect = "note"

# The time until a new node has booted and its driver is installed: 10 to 15 minutes (Red Hat, "GPUs on OpenShift").
DRIVER_SECONDS = 900
MIN_SIZE, MAX_SIZE, OWNER = AUTOSCALER_ANNOTATIONS
_TEMPLATE_LABELS = "spec.template.spec.metadata.labels"
_AUTOSCALER = f"ClusterAutoscaler {AUTOSCALER_NAME}"


@dataclass(frozen=True)
class Finding:
    """One finding. With the effect some_pods, `label` is the node label that the affected pods select, or the resource that they request."""

    code: str
    effect: Effect
    message: str
    remedy: str
    label: str = ""

    def as_dict(self) -> dict[str, t.Any]:
        """The finding in the format of gpu_info's result."""
        return asdict(self)


def bound_findings(
    machine_set: MachineSet,
    machine_autoscalers: t.Sequence[Document] | None,
    rules: AutoscalerRules,
    nodegroup: NodeGroupPlan | None = None,
) -> Findings:
    """Check the minimum and maximum number of nodes, which the operator copies from the MachineAutoscaler (None: not readable) to the MachineSet."""
    bounds = machine_set_bounds(machine_set)
    if bounds is None and not machine_autoscalers:
        declared = nodegroup is not None and nodegroup.autoscaled
        source = (
            "no MachineAutoscaler refers to it"
            if machine_autoscalers is not None
            else "its size is not in its annotations"
        )
        yield Finding(
            "machine_autoscaler",
            NO_POD,
            f"MachineSet {machine_set.name} has a fixed size: {source}",
            "run the playbook site, which creates one"
            if declared
            else "declare nodes and autoscale in the pool, and run the playbook site",
        )
    elif bounds is None and machine_autoscalers:
        name = get_nested(machine_autoscalers[0], "metadata", "name")
        yield Finding(
            "bounds",
            NO_POD,
            f"MachineSet {machine_set.name} has no readable annotations {MIN_SIZE} and {MAX_SIZE}, which "
            f"the operator writes from MachineAutoscaler {name}",
            "check the events of the MachineAutoscaler, and the log of the Deployment openshift-machine-api/cluster-autoscaler-operator",
        )
    elif bounds is not None:
        yield from _size_findings(machine_set, *bounds, rules)
    if machine_autoscalers and len(machine_autoscalers) > 1:
        names = sorted(str(get_nested(item, "metadata", "name")) for item in machine_autoscalers)
        owner = machine_set.annotations.get(OWNER, "").rpartition("/")[2]
        yield Finding(
            "two_machine_autoscalers",
            NOTE,
            f"the MachineAutoscalers {join_words(names)} refer to MachineSet {machine_set.name}; only {owner or 'one'} has an effect",
            f"delete all but {owner or 'one'}",
        )


def machine_set_bounds(machine_set: MachineSet) -> tuple[int, int] | None:
    """The minimum and maximum that the autoscaler reads; None if there is no maximum, or if either is not a number."""
    texts = [machine_set.annotations.get(key) for key in (MIN_SIZE, MAX_SIZE)]
    if texts[1] is None:
        return None
    try:
        low, high = (int(text or "0") for text in texts)
    except ValueError:
        return None
    return low, high


def _size_findings(machine_set: MachineSet, low: int, high: int, rules: AutoscalerRules) -> Findings:
    if high < max(low, 1):
        yield Finding(
            "bounds",
            NO_POD,
            f"MachineSet {machine_set.name} has a minimum of {low} and a maximum of {high} nodes",
            "correct minReplicas and maxReplicas of its MachineAutoscaler",
        )
    elif low == high and not rules.fixed_size:
        yield Finding(
            "fixed_size",
            NO_POD,
            f"MachineSet {machine_set.name} has the minimum and maximum {high}; before OpenShift 4.17, the autoscaler ignores such MachineSets",
            "declare a larger autoscale.max, or a smaller autoscale.min",
        )
    elif machine_set.replicas >= high:
        yield Finding(
            "maximum",
            NO_POD,
            f"MachineSet {machine_set.name} has {machine_set.replicas} of at most {high} nodes",
            "if the pods need more nodes, raise autoscale.max of the pool, and run the role autoscaling",
        )


def capacity_findings(template: NodeTemplate, machine_set: MachineSet, rules: AutoscalerRules) -> Findings:
    """Check the annotations for CPU and memory, without which the autoscaler ignores a MachineSet that has no nodes."""
    for key in template.unreadable:
        yield Finding(
            f"unreadable {key}",
            NO_POD,
            f"MachineSet {machine_set.name}: annotation {key} is {machine_set.annotations[key]!r}, which the autoscaler cannot read, so it "
            "ignores the MachineSet while it has no nodes",
            f"set a quantity such as 4, or 16Gi for the memory; GPUs, and the memory in {MEMORY_MB}, are whole numbers",
        )
    for key in template.missing:
        yield Finding(
            f"missing {key}",
            NO_POD,
            f"MachineSet {machine_set.name} has no annotation {key}; the autoscaler of this OpenShift release ignores a MachineSet without nodes if its "
            "CPU or memory is not known",
            "run the role nodegroups, which writes it, or set it to the amount of one node",
        )


def gpu_findings(pool: PoolPlan, template: NodeTemplate, machine_set: MachineSet, rules: AutoscalerRules) -> Findings:
    """Check that the autoscaler expects GPUs under the resource name that the pods request."""
    counted = [resource for resource in pool.resources if resource in template.resources]
    if not counted:
        yield _no_gpu(pool, template, machine_set, rules)
        return
    for resource in pool.resources:
        if resource not in counted:
            yield Finding(
                f"uncounted {resource}",
                SOME_PODS,
                f"the autoscaler expects only {counted[0]} on a node of MachineSet {machine_set.name}, so no node is added "
                f"for pods that request {resource}",
                "declare a separate pool for these GPUs",
                resource,
            )
    offered = (future_node(pool).resources or {}).get(counted[0], 0)
    expected = template.resources[counted[0]]
    if offered and expected != offered:
        more = "more nodes than the pods need" if expected < offered else "nodes on which the pods do not fit"
        yield Finding(
            "gpu_amount",
            NOTE,
            f"the autoscaler expects {expected} {counted[0]} on a node of MachineSet {machine_set.name}, but a node of pool {pool.name} offers "
            f"{offered}, so the autoscaler adds {more}",
            _amount_remedy(machine_set, rules, offered),
        )


def _amount_remedy(machine_set: MachineSet, rules: AutoscalerRules, offered: int) -> str:
    if machine_set.controller_annotations.issuperset(rules.gpu_count):
        return (
            f"none before OpenShift 4.19, because the platform's controller resets {join_words(rules.gpu_count)} to the number of whole GPUs; "
            f"OpenShift 4.19 and later read {GPU_COUNT}, which a run sets"
        )
    return f"run the role nodegroups, or set annotation {rules.gpu_count[0]} to {offered}"


def _no_gpu(pool: PoolPlan, template: NodeTemplate, machine_set: MachineSet, rules: AutoscalerRules) -> Finding:
    kind = machine_set.annotations.get(GPU_TYPE, "")
    if rules.counts_gpu_type and kind not in pool.resources:
        value = f"is {kind}" if kind else "is missing"
        return Finding(
            "gpu_type",
            NO_POD,
            f"MachineSet {machine_set.name}: annotation {GPU_TYPE} {value}; in OpenShift 5.0 and later, it is the name of the resource "
            f"that the autoscaler expects, and pods of pool {pool.name} request {pool.resource}",
            f"run the role nodegroups, or set it to {pool.resource}",
        )
    if not rules.counts_gpu_type and GPU_RESOURCE not in pool.resources:
        return Finding(
            "resource",
            NO_POD,
            f"before OpenShift 5.0, the autoscaler expects no GPUs other than {GPU_RESOURCE} on a new node, and pods of pool {pool.name} request "
            f"{join_words(pool.resources, 'or')}",
            "share without rename, use the MIG strategy single, or set autoscale.min to the number of nodes that is always needed",
        )
    return Finding(
        "gpu_count",
        NO_POD,
        f"MachineSet {machine_set.name} has no GPUs in annotation {join_words(rules.gpu_count, 'or')}, so the autoscaler expects nodes without "
        f"{pool.resource}",
        f"run the role nodegroups, or set {rules.gpu_count[0]} to the number of {pool.resource} of one node",
    )


def label_findings(pool: PoolPlan, template: NodeTemplate, machine_set: MachineSet, rules: AutoscalerRules) -> Findings:
    """Check the labels by which pods select nodes, the zone labels, and the accelerator label."""
    illegal = {key: value for key, value in machine_set.labels.items() if label_value(str(value))}
    for key, value in sorted(illegal.items()):
        yield Finding(
            f"illegal {key}",
            NO_POD,
            f"MachineSet {machine_set.name}: {_TEMPLATE_LABELS} has {key}={value}, which {label_value(str(value))}. The API server rejects it on the "
            "node, which then gets none of the labels and taints of its MachineSet",
            f"run the role nodegroups, or set a value such as {pool.accelerator or 'Tesla-T4'}",
            key,
        )
    place = f"annotation {CAPACITY_LABELS}" if not rules.all_labels else _TEMPLATE_LABELS
    expected = {**pool.registration.node_labels, **machine_set.zone_labels}
    for key, value in sorted(expected.items()):
        actual = template.labels.get(key)
        if actual != value and key not in illegal:
            state = "is missing" if actual is None else f"is {actual}"
            yield Finding(
                f"label {key}",
                SOME_PODS,
                f"label {key}={value} {state} in {place} of MachineSet {machine_set.name}, so no node is added for pods that select nodes by "
                "this label" + (" or use a volume in this zone" if key in machine_set.zone_labels else ""),
                "run the role nodegroups, which writes it, or add it",
                key,
            )
        # The cloud sets the zone labels on the node, so the template does not have to contain them.
        on_node = machine_set.labels.get(key, value if key in machine_set.zone_labels else None)
        if actual == value and on_node != value and key not in illegal:
            state = "has no label" if on_node is None else f"has the value {on_node} of label"
            yield Finding(
                f"node label {key}",
                SOME_PODS,
                f"the autoscaler expects {key}={value} on a node of MachineSet {machine_set.name}, but {_TEMPLATE_LABELS} {state} {key}, so the "
                "autoscaler adds a node for pods that select nodes by this label, but the pods cannot be scheduled to it",
                "run the role nodegroups, which writes it, or set it",
                key,
            )
    yield from _accelerator_findings(pool, template, machine_set, place)


def _accelerator_findings(pool: PoolPlan, template: NodeTemplate, machine_set: MachineSet, place: str) -> Findings:
    label = ACCELERATOR_LABEL
    offers_gpus = GPU_RESOURCE in pool.resources
    on_node = machine_set.labels.get(label)
    if on_node is not None and not offers_gpus:
        yield Finding(
            "accelerator_unready",
            NOTE,
            f"MachineSet {machine_set.name} has the label {label}; a node with this label that offers no {GPU_RESOURCE} never counts as ready, "
            "so the autoscaler deletes it",
            "remove the label from the MachineSet and its nodes",
        )
    elif offers_gpus and on_node is None:
        yield Finding(
            "accelerator",
            NOTE,
            f"MachineSet {machine_set.name} has no label {label} in {_TEMPLATE_LABELS}, so the autoscaler does not wait for the driver of a new "
            "node, and adds another node",
            "run the role nodegroups, which writes it",
        )
    elif offers_gpus and label not in template.labels:
        yield Finding(
            "accelerator_template",
            NOTE,
            f"label {label} is missing in {place} of MachineSet {machine_set.name}, so its first node does not count toward the GPU limits",
            "run the role nodegroups, which writes it",
        )


def taint_findings(pool: PoolPlan, template: NodeTemplate, startup_taints: t.Collection[str] = ()) -> Findings:
    """Find taints that the pool's pods do not tolerate. The autoscaler ignores taints with keys in `startup_taints`."""
    for taint in untolerated_taints(pool.tolerations, template.taints):
        if taint.get("key") in startup_taints:
            continue
        yield Finding(
            f"taint {format_taint(taint)}",
            NO_POD,
            f"the nodes get the taint {format_taint(taint)}, which pool {pool.name} does not declare, so its pods do not tolerate it",
            "declare it in taints of the pool, or remove it from the MachineSet",
        )


def delay_findings(spec: Document) -> Findings:
    """Check the delays after which the autoscaler gives up on a new node or removes it, even if its driver is still being installed."""
    for code, path, default in (
        ("provision_time", ("maxNodeProvisionTime",), DEFAULT_MAX_NODE_PROVISION_TIME),
        ("delay_after_add", ("scaleDown", "delayAfterAdd"), DEFAULT_DELAY_AFTER_ADD),
    ):
        text = get_nested(dict(spec), *path)
        seconds = duration_seconds(str(text)) if text else duration_seconds(default)
        disabled = path[0] == "scaleDown" and get_nested(dict(spec), "scaleDown", "enabled") is False
        if seconds is not None and seconds <= DRIVER_SECONDS and not disabled:
            value = f"is {text}" if text else f"is not set (default {default})"
            yield Finding(
                code,
                NOTE,
                f"{_AUTOSCALER}: {'.'.join(path)} {value}; booting a node and installing its driver takes up to 20 minutes",
                "raise it, or unset it and run the role autoscaling",
            )


# Explains whether OpenShift's cluster autoscaler adds nodes to a pool's MachineSets, including MachineSets without nodes (pure).


@dataclass(frozen=True)
class AutoscalerState:
    """The objects that the autoscaler reads.

    `cluster_autoscaler` is None if the cluster has no ClusterAutoscaler. `priorities` is None if the ConfigMap is missing or unreadable. `unread` contains
    the kinds of objects that the user is not allowed to read, so nothing is known about them. `version` is empty if the version is not known.
    """

    version: str
    machine_sets: tuple[MachineSet, ...] = ()
    machine_autoscalers: tuple[Document, ...] = ()
    cluster_autoscaler: Document | None = None
    priorities: t.Mapping[int, t.Sequence[str]] | None = None
    nodes: tuple[Node, ...] = ()
    unread: frozenset[str] = frozenset()

    @property
    def rules(self) -> AutoscalerRules:
        """The rules of the cluster's OpenShift version; if the version is not known, the rules of the newest one."""
        return self.possible_rules[0]

    @property
    def possible_rules(self) -> tuple[AutoscalerRules, ...]:
        """The rules of the cluster's OpenShift version; if the version is not known, the rules of all versions."""
        try:
            return (autoscaler_rules(openshift_release(self.version)),)
        except ValueError:
            return AUTOSCALER_RULES


@dataclass(frozen=True)
class GpuLimit:
    """The ClusterAutoscaler's limit for a MachineSet's GPUs: the value of the accelerator label, the number of GPUs in use, and their maximum number."""

    accelerator: str
    used: int
    maximum: int

    def as_dict(self) -> dict[str, int]:
        """The limit in the format of gpu_info's result."""
        return {"used": self.used, "max": self.maximum}


@dataclass(frozen=True)
class ScalingExplanation:
    """Explains whether pods make the autoscaler scale up one of a pool's MachineSets from zero nodes. Findings with the effect NOTE do not prevent this.

    `after_run` contains the findings that remain after a run of the playbook site. `complete` is False if an object could not be read or the release
    is not known, because unknown causes may then also prevent scaling. `bounds` is the MachineSet's size range, or None if the autoscaler does not scale
    the MachineSet. `resources`, `taints` and `accelerator` describe the node that the autoscaler expects. `declared`: whether the pool declares autoscale.
    """

    pool: str
    machine_set: str
    findings: tuple[Finding, ...] = ()
    resources: t.Mapping[str, int] = field(default_factory=dict)
    after_run: tuple[Finding, ...] = ()
    exists: bool = True
    complete: bool = True
    declared: bool = False
    bounds: tuple[int, int] | None = None
    taints: tuple[str, ...] = ()
    accelerator: str = ""
    limit: GpuLimit | None = None
    bounds_after_run: tuple[int, int] | None = None
    limit_after_run: GpuLimit | None = None

    @property
    def scales(self) -> bool:
        """Whether a node is added for a pod that requests the pool's resource and tolerates its taints."""
        return not any(finding.effect == NO_POD for finding in self.findings)

    def scales_for(self, labels: t.Collection[str]) -> bool:
        """Whether a node is added for a pod that also selects nodes by these labels."""
        return self.scales and not any(
            finding.effect == SOME_PODS and finding.label in labels for finding in self.findings
        )

    def as_dict(self) -> dict[str, t.Any]:
        """The explanation in the format of gpu_info's result."""
        low, high = self.bounds or (None, None)
        low_after, high_after = self.bounds_after_run or (None, None)
        after_run = {(finding.code, finding.message) for finding in self.after_run}
        now = {(finding.code, finding.message) for finding in self.findings}
        new = [finding for finding in self.after_run if (finding.code, finding.message) not in now]
        return {
            "pool": self.pool,
            "machine_set": self.machine_set,
            "exists": self.exists,
            "declared": self.declared,
            "scales": _verdict(self.findings, self.complete),
            "scales_after_run": _verdict(self.after_run, self.complete),
            "min": low,
            "max": high,
            "min_after_run": low_after,
            "max_after_run": high_after,
            "resources": dict(self.resources),
            "taints": list(self.taints),
            "accelerator": self.accelerator,
            "gpu_limit": self.limit.as_dict() if self.limit else None,
            "gpu_limit_after_run": self.limit_after_run.as_dict() if self.limit_after_run else None,
            "findings": [
                *(
                    {**finding.as_dict(), "now": True, "after_run": (finding.code, finding.message) in after_run}
                    for finding in self.findings
                ),
                *({**finding.as_dict(), "now": False, "after_run": True} for finding in new),
            ],
        }


def _verdict(findings: t.Iterable[Finding], complete: bool) -> bool | None:
    """Whether a node is added despite the findings; None if no finding prevents it, but not everything is known."""
    if any(finding.effect == NO_POD for finding in findings):
        return False
    return True if complete else None


def explain_scaling(pool: PoolPlan, state: AutoscalerState) -> list[ScalingExplanation]:
    """One explanation for each MachineSet that the pool has or declares; if there are none, a single explanation without a MachineSet name."""
    machine_sets = machine_sets_of(pool, state)
    missing = [_missing(pool, member.name) for member in missing_members(pool, machine_sets)]
    if not machine_sets and not missing:
        return [_missing(pool, "")]
    return [*(_explain(pool, machine_set, state) for machine_set in machine_sets), *missing]


def machine_sets_of(pool: PoolPlan, state: AutoscalerState) -> list[MachineSet]:
    """The MachineSets that create nodes of the pool."""
    return [item for item in state.machine_sets if belongs_to(item, pool)]


def missing_members(pool: PoolPlan, machine_sets: t.Iterable[MachineSet]) -> list[NodeGroupMember]:
    """The MachineSets that the pool declares but that do not exist."""
    names = {name for machine_set in machine_sets for name in (machine_set.name, machine_set.owner)}
    members = pool.nodegroup.members if pool.nodegroup else ()
    return [member for member in members if member.name not in names]


def _missing(pool: PoolPlan, name: str) -> ScalingExplanation:
    """The explanation for a MachineSet that does not exist; `name` is empty if the pool declares none."""
    declared = pool.nodegroup is not None and pool.nodegroup.autoscaled
    if name:
        message, remedy = (
            f"the cluster has no MachineSet {name}",
            "run the playbook site or nodegroups, which creates it",
        )
    else:
        message = f"no MachineSet has the label {POOL_LABEL}={pool.name}"
        remedy = f"add the label to spec.template.spec.metadata.labels of the pool's MachineSet, or declare nodes in pool {pool.name}"
    finding = (Finding("machine_set", NO_POD, message, remedy),)
    return ScalingExplanation(pool.name, name, finding, after_run=finding, exists=False, declared=declared)


def belongs_to(machine_set: MachineSet, pool: PoolPlan) -> bool:
    """Whether a MachineSet creates nodes of the pool, according to the pool label in its template or, without this label, to its name or mark."""
    label = machine_set.labels.get(POOL_LABEL)
    if label is not None:
        return label == pool.name
    members = pool.nodegroup.members if pool.nodegroup else ()
    return any(member.name in (machine_set.name, machine_set.owner) for member in members)


def targets_of(machine_autoscalers: t.Iterable[Document], machine_set: str) -> list[Document]:
    """The MachineAutoscalers that refer to a MachineSet."""
    return [item for item in machine_autoscalers if scaled_machine_set(item) == machine_set]


def scaled_machine_set(machine_autoscaler: Document) -> str:
    """The name of the MachineSet that a MachineAutoscaler refers to; empty if it refers to another kind of object."""
    reference = get_nested(machine_autoscaler, "spec", "scaleTargetRef") or {}
    return str(reference.get("name") or "") if reference.get("kind") == MACHINE_SET_KIND else ""


def _explain(pool: PoolPlan, machine_set: MachineSet, state: AutoscalerState) -> ScalingExplanation:
    """The explanation for one MachineSet. If the OpenShift release is not known, the explanation contains only findings that apply to every release."""
    newest, *others = [_findings(pool, machine_set, state, rules) for rules in state.possible_rules]
    codes = set.intersection(*({finding.code for finding in each} for each in (newest, *others)))
    findings = tuple(finding for finding in newest if finding.code in codes)
    template = node_template(machine_set, state.rules)
    return ScalingExplanation(
        pool.name,
        machine_set.name,
        findings,
        dict(template.resources),
        after_run=findings,
        complete=not others and not state.unread,
        declared=pool.nodegroup is not None and pool.nodegroup.autoscaled,
        bounds=machine_set_bounds(machine_set),
        taints=tuple(format_taint(taint) for taint in template.taints),
        accelerator=machine_set.labels.get(ACCELERATOR_LABEL, ""),
        limit=_gpu_limit(machine_set, template, state),
        limit_after_run=_gpu_limit(machine_set, template, state),
        bounds_after_run=machine_set_bounds(machine_set),
    )


def _findings(
    pool: PoolPlan, machine_set: MachineSet, state: AutoscalerState, rules: AutoscalerRules
) -> tuple[Finding, ...]:
    template = node_template(machine_set, rules)
    spec: Document = (state.cluster_autoscaler or {}).get("spec") or {}
    scalers = None if MACHINE_AUTOSCALER_KIND in state.unread else state.machine_autoscalers
    return (
        *_autoscaler_findings(state),
        *bound_findings(
            machine_set, None if scalers is None else targets_of(scalers, machine_set.name), rules, pool.nodegroup
        ),
        *capacity_findings(template, machine_set, rules),
        *gpu_findings(pool, template, machine_set, rules),
        *label_findings(pool, template, machine_set, rules),
        *taint_findings(pool, template, spec.get("startupTaints") or ()),
        *_limit_findings(machine_set, template, state, spec),
        *_priority_findings(machine_set, state, spec),
        *(delay_findings(spec) if state.cluster_autoscaler else ()),
    )


def _autoscaler_findings(state: AutoscalerState) -> t.Iterator[Finding]:
    if state.cluster_autoscaler is None and AUTOSCALER_KIND not in state.unread:
        yield Finding(
            "cluster_autoscaler",
            NO_POD,
            f"the cluster has no ClusterAutoscaler {AUTOSCALER_NAME}, so no autoscaler runs",
            "declare autoscale in a pool and run the playbook site, which creates it",
        )


def _limit_findings(
    machine_set: MachineSet, template: NodeTemplate, state: AutoscalerState, spec: Document
) -> t.Iterator[Finding]:
    """Find the ClusterAutoscaler's limits that one more node would exceed; yield a note if no GPU limit applies to the node."""
    limits: Document = spec.get("resourceLimits") or {}
    path = f"ClusterAutoscaler {AUTOSCALER_NAME}, resourceLimits"
    total = limits.get("maxNodesTotal")
    if total and len(state.nodes) >= total:
        yield Finding(
            "max_nodes_total",
            NO_POD,
            f"{path}.maxNodesTotal is {total}, and the cluster has {len(state.nodes)} nodes",
            f"raise it to at least {len(state.nodes) + 1}",
        )
    kind, count = gpus_of_node(machine_set, template, state)
    limit = _gpu_limit(machine_set, template, state)
    bounds = machine_set_bounds(machine_set)
    if bounds is not None and machine_set.replicas >= bounds[1]:
        # If the MachineSet already has its maximum number of nodes, the GPU limits do not matter.
        return
    if limit is not None and limit.used + count > limit.maximum:
        yield Finding(
            "gpu_limit",
            NO_POD,
            f"{path}.gpus allows at most {limit.maximum} of type {kind}; {limit.used} are in use, and a node has {count}",
            _limit_remedy(kind, limit, limit.used + count, state.cluster_autoscaler or {}),
        )
    elif limit is None and kind and limits.get("gpus") and count:
        yield Finding(
            "gpu_limit_type",
            "note",
            f"resourceLimits.gpus of ClusterAutoscaler {AUTOSCALER_NAME} has no entry for the type {kind} (the value of the MachineSet's label "
            f"{ACCELERATOR_LABEL}), so the number of these GPUs is not limited",
            "run the role autoscaling, which adds the entry",
        )


def _limit_remedy(kind: str, limit: GpuLimit, needed: int, cluster_autoscaler: Document) -> str:
    """How the limit is raised: a run changes only the maxima that it has written, unless it is forced to."""
    if recorded_limits(cluster_autoscaler).get(kind, {}).get("max") == limit.maximum:
        return f"raise autoscale.max of the pool, and run the role autoscaling, which raises max of type {kind}"
    return (
        f"raise max of type {kind} to at least {needed} in ClusterAutoscaler {AUTOSCALER_NAME}; this collection has not set the current value, so the "
        "role autoscaling changes it only with gpu_autoscaling_force: true"
    )


def _gpu_limit(machine_set: MachineSet, template: NodeTemplate, state: AutoscalerState) -> GpuLimit | None:
    """The limit for the GPUs of a MachineSet's nodes; None if they are not limited."""
    kind, count = gpus_of_node(machine_set, template, state)
    entries = get_nested(dict(state.cluster_autoscaler or {}), "spec", "resourceLimits", "gpus") or ()
    # A maximum of 0 means no limit (kubernetes/autoscaler, cloudprovider/resource_limiter.go).
    maximum = next((int(entry.get("max") or 0) for entry in entries if entry.get("type") == kind), 0)
    if not maximum or not count:
        return None
    used = sum(gpus for accelerator, gpus in gpus_in_use(state) if accelerator == kind)
    return GpuLimit(kind, used, maximum)


def gpus_of_node(machine_set: MachineSet, template: NodeTemplate, state: AutoscalerState) -> tuple[str, int]:
    """The type and number of GPUs that the autoscaler counts for each node of a MachineSet, taken from a ready node or, without one, from the template."""
    nodes = [node for node in state.nodes if _machine_set_name(node) == machine_set.name and node.ready]
    labels = nodes[0].labels if nodes else template.labels
    offered = nodes[0].allocatable.get(GPU_RESOURCE, 0) if nodes else 0
    kind = labels.get(ACCELERATOR_LABEL, "")
    return kind, (offered or template.resources.get(GPU_RESOURCE, 0)) if kind else 0


def gpus_in_use(state: AutoscalerState) -> t.Iterator[tuple[str, int]]:
    """Yield pairs of GPU type and number: for each MachineSet with bounds, the GPUs of its desired replicas; then the GPUs of each other node."""
    scaled = [item for item in state.machine_sets if MAX_SIZE in item.annotations]
    for machine_set in scaled:
        kind, count = gpus_of_node(machine_set, node_template(machine_set, state.rules), state)
        yield kind, count * machine_set.replicas
    names = {item.name for item in scaled}
    for node in state.nodes:
        if _machine_set_name(node) not in names:
            yield node.labels.get(ACCELERATOR_LABEL, ""), node.allocatable.get(GPU_RESOURCE, 0)


def _machine_set_name(node: Node) -> str:
    """The name of the node's MachineSet, which is the name of the node's Machine without the suffix; empty for a node without a Machine."""
    machine = node.annotations.get(MACHINE_ANNOTATION, "").rpartition("/")[2]
    return machine.rpartition("-")[0]


def _priority_findings(machine_set: MachineSet, state: AutoscalerState, spec: Document) -> t.Iterator[Finding]:
    threshold = spec.get("podPriorityThreshold")
    if threshold is not None and threshold > 0:
        yield Finding(
            "pod_priority",
            NO_POD,
            f"ClusterAutoscaler {AUTOSCALER_NAME}: podPriorityThreshold is {threshold}, so no node is added for pods with a lower "
            "priority, such as all pods without a PriorityClass (0)",
            "lower podPriorityThreshold to 0 or less, or assign a PriorityClass to the pods",
        )
    if PRIORITY_EXPANDER in (spec.get("expanders") or ()) and state.priorities is not None:
        expressions = [text for texts in state.priorities.values() for text in texts]
        if not any(_found(text, machine_set.group_id) for text in expressions):
            yield Finding(
                "expander_priority",
                "note",
                f"no expression in ConfigMap {machine_set.namespace}/{PRIORITY_CONFIGMAP} matches {machine_set.group_id}, so another "
                "MachineSet is preferred whenever it also fits",
                "set autoscale.priority in the pool, or add an expression such as .* with a low priority",
            )


def _found(expression: str, text: str) -> bool:
    """Whether an expression matches any part of the text; False for invalid expressions, because the autoscaler ignores them."""
    try:
        return re.search(expression, text) is not None
    except re.error:
        return False
