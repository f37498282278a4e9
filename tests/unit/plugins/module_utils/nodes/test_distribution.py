# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The distribution of a node, by what its kubelet reports and by its labels."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.distributions import BY_NAME
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import (
    Node,
    contradiction,
    distribution_of,
    distributions_of,
    parse_node,
)
from lab.fleet import Group, Template
from lab.systems import DISTRIBUTIONS


@pytest.mark.parametrize(
    ("node", "name"),
    [
        (Node("n", kubelet_version="v1.33.5+k3s1"), "k3s"),
        (Node("n", kubelet_version="v1.33.5+rke2r1"), "rke2"),
        (Node("n", kubelet_version="v1.33.4+k0s.0"), "k0s"),
        (Node("n", kubelet_version="v1.33.4+k0s"), "k0s"),
        (Node("n", kubelet_version="v1.33.4"), None),
        (Node("n", kubelet_version="v1.33.4-eks-1234"), None),
        (Node("n", kubelet_version="v1.33.4+vmware.1"), None),
        (Node("n", {"microk8s.io/cluster": "true"}, kubelet_version="v1.33.4"), "microk8s"),
        (Node("n", {"node.kubernetes.io/instance-type": "rke2"}), "rke2"),
        # RHCOS up to OpenShift 4.18, RHEL from 4.19 on.
        (Node("n", {"node.openshift.io/os_id": "rhcos"}, kubelet_version="v1.31.6"), "openshift"),
        (Node("n", {"node.openshift.io/os_id": "rhel"}, kubelet_version="v1.33.5"), "openshift"),
        # The version is the kubelet's own, and a label may be left over.
        (Node("n", {"microk8s.io/cluster": "true"}, kubelet_version="v1.33.5+k3s1"), "k3s"),
        (
            Node("n", annotations={"kubeadm.alpha.kubernetes.io/cri-socket": "unix:///run/containerd/containerd.sock"}),
            "kubeadm",
        ),
        (Node("n"), None),
    ],
)
def test_distribution_of(node: Node, name: str | None) -> None:
    actual = distribution_of(node)
    assert (actual.name if actual else None) == name


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_labs_nodes_are_recognized(name: str) -> None:
    node = parse_node(Template(Group("g", 1, distribution=name), 10250).node("n"))
    actual = distribution_of(node)
    assert actual is not None
    assert actual.name == name


def test_distributions_of() -> None:
    nodes = [
        Node("b", kubelet_version="v1+k3s1"),
        Node("a", kubelet_version="v1+k3s1"),
        Node("c"),
        Node("d", kubelet_version="v1+rke2r1"),
    ]
    assert distributions_of(nodes) == {"rke2": ["d"], "k3s": ["a", "b"], "": ["c"]}
    assert distributions_of([]) == {}


PLAIN = Node("a", kubelet_version="v1.36.4")
K3S_NODE = Node("b", kubelet_version="v1.36.4+k3s1")
RKE2_NODE = Node("c", kubelet_version="v1.36.4+rke2r1")
MICROK8S_NODE = Node("d", {"microk8s.io/cluster": "true"}, kubelet_version="v1.36.4")
KUBEADM_NODE = Node(
    "e", annotations={"kubeadm.alpha.kubernetes.io/cri-socket": "unix:///x.sock"}, kubelet_version="v1.35.1"
)


@pytest.mark.parametrize(
    ("declared", "nodes", "shown"),
    [
        ("rke2", [RKE2_NODE], ""),
        (
            "rke2",
            [PLAIN],
            "rke2, but 1 node(s) are not recognized as RKE2, which is recognized by a kubelet version with ",
        ),
        ("rke2", [PLAIN, RKE2_NODE, K3S_NODE], "+rke2r: a (kubelet v1.36.4), b (K3s, kubelet v1.36.4+k3s1). With"),
        ("microk8s", [MICROK8S_NODE], ""),
        ("microk8s", [PLAIN], "node label microk8s.io/cluster=true: a (kubelet v1.36.4)."),
        # A kubeadm node may have nothing that identifies it.
        ("kubeadm", [PLAIN, KUBEADM_NODE], ""),
        ("kubeadm", [RKE2_NODE], "1 node(s) are not recognized as kubeadm: c (RKE2, kubelet v1.36.4+rke2r1)."),
        ("k0s", [KUBEADM_NODE], "e (kubeadm, kubelet v1.35.1)"),
        # The kubelet has not reported its version yet.
        ("rke2", [Node("new")], ""),
        ("rke2", [], ""),
    ],
)
def test_a_declared_distribution_that_nodes_contradict(declared: str, nodes: list[Node], shown: str) -> None:
    text = contradiction(BY_NAME[declared], nodes)
    assert bool(text) == bool(shown)
    assert shown in text
