# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On which nodes a DaemonSet's pods belong: the DaemonSet controller's own rule, so that its count need not be trusted.

Source: kubernetes v1.36 pkg/controller/daemon/daemon_controller.go (NodeShouldRunDaemonPod) and util/daemonset_util.go.
"""

from __future__ import annotations

import typing as t

from ..catalog.taints import untolerated_taints

Document = t.Mapping[str, t.Any]

# What the controller adds to every daemon pod.
_ALWAYS_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_HOST_NETWORK_TOLERATED = (("node.kubernetes.io/network-unavailable", "NoSchedule"),)


def expected_nodes(daemonset: Document, nodes: t.Iterable[Document]) -> list[str]:
    """The names of the nodes on which this DaemonSet should have a pod."""
    spec = daemonset["spec"]["template"]["spec"]
    return [node["metadata"]["name"] for node in nodes if selects(spec, node) and not untolerated(spec, node)]


def lingering_nodes(daemonset: Document, nodes: t.Iterable[Document]) -> list[str]:
    """The nodes that may keep a pod of this DaemonSet though a new one would be kept away: untolerated, but not NoExecute.

    Its controller does not look at the DaemonSet again when such a taint comes, so its numbers may or may not count these
    nodes (kubernetes pkg/controller/daemon, syncNodeUpdate).
    """
    spec = daemonset["spec"]["template"]["spec"]
    found = []
    for node in nodes:
        effects = {taint.get("effect") for taint in untolerated(spec, node)}
        if effects == {"NoSchedule"} and selects(spec, node):
            found.append(node["metadata"]["name"])
    return found


def selects(pod_spec: Document, node: Document) -> bool:
    """Whether node selector and required node affinity admit the node."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (pod_spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(_term(term, node) for term in required.get("nodeSelectorTerms") or [])


def untolerated(pod_spec: Document, node: Document) -> list[Document]:
    """The node's taints that keep a daemon pod of this spec away."""
    tolerations = list(pod_spec.get("tolerations") or [])
    known = _ALWAYS_TOLERATED + (_HOST_NETWORK_TOLERATED if pod_spec.get("hostNetwork") else ())
    tolerations += [{"key": key, "operator": "Exists", "effect": effect} for key, effect in known]
    return untolerated_taints(tolerations, node.get("spec", {}).get("taints") or [])


def _term(term: Document, node: Document) -> bool:
    labels = node["metadata"].get("labels") or {}
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    names = {"metadata.name": node["metadata"]["name"]}
    return all(_matches(rule, labels) for rule in expressions) and all(_matches(rule, names) for rule in fields)


def _matches(rule: Document, found: Document) -> bool:
    value, wanted = found.get(rule["key"]), rule.get("values") or []
    operator = rule["operator"]
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator == "NotIn":
        return value not in wanted
    if value is None:
        return False
    if operator == "In":
        return value in wanted
    try:
        return int(value) > int(wanted[0]) if operator == "Gt" else int(value) < int(wanted[0])
    except (ValueError, IndexError):
        return False
