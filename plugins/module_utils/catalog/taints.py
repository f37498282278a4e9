# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taints and tolerations: their identity, the toleration that a taint needs, and the merge of a node's list of taints (pure)."""

from __future__ import annotations

import re
import typing as t

Taint = t.Mapping[str, t.Any]
Toleration = t.Mapping[str, t.Any]
_T = t.TypeVar("_T", bound=Toleration)

# Cluster Autoscaler 1.29 and later expects a node with a startup taint to become ready soon, and ignores startup taints when it predicts the nodes of a
# node group (kubernetes/autoscaler, cluster-autoscaler/FAQ.md, "startup taints").
STARTUP_TAINT_PREFIX = "startup-taint.cluster-autoscaler.kubernetes.io/"
STARTUP_TAINT_KEY = f"{STARTUP_TAINT_PREFIX}accel-gpu"
# Keeps workloads away from a new node until its GPUs are partitioned; removed once this is verified, so it is not one of the pool's taints.
STARTUP_TAINT: dict[str, str] = {"key": STARTUP_TAINT_KEY, "effect": "NoSchedule"}

# Temporary taints that other components set and remove: a key, or a prefix that ends with a slash, and the component. A pool's taints stay on its nodes, so
# none of these taints can be one of them.
_TEMPORARY = (
    # kubernetes: pkg/controller/nodelifecycle, staging/src/k8s.io/cloud-provider/api
    ("node.kubernetes.io/", "Kubernetes' node controller writes it"),
    ("node.cloudprovider.kubernetes.io/", "the cloud's controller writes it"),
    # kubernetes/autoscaler: cluster-autoscaler/utils/taints
    (STARTUP_TAINT_PREFIX, "startup taints are removed once a node has started (use startup_taint)"),
    ("ignore-taint.cluster-autoscaler.kubernetes.io/", "startup taints are removed once a node has started"),
    ("status-taint.cluster-autoscaler.kubernetes.io/", "it shows a temporary state of the node"),
    ("ToBeDeletedByClusterAutoscaler", "the cluster autoscaler sets it on a node that it removes"),
    ("DeletionCandidateOfClusterAutoscaler", "the cluster autoscaler sets it on a node that it may remove"),
    ("cloud.google.com/impending-node-termination", "Google Cloud sets it on a node that it removes"),
    # kubernetes-sigs/karpenter: pkg/apis/v1/taints.go, pkg/apis/v1beta1/taints.go (disruption); users may set other taints with this prefix
    ("karpenter.sh/disrupted", "Karpenter writes it"),
    ("karpenter.sh/unregistered", "Karpenter writes it"),
    ("karpenter.sh/disruption", "Karpenter writes it"),
    # kubernetes-sigs/cluster-api: api/core/v1beta2 (NodeUninitializedTaint, NodeOutdatedRevisionTaint); users may set other taints with this prefix
    ("node.cluster.x-k8s.io/uninitialized", "Cluster API writes it"),
    ("node.cluster.x-k8s.io/outdated-revision", "Cluster API writes it"),
    # gardener: pkg/apis/core/v1beta1/constants; kubernetes-sigs/node-readiness-controller
    ("node.gardener.cloud/critical-components-not-ready", "Gardener removes it once the node has started"),
    ("readiness.k8s.io/", "the node readiness controller writes it"),
    # openshift/machine-config-operator: pkg/controller/common (NodeUpdateInProgressTaint)
    ("UpdateInProgress", "OpenShift's machine config operator sets it during an update of the node"),
    # Networks: cilium pkg/option, ovn-kubernetes, istio pilot/pkg/controllers/untaint
    ("node.cilium.io/", "Cilium removes it once the node has started"),
    ("k8s.ovn.org/network-unavailable", "OVN-Kubernetes removes it once the node has started"),
    ("cni.istio.io/not-ready", "Istio removes it once the node has started"),
    # Maintenance and repair: medik8s/node-maintenance-operator and self-node-remediation, kubevirt, aws/aws-node-termination-handler pkg/node/node.go
    # (spot-itn, scheduled-maintenance, asg-lifecycle-termination, rebalance-recommendation), AKS node auto-repair
    ("medik8s.io/", "a maintenance operator writes it"),
    ("kubevirt.io/drain", "a maintenance operator sets it on a node that it drains"),
    ("aws-node-termination-handler/", "the AWS node termination handler sets it on a node that it drains"),
    ("remediator.aks.microsoft.com/", "AKS sets it on a node that it repairs"),
    ("remediator.kubernetes.azure.com/", "AKS sets it on a node that it repairs"),
)
# The startup taint of several CSI drivers, each with the name of its driver as the prefix: kubernetes-sigs/aws-ebs-csi-driver (ebs.csi.aws.com),
# aws-efs-csi-driver (efs.csi.aws.com), azuredisk-csi-driver (disk.csi.azure.com) and others. Cilium's taint has the same name.
_CSI_STARTUP = re.compile(r"[^/]*\bcsi\b[^/]*/agent-not-ready")

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
# PreferNoSchedule does not keep pods away.
_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")


def taint_identity(taint: Taint) -> tuple[str, str]:
    """The key and the effect; a node has at most one taint with the same key and effect."""
    return str(taint.get("key") or ""), str(taint.get("effect") or "")


def format_taint(taint: Taint) -> str:
    """A taint in kubectl's notation: key=value:Effect."""
    value = taint.get("value")
    return f"{taint['key']}={value}:{taint['effect']}" if value else f"{taint['key']}:{taint['effect']}"


def plain_taint(taint: Taint) -> dict[str, str]:
    """The taint's key, its effect and, unless it is empty, its value, without other fields, such as timeAdded."""
    value = {"value": taint["value"]} if taint.get("value") else {}
    return {"key": taint["key"], **value, "effect": taint["effect"]}


def merge_taints(
    live: t.Iterable[Taint],
    recorded: t.Collection[str],
    desired: t.Iterable[Taint],
    removes: t.Callable[[tuple[str, str]], bool],
) -> tuple[list[dict[str, t.Any]] | None, list[str]]:
    """The complete list of the node's taints after the merge (None: unchanged), and the owned taints in the format of format_taint().

    `recorded` contains the taints that the owner has recorded on the node. A recorded taint that is not desired is removed if `removes` accepts its
    identity. A foreign taint is kept unless its value differs from the desired value. In that case, it is replaced and counts as owned from then on.
    """
    missing = {taint_identity(taint): taint for taint in desired}
    merged: list[dict[str, t.Any]] = []
    owned: list[str] = []
    changed = False
    for taint in live:
        identity = taint_identity(taint)
        replacement = missing.pop(identity, None)
        is_owned = format_taint(taint) in recorded
        if replacement is None and is_owned and removes(identity):
            changed = True
            continue
        if replacement is not None and format_taint(replacement) != format_taint(taint):
            is_owned = changed = True
            taint = plain_taint(replacement)
        merged.append(dict(taint))
        if is_owned:
            owned.append(format_taint(taint))
    merged += [plain_taint(taint) for taint in missing.values()]
    owned += [format_taint(taint) for taint in missing.values()]
    return (merged if changed or missing else None), sorted(owned)


def toleration_of(taint: Taint) -> dict[str, str]:
    """The toleration for exactly this taint."""
    operator = {"operator": "Equal", "value": taint["value"]} if taint.get("value") else {"operator": "Exists"}
    return {"key": taint["key"], **operator, "effect": taint["effect"]}


def format_toleration(toleration: Toleration) -> str:
    """The taint that a toleration matches, in kubectl's notation."""
    value = f"={toleration['value']}" if toleration.get("value") else ""
    return f"{toleration.get('key') or '*'}{value}:{toleration.get('effect') or '*'}"


def toleration_identity(toleration: Toleration) -> tuple[t.Any, ...]:
    """A key that is equal for equivalent tolerations, regardless of explicit defaults."""
    operator = toleration.get("operator") or "Equal"
    value = "" if operator == "Exists" else toleration.get("value") or ""
    return (
        toleration.get("key") or "",
        operator,
        value,
        toleration.get("effect") or "",
        toleration.get("tolerationSeconds"),
    )


def temporary_reason(key: str) -> str:
    """The reason why this taint is temporary: which component sets it or removes it; empty if no known component does."""
    if _CSI_STARTUP.fullmatch(key):
        return "the CSI driver removes it once the node has started"
    return next(
        (reason for start, reason in _TEMPORARY if key == start or (start.endswith("/") and key.startswith(start))),
        "",
    )


def is_temporary(taint: Taint) -> bool:
    """Whether a component sets the taint for a temporary state of a node, such as not ready, unschedulable or about to be removed."""
    return bool(temporary_reason(str(taint.get("key") or "")))


def is_covered(toleration: Toleration, others: t.Iterable[Toleration]) -> bool:
    """Whether one of the other tolerations tolerates all taints that this toleration tolerates, without a time limit."""
    return any(_covers(other, toleration) for other in others)


def _covers(wider: Toleration, toleration: Toleration) -> bool:
    if wider.get("tolerationSeconds") is not None and toleration_identity(wider) != toleration_identity(toleration):
        return False
    # Unless the wider toleration has the operator Exists, both values must be equal, like those of a toleration and a taint.
    compares_values = {wider.get("operator"), toleration.get("operator")} <= {None, "", "Equal"}
    return (wider.get("operator") == "Exists" or compares_values) and _tolerates(wider, toleration)


def untolerated_taints(tolerations: t.Sequence[Toleration], taints: t.Iterable[Taint]) -> list[Taint]:
    """The taints that keep a pod with these tolerations away (kubernetes v1.36 component-helpers scheduling/corev1)."""
    return [
        taint
        for taint in taints
        if taint.get("effect") in _BLOCKING_EFFECTS and not any(_tolerates(item, taint) for item in tolerations)
    ]


def needed_tolerations(obsolete: t.Iterable[_T], others: t.Sequence[Toleration], taints: t.Iterable[Taint]) -> list[_T]:
    """The obsolete tolerations that are still needed, because the `others`, which remain, do not tolerate all taints that exist on nodes.

    Temporary taints, such as the taint of a cordoned node, do not count.
    """
    lasting = [taint for taint in taints if not is_temporary(taint)]
    remaining = untolerated_taints(others, lasting)
    return [item for item in obsolete if any(_tolerates(item, taint) for taint in remaining)]


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    exists = toleration.get("operator") == "Exists"
    if not toleration.get("key"):
        return exists
    if toleration["key"] != taint.get("key"):
        return False
    return exists or (toleration.get("value") or "") == (taint.get("value") or "")
