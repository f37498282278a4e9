# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks whether a MachineSet and the autoscaler's delays allow nodes to be added for the pods of a pool (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import asdict, dataclass

from ..catalog.cluster_autoscaler import DEFAULT_DELAY_AFTER_ADD, DEFAULT_MAX_NODE_PROVISION_TIME, NAME
from ..catalog.machine_api import (
    ACCELERATOR_LABEL,
    AUTOSCALER_ANNOTATIONS,
    CAPACITY_LABELS,
    GPU_COUNT,
    GPU_TYPE,
    MEMORY_MB,
    AutoscalerRules,
)
from ..catalog.names import GPU_RESOURCE
from ..catalog.taints import format_taint, untolerated_taints
from ..common.durations import duration_seconds
from ..common.nested import get_nested
from ..pools.scale_from_zero import future_node
from ..schema.messages import join_words
from ..schema.validators import label_value

if t.TYPE_CHECKING:
    from ..pools.plan import NodeGroupPlan, PoolPlan
    from .node_template import MachineSet, NodeTemplate

Document = t.Mapping[str, t.Any]
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
_AUTOSCALER = f"ClusterAutoscaler {NAME}"


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
