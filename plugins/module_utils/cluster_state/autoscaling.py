# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Explains whether OpenShift's cluster autoscaler adds nodes to a pool's MachineSets, including MachineSets without nodes (pure)."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ..catalog import cluster_autoscaler as autoscaler
from ..catalog.machine_api import (
    ACCELERATOR_LABEL,
    AUTOSCALER_RULES,
    AutoscalerRules,
    autoscaler_rules,
    openshift_release,
)
from ..catalog.names import GPU_RESOURCE, POOL_LABEL
from ..catalog.taints import format_taint
from ..common.nested import get_nested
from .gpu_limits import record_of
from .node import Node
from .node_template import MachineSet, NodeTemplate, node_template
from .scaling_checks import (
    MAX_SIZE,
    NO_POD,
    SOME_PODS,
    Finding,
    bound_findings,
    capacity_findings,
    delay_findings,
    gpu_findings,
    label_findings,
    machine_set_bounds,
    taint_findings,
)

if t.TYPE_CHECKING:
    from ..pools.plan import NodeGroupMember, PoolPlan

Document = t.Mapping[str, t.Any]


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
    return str(reference.get("name") or "") if reference.get("kind") == autoscaler.MACHINE_SET_KIND else ""


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
    scalers = None if autoscaler.MACHINE_AUTOSCALER_KIND in state.unread else state.machine_autoscalers
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
    if state.cluster_autoscaler is None and autoscaler.KIND not in state.unread:
        yield Finding(
            "cluster_autoscaler",
            NO_POD,
            f"the cluster has no ClusterAutoscaler {autoscaler.NAME}, so no autoscaler runs",
            "declare autoscale in a pool and run the playbook site, which creates it",
        )


def _limit_findings(
    machine_set: MachineSet, template: NodeTemplate, state: AutoscalerState, spec: Document
) -> t.Iterator[Finding]:
    """Find the ClusterAutoscaler's limits that one more node would exceed; yield a note if no GPU limit applies to the node."""
    limits: Document = spec.get("resourceLimits") or {}
    path = f"ClusterAutoscaler {autoscaler.NAME}, resourceLimits"
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
            f"resourceLimits.gpus of ClusterAutoscaler {autoscaler.NAME} has no entry for the type {kind} (the value of the MachineSet's label "
            f"{ACCELERATOR_LABEL}), so the number of these GPUs is not limited",
            "run the role autoscaling, which adds the entry",
        )


def _limit_remedy(kind: str, limit: GpuLimit, needed: int, cluster_autoscaler: Document) -> str:
    """How the limit is raised: a run changes only the maxima that it has written, unless it is forced to."""
    if record_of(cluster_autoscaler).get(kind, {}).get("max") == limit.maximum:
        return f"raise autoscale.max of the pool, and run the role autoscaling, which raises max of type {kind}"
    return (
        f"raise max of type {kind} to at least {needed} in ClusterAutoscaler {autoscaler.NAME}; this collection has not set the current value, so the "
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
    machine = node.annotations.get(autoscaler.MACHINE_ANNOTATION, "").rpartition("/")[2]
    return machine.rpartition("-")[0]


def _priority_findings(machine_set: MachineSet, state: AutoscalerState, spec: Document) -> t.Iterator[Finding]:
    threshold = spec.get("podPriorityThreshold")
    if threshold is not None and threshold > 0:
        yield Finding(
            "pod_priority",
            NO_POD,
            f"ClusterAutoscaler {autoscaler.NAME}: podPriorityThreshold is {threshold}, so no node is added for pods with a lower "
            "priority, such as all pods without a PriorityClass (0)",
            "lower podPriorityThreshold to 0 or less, or assign a PriorityClass to the pods",
        )
    if autoscaler.PRIORITY_EXPANDER in (spec.get("expanders") or ()) and state.priorities is not None:
        expressions = [text for texts in state.priorities.values() for text in texts]
        if not any(_found(text, machine_set.group_id) for text in expressions):
            yield Finding(
                "expander_priority",
                "note",
                f"no expression in ConfigMap {machine_set.namespace}/{autoscaler.PRIORITY_CONFIGMAP} matches {machine_set.group_id}, so another "
                "MachineSet is preferred whenever it also fits",
                "set autoscale.priority in the pool, or add an expression such as .* with a low priority",
            )


def _found(expression: str, text: str) -> bool:
    """Whether an expression matches any part of the text; False for invalid expressions, because the autoscaler ignores them."""
    try:
        return re.search(expression, text) is not None
    except re.error:
        return False
