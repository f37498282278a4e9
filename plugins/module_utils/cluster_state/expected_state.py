# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The labels and resources of a pool's node once NVIDIA's operands have applied its configuration (pure).

Sources: k8s-device-plugin internal/lm (labels), internal/rm (resources), and both run on an H200.
"""

from __future__ import annotations

import typing as t

from ..catalog.names import MIG_CAPABLE_LABEL, MIG_CONFIG_LABEL, MIG_INFIX
from ..mig import layout as layouts
from ..nvidia_config import mig_parted
from .node import Node

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan


def expected_gpus(node: Node, pool: PoolPlan) -> int:
    """The physical GPUs of a node of the pool.

    Under the MIG strategy single GFD counts MIG devices; then it is the recorded number, else the pool's gpus_per_node, else the number of
    devices divided by those of one GPU in the pool's layout.
    """
    if MIG_INFIX not in node.product:
        return node.gpus
    if node.recorded_gpus or pool.gpus_per_node:
        return node.recorded_gpus or pool.gpus_per_node or 0
    layout = pool.for_node(node.name).sharing.layout
    devices = sum(layouts.on_gpu(layout, 0).values())
    return max(1, node.gpus // devices) if devices and layouts.uniform(layout) else node.gpus


def expected_offers(node: Node, pool: PoolPlan) -> dict[str, int]:
    """How much of each resource the node offers; empty where its GPUs are not for containers."""
    if pool.without_containers:
        return {}
    return pool.for_node(node.name).sharing.offers(expected_gpus(node, pool))


def device_count(node: Node, pool: PoolPlan) -> int:
    """The number of devices of the node for the pool; before its demand is allocated, as many as it offers."""
    if pool.sharing.demand and node.name not in pool.by_node:
        return pool.sharing.devices({name: node.allocatable.get(name, 0) for name in pool.resources})
    return pool.sharing.devices(expected_offers(node, pool))


def pool_resources(nodes: t.Sequence[Node], pool: PoolPlan) -> dict[str, t.Any]:
    """What the nodes of a pool are expected to offer and do offer, in total: `resource` and its counts, and `resources`."""
    offers = [(node, expected_offers(node, pool)) for node in nodes]
    # A node that a demand does not change may offer other devices than demanded.
    names = dict.fromkeys([*pool.resources, *sorted({name for dummy, expected in offers for name in expected})])
    resources = {
        name: {
            "expected": sum(expected.get(name, 0) for dummy, expected in offers),
            "allocatable": sum(node.allocatable.get(name, 0) for node, dummy in offers),
        }
        for name in names
    }
    return {
        "resource": pool.resource,
        "expected": sum(counts["expected"] for counts in resources.values()),
        "allocatable": sum(counts["allocatable"] for counts in resources.values()),
        "resources": resources,
    }


def expected_labels(node: Node, pool: PoolPlan) -> dict[str, str]:
    """The labels of gpu-feature-discovery for the pool's sharing."""
    sharing = pool.for_node(node.name).sharing
    return sharing.definition.labels(sharing, node.model, expected_devices(node, pool))


def expected_mig_config(node: Node, pool: PoolPlan, *, managed: bool) -> str | None:
    """The value of nvidia.com/mig.config; None where the label is left to the operator.

    A node whose GPUs were partitioned before gets the entry that disables MIG, and keeps it (`managed`: the label is one of the pool's).
    """
    mig_key = pool.for_node(node.name).mig_key
    if mig_key:
        return mig_key
    live = node.labels.get(MIG_CONFIG_LABEL)
    return mig_parted.DISABLED if live and (live != mig_parted.DISABLED or managed) else None


def lacks_mig_support(node: Node, pool: PoolPlan) -> bool:
    """Whether the pool partitions GPUs and this node's GPUs do not support that."""
    partitions = pool.sharing.definition.partitions_gpus
    return partitions and node.discovered and node.labels.get(MIG_CAPABLE_LABEL) != "true"


def expected_devices(node: Node, pool: PoolPlan) -> dict[str, int]:
    """The MIG devices of a node of the pool, by profile; empty where its GPUs stay whole."""
    counts: dict[str, int] = {}
    layout = pool.for_node(node.name).sharing.layout
    for index in range(expected_gpus(node, pool) if layout else 0):
        for profile, count in layouts.on_gpu(layout, index).items():
            counts[profile] = counts.get(profile, 0) + count
    return counts


def is_gpu_resource(name: str) -> bool:
    """Whether a resource is one of GPUs or MIG devices."""
    return name.startswith(("nvidia.com/gpu", "nvidia.com/mig-"))
