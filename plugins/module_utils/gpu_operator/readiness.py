# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the operator has really done what the ClusterPolicy says, or the story of why not: pure.

`status.state: ready` alone proves nothing. It stays from before an edit until the operator has looked, and a DaemonSet whose desired count
has not been written yet passes as ready (500 nodes: "ready" with 2,732 pods Pending). So the proof is in what the operator made:
its conditions, the DaemonSets' templates and numbers, and our own count of the nodes on which their pods belong.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.names import GPU_PRESENT_LABEL, PCI_PRESENT_LABELS
from ..catalog.taints import toleration_identity
from ..cluster_state.driver_upgrade import Upgrade, remedies, upgrade_of
from ..schema.messages import abbreviate
from .cluster_policy import is_driver, owned
from .daemonset_nodes import expected_nodes, lingering_nodes, untolerated
from .daemonset_template import stale_by
from .driver_rollout import UpgradePolicy

Document = t.Mapping[str, t.Any]

_OPERANDS_LABEL = "nvidia.com/gpu.deploy.operands"
# The DaemonSets that mount our ConfigMaps (gpu-operator assets/state-device-plugin, state-mig-manager).
PLUGIN_DAEMONSET = "nvidia-device-plugin-daemonset"
MIG_DAEMONSET = "nvidia-mig-manager"


@dataclass(frozen=True)
class Operand:
    """One DaemonSet: where its pods belong by our own count, and how many are there."""

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
    """`waiting` is empty when everything is seen; each line of it is one thing that is not, in words for a user.

    `halted` says what to do where waiting is of no use. `set_aside` are the nodes that are not waited for, with the reason.
    """

    state: str
    reason: str
    gpu_nodes: int
    operands: tuple[Operand, ...] = ()
    waiting: tuple[str, ...] = ()
    unreached: tuple[str, ...] = field(default=())
    upgrade: Upgrade = field(default_factory=Upgrade)
    halted: tuple[str, ...] = ()
    set_aside: t.Mapping[str, str] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Everything is seen."""
        return not self.waiting

    @property
    def unfinished(self) -> list[Operand]:
        """The operands that are not as they should be."""
        return [operand for operand in self.operands if not operand.done]

    @property
    def pods(self) -> tuple[int, int]:
        """Pods that are ready and pods that should be, over all operands."""
        return sum(min(item.ready, item.expected) for item in self.operands), sum(
            item.expected for item in self.operands
        )


@dataclass(frozen=True)
class RequiredEffect:
    """What the applied policy must have left in the DaemonSets' templates before their numbers count.

    `configmaps` says which ConfigMap each DaemonSet mounts.
    """

    tolerations: tuple[Document, ...] = ()
    configmaps: t.Mapping[str, str] = field(default_factory=dict)


def configmaps_mounted_by(spec: Document) -> dict[str, str]:
    """Which ConfigMap each DaemonSet is to mount by this part of a policy's spec."""
    named = {
        daemonset: ((spec.get(part) or {}).get("config") or {}).get("name")
        for daemonset, part in ((PLUGIN_DAEMONSET, "devicePlugin"), (MIG_DAEMONSET, "migManager"))
    }
    return {daemonset: str(name) for daemonset, name in named.items() if name}


@dataclass(frozen=True)
class IgnoredNodes:
    """Nodes that are not waited for, since NVIDIA's pods fail there: the reason of each, and by app where its pod is not ready."""

    reasons: t.Mapping[str, str] = field(default_factory=dict)
    unready: t.Mapping[str, t.Collection[str]] = field(default_factory=dict)


def assess(
    policy: Document,
    daemonsets: t.Iterable[Document],
    nodes: t.Sequence[Document],
    effect: RequiredEffect,
    upgrade: Upgrade | None = None,
    set_aside: IgnoredNodes | None = None,
) -> OperatorReadiness:
    """Judge one reading of the cluster; without a newer reading, the nodes tell how far a driver upgrade is.

    What the operator says of operands that are not ready is passed over where all that lack are on nodes that are set aside.
    """
    aside = set_aside or IgnoredNodes()
    ours = [found for found in daemonsets if owned(found)]
    if not any(is_driver(found) for found in ours):
        upgrade = Upgrade()  # what labels say of a driver that is gone says nothing
    elif upgrade is None:
        upgrade = upgrade_of(
            (node["metadata"]["name"], node["metadata"].get("labels") or {})
            for node in nodes
            if node["metadata"]["name"] not in aside.reasons
        )
    state, reason, problems = _reported(policy)
    gpu_nodes = [node for node in nodes if is_gpu_node(node)]
    operands = tuple(
        operand(found, expected_nodes(found, nodes), lingering_nodes(found, nodes), aside.unready) for found in ours
    )
    if aside.reasons and all(item.done for item in operands) and _reports_operands(policy):
        problems = []
    waiting = [*problems, *_nodes_waiting(gpu_nodes, reason)]
    if gpu_nodes and not ours:
        waiting.append("the operator has created none of its DaemonSets yet")
    spec = policy.get("spec") or {}
    waiting += [line for found in ours for line in (_stale(found, effect) or stale_by(spec, found))]
    waiting += upgrade.told()
    waiting += [_unfinished(item) for item in operands if not item.done]
    return OperatorReadiness(
        state=state,
        reason=reason,
        gpu_nodes=len(gpu_nodes),
        operands=operands,
        waiting=tuple(waiting),
        unreached=_unreached(ours, gpu_nodes),
        upgrade=upgrade,
        halted=tuple(_halted(policy, ours, upgrade)),
        set_aside=aside.reasons,
    )


def is_outdated(daemonset: Document) -> bool:
    """Whether pods of an older template are left, by the DaemonSet's own count."""
    status = daemonset.get("status") or {}
    return int(status.get("updatedNumberScheduled") or 0) < int(status.get("desiredNumberScheduled") or 0)


def is_gpu_node(node: Document) -> bool:
    """What the operator takes for a GPU node: NFD has found NVIDIA's PCI vendor, and nobody has opted the node out."""
    labels = node["metadata"].get("labels") or {}
    if labels.get(_OPERANDS_LABEL) == "false":
        return False
    return any(labels.get(label) == "true" for label in PCI_PRESENT_LABELS)


def operand(
    daemonset: Document,
    belongs: t.Sequence[str],
    lingering: t.Sequence[str] = (),
    unready: t.Mapping[str, t.Collection[str]] | None = None,
) -> Operand:
    """The DaemonSet's numbers beside our own count; nodes on which pods may linger may be counted or not.

    `unready` are, by app, the nodes that are not waited for and whose pod is not ready.
    """
    metadata, status = daemonset["metadata"], daemonset.get("status") or {}
    desired = int(status.get("desiredNumberScheduled") or 0)
    ready = int(status.get("numberAvailable") or 0)
    updated = int(status.get("updatedNumberScheduled") or 0)
    current = int(status.get("observedGeneration") or 0) >= int(metadata.get("generation") or 0)
    expected = max(len(belongs), min(desired, len(belongs) + len(lingering)))
    app = str((daemonset["spec"]["template"]["metadata"].get("labels") or {}).get("app") or "")
    excused = len(set((unready or {}).get(app, ())) & set(belongs))
    return Operand(
        name=metadata["name"],
        app=app,
        expected=expected,
        desired=desired,
        ready=ready if updated >= desired else min(ready, updated),
        current=current,
        done=current and desired == expected and updated == desired and desired - excused <= ready <= desired,
        available=ready,
    )


def _reported(policy: Document) -> tuple[str, str, list[str]]:
    """State, reason and what speaks against believing them."""
    name = policy["metadata"]["name"]
    status = policy.get("status") or {}
    state = str(status.get("state") or "")
    conditions = {item.get("type"): item for item in status.get("conditions") or []}
    ready, error = conditions.get("Ready") or {}, conditions.get("Error") or {}
    if not state and not conditions:
        return "", "", [f"the operator has not looked at ClusterPolicy {name} yet (it has no status)"]
    if error.get("status") == "True":
        reason = str(error.get("reason") or "Error")
        return state, reason, [f"the operator reports {reason}: {str(error.get('message') or '').strip()}"]
    reason = str(ready.get("reason") or "")
    if state != "ready" or (ready and ready.get("status") != "True"):
        return state, reason, [f"the operator reports state {state or 'none'}" + (f" ({reason})" if reason else "")]
    return state, reason, []


def _reports_operands(policy: Document) -> bool:
    """Whether all that the operator reports is that operands are not ready (gpu-operator internal/conditions)."""
    for item in (policy.get("status") or {}).get("conditions") or []:
        if item.get("type") == "Error" and item.get("status") == "True":
            return item.get("reason") in ("OperandNotReady", "DriverNotReady")
    return False


def _halted(policy: Document, ours: t.Iterable[Document], upgrade: Upgrade) -> t.Iterator[str]:
    """What to do about a driver that does not become the new one by itself."""
    drivers = [found for found in ours if is_driver(found)]
    nodes = sum(int((found.get("status") or {}).get("desiredNumberScheduled") or 0) for found in drivers)
    pacing = UpgradePolicy.of(policy.get("spec") or {})
    if pacing.by_itself:
        if upgrade.stuck(pacing.at_most(nodes)):
            yield from remedies(upgrade)
        return
    for found in drivers:
        metadata, status = found["metadata"], found.get("status") or {}
        if is_outdated(found) and int(status.get("observedGeneration") or 0) >= int(metadata.get("generation") or 0):
            yield (
                f"pods of DaemonSet {metadata['name']} are out of date and the ClusterPolicy's driver.upgradePolicy.autoUpgrade is "
                "off: drain each node and delete its driver pod, or switch autoUpgrade on; then run again"
            )


def _nodes_waiting(gpu_nodes: t.Sequence[Document], reason: str) -> list[str]:
    unlabelled = [
        node["metadata"]["name"]
        for node in gpu_nodes
        if (node["metadata"].get("labels") or {}).get(GPU_PRESENT_LABEL) != "true"
    ]
    waiting = []
    if unlabelled:
        waiting.append(
            f"{len(unlabelled)} GPU nodes have not been labelled by the operator yet: {abbreviate(unlabelled)}"
        )
    if reason == "NFDLabelsMissing":
        waiting.append("NFD has not labelled any node: is it installed, and do its workers run?")
    elif gpu_nodes and reason == "NoGPUNodes":
        waiting.append(f"the operator has seen no GPU node yet, though NFD has labelled {len(gpu_nodes)}")
    return waiting


def _stale(daemonset: Document, effect: RequiredEffect) -> list[str]:
    """Whether the operator has not yet carried the policy over into this template."""
    spec = daemonset["spec"]["template"]["spec"]
    name = daemonset["metadata"]["name"]
    there = [toleration_identity(item) for item in spec.get("tolerations") or []]
    if any(toleration_identity(item) not in there for item in effect.tolerations):
        return [f"DaemonSet {name} does not have the policy's tolerations yet"]
    wanted = effect.configmaps.get(name)
    mounted = [(volume.get("configMap") or {}).get("name") for volume in spec.get("volumes") or []]
    if wanted and wanted not in mounted:
        return [f"DaemonSet {name} does not mount ConfigMap {wanted} yet"]
    return []


def _unfinished(item: Operand) -> str:
    if not item.current:
        return f"DaemonSet {item.name}: its last change has not been taken up yet"
    if item.desired != item.expected:
        return f"DaemonSet {item.name}: wanted on {item.desired} nodes so far, but {item.expected} nodes match"
    return f"DaemonSet {item.name}: {item.ready} of {item.expected} pods are ready"


def _unreached(daemonsets: t.Sequence[Document], gpu_nodes: t.Sequence[Document]) -> tuple[str, ...]:
    """GPU nodes whose taints keep every operand away: nothing will ever make their GPUs usable."""
    specs = [found["spec"]["template"]["spec"] for found in daemonsets]
    if not specs:
        return ()
    return tuple(node["metadata"]["name"] for node in gpu_nodes if all(untolerated(spec, node) for spec in specs))
