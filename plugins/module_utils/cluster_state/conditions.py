# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derives the cluster conditions on which known issues depend (catalog/known_issues.py) from nodes and pods (pure)."""

from __future__ import annotations

import typing as t

from ..catalog.known_issues import HOST_USERS
from ..catalog.names import NFD_PREFIX
from .distribution import distribution_of

if t.TYPE_CHECKING:
    from .node import Node

# The labels that NFD sets for a Mellanox network adapter, with the PCI settings of the operator's NFD or with NFD's own defaults.
NETWORK_ADAPTER_LABELS = tuple(f"{NFD_PREFIX}pci-{name}.present" for name in ("15b3", "0200_15b3", "0207_15b3"))
_RUNTIMES = ("containerd", "cri-o")


def cluster_conditions(nodes: t.Iterable[Node], pods: t.Iterable[t.Mapping[str, t.Any]] = ()) -> set[str]:
    """The conditions that the GPU nodes and these pods meet."""
    conditions: set[str] = set()
    for node in nodes:
        if node.has_gpu:
            conditions.update(_node_conditions(node))
    if any((pod.get("spec") or {}).get("hostUsers") is False for pod in pods):
        conditions.add(HOST_USERS)
    return conditions


def has_network_adapter(node: Node) -> bool:
    """Whether NFD has found a Mellanox network adapter in the node."""
    return any(node.labels.get(label) == "true" for label in NETWORK_ADAPTER_LABELS)


def _node_conditions(node: Node) -> t.Iterator[str]:
    labels = node.labels
    release = labels.get(f"{NFD_PREFIX}system-os_release.VERSION_ID", "")
    if labels.get(f"{NFD_PREFIX}system-os_release.ID") == "rhel" and release.partition(".")[0] == "8":
        yield "rhel8"
    if labels.get(f"{NFD_PREFIX}kernel-selinux.enabled") == "true":
        yield "selinux"
    distribution = distribution_of(node)
    if distribution is not None:
        yield from distribution.conditions
    runtime = node.container_runtime.partition(":")[0]
    if runtime in _RUNTIMES:
        yield runtime
    if any(key.startswith("cloud.google.com/gke-") for key in labels):
        yield "gke"
    if labels.get("nvidia.com/vgpu.present") == "true":
        yield "vgpu"
    if has_network_adapter(node):
        yield "rdma-nic"
    for word in node.model.removeprefix("NVIDIA-").split("-")[:1]:
        if word:
            yield f"model {word}"
