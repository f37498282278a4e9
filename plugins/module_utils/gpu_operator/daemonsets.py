# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluates the operator's DaemonSets: finds the nodes of their pods, templates that do not match the policy yet, and stalled updates (pure).

Sources: kubernetes v1.36 pkg/controller/daemon/daemon_controller.go (NodeShouldRunDaemonPod), util/daemonset_util.go and update.go
(rollingUpdate); gpu-operator v25.10.1 controllers/object_controls.go (applyCommonDaemonsetMetadata, transformDriverContainer).
"""

from __future__ import annotations

import typing as t

from ..catalog.names import COMPONENT_LABEL, DRIVER_COMPONENT, DRIVER_CONTAINER
from ..catalog.taints import untolerated_taints
from ..cluster_state import nvidia_driver
from ..cluster_state.label_selector import term_matches
from ..cluster_state.operand_pods import daemonset_status, is_ready, node_of
from ..common.nested import get_nested
from ..kube.metadata import is_deleting
from .cluster_policy import KIND, policy_version
from .driver_rollout import Path, UpgradePolicy, is_in_place

Document = t.Mapping[str, t.Any]

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
    return any(owner.get("kind") in (KIND, nvidia_driver.KIND) for owner in owners)


def driver_object_of(daemonset: Document) -> str:
    """The name of the NVIDIADriver that owns the DaemonSet; empty if none does."""
    owners = daemonset["metadata"].get("ownerReferences") or []
    return next((str(owner.get("name")) for owner in owners if owner.get("kind") == nvidia_driver.KIND), "")


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
