# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node of a pool shows once NVIDIA's agents have followed: labels and resources (pure).

Sources: k8s-device-plugin internal/lm (labels), internal/rm (resources), and both run on an H200.
"""

from __future__ import annotations

import typing as t

from ..catalog.names import (
    COUNT_LABEL,
    MIG_CAPABLE_LABEL,
    MIG_CONFIG_LABEL,
    MIG_INFIX,
    MIG_STRATEGY_LABEL,
    PRODUCT_LABEL,
    REPLICAS_LABEL,
    STRATEGY_LABEL,
)
from ..mig import layout as mig
from ..nvidia_config import mig_parted
from ..nvidia_config.device_plugin import EXCLUSIVE, MIG, MPS, TIME_SLICING
from .node import Node

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan

_MPS_CAPABLE = "nvidia.com/mps.capable"


def expected_gpus(node: Node, pool: PoolPlan) -> int:
    """The physical GPUs of a node of the pool.

    Under the strategy `single` GFD counts MIG devices; then it is what was counted before, else what the pool declares,
    else as many as the pool's layout makes of that count.
    """
    if MIG_INFIX not in node.product:
        return node.gpus
    if node.noted_gpus or pool.gpus_per_node:
        return node.noted_gpus or pool.gpus_per_node or 0
    layout = pool.on(node.name).sharing.layout
    expected_devices = sum(mig.on_gpu(layout, 0).values())
    return max(1, node.gpus // expected_devices) if expected_devices and mig.uniform(layout) else node.gpus


def resources(node: Node, pool: PoolPlan) -> dict[str, int]:
    """How much of each resource the node offers; nothing where its GPUs are not for containers."""
    if pool.without_containers:
        return {}
    return pool.on(node.name).sharing.offers(expected_gpus(node, pool))


def parts(node: Node, pool: PoolPlan) -> int:
    """How many devices the node has for the pool; while its demand is not spread over nodes, as many as it shows."""
    if pool.sharing.demand and node.name not in pool.by_node:
        return pool.sharing.devices({name: node.allocatable.get(name, 0) for name in pool.resources})
    return pool.sharing.devices(resources(node, pool))


def expected_resources(nodes: t.Sequence[Node], pool: PoolPlan) -> dict[str, t.Any]:
    """What the nodes of a pool are to offer and do offer, all together: `resource` and its counts, and `resources`."""
    of_each = [(node, resources(node, pool)) for node in nodes]
    # A node that a demand does not touch may offer other devices than it asks for.
    names = dict.fromkeys([*pool.resources, *sorted({name for dummy, wanted in of_each for name in wanted})])
    each = {
        name: {
            "wanted": sum(wanted.get(name, 0) for dummy, wanted in of_each),
            "allocatable": sum(node.allocatable.get(name, 0) for node, dummy in of_each),
        }
        for name in names
    }
    return {
        "resource": pool.resource,
        "wanted": sum(counts["wanted"] for counts in each.values()),
        "allocatable": sum(counts["allocatable"] for counts in each.values()),
        "resources": each,
    }


def labels(node: Node, pool: PoolPlan) -> dict[str, str]:
    """The labels of gpu-feature-discovery that go with the pool's sharing."""
    sharing = pool.on(node.name).sharing
    if sharing.mode != MIG:
        found = {
            PRODUCT_LABEL: node.model + sharing.suffix,
            REPLICAS_LABEL: str(sharing.replicas),
            STRATEGY_LABEL: sharing.mode,
        }
        return {**found, _MPS_CAPABLE: "true"} if sharing.mode == MPS else found
    found = {MIG_STRATEGY_LABEL: sharing.strategy}
    how = {"replicas": str(sharing.replicas), "sharing-strategy": TIME_SLICING if sharing.shared else EXCLUSIVE}
    counts = expected_devices(node, pool) or dict.fromkeys(mig.profiles(sharing.layout), 0)
    if sharing.strategy == mig.SINGLE:
        (profile, count), *dummy = counts.items()
        product = mig.single_product(node.model, profile, sharing.suffix)
        found.update({PRODUCT_LABEL: product, COUNT_LABEL: str(count), REPLICAS_LABEL: how["replicas"]})
        return {**found, STRATEGY_LABEL: how["sharing-strategy"]}
    for profile, count in counts.items():
        prefix = mig.resource(profile)
        found[f"{prefix}.count"] = str(count)
        found.update({f"{prefix}.{key}": value for key, value in how.items()})
    return found


def mig_config(node: Node, pool: PoolPlan, *, ours: bool) -> str | None:
    """The value of nvidia.com/mig.config; None where the label is left to the operator.

    A node whose GPUs were cut and no longer are to be is told so by name, and keeps being told (`ours`).
    """
    mig_key = pool.on(node.name).mig_key
    if mig_key:
        return mig_key
    live = node.labels.get(MIG_CONFIG_LABEL)
    return mig_parted.DISABLED if live and (live != mig_parted.DISABLED or ours) else None


def incapable_devices(node: Node, pool: PoolPlan) -> bool:
    """Whether the pool's GPUs are to be cut and this node's cannot be."""
    return pool.mode == MIG and node.discovered and node.labels.get(MIG_CAPABLE_LABEL) != "true"


def expected_devices(node: Node, pool: PoolPlan) -> dict[str, int]:
    """The MIG devices of a node of the pool, by profile; none where its GPUs stay whole."""
    counts: dict[str, int] = {}
    layout = pool.on(node.name).sharing.layout
    for index in range(expected_gpus(node, pool)):
        for profile, count in mig.on_gpu(layout, index).items():
            counts[profile] = counts.get(profile, 0) + count
    return counts


def of_gpus(key: str) -> bool:
    """Whether a resource is one of GPUs or their parts."""
    return key.startswith(("nvidia.com/gpu", "nvidia.com/mig-"))
