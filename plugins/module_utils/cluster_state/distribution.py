# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognizes the Kubernetes distribution of nodes by their labels and by the versions that their kubelets report (pure).

Kubelet versions have a suffix, as in v1.33.5+k3s1, v1.33.5+rke2r1 and v1.33.4+k0s.0. MicroK8s labels its nodes with microk8s.io/cluster=true
(documentation of microk8s-addons and launcher). The only mark of a kubeadm node is the annotation with its CRI socket, which kubeadm v1.36 no
longer writes.
"""

from __future__ import annotations

import typing as t

from ..catalog.distributions import BY_NAME, DISTRIBUTIONS, Distribution
from ..catalog.olm import OPENSHIFT
from ..schema.messages import abbreviate

if t.TYPE_CHECKING:
    from .node import Node

CONTAINERD = "containerd://"


def distribution_of(node: Node) -> Distribution | None:
    """The distribution of a node; None if nothing identifies it."""
    suffix = node.kubelet_version.partition("+")[2]
    for each in DISTRIBUTIONS:
        if each.version_suffix and suffix.startswith(each.version_suffix):
            return each
    for each in DISTRIBUTIONS:
        if each.has_label(node.labels):
            return each
    return next((each for each in DISTRIBUTIONS if each.annotation in node.annotations), None)


def is_openshift(node: Node) -> bool:
    """Whether a node belongs to an OpenShift cluster."""
    distribution = distribution_of(node)
    return distribution is not None and distribution.name == OPENSHIFT


def other_nodes(declared: Distribution, nodes: t.Iterable[Node]) -> list[Node]:
    """The nodes that do not belong to this distribution, except nodes whose kubelet has not reported its version.

    A node whose distribution is unknown is included only if all nodes of the declared distribution have a mark.
    """
    return [
        node
        for node in nodes
        if node.kubelet_version
        and (distribution := distribution_of(node)) is not declared
        and (distribution is not None or bool(declared.mark))
    ]


def contradiction(declared: Distribution, nodes: t.Iterable[Node]) -> str:
    """The warning that nodes do not belong to the declared distribution; empty if all nodes belong to it."""
    others = other_nodes(declared, nodes)
    if not others:
        return ""
    shown = abbreviate(sorted(f"{node.name} ({_describe(node)})" for node in others))
    mark = f", which is recognized by a {declared.mark}" if declared.mark else ""
    return (
        f"gpu_cluster.distribution is {declared.name}, but {len(others)} node(s) are not recognized as {declared.title}{mark}: {shown}. With settings for "
        "a different distribution, the container toolkit does not find containerd; correct or remove gpu_cluster.distribution"
    )


def _describe(node: Node) -> str:
    distribution = distribution_of(node)
    return f"{f'{distribution.title}, ' if distribution else ''}kubelet {node.kubelet_version}"


def distributions_of(nodes: t.Iterable[Node]) -> dict[str, list[str]]:
    """Node names by distribution name, in the order of the catalog; nodes of an unknown distribution are listed under an empty name."""
    by_distribution: dict[str, list[str]] = {}
    for node in nodes:
        distribution = distribution_of(node)
        by_distribution.setdefault(distribution.name if distribution else "", []).append(node.name)
    order = [*BY_NAME, ""]
    return {name: sorted(by_distribution[name]) for name in sorted(by_distribution, key=order.index)}
