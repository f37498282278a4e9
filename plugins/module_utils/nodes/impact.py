# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a change does to the workloads of a node: which pods are evicted, and which fit nowhere afterwards (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, fields

from ..catalog import names
from ..catalog.mig import RESET_FAMILIES
from ..catalog.names import CLIENT_LABEL, COUNT_LABEL, PRODUCT_LABEL, REPLICAS_LABEL, STRATEGY_LABEL
from ..catalog.operands import DRIVER
from ..core.messages import abbreviate, join_words
from ..schema.validators import ALL, DrainOptions, reason_without_discovery
from ..sharing_modes.modes import MODES
from .node import rule_matches, selects, term_matches
from .node_check import devices_in_labels, expected_labels, expected_offers, is_gpu_resource, physical_gpus
from .ownership import keeps_layout
from .pods import STOPPED_FOR_MIG, Demands
from .pool_edit import is_abandoned, is_partitioned

if t.TYPE_CHECKING:
    from ..core.values import Document
    from ..pools.plan import Membership, PoolPlan, RolloutPlan
    from .node import Node
    from .ownership import NodeEdit
    from .pods import PodOnNode

# Determines which pods of a node a drain evicts, awaits or keeps, and which pods block the drain, with the reason and the remedy (pure).

_UNMANAGED_REMEDY = (
    "Save the data of pods without a controller and delete them, or set {force}, which evicts them permanently."
)
_WAIT_REMEDY = "Evictions are disabled. Wait until the pods terminate, raise the limit, or set {to_evict}."
_KEPT_REMEDY = (
    f"Remove the DaemonSets and static pods that use GPUs from the node, or add the nodeSelector {CLIENT_LABEL} to the DaemonSets "
    "(docs/rollout.md)."
)


# The names of a drain's options in messages, keyed by the field of DrainOptions. The key `to_evict` has the name of the setting that allows evictions.
OptionNames = t.Mapping[str, str]
# `rollout.drain: none` corresponds to `evict: false`.
_ROLLOUT_KEYS = {"evict": "drain"}


def option_names(form: str, to_evict: str) -> OptionNames:
    """The option names, built from a template with {key} (the key in `rollout`) or {option} (the module option)."""
    names = {
        item.name: form.format(key=_ROLLOUT_KEYS.get(item.name, item.name), option=item.name)
        for item in fields(DrainOptions)
    }
    return {**names, "to_evict": to_evict}


ROLLOUT_OPTIONS = option_names("rollout.{key}", "rollout.drain: gpu-pods")


@dataclass(frozen=True)
class Evict:
    """The drain evicts the pod."""


@dataclass(frozen=True)
class Await:
    """The drain does not evict the pod but waits until it terminates; `remedy` says what to do if this takes too long."""

    remedy: str


@dataclass(frozen=True)
class Keep:
    """The pod stays as long as its node exists, because it would be recreated on the node immediately."""

    reason: str


@dataclass(frozen=True)
class Block:
    """The pod would be lost with its node, so the drain does not start."""

    reason: str
    remedy: str


@dataclass(frozen=True)
class BlockingPod:
    """A pod that blocks the change or the removal of its node; `remedy` contains option names in braces, such as {force} (see OptionNames)."""

    name: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        """Namespace, name and reason."""
        return f"{self.name} ({self.reason})"


def eviction_of(pod: PodOnNode, options: DrainOptions) -> Evict | Await | Keep | Block:
    """How a drain with these options treats the pod; all drains use this function."""
    if pod.keep_reason:
        return Keep(pod.keep_reason)
    if not options.evict:
        return Await(_WAIT_REMEDY)
    if pod.unmanaged and not options.force:
        return Block("no controller recreates it", _UNMANAGED_REMEDY)
    return Evict()


def pods_to_evict(pods: t.Iterable[PodOnNode], options: DrainOptions) -> tuple[PodOnNode, ...]:
    """The pods that a drain evicts, sorted by namespace and name."""
    evicted = [pod for pod in pods if isinstance(eviction_of(pod, options), Evict)]
    return tuple(sorted(evicted, key=lambda pod: (pod.namespace, pod.name)))


def pods_to_await(pods: t.Iterable[PodOnNode], options: DrainOptions) -> dict[str, str]:
    """The pods whose termination a drain awaits, by uid, each with the remedy if the wait takes too long."""
    return {pod.uid: decision.remedy for pod in pods if isinstance(decision := eviction_of(pod, options), Await)}


def blocking_pods(pods: t.Iterable[PodOnNode], options: DrainOptions) -> list[BlockingPod]:
    """The pods that block a drain."""
    return [
        BlockingPod(pod.full_name, decision.reason, decision.remedy)
        for pod in pods
        if isinstance(decision := eviction_of(pod, options), Block)
    ]


def join_remedies(remedies: t.Iterable[str], names: OptionNames) -> str:
    """The remedies without duplicates, with the option names filled in."""
    return " ".join(dict.fromkeys(remedies)).format(**names)


def gpu_pods_to_evict(
    displaced: t.Sequence[PodOnNode], other_pods: t.Sequence[PodOnNode], rollout: RolloutPlan
) -> tuple[PodOnNode, ...]:
    """The pods that a drain with these settings evicts; `displaced` contains the pods that cannot keep their GPUs."""
    candidates = (*displaced, *other_pods) if rollout.drain == ALL else displaced
    return pods_to_evict(candidates, rollout.drain_options)


def blocking_gpu_pods(
    displaced: t.Sequence[PodOnNode], rollout: RolloutPlan, *, device_files: bool
) -> list[BlockingPod]:
    """The pods that block the change: they cannot keep their GPUs, and a drain with these settings does not evict them.

    `device_files`: whether the change fails while any process has a device file open. If not, kept pods block the change only if they request GPUs.
    """
    kept = [
        BlockingPod(pod.full_name, _gpu_keep_reason(pod), _KEPT_REMEDY)
        for pod in displaced
        if pod.keep_reason and not pod.pausable and (device_files or pod.resources)
    ]
    return kept + blocking_pods(displaced, rollout.drain_options)


def _gpu_keep_reason(pod: PodOnNode) -> str:
    return pod.keep_reason if pod.resources else f"{pod.keep_reason}, {', '.join(pod.access)}"


def blocked_message(blocking: t.Sequence[BlockingPod]) -> str:
    """A message about the pods that block a change of their node's GPUs, with the remedy, but without the final period."""
    return (
        f"These pods use the node's GPUs and cannot be evicted: {', '.join(map(str, blocking))}. "
        f"{join_remedies((pod.remedy for pod in blocking), ROLLOUT_OPTIONS).removesuffix('.')}"
    )


# Computes the impact of changes: which pods of a node lose their GPUs, and how many nodes and pods of each pool a run affects (pure).
#
# | change | evicted pods |
# |---|---|
# | different MIG devices, or a different MIG mode | all pods that use a GPU: a device in use cannot be destroyed |
# | to MPS, from MPS, or between MPS configurations | all: the MPS daemon takes the whole GPU, and its clients end when it stops |
# | from containers to virtual machines, or removal of the driver | all: the driver is unloaded |
# | a different resource name | pods that request the old resource, which is no longer offered: their GPUs would be allocated a second time |
# | fewer shares than are in use | as many as necessary: pods with a higher priority stay, then older pods |
# | any other change | none: the plugin changes the offered resources, and pods keep their devices |

LABELS, PLUGIN, GEOMETRY, MODE = "labels", "plugin", "mig-geometry", "mig-mode"
# NFD sets this label on nodes that are virtual machines (node-feature-discovery source/cpu, cpuid).
_VIRTUAL = ("feature.node.kubernetes.io/cpu-cpuid.HYPERVISOR", "true")
# The key for nodes without a pool; no pool has this name.
NO_POOL = ""
# The counts that describe an impact, with their column titles in the table of a plan.
COUNTS = {
    "driver_restarts": "DRIVER RESTARTS",
    "pods": "PODS LOSE GPU",
    "operand_pods": "OPERAND PODS",
    "repartitioned_nodes": "NODES REPARTITIONED",
    "resets": "GPU RESETS",
}


@dataclass(frozen=True)
class Transition:
    """The effect of a change on a node: `kind` is LABELS, PLUGIN, GEOMETRY or MODE; `offers` contains the amount of each resource after the change.

    `resets`: whether the MIG mode changes on GPUs that must be reset for this. `may_reboot`: whether these GPUs also belong to a virtual machine, which
    may not support the reset (MIG user guide, "Enable MIG Mode").
    """

    kind: str
    evicts_all: bool = False
    offers: t.Mapping[str, int] = field(default_factory=dict)
    resets: bool = False
    may_reboot: bool = False

    @property
    def repartitions(self) -> bool:
        """Whether the MIG layout of the node's GPUs changes."""
        return self.kind in (GEOMETRY, MODE)


def transition(node: Node, pool: PoolPlan | None, change: NodeEdit | None, *, repeat: bool = False) -> Transition:
    """The effect of the change on a node with its current labels; the GPUs of a node without a pool become whole.

    `repeat`: whether the MIG manager must apply the node's current configuration again.
    """
    labels = change.labels if change else {}
    before = node.mig_devices
    after = devices_in_labels(node, pool) if pool else {}
    offers = expected_offers(node, pool) if pool else {names.GPU_RESOURCE: physical_gpus(node)}
    if pool is None and (is_partitioned(node) or is_abandoned(node)):
        return _mode_switch(node, offers)
    if pool is None and keeps_layout(node):
        # The label that selected this layout before is restored, and every device stays.
        return Transition(PLUGIN, offers=dict(node.allocatable))
    if ((repeat and pool is not None) or names.MIG_CONFIG_LABEL in labels) and before != after:
        if bool(before) != bool(after):
            return _mode_switch(node, offers)
        return Transition(GEOMETRY, True, offers)
    if _removes_gpus(node, labels):
        return Transition(PLUGIN, True, offers)
    if names.CONFIG_LABEL in labels:
        modes = (node.mode, pool.mode if pool else "")
        return Transition(PLUGIN, any(name in MODES and MODES[name].evicts_all_pods for name in modes), offers)
    return Transition(PLUGIN if names.MIG_CONFIG_LABEL in labels else LABELS, offers=offers)


def _removes_gpus(node: Node, labels: t.Mapping[str, str | None]) -> bool:
    """Whether these labels make the operator unload the driver, or give the GPUs to virtual machines."""
    if labels.get(names.DRIVER_DEPLOY_LABEL) == "false" or labels.get(names.OPERANDS_LABEL) == "false":
        return True
    after = {key: value for key, value in {**node.labels, **labels}.items() if value is not None}
    return names.WORKLOAD_LABEL in labels and reason_without_discovery(after) != reason_without_discovery(node.labels)


def _mode_switch(node: Node, offers: t.Mapping[str, int]) -> Transition:
    resets = node.labels.get(names.FAMILY_LABEL) in RESET_FAMILIES
    is_virtual = node.labels.get(_VIRTUAL[0]) == _VIRTUAL[1]
    return Transition(MODE, True, offers, resets, resets and is_virtual)


def displaced_pods(change: Transition, pods: t.Sequence[PodOnNode]) -> tuple[PodOnNode, ...]:
    """The node's GPU pods that the change displaces, sorted by namespace and name.

    The most important pods stay: first pods that a drain does not evict, then pods with the highest priority, then the oldest.
    """
    if change.kind == LABELS:
        return ()
    if change.evicts_all:
        return tuple(sorted(pods, key=_name))
    by_importance = sorted(pods, key=lambda pod: (not pod.keep_reason, -pod.priority, pod.created, _name(pod)))
    evicted = [
        pod
        for pod in by_importance
        if any(is_gpu_resource(name) and not change.offers.get(name) for name in pod.resources)
    ]
    for resource, offered in change.offers.items():
        free = offered
        # The most important pods stay as long as there is capacity, followed by less important pods that still fit.
        for pod in by_importance:
            if pod in evicted or not pod.resources.get(resource):
                continue
            if pod.resources[resource] <= free:
                free -= pod.resources[resource]
            else:
                evicted.append(pod)
    return tuple(sorted(evicted, key=_name))


def _name(pod: PodOnNode) -> tuple[str, str]:
    return pod.namespace, pod.name


@dataclass(frozen=True)
class OperandRestart:
    """The operands that the operator restarts on every node: if `every`, all operands including the driver, otherwise those in `apps`.

    `in_place`: the driver stays loaded while its pod restarts, so no pod loses a GPU.
    `driver_nodes` contains the names of individual nodes whose driver is also restarted, because their NVIDIADriver object changes.
    """

    apps: frozenset[str] = frozenset()
    every: bool = False
    in_place: bool = False
    driver_nodes: frozenset[str] = frozenset()

    @property
    def driver(self) -> bool:
        """Whether the operator restarts the driver."""
        return self.every or DRIVER in self.apps

    @property
    def any(self) -> bool:
        """Whether anything is restarted."""
        return self.every or bool(self.apps) or bool(self.driver_nodes)


class NodeImpact(t.NamedTuple):
    """The change to one node, and the pods that lose a GPU because of this change."""

    transition: Transition
    evicted: t.Sequence[PodOnNode]


class RunningPods(t.NamedTuple):
    """The running pods by node: the app of each operand pod, and the pods that use GPUs."""

    operands: t.Mapping[str, t.Sequence[str]]
    gpu_pods: t.Mapping[str, t.Sequence[PodOnNode]]


def impact(
    nodes: t.Iterable[Node], changes: t.Mapping[str, NodeImpact], restart: OperandRestart, running: RunningPods
) -> dict[str, int]:
    """The impact on these nodes: a number for each key in COUNTS.

    `driver_restarts`: nodes whose driver is restarted. `pods`: pods that lose a GPU because of the driver or the new sharing.
    `operand_pods`: pods of operands that are restarted. `repartitioned_nodes`: nodes whose MIG layout changes. `resets`: repartitioned nodes
    whose GPUs must be reset.
    """
    counts = dict.fromkeys(COUNTS, 0)
    for node in nodes:
        apps = running.operands.get(node.name, ())
        change = changes.get(node.name)
        driver_restarts = DRIVER in apps and (restart.driver or node.name in restart.driver_nodes)
        repartitions = change is not None and change.transition.repartitions
        counts["driver_restarts"] += driver_restarts
        counts["repartitioned_nodes"] += repartitions
        counts["resets"] += change is not None and change.transition.resets
        counts["operand_pods"] += sum(
            restart.every
            or app in restart.apps
            or (driver_restarts and app == DRIVER)
            or (repartitions and app in STOPPED_FOR_MIG)
            for app in apps
        )
        unloads = driver_restarts and not restart.in_place
        evicted = running.gpu_pods.get(node.name, ()) if unloads else change.evicted if change else ()
        counts["pods"] += len(evicted)
    return counts


def evictions_by_operator(restart: OperandRestart, running: RunningPods) -> dict[str, tuple[PodOnNode, ...]]:
    """The pods that the operator evicts, by node, before it replaces the driver: those that request GPUs, except pods that no drain evicts.

    Source: k8s-operator-libs pkg/upgrade/pod_manager.go (kubectl's drain with a filter), gpu-operator controllers/upgrade_controller.go.
    """
    if restart.in_place:
        return {}
    evicted = {
        name: tuple(pod for pod in running.gpu_pods.get(name, ()) if pod.resources and not pod.keep_reason)
        for name, apps in running.operands.items()
        if DRIVER in apps and (restart.driver or name in restart.driver_nodes)
    }
    return {name: pods for name, pods in evicted.items() if pods}


def impact_by_pool(
    pools: t.Iterable[PoolPlan],
    nodes: t.Iterable[Node],
    membership: Membership,
    changes: t.Mapping[str, NodeImpact],
    restart: OperandRestart,
    running: RunningPods,
) -> dict[str, dict[str, int]]:
    """The impact on each pool, by the pool's name; the key NO_POOL contains the impact on all other nodes."""
    by_name = {node.name: node for node in nodes}
    counts = {
        pool.name: impact([by_name.pop(name) for name in membership.by_pool[pool.name]], changes, restart, running)
        for pool in pools
    }
    return {**counts, NO_POOL: impact(by_name.values(), changes, restart, running)}


def total_impact(pools: t.Collection[t.Mapping[str, int]]) -> dict[str, int]:
    """The sum of the counts of all pools."""
    return {name: sum(counts[name] for counts in pools) for name in COUNTS}


# Finds the workloads that no node can run after a change of sharing: a label that they select, or a resource that they request, no longer exists (pure).
#
# A workload is a controller with all its pods, or a pod without a controller. Only labels and the amounts that an empty node offers are considered; taints
# and the free capacity are not, because they depend on other workloads. Sources: kubernetes v1.36 pkg/scheduler (nodeSelector, nodeAffinity); NVIDIA
# device plugin (failRequestsGreaterThanOne); gpu-feature-discovery (labels, see node_check.py).

_SELECTOR, _AFFINITY = "spec.nodeSelector", "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True)
class NodeAfter:
    """The labels of a node and the amounts that it offers; `single`: the resources of which a pod may request only one."""

    name: str
    labels: t.Mapping[str, str]
    offers: t.Mapping[str, int]
    single: frozenset[str] = frozenset()


@dataclass(frozen=True)
class UnfitWorkload:
    """A workload that no node can run after the change: the field of the pod's specification, its value, and the value with which it would fit again.

    `fitting` is empty if no value is known.
    """

    owner: str
    field: str
    value: str
    fitting: str

    def __str__(self) -> str:
        change = f"change it to {self.fitting}" if self.fitting else "remove it or choose another pool"
        return f"{self.owner}: {self.field}: {self.value} fits no node after the change; {change}"

    def as_dict(self) -> dict[str, str]:
        """The workload, formatted for a module's result."""
        return {"owner": self.owner, "field": self.field, "value": self.value, "fitting": self.fitting}


def node_before(node: Node) -> NodeAfter:
    """A node as it is now."""
    return NodeAfter(node.name, node.labels, node.allocatable)


def node_after(
    node: Node, pool: PoolPlan | None, change: Transition, labels: t.Mapping[str, str | None] | None = None
) -> NodeAfter:
    """A node once NVIDIA's operands have applied the change, and with the changed labels; its GPUs become whole if it has no pool."""
    if pool is not None:
        discovered = expected_labels(node, pool) if node.discovered else {}
    else:
        count = {COUNT_LABEL: str(physical_gpus(node)), REPLICAS_LABEL: "1", STRATEGY_LABEL: "none"}
        discovered = {PRODUCT_LABEL: node.model, **count} if node.discovered else {}
    merged = {**node.labels, **discovered, **(labels or {})}
    single: frozenset[str] = frozenset()
    if pool is not None and pool.sharing.shared and pool.sharing.fail_requests_greater_than_one:
        single = frozenset(pool.sharing.resources)
    kept = {key: value for key, value in merged.items() if value is not None}
    return NodeAfter(node.name, kept, change.offers, single)


def unfit_workloads(
    on_node: t.Mapping[str, t.Iterable[Demands]],
    before: t.Iterable[NodeAfter],
    after: t.Mapping[str, NodeAfter],
    limit: int,
) -> tuple[UnfitWorkload, ...]:
    """The workloads with a pod on a changed node (`on_node`, by node) that no node can run after the change, each once, sorted by name.

    `before` contains all nodes as they are, `after` the changed nodes. What no node fits already is not caused by the change.
    """
    before = list(before)
    nodes = [after.get(node.name, node) for node in before]
    unfit: dict[str, UnfitWorkload] = {}
    for name, demands in on_node.items():
        if name not in after:
            continue
        for demand in demands:
            if len(unfit) == limit:
                break
            if demand.owner in unfit or _fits(demand, after[name]) or any(_fits(demand, node) for node in nodes):
                continue
            if not any(_fits(demand, node) for node in before):
                continue
            if problem := _problem(demand, after[name]):
                unfit[demand.owner] = problem
    return tuple(unfit[owner] for owner in sorted(unfit))


def _fits(demand: Demands, node: NodeAfter) -> bool:
    return _selects(demand, node) and all(
        count <= node.offers.get(name, 0) and (count == 1 or name not in node.single)
        for name, count in demand.resources.items()
        if is_gpu_resource(name)
    )


def _selects(demand: Demands, node: NodeAfter) -> bool:
    if any(node.labels.get(key) != value for key, value in demand.selector.items()):
        return False
    return not demand.terms or any(term_matches(term, node.labels, node.name) for term in demand.terms)


def _problem(demand: Demands, home: NodeAfter) -> UnfitWorkload | None:
    """The first field that keeps the workload off the node on which it runs now; None if only taints or other nodes keep it off."""
    for key, value in demand.selector.items():
        if home.labels.get(key) != value:
            return UnfitWorkload(demand.owner, f"{_SELECTOR}[{key}]", value, home.labels.get(key, ""))
    if demand.terms and not any(term_matches(term, home.labels, home.name) for term in demand.terms):
        for term in demand.terms:
            for item in term.get("matchExpressions") or ():
                key = str(item.get("key"))
                if not rule_matches(item, home.labels):
                    members = ", ".join(map(str, item.get("values") or ()))
                    value = f"{item.get('operator')} {members}".strip()
                    fitting = home.labels.get(key, "") if item.get("operator") == "In" else ""
                    return UnfitWorkload(demand.owner, f"{_AFFINITY} ({key})", value, fitting)
    for name, count in demand.resources.items():
        if not is_gpu_resource(name):
            continue
        path = f"spec.containers[].resources.limits[{name}]"
        if not home.offers.get(name):
            offered = sorted(other for other, amount in home.offers.items() if amount)
            return UnfitWorkload(demand.owner, path, str(count), " or ".join(f"{other}: 1" for other in offered))
        if count > 1 and name in home.single:
            return UnfitWorkload(
                demand.owner, path, str(count), "1, since the device plugin rejects requests for several shares"
            )
        if count > home.offers[name]:
            return UnfitWorkload(demand.owner, path, str(count), f"at most {home.offers[name]}")
    return None


# Finds the evictions that PodDisruptionBudgets refuse at the moment (pure). Source: kubernetes v1.36 pkg/registry/core/pod/storage/eviction.go.

_ALWAYS_ALLOW = "AlwaysAllow"
OPERATOR = "operator"


@dataclass(frozen=True)
class RefusedEviction:
    """A pod to evict, its node, the budgets that select the pod (namespace and name), and why the API server refuses the eviction now."""

    pod: str
    node: str
    budgets: tuple[str, ...]
    reason: str

    def as_dict(self, by: str = "") -> dict[str, t.Any]:
        """The eviction, formatted for a module's result. by: OPERATOR if the operator evicts the pod for an upgrade of the driver, not a run."""
        eviction = {"pod": self.pod, "node": self.node, "budgets": list(self.budgets), "reason": self.reason}
        return {**eviction, "by": by} if by else eviction


def refused_evictions(
    evictions: t.Mapping[str, t.Iterable[PodOnNode]], budgets: t.Iterable[Document]
) -> tuple[RefusedEviction, ...]:
    """The pods in `evictions` (by node) that the budgets, which are all budgets of the cluster, protect at the moment."""
    by_namespace: dict[str, list[Document]] = {}
    for budget in budgets:
        by_namespace.setdefault(budget["metadata"].get("namespace", ""), []).append(budget)
    refused = []
    for node, pods in sorted(evictions.items()):
        for pod in pods:
            if pod.starting_or_ending:
                continue
            selecting = [item for item in by_namespace.get(pod.namespace, ()) if _is_selected(item, pod.labels)]
            if reason := _refusal(selecting, pod):
                names = tuple(f"{pod.namespace}/{item['metadata']['name']}" for item in selecting)
                refused.append(RefusedEviction(pod.full_name, node, names, reason))
    return tuple(refused)


def _is_selected(budget: Document, labels: t.Mapping[str, str]) -> bool:
    """Whether a budget selects a pod with these labels; an empty selector selects all pods of the namespace, and a missing one none."""
    selector = (budget.get("spec") or {}).get("selector")
    return selector is not None and (not any(selector.values()) or selects(selector, labels))


def _refusal(budgets: t.Sequence[Document], pod: PodOnNode) -> str:
    """Why these budgets, which select the pod, do not allow its eviction; empty if they allow it."""
    if len(budgets) > 1:
        return "more than one PodDisruptionBudget selects it, so it can never be evicted"
    for budget in budgets:
        status, policy = budget.get("status") or {}, (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy")
        healthy, needed = int(status.get("currentHealthy") or 0), int(status.get("desiredHealthy") or 0)
        if not pod.ready and (policy == _ALWAYS_ALLOW or healthy >= needed > 0):
            continue
        if not int(status.get("disruptionsAllowed") or 0):
            return f"needs {needed} healthy {'pod' if needed == 1 else 'pods'} and has {healthy}"
    return ""


def describe_refused(refused: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    """A message about refused evictions in the format of as_dict(), with what a run or the operator does and the remedy."""
    parts = (
        (
            [each for each in refused if each.get("by") != OPERATOR],
            "The run waits until the budget allows it, at most rollout.drain_timeout; after that, the change of the node fails.",
        ),
        (
            [each for each in refused if each.get("by") == OPERATOR],
            "The GPU operator waits with the driver's upgrade until the budget allows it, at most the driver's upgradePolicy.podDeletion.timeoutSeconds; "
            "after that, the upgrade of the node fails.",
        ),
    )
    return " ".join(_describe_refused(group, outcome) for group, outcome in parts if group)


def _describe_refused(refused: t.Sequence[t.Mapping[str, t.Any]], outcome: str) -> str:
    count = f"{len(refused)} pod{'s' if len(refused) > 1 else ''} to evict {'are' if len(refused) > 1 else 'is'}"
    pods = [f"{each['pod']} on {each['node']} ({join_words(each['budgets'])}: {each['reason']})" for each in refused]
    return (
        f"{count} protected by a PodDisruptionBudget that allows no eviction now: {abbreviate(pods, separator='; ')}. {outcome} Run more of its pods on "
        "other nodes, or, for the duration of the change, lower its minAvailable or raise its maxUnavailable."
    )
