# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the GPU operator and its DaemonSets are ready, and what they wait for."""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass, field, replace

from ..catalog.names import (
    COMPONENT_LABEL,
    DRIVER_COMPONENT,
    DRIVER_CONTAINER,
    DRIVER_UPGRADE_LABEL,
    DRIVER_UPGRADE_SKIP_LABEL,
    GPU_PRESENT_LABEL,
    OPERANDS_LABEL,
    PCI_PRESENT_LABELS,
    POOL_LABEL,
)
from ..catalog.operands import MIG_MANAGER, PLUGIN
from ..catalog.taints import is_covered, is_temporary, needed_tolerations, toleration_identity, untolerated_taints
from ..core.messages import MAX_LISTED, MAX_NAMED, abbreviate, abbreviate_nodes
from ..core.values import Document, Object, get_nested
from ..core.waits import StateTimer
from ..kube.errors import ApiError
from ..kube.fields import is_deleting
from ..nodes.node import term_matches
from ..nodes.pods import daemonset_status, is_ready, node_of
from ..nodes.warnings import as_list
from .cluster_policy import (
    DRIVER_KIND,
    NOT_READY_REASONS,
    POLICY_KIND,
    DesiredPolicy,
    Path,
    UpgradePolicies,
    UpgradePolicy,
    driver_node_selector,
    driver_of_nodes,
    driver_state_message,
    follows_own_policies,
    is_in_place,
    is_managed_driver,
    policy_tolerations,
    policy_version,
    recorded_tolerations,
    reports_only_pods,
    uses_driver_objects,
)

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.plan import Plan

# Reads the progress of the GPU operator's driver upgrade from the label that the operator maintains on each node (pure).
#
# Source: k8s-operator-libs v0.0.0-20251027171627, pkg/upgrade (consts.go, upgrade_inplace.go, common_manager.go).

REQUIRED, DONE, FAILED = "upgrade-required", "upgrade-done", "upgrade-failed"
# The label selector of nodes with an unfinished upgrade; the operator does not upgrade nodes without the label.
UNFINISHED = f"{DRIVER_UPGRADE_LABEL},{DRIVER_UPGRADE_LABEL}!={DONE}"

Labels = t.Mapping[str, str]


@dataclass(frozen=True)
class DriverUpgrade:
    """The names of nodes with an unfinished upgrade; `working` also contains the state of each node's upgrade."""

    waiting: tuple[str, ...] = ()
    working: t.Mapping[str, str] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, t.Any]:
        """The upgrade in the format of a result: the number of nodes in each state, and the names of nodes that need the user's attention."""
        idle = {REQUIRED: len(self.waiting) + len(self.skipped), FAILED: len(self.failed)}
        return {
            "states": dict(+(Counter(idle) + Counter(self.working.values()))),
            "failed": list(self.failed[:MAX_LISTED]),
            "skipped": list(self.skipped[:MAX_LISTED]),
        }

    def is_stuck(self, max_parallel: int) -> bool:
        """Whether the upgrade cannot continue although nodes have failed or are skipped.

        This is the case if no node is being upgraded, and either no node is waiting or failed nodes occupy the slots that waiting nodes need.
        """
        if self.working or not (self.failed or self.skipped):
            return False
        return not self.waiting or len(self.failed) >= max_parallel

    def messages(self) -> list[str]:
        """One line for each group of nodes with an unfinished upgrade, the most severe first."""
        lines = []
        if self.failed:
            lines.append(f"the driver upgrade failed on {abbreviate(self.failed)}")
        if self.working:
            nodes = [f"{name} ({state})" for name, state in sorted(self.working.items())]
            lines.append(f"the driver is being upgraded on {abbreviate(nodes)}")
        if self.waiting:
            lines.append(f"{len(self.waiting)} node(s) are waiting for the upgrade")
        if self.skipped:
            lines.append(
                f"the old driver is kept on {abbreviate(self.skipped)} because of the label {DRIVER_UPGRADE_SKIP_LABEL}"
            )
        return lines


def driver_upgrade(nodes: t.Iterable[tuple[str, Labels]]) -> DriverUpgrade:
    """Find the nodes with an unfinished upgrade; each node is given by its name and its labels."""
    waiting, working, failed, skipped = [], {}, [], []
    for name, labels in nodes:
        state = labels.get(DRIVER_UPGRADE_LABEL) or DONE
        if state == DONE:
            continue
        if state == FAILED:
            failed.append(name)
        elif state != REQUIRED:
            working[name] = state
        elif labels.get(DRIVER_UPGRADE_SKIP_LABEL) == "true":
            skipped.append(name)
        else:
            waiting.append(name)
    return DriverUpgrade(tuple(sorted(waiting)), working, tuple(sorted(failed)), tuple(sorted(skipped)))


def remedies(upgrade: DriverUpgrade) -> list[str]:
    """Instructions for the user about nodes whose upgrade does not continue."""
    lines = []
    if upgrade.failed:
        lines.append(
            "A common cause is a pod without a controller that uses a GPU, or a pod that cannot be evicted: run kubectl describe node "
            f"{upgrade.failed[0]}. Fix the cause, run kubectl label node --overwrite {' '.join(upgrade.failed[:MAX_NAMED])} "
            f"{DRIVER_UPGRADE_LABEL}={REQUIRED}, and run the playbook again"
        )
    if upgrade.skipped:
        lines.append(
            f"Once the driver on these nodes can be upgraded, remove the label {DRIVER_UPGRADE_SKIP_LABEL} from them, and run the playbook again"
        )
    return lines


# Evaluates the operator's DaemonSets: finds the nodes of their pods, templates that do not match the policy yet, and stalled updates (pure).
#
# Sources: kubernetes v1.36 pkg/controller/daemon/daemon_controller.go (NodeShouldRunDaemonPod), util/daemonset_util.go and update.go
# (rollingUpdate); gpu-operator v25.10.1 controllers/object_controls.go (applyCommonDaemonsetMetadata, transformDriverContainer).

# The DaemonSet controller adds these tolerations to every daemon pod.
_ALWAYS_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_HOST_NETWORK_TOLERATED = (("node.kubernetes.io/network-unavailable", "NoSchedule"),)
# The operator keeps its own values of these labels, because they select pods.
_NOT_COPIED = frozenset({"app", "app.kubernetes.io/part-of"})
# The template's generation; the DaemonSet controller stores it in an annotation of the DaemonSet and in a label of its pods.
_TEMPLATE_GENERATION, _POD_GENERATION = "deprecated.daemonset.template.generation", "pod-template-generation"


def is_operand(daemonset: Document) -> bool:
    """Whether a ClusterPolicy or an NVIDIADriver owns the DaemonSet."""
    owners = daemonset["metadata"].get("ownerReferences") or []
    return any(owner.get("kind") in (POLICY_KIND, DRIVER_KIND) for owner in owners)


def driver_object_of(daemonset: Document) -> str:
    """The name of the NVIDIADriver that owns the DaemonSet; empty if none does."""
    owners = daemonset["metadata"].get("ownerReferences") or []
    return next((str(owner.get("name")) for owner in owners if owner.get("kind") == DRIVER_KIND), "")


def is_driver(daemonset: Document) -> bool:
    """Whether this is a driver DaemonSet; there may be one for each NVIDIADriver, OS version and, with precompiled drivers, kernel."""
    labels = daemonset["metadata"].get("labels") or {}
    return labels.get(COMPONENT_LABEL) == DRIVER_COMPONENT and is_operand(daemonset)


def driver_nodes(daemonsets: t.Iterable[Document]) -> dict[str, int]:
    """The number of nodes with a driver pod, by the name of the NVIDIADriver that owns the pod; the key for the ClusterPolicy is empty."""
    nodes: dict[str, int] = {}
    for item in filter(is_driver, daemonsets):
        owner = driver_object_of(item)
        nodes[owner] = nodes.get(owner, 0) + daemonset_status(item).scheduled
    return nodes


def count_interrupted_nodes(policy: Document, daemonsets: t.Collection[Document], paths: t.Iterable[Path]) -> int:
    """The number of nodes whose GPU pods are evicted if the fields of the policy's spec at these paths change.

    The driver DaemonSets of NVIDIADriver objects do not depend on these fields.
    """
    drivers = [item for item in daemonsets if is_driver(item) and not driver_object_of(item)]
    upgrade_policy = UpgradePolicy.from_spec(policy.get("spec") or {})
    if is_in_place(paths, policy_version(policy), upgrade_policy, drivers):
        return 0
    return driver_nodes(drivers).get("", 0)


def app_label(daemonset: Document) -> str:
    """The label `app` of a DaemonSet's pods; empty if there is none."""
    return str((daemonset["spec"]["template"]["metadata"].get("labels") or {}).get("app") or "")


def expected_nodes(daemonset: Document, nodes: t.Iterable[Document]) -> list[str]:
    """The nodes on which the DaemonSet must have a pod, according to the DaemonSet controller's rules."""
    spec = daemonset["spec"]["template"]["spec"]
    return [node["metadata"]["name"] for node in nodes if selects(spec, node) and not untolerated(spec, node)]


def lingering_nodes(daemonset: Document, nodes: t.Iterable[Document]) -> list[str]:
    """The nodes that may keep a pod of this DaemonSet but accept no new pod, because all their untolerated taints have the effect NoSchedule.

    The controller does not process the DaemonSet again when a taint with this effect is added, so the DaemonSet's status may or may not count these
    nodes (kubernetes pkg/controller/daemon, syncNodeUpdate).
    """
    spec = daemonset["spec"]["template"]["spec"]
    return [
        node["metadata"]["name"]
        for node in nodes
        if {taint.get("effect") for taint in untolerated(spec, node)} == {"NoSchedule"} and selects(spec, node)
    ]


def selects(pod_spec: Document, node: Document) -> bool:
    """Whether a pod's node selector and its required node affinity match the node."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (pod_spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return not required or any(
        term_matches(term, labels, node["metadata"]["name"]) for term in required.get("nodeSelectorTerms") or []
    )


def untolerated(pod_spec: Document, node: Document) -> list[Document]:
    """The node's taints that a DaemonSet pod with this spec does not tolerate."""
    implicit = _ALWAYS_TOLERATED + (_HOST_NETWORK_TOLERATED if pod_spec.get("hostNetwork") else ())
    tolerations = list(pod_spec.get("tolerations") or [])
    tolerations += [{"key": key, "operator": "Exists", "effect": effect} for key, effect in implicit]
    return untolerated_taints(tolerations, node.get("spec", {}).get("taints") or [])


def template_delay(spec: Document, daemonset: Document, drivers: t.Mapping[str, Document] | None = None) -> list[str]:
    """A message if the operator has not written the policy's `spec` into the template yet; otherwise empty.

    This check is needed because a restarted operator has not processed anything yet, although all objects that the previous operator created look ready.
    The chart writes its version into the labels that the operator sets on every pod, so an upgrade is visible in each template. The DaemonSet of an
    NVIDIADriver depends only on that object; `drivers` contains the specs of these objects, by name.
    """
    name = daemonset["metadata"]["name"]
    owner = driver_object_of(daemonset)
    if owner:
        lacks = is_driver(daemonset) and _lacks_driver((drivers or {}).get(owner) or {}, daemonset)
        return [f"DaemonSet {name} does not have the driver of NVIDIADriver {owner} yet"] if lacks else []
    if _lacks_labels(spec, daemonset):
        return [f"DaemonSet {name} does not have the policy's labels yet"]
    if is_driver(daemonset) and _lacks_driver(spec.get("driver") or {}, daemonset):
        return [f"DaemonSet {name} does not have the policy's driver yet"]
    return []


def _lacks_labels(spec: Document, daemonset: Document) -> bool:
    labels = daemonset["spec"]["template"]["metadata"].get("labels") or {}
    desired = (spec.get("daemonsets") or {}).get("labels") or {}
    return any(labels.get(key) != value for key, value in desired.items() if key not in _NOT_COPIED)


def _lacks_driver(driver: Document, daemonset: Document) -> bool:
    containers = daemonset["spec"]["template"]["spec"].get("containers") or []
    container = next((item for item in containers if item.get("name") == DRIVER_CONTAINER), None)
    if container is None:
        return False
    # The image contains the version, followed by the node's OS, or a digest after an @.
    if str(driver.get("version") or "") not in str(container.get("image") or ""):
        return True
    env = {item["name"]: item.get("value", "") for item in container.get("env") or []}
    return any(env.get(item["name"]) != item.get("value", "") for item in driver.get("env") or [])


# For each DaemonSet, the environment variable in which an operator installed by OLM finds the image, and the part of the policy that may override
# the image (gpu-operator config/manager/manager.yaml, controllers/object_controls.go).
_IMAGES = {
    "gpu-feature-discovery": ("GFD_IMAGE", "gfd"),
    "nvidia-container-toolkit-daemonset": ("CONTAINER_TOOLKIT_IMAGE", "toolkit"),
    "nvidia-dcgm-exporter": ("DCGM_EXPORTER_IMAGE", "dcgmExporter"),
    "nvidia-device-plugin-daemonset": ("DEVICE_PLUGIN_IMAGE", "devicePlugin"),
    "nvidia-mig-manager": ("MIG_MANAGER_IMAGE", "migManager"),
    "nvidia-operator-validator": ("VALIDATOR_IMAGE", "validator"),
}


def outdated_images(operator: Document | None, daemonsets: t.Iterable[Document], spec: Document) -> list[str]:
    """Messages about DaemonSets that do not use the images of a new operator yet.

    `operator` is the operator's Deployment, and `spec` is the spec of the ClusterPolicy.
    After OLM has replaced an operator, only the images show whether the new operator has processed the policy: the old operator may have written the
    status.
    """
    containers = get_nested(operator, "spec", "template", "spec", "containers") or ()
    images = {entry["name"]: entry.get("value") for each in containers for entry in each.get("env") or ()}
    outdated = []
    for item in daemonsets:
        name = item["metadata"]["name"]
        variable, part = _IMAGES.get(name, ("", ""))
        own = spec.get(part) or {}
        template = item["spec"]["template"]["spec"]
        used = [each.get("image") for key in ("containers", "initContainers") for each in template.get(key) or ()]
        if images.get(variable) and not (own.get("image") or own.get("version")) and images[variable] not in used:
            outdated.append(f"DaemonSet {name} does not have the image of the new operator yet")
    return outdated


def is_stalled(daemonset: Document, unready: t.Collection[str]) -> bool:
    """Whether the rolling update cannot continue because all pods that are not ready are on the nodes in `unready`.

    A DaemonSet replaces a ready pod only while fewer than maxUnavailable of its pods are not ready. Pods on failing nodes also
    count, so one failing node can keep all other nodes on the old template.
    """
    if is_driver(daemonset) or (daemonset["spec"].get("updateStrategy") or {}).get("type") == "OnDelete":
        return False
    status = daemonset_status(daemonset)
    missing = status.desired - status.available
    return bool(unready) and status.current and status.is_outdated and missing <= len(unready)


def next_pod_to_replace(daemonset: Document, pods: t.Iterable[Document], ignored: t.Collection[str]) -> Document | None:
    """A ready pod that was created from an older template; None if there is none.

    Pods on ignored nodes do not count. The result is also None while any other pod is not ready or is being deleted.
    """
    generation = (daemonset["metadata"].get("annotations") or {}).get(_TEMPLATE_GENERATION)
    candidates = [pod for pod in sorted(pods, key=node_of) if node_of(pod) not in ignored]
    if any(not is_ready(pod) or is_deleting(pod) for pod in candidates):
        return None
    outdated = [
        pod
        for pod in candidates
        if generation and (pod["metadata"].get("labels") or {}).get(_POD_GENERATION) != generation
    ]
    return outdated[0] if outdated else None


# Checks whether the operator has applied the ClusterPolicy everywhere, and finds the reasons if it has not (pure).
#
# `status.state: ready` alone is not sufficient. After an edit, the state keeps its old value until the operator has processed the edit, and a DaemonSet
# whose desired count has not been written yet counts as ready (observed with 500 nodes: "ready" with 2,732 pods Pending). Therefore, the operator's
# conditions and the DaemonSets' templates and numbers are checked, and the nodes that need their pods are counted independently.


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
    if only_ignored and reason in NOT_READY_REASONS:
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
    selecting = driver_of_nodes(drivers, labels)
    without = {name for name, names in selecting.items() if not names}
    for driver in filter(is_managed_driver, drivers):
        unmatched = _unmatched_keys(driver, [node for node in nodes if node["metadata"]["name"] in without])
        for keys, names in unmatched.items():
            without.difference_update(names)
            selector = ", ".join(f"{key}: {driver_node_selector(driver)[key]}" for key in keys)
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
        message = driver_state_message(driver) if driver["metadata"]["name"] in needed else ""
        if message and not (only_ignored and reports_only_pods(driver)):
            yield f"the operator reports NVIDIADriver {driver['metadata']['name']} with {message}"


def _unmatched_keys(driver: Document, nodes: t.Iterable[Document]) -> dict[tuple[str, ...], list[str]]:
    """The nodes of the object's pool that do not match its selector, by the keys that differ."""
    selector = driver_node_selector(driver)
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
    own = follows_own_policies(objects, policy_version(policy))
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


# Reads the pods that are not ready while a wait for the operator makes no progress.

# Pods are read if the number of ready pods has not changed for this number of seconds, and again at this interval.
_INTERVAL = 60.0
# The maximum number of nodes whose pods are returned, and the number of pods in one page.
_MAX_NODES = 100
_PAGE = 500


class StalledPods:
    """Reads pods at most once a minute and only while the number of ready pods does not change."""

    def __init__(self, client: Client, timer: StateTimer | None = None) -> None:
        """Store the arguments; nothing is read yet."""
        self._client = client
        self._timer = timer or StateTimer()
        self._pods: list[Object] = []
        self._next_read = _INTERVAL

    def find(self, readiness: OperatorReadiness, namespace: str) -> list[Object]:
        """The unready pods of unfinished operands, on up to 100 nodes; empty if the number of ready pods has changed within the last minute.

        The same list object is returned until the pods are read again.
        """
        seconds = self._timer.seconds("ready pods", readiness.pods)
        if seconds < _INTERVAL or not readiness.unfinished:
            self._next_read = _INTERVAL
            if self._pods:
                self._pods = []
        elif seconds >= self._next_read:
            self._pods, self._next_read = self._read(readiness, namespace), seconds + _INTERVAL
        return self._pods

    def _read(self, readiness: OperatorReadiness, namespace: str) -> list[Object]:
        apps = sorted({item.app for item in readiness.unfinished if item.app})
        pods = permitted_pods(self._client, namespace, f"app in ({','.join(apps)})") if apps else ()
        unready: list[Object] = []
        nodes: set[str] = set()
        for pod in pods:
            if not is_ready(pod):
                unready.append(pod)
                nodes.add(node_of(pod))
            if len(nodes) == _MAX_NODES:
                break
        return unready


def permitted_pods(client: Client, namespace: str, selector: str) -> t.Iterator[Object]:
    """The pods with these labels, read page by page; empty if the user is not allowed to list pods."""
    try:
        yield from client.list(f"/api/v1/namespaces/{namespace}/pods", label_selector=selector, limit=_PAGE)
    except ApiError as error:
        if not error.forbidden:
            raise


# Keeps obsolete tolerations in the ClusterPolicy until no GPU node has the taints that they tolerate (pure).
#
# gpu_sharing removes the taint of a pool only after cluster_policy has run; if gpu_sharing fails, the taint remains. Without the toleration, a
# tainted node loses its operands, and the operator upgrades no driver in the cluster: it reports "driver DaemonSet should not have Unscheduled pods".


def obsolete_tolerations(policy: Document, plan: Plan) -> list[Object]:
    """The collection's entries in the policy that no pool needs."""
    needed = {toleration_identity(item) for item in DesiredPolicy.derive(plan, policy).tolerations}
    present = {toleration_identity(item) for item in policy_tolerations(policy)}
    return [item for item in recorded_tolerations(policy) or () if toleration_identity(item) in present - needed]


def keep_needed_tolerations(policy: Document, plan: Plan, nodes: t.Iterable[Document]) -> Plan:
    """The plan, extended with the obsolete tolerations that the taints of GPU nodes still require."""
    obsolete = obsolete_tolerations(policy, plan)
    identities = {toleration_identity(item) for item in obsolete}
    others = [item for item in policy_tolerations(policy) if toleration_identity(item) not in identities]
    taints = [taint for node in nodes if is_gpu_node(node) for taint in get_nested(node, "spec", "taints") or ()]
    kept = needed_tolerations(obsolete, [*others, *plan.policy.tolerations], taints)
    return replace(plan, policy=replace(plan.policy, kept_tolerations=tuple(kept)))
