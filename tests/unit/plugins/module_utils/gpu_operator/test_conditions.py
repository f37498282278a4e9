# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The conditions that known issues need, as nodes and pods show them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.distributions import (
    CONDITIONS,
    KNOWN_ISSUES,
    MODEL_CONDITION,
)
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.detect import cluster_conditions
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node

RELEASE = "feature.node.kubernetes.io/system-os_release"
GPU = {"nvidia.com/gpu.present": "true"}


@pytest.mark.parametrize(
    ("node", "conditions"),
    [
        (Node("n", GPU), set()),
        (Node("n", kubelet_version="v1+k3s1"), set()),
        (Node("n", GPU, kubelet_version="v1+k3s1"), {"k3s", "k3s-or-rke2"}),
        (Node("n", GPU, kubelet_version="v1+rke2r1"), {"rke2", "k3s-or-rke2"}),
        (Node("n", GPU, container_runtime="cri-o://1.31.6"), {"cri-o"}),
        (Node("n", GPU, container_runtime="containerd://2.1.4"), {"containerd"}),
        (Node("n", GPU, container_runtime="docker://27"), set()),
        (Node("n", {**GPU, "feature.node.kubernetes.io/pci-15b3.present": "true"}), {"rdma-nic"}),
        (Node("n", {**GPU, "feature.node.kubernetes.io/pci-0200_15b3.present": "true"}), {"rdma-nic"}),
        (Node("n", {**GPU, "nvidia.com/gpu.product": "NVIDIA-B200"}), {"model B200"}),
        (Node("n", {**GPU, "node.openshift.io/os_id": "rhcos"}), {"openshift"}),
        (Node("n", {**GPU, f"{RELEASE}.ID": "rhel", f"{RELEASE}.VERSION_ID": "8.10"}), {"rhel8"}),
        (Node("n", {**GPU, f"{RELEASE}.ID": "rhel", f"{RELEASE}.VERSION_ID": "9.6"}), set()),
        (Node("n", {**GPU, "feature.node.kubernetes.io/kernel-selinux.enabled": "true"}), {"selinux"}),
        (Node("n", {**GPU, "node.kubernetes.io/instance-type": "rke2"}), {"rke2", "k3s-or-rke2"}),
        (Node("n", {**GPU, "cloud.google.com/gke-nodepool": "x"}), {"gke"}),
        (Node("n", {**GPU, "nvidia.com/vgpu.present": "true"}), {"vgpu"}),
        (Node("n", {"node.openshift.io/os_id": "rhcos"}), set()),
    ],
)
def test_conditions_of_nodes(node: Node, conditions: set[str]) -> None:
    assert cluster_conditions([node]) == conditions


@pytest.mark.parametrize(
    ("spec", "conditions"), [({"hostUsers": False}, {"host-users"}), ({"hostUsers": True}, set()), ({}, set())]
)
def test_conditions_of_pods(spec: dict[str, t.Any], conditions: set[str]) -> None:
    assert cluster_conditions([], [{"spec": spec}]) == conditions


def test_issues_have_known_conditions() -> None:
    used = {
        condition
        for issue in KNOWN_ISSUES
        for condition in issue.conditions
        if not condition.startswith(MODEL_CONDITION)
    }
    assert used <= CONDITIONS.keys()
    assert all(issue.conditions for issue in KNOWN_ISSUES)
