# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks whether the operator has applied the ClusterPolicy everywhere, and finds the reasons if it has not (pure).

`status.state: ready` alone is not sufficient. After an edit, the state keeps its old value until the operator has processed the edit, and a DaemonSet
whose desired count has not been written yet counts as ready (observed with 500 nodes: "ready" with 2,732 pods Pending). Therefore, the operator's
conditions and the DaemonSets' templates and numbers are checked, and the nodes that need their pods are counted independently.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass, field

from ..catalog.names import GPU_PRESENT_LABEL, OPERANDS_LABEL, PCI_PRESENT_LABELS, POOL_LABEL
from ..catalog.operands import MIG_MANAGER, PLUGIN
from ..catalog.taints import is_covered, is_temporary
from ..cluster_state import nvidia_driver
from ..cluster_state.cluster_policy import uses_driver_objects
from ..cluster_state.driver_upgrade import DriverUpgrade, driver_upgrade, remedies
from ..cluster_state.operand_pods import daemonset_status
from ..cluster_state.warnings import as_list
from ..common.results import MAX_LISTED
from ..schema.messages import abbreviate, abbreviate_nodes
from .cluster_policy import policy_version
from .daemonsets import (
    app_label,
    driver_object_of,
    expected_nodes,
    is_driver,
    is_operand,
    lingering_nodes,
    template_delay,
    untolerated,
)
from .driver_rollout import UpgradePolicies

Document = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Operand:
    """The state of one DaemonSet: `expected` is the independent count of its nodes; `desired` and `ready` come from its status."""

    name: str
    app: str
    expected: int
    desired: int
    ready: int
    current: bool
    done: bool
    available: int = 0

    def __str__(self) -> str:
        return f"{self.name} {self.ready}/{self.expected}"


@dataclass(frozen=True)
class OperatorReadiness:
    """The readiness of the operator; `waiting` has one line for each unmet condition and is empty if everything is ready.

    `blocked` contains the remedies if waiting cannot help. `ignored_nodes` contains the nodes that the run does not wait for, with the reasons;
    `broken_nodes` contains the broken nodes among them. `runtime_classes` contains the operands' runtime classes, with their handlers.
    `stalled_pods` contains the first pods that are not ready, with the causes, if the number of ready pods has not changed for a minute.
    """

    state: str
    reason: str
    gpu_nodes: int
    operands: tuple[Operand, ...] = ()
    waiting: tuple[str, ...] = ()
    untolerated_nodes: tuple[str, ...] = ()
    upgrade: DriverUpgrade = field(default_factory=DriverUpgrade)
    blocked: tuple[str, ...] = ()
    ignored_nodes: t.Mapping[str, str] = field(default_factory=dict)
    broken_nodes: tuple[str, ...] = ()
    runtime_classes: t.Mapping[str, str] = field(default_factory=dict)
    stalled_pods: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether all conditions are met."""
        return not self.waiting

    @property
    def unfinished(self) -> list[Operand]:
        """The operands that are not rolled out."""
        return [operand for operand in self.operands if not operand.done]

    @property
    def pods(self) -> tuple[int, int]:
        """The numbers of ready pods and of expected pods of all operands."""
        ready = sum(min(item.ready, item.expected) for item in self.operands)
        return ready, sum(item.expected for item in self.operands)

    def as_dict(self) -> dict[str, t.Any]:
        """The readiness, formatted for the module's result."""
        return {
            "ready": self.ready,
            "state": self.state,
            "reason": self.reason,
            "waiting": list(self.waiting),
            "gpu_nodes": self.gpu_nodes,
            "operands": {item.name: {"desired": item.expected, "ready": item.ready} for item in self.operands},
            "untolerated_nodes": list(self.untolerated_nodes)[:MAX_LISTED],
            "driver_upgrade": self.upgrade.as_dict(),
            "runtime_classes": dict(self.runtime_classes),
            "unusual_nodes": as_list(dict(sorted(self.ignored_nodes.items())), MAX_LISTED),
            "broken_nodes": list(self.broken_nodes),
        }


@dataclass(frozen=True)
class RequiredEffect:
    """The required content of the DaemonSets' templates; the numbers of a DaemonSet do not count until its template has this content.

    `configmaps` is the ConfigMap that each DaemonSet mounts.
    """

    tolerations: tuple[Document, ...] = ()
    configmaps: t.Mapping[str, str] = field(default_factory=dict)


def mounted_configmaps(spec: Document) -> dict[str, str]:
    """The ConfigMap that each DaemonSet must mount according to this part of a policy's spec."""
    names = {
        daemonset: ((spec.get(part) or {}).get("config") or {}).get("name")
        for daemonset, part in ((PLUGIN, "devicePlugin"), (MIG_MANAGER, "migManager"))
    }
    return {daemonset: str(name) for daemonset, name in names.items() if name}


@dataclass(frozen=True)
class IgnoredNodes:
    """Nodes that the run ignores because NVIDIA's pods fail on them: the reason for each node, and the nodes without a ready pod, by app.

    `broken` contains the nodes among them that belong to a pool and that gpu-feature-discovery has labeled, with the apps of their failing pods.
    """

    reasons: t.Mapping[str, str] = field(default_factory=dict)
    unready: t.Mapping[str, t.Collection[str]] = field(default_factory=dict)
    broken: t.Mapping[str, t.Collection[str]] = field(default_factory=dict)


def assess(
    policy: Document,
    daemonsets: t.Iterable[Document],
    nodes: t.Sequence[Document],
    effect: RequiredEffect,
    upgrade: DriverUpgrade | None = None,
    ignored: IgnoredNodes | None = None,
    drivers: t.Sequence[Document] = (),
) -> OperatorReadiness:
    """Assess the objects that were read; without `upgrade`, the progress of a driver upgrade is taken from the nodes.

    `drivers` contains the NVIDIADriver objects if they describe the driver.

    If all missing pods are on ignored nodes, the operator's report that operands are not ready is ignored.
    """
    ignored = ignored or IgnoredNodes()
    operand_sets = [item for item in daemonsets if is_operand(item)]
    if not any(is_driver(item) for item in operand_sets):
        upgrade = DriverUpgrade()  # Without driver DaemonSets, the upgrade labels are outdated.
    elif upgrade is None:
        upgrade = driver_upgrade(
            (node["metadata"]["name"], node["metadata"].get("labels") or {})
            for node in nodes
            if node["metadata"]["name"] not in ignored.reasons
        )
    state, reason, problems = _reported_state(policy)
    gpu_nodes = [node for node in nodes if is_gpu_node(node)]
    operands = tuple(
        operand(item, expected_nodes(item, nodes), lingering_nodes(item, nodes), ignored.unready)
        for item in operand_sets
    )
    only_ignored = bool(ignored.reasons) and all(item.done for item in operands)
    if only_ignored and reason in nvidia_driver.NOT_READY_REASONS:
        problems = []
    waiting = [*problems, *_unlabeled_nodes(gpu_nodes, reason)]
    if gpu_nodes and not operand_sets:
        waiting.append("the operator has not created any of its DaemonSets yet")
    spec = policy.get("spec") or {}
    driver_specs = {item["metadata"]["name"]: item.get("spec") or {} for item in drivers}
    waiting += [
        line
        for item in operand_sets
        for line in (_missing_effect(item, effect) or template_delay(spec, item, driver_specs))
    ]
    if uses_driver_objects(spec):
        counted = [node for node in nodes if node["metadata"]["name"] not in ignored.reasons]
        waiting += _driver_objects(drivers, counted, only_ignored=only_ignored)
    waiting += upgrade.messages()
    waiting += [_describe_unfinished(item) for item in operands if not item.done]
    return OperatorReadiness(
        state=state,
        reason=reason,
        gpu_nodes=len(gpu_nodes),
        operands=operands,
        waiting=tuple(waiting),
        untolerated_nodes=_untolerated_nodes(operand_sets, gpu_nodes),
        upgrade=upgrade,
        blocked=tuple(_blocked_upgrade(policy, operand_sets, upgrade, drivers)),
        ignored_nodes=ignored.reasons,
        broken_nodes=tuple(sorted(ignored.broken)),
    )


def is_gpu_node(node: Document) -> bool:
    """Whether the operator treats this as a GPU node: NFD has found NVIDIA's PCI vendor, and operands are not disabled on the node."""
    labels = node["metadata"].get("labels") or {}
    if labels.get(OPERANDS_LABEL) == "false":
        return False
    return any(labels.get(label) == "true" for label in PCI_PRESENT_LABELS)


def operand(
    daemonset: Document,
    expected_on: t.Sequence[str],
    lingering_on: t.Sequence[str] = (),
    unready: t.Mapping[str, t.Collection[str]] | None = None,
) -> Operand:
    """The state of a DaemonSet; the controller's count may or may not include the nodes in `lingering_on`, so both are accepted.

    `unready` contains, by app, the ignored nodes whose pod is not ready.
    """
    dummy, desired, updated, ready, current = daemonset_status(daemonset)
    expected = max(len(expected_on), min(desired, len(expected_on) + len(lingering_on)))
    app = app_label(daemonset)
    excused = len(set((unready or {}).get(app, ())) & set(expected_on))
    return Operand(
        name=daemonset["metadata"]["name"],
        app=app,
        expected=expected,
        desired=desired,
        ready=ready if updated >= desired else min(ready, updated),
        current=current,
        done=current and desired == expected and updated == desired and desired - excused <= ready <= desired,
        available=ready,
    )


def _reported_state(policy: Document) -> tuple[str, str, list[str]]:
    """The operator's state, the reason for this state, and the problems that the operator reports."""
    name = policy["metadata"]["name"]
    status = policy.get("status") or {}
    state = str(status.get("state") or "")
    conditions = {item.get("type"): item for item in status.get("conditions") or []}
    ready, error = conditions.get("Ready") or {}, conditions.get("Error") or {}
    if not state and not conditions:
        return "", "", [f"the operator has not processed ClusterPolicy {name} yet (it has no status)"]
    if error.get("status") == "True":
        reason = str(error.get("reason") or "Error")
        return state, reason, [f"the operator reports {reason}: {str(error.get('message') or '').strip()}"]
    reason = str(ready.get("reason") or "")
    if state != "ready" or (ready and ready.get("status") != "True"):
        return state, reason, [f"the operator reports state {state or 'none'}" + (f" ({reason})" if reason else "")]
    return state, reason, []


def _driver_objects(
    drivers: t.Sequence[Document], nodes: t.Sequence[Document], *, only_ignored: bool
) -> t.Iterator[str]:
    """Messages about NVIDIADriver objects that select nodes but are not ready, and about nodes that no object selects.

    `only_ignored` is true if all pods that are not ready are on ignored nodes; objects that report only these pods are then omitted.
    """
    labels = ((node["metadata"]["name"], node["metadata"].get("labels") or {}) for node in nodes)
    selecting = nvidia_driver.driver_of_nodes(drivers, labels)
    without = {name for name, names in selecting.items() if not names}
    for driver in filter(nvidia_driver.is_managed, drivers):
        unmatched = _unmatched_keys(driver, [node for node in nodes if node["metadata"]["name"] in without])
        for keys, names in unmatched.items():
            without.difference_update(names)
            selector = ", ".join(f"{key}: {nvidia_driver.node_selector(driver)[key]}" for key in keys)
            yield (
                f"NVIDIADriver {driver['metadata']['name']} does not select {abbreviate(names)} of its pool, because they do not match its "
                f"spec.nodeSelector ({selector}), so the operator installs no driver there: the selector must contain only {POOL_LABEL}; run "
                "the playbook again to remove other keys"
            )
    if without:
        yield (
            f"no NVIDIADriver selects {abbreviate_nodes(sorted(without))}, so the operator installs no driver there: declare a pool for them, "
            "or create an NVIDIADriver with a nodeSelector for them"
        )
    needed = {name for names in selecting.values() for name in names}
    for driver in drivers:
        message = nvidia_driver.state_message(driver) if driver["metadata"]["name"] in needed else ""
        if message and not (only_ignored and nvidia_driver.reports_only_pods(driver)):
            yield f"the operator reports NVIDIADriver {driver['metadata']['name']} with {message}"


def _unmatched_keys(driver: Document, nodes: t.Iterable[Document]) -> dict[tuple[str, ...], list[str]]:
    """The nodes of the object's pool that do not match its selector, by the keys that differ."""
    selector = nvidia_driver.node_selector(driver)
    unmatched: dict[tuple[str, ...], list[str]] = {}
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        keys = tuple(sorted(key for key, value in selector.items() if labels.get(key) != value))
        if keys and POOL_LABEL in selector and POOL_LABEL not in keys:
            unmatched.setdefault(keys, []).append(node["metadata"]["name"])
    return unmatched


def _blocked_upgrade(
    policy: Document, daemonsets: t.Iterable[Document], upgrade: DriverUpgrade, objects: t.Sequence[Document]
) -> t.Iterator[str]:
    """The remedies if the driver is not replaced automatically or if its upgrade is stuck."""
    daemonsets = [item for item in daemonsets if is_driver(item)]
    own = nvidia_driver.follows_own_policies(objects, policy_version(policy))
    policies = UpgradePolicies.read(policy.get("spec") or {}, objects, own=own)
    nodes: Counter[str] = Counter()
    for item in daemonsets:
        nodes[driver_object_of(item)] += daemonset_status(item).desired
    automatic = any(policies.of(name).automatic for name in nodes)
    if automatic and upgrade.is_stuck(policies.rollout(nodes, ()).max_parallel):
        yield from remedies(upgrade)
    for item in daemonsets:
        status, upgrade_policy = daemonset_status(item), policies.of(driver_object_of(item))
        if status.is_outdated and status.current and not upgrade_policy.automatic:
            yield (
                f"pods of DaemonSet {item['metadata']['name']} are out of date and {upgrade_policy.setting} is off: drain each node and "
                "delete its driver pod, or set autoUpgrade; then run the playbook again"
            )


def _unlabeled_nodes(gpu_nodes: t.Sequence[Document], reason: str) -> list[str]:
    unlabeled = [
        node["metadata"]["name"]
        for node in gpu_nodes
        if (node["metadata"].get("labels") or {}).get(GPU_PRESENT_LABEL) != "true"
    ]
    lines = []
    if unlabeled:
        lines.append(f"the operator has not labeled {len(unlabeled)} GPU nodes yet: {abbreviate(unlabeled)}")
    if reason == "NFDLabelsMissing":
        lines.append("NFD has not labeled any node: check that it is installed and that its workers run")
    elif gpu_nodes and reason == "NoGPUNodes":
        lines.append(f"the operator has not found any GPU node yet, even though NFD has labeled {len(gpu_nodes)}")
    return lines


def _missing_effect(daemonset: Document, effect: RequiredEffect) -> list[str]:
    """A message if the operator has not yet written the tolerations or the ConfigMap into this template; otherwise empty."""
    if driver_object_of(daemonset):
        return []
    spec = daemonset["spec"]["template"]["spec"]
    name = daemonset["metadata"]["name"]
    present = spec.get("tolerations") or []
    if any(not is_covered(item, present) for item in effect.tolerations):
        return [f"DaemonSet {name} does not have the policy's tolerations yet"]
    configmap = effect.configmaps.get(name)
    mounted = [(volume.get("configMap") or {}).get("name") for volume in spec.get("volumes") or []]
    if configmap and configmap not in mounted:
        return [f"DaemonSet {name} does not mount ConfigMap {configmap} yet"]
    return []


def _describe_unfinished(item: Operand) -> str:
    if not item.current:
        return f"DaemonSet {item.name}: its controller has not processed the last change yet"
    if item.desired != item.expected:
        return f"DaemonSet {item.name}: scheduled to {item.desired} nodes so far, but {item.expected} nodes match"
    return f"DaemonSet {item.name}: {item.ready} of {item.expected} pods are ready"


def _untolerated_nodes(daemonsets: t.Sequence[Document], gpu_nodes: t.Sequence[Document]) -> tuple[str, ...]:
    """The GPU nodes whose GPUs never become usable, because no operand tolerates all their taints."""
    specs = [item["spec"]["template"]["spec"] for item in daemonsets]
    if not specs:
        return ()
    return tuple(
        node["metadata"]["name"]
        for node in gpu_nodes
        if all(not all(map(is_temporary, untolerated(spec, node))) for spec in specs)
    )
