# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds nodes on which the operator's driver container cannot work or may fail, according to the kubelet and NFD (pure).

The operator appends the node's operating system to the tag of the driver's image, and NVIDIA publishes images only for a few systems
(gpu-operator/platform-support.rst of NVIDIA/cloud-native-docs; Fedora CoreOS: gpu-operator issues 696 and 2664). NFD does not report Secure
Boot, and it reports loaded kernel modules only if a rule is configured. The derived values for NFD contain this rule
(catalog/node_feature_discovery.py).
"""

from __future__ import annotations

import typing as t

from ..catalog.driver_images import PUBLISHED_SYSTEMS, UNPUBLISHED_OS_IMAGES
from ..catalog.names import DRIVER_DEPLOY_LABEL, NFD_PREFIX, NOUVEAU_LABEL, SECURE_BOOT_LABEL
from ..common.nested import get_nested
from ..schema.driver import driver_of_values, effective_driver
from ..schema.messages import abbreviate_nodes
from .conditions import has_network_adapter
from .pool_assignment import assign_pools, may_match, undiscovered_candidates

if t.TYPE_CHECKING:
    from ..pools.plan import Plan
    from ..schema.types import Document
    from .node import Node

_REMEDY = (
    "Install the driver on these nodes and label them nvidia.com/gpu.deploy.driver=pre-installed (on all GPU nodes: driver.enabled: false in "
    "gpu_cluster.operator), or build an image and set driver.repository in their pool or in gpu_cluster.operator.values"
)
_MOFED_LABEL = "network.nvidia.com/operator.mofed.wait"


def nodes_without_images(plan: Plan, nodes: t.Iterable[Node]) -> list[str]:
    """The GPU nodes without a driver for which no driver image exists; while no GPU node is known, all nodes if no image exists for any of them."""
    if not _installs_driver(plan):
        return []
    nodes = list(nodes)
    drivers = possible_drivers(plan, nodes)
    gpu_nodes = [node for node in nodes if node.has_gpu]
    without = sorted(
        node.name
        for node in gpu_nodes or nodes
        if _gets_driver(node)
        and not (node.driver or _has_image(node))
        and not any(driver.get("repository") for driver in drivers[node.name])
    )
    return without if gpu_nodes or len(without) == len(nodes) else []


def possible_drivers(plan: Plan, nodes: t.Sequence[Node]) -> dict[str, list[Document]]:
    """For each node, the driver settings (keys as in `driver`) of its pool or, without a pool, of the operator.

    While a node's pool is not known, the list contains the settings of each possible pool.
    """
    inherited = driver_of_values(plan.operator.values)
    membership = assign_pools(plan.pools, nodes)
    by_pool = {pool.name: effective_driver(inherited, pool.driver) for pool in plan.pools}
    pool_of = {name: pool for pool, names in membership.by_pool.items() for name in names}
    undiscovered = set(undiscovered_candidates(plan.pools, nodes, membership))
    drivers: dict[str, list[Document]] = {}
    for node in nodes:
        pools = []
        if node.name in pool_of:
            pools = [pool_of[node.name]]
        elif node.name in undiscovered or not node.has_gpu:
            pools = [pool.name for pool in plan.pools if may_match(pool, node)]
        drivers[node.name] = [by_pool[name] for name in pools] or [inherited]
    return drivers


def missing_image_problem(plan: Plan, nodes: t.Iterable[Node]) -> str:
    """The reason why the driver cannot be installed, for a check before the installation; empty if it can be installed."""
    nodes = list(nodes)
    without = nodes_without_images(plan, nodes)
    if not without:
        return ""
    systems = sorted({_system(node) for node in nodes if node.name in without})
    return f"{abbreviate_nodes(without)}: NVIDIA publishes no driver image for {', '.join(systems)}, so the driver pods there could not start. {_REMEDY}."


def driver_warnings(plan: Plan, nodes: t.Iterable[Node]) -> list[str]:
    """A sentence for each reason why driver containers may fail on GPU nodes."""
    nodes = list(nodes)
    problem = missing_image_problem(plan, nodes)
    warnings = [problem] if problem else []
    if not _installs_driver(plan):
        return warnings
    drivers = [node for node in nodes if node.has_gpu and _gets_driver(node)]
    by_node = possible_drivers(plan, nodes)
    nouveau = sorted(node.name for node in drivers if node.labels.get(NOUVEAU_LABEL) == "true" and not node.driver)
    if nouveau:
        warnings.append(
            f"{abbreviate_nodes(nouveau)}: the kernel module nouveau is loaded. The driver pod tries to unload it, which fails while a console or "
            "another process uses it; blacklist nouveau on these nodes and reboot them."
        )
    secured = sorted(
        node.name
        for node in drivers
        if node.labels.get(SECURE_BOOT_LABEL) == "true"
        and not any(driver.get("precompiled") for driver in by_node[node.name])
    )
    if secured:
        warnings.append(
            f"{abbreviate_nodes(secured)}: Secure Boot is enabled, so the kernel rejects the modules that the driver pod compiles. Use a driver with "
            "signed modules (driver.precompiled: true in their pool or in gpu_cluster.operator, where NVIDIA publishes one), install a signed driver "
            "on the nodes, or disable Secure Boot."
        )
    return [*warnings, *_network_warnings(plan, drivers)]


def _network_warnings(plan: Plan, drivers: t.Sequence[Node]) -> t.Iterator[str]:
    """Yield warnings about GPUDirect RDMA; if it is enabled, driver pods wait for the network drivers (k8s-driver-manager cmd/driver-manager/main.go)."""
    rdma = get_nested(plan.operator.values, "driver", "rdma") or {}
    if not rdma.get("enabled") or not drivers:
        return
    without = sorted(node.name for node in drivers if node.has_nfd_labels and not has_network_adapter(node))
    if without:
        yield f"{abbreviate_nodes(without)}: GPUDirect RDMA is enabled, but NFD has found no NVIDIA (Mellanox) network adapter."
    unmanaged = sorted(node.name for node in drivers if has_network_adapter(node) and _MOFED_LABEL not in node.labels)
    if unmanaged and not rdma.get("useHostMofed"):
        yield (
            f"{abbreviate_nodes(unmanaged)}: GPUDirect RDMA is enabled, and no Network Operator manages the network drivers there (label "
            f"{_MOFED_LABEL}). Install the Network Operator, or install MLNX_OFED or DOCA-OFED on the nodes and set driver.rdma.use_host_mofed."
        )


def _installs_driver(plan: Plan) -> bool:
    return get_nested(plan.operator.values, "driver", "enabled") is not False


def _gets_driver(node: Node) -> bool:
    return node.labels.get(DRIVER_DEPLOY_LABEL) not in ("false", "pre-installed")


def _has_image(node: Node) -> bool:
    system = node.labels.get(f"{NFD_PREFIX}system-os_release.ID", "")
    return system in PUBLISHED_SYSTEMS if system else not node.os_image.startswith(UNPUBLISHED_OS_IMAGES)


def _system(node: Node) -> str:
    """The system's name from the kubelet, followed by the system as in image tags in parentheses; only one of them if the other is not known."""
    parts = [node.labels.get(f"{NFD_PREFIX}system-os_release.{part}", "") for part in ("ID", "VERSION_ID")]
    return f"{node.os_image} ({''.join(parts)})" if all(parts) and node.os_image else node.os_image or "".join(parts)
