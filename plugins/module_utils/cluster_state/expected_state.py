# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Computes the labels, resources and MIG layouts of a pool's node once NVIDIA's operands have applied the pool's configuration (pure).

Sources: k8s-device-plugin internal/lm (labels) and internal/rm (resources), and tests of both on an H200.
"""

from __future__ import annotations

import typing as t
from collections import Counter

from ..catalog import mig as geometries
from ..catalog import models
from ..catalog.names import MIG_CAPABLE_LABEL, MIG_CONFIG_LABEL, MIG_INFIX
from ..mig import layout as layouts
from ..mig.placement import place, unused
from ..nvidia_config import mig_parted
from .node import Node
from .ownership import POOL_OWNER, recorded

if t.TYPE_CHECKING:
    from ..catalog.mig import Geometry
    from ..pools.plan import PoolPlan


def expected_gpus(node: Node, pool: PoolPlan) -> int:
    """The number of physical GPUs of a node in the pool.

    Under the MIG strategy single, GFD counts MIG devices. The result is then the first of these numbers that is known: the recorded number, the pool's
    gpus_per_node, or the number of devices divided by the devices per GPU in the pool's layout. If none is known, physical_gpus() determines the number.
    """
    if MIG_INFIX not in node.product:
        return node.gpus
    if node.recorded_gpus or pool.gpus_per_node:
        return node.recorded_gpus or pool.gpus_per_node or 0
    layout = pool.for_node(node.name).sharing.layout
    devices = sum(layouts.on_gpu(layout, 0).values())
    return max(1, node.gpus // devices) if devices and layouts.uniform(layout) else physical_gpus(node)


def physical_gpus(node: Node) -> int:
    """The number of physical GPUs of a node whose pool is unknown.

    Under the MIG strategy single, this is the recorded number or, without a record, the smallest number of GPUs on which the node's MIG devices fit.
    """
    if MIG_INFIX not in node.product:
        return node.gpus
    if node.recorded_gpus:
        return node.recorded_gpus
    known = [geometries.geometry(model.key) for model in models.with_product(node.product)]
    profiles = [profile for geometry in known if geometry for profile in geometry.profiles]
    most = {profile.name.replace("+", "."): profile.max_count for profile in profiles}
    [(name, count)] = node.mig_devices.items() or [("", 0)]
    return -(-count // most[name]) if name in most else node.gpus


def expected_offers(node: Node, pool: PoolPlan) -> dict[str, int]:
    """The expected amount of each resource on the node; empty if containers cannot use its GPUs."""
    if pool.reason_without_containers:
        return {}
    return pool.for_node(node.name).sharing.offers(expected_gpus(node, pool))


def device_count(node: Node, pool: PoolPlan) -> int:
    """The number of devices that the node provides for its pool; until the demand is allocated, the number that the node offers now."""
    if pool.sharing.demand and node.name not in pool.by_node:
        return pool.sharing.devices({name: node.allocatable.get(name, 0) for name in pool.resources})
    return pool.sharing.devices(expected_offers(node, pool))


def pool_resources(nodes: t.Sequence[Node], pool: PoolPlan) -> dict[str, t.Any]:
    """The expected and the actual amounts of the resources that a pool's nodes offer: the totals and, in `resources`, the amounts of each resource."""
    expected: Counter[str] = Counter()
    allocatable: Counter[str] = Counter()
    for node in nodes:
        expected.update(expected_offers(node, pool))
        allocatable.update(node.allocatable)
    # If the allocation of a demand does not change a node, the node may offer devices that are not demanded.
    names = dict.fromkeys([*pool.resources, *sorted(expected)])
    return {
        "resource": pool.resource,
        "expected": sum(expected.values()),
        "allocatable": sum(allocatable[name] for name in names),
        "resources": {name: {"expected": expected[name], "allocatable": allocatable[name]} for name in names},
    }


def expected_labels(node: Node, pool: PoolPlan) -> dict[str, str]:
    """The labels that gpu-feature-discovery sets for the pool's sharing."""
    sharing = pool.for_node(node.name).sharing
    return sharing.definition.labels(sharing, node.model, expected_devices(node, pool))


def expected_mig_config(node: Node, pool: PoolPlan, *, managed: bool | None = None) -> str | None:
    """The value of nvidia.com/mig.config; None if the operator manages the label.

    If the pool does not partition GPUs, a node whose GPUs were partitioned before gets the entry that disables MIG, and keeps it.
    `managed`: whether the pool owns the label; by default, this is read from the record on the node.
    """
    mig_key = pool.for_node(node.name).mig_key
    if mig_key:
        return mig_key
    if managed is None:
        managed = MIG_CONFIG_LABEL in recorded(node, POOL_OWNER).labels
    live = node.mig_config
    return mig_parted.DISABLED if live and (live != mig_parted.DISABLED or managed) else None


def lacks_mig_support(node: Node, pool: PoolPlan) -> bool:
    """Whether the pool partitions GPUs, but this node's GPUs do not support MIG."""
    partitions = pool.sharing.definition.partitions_gpus
    return partitions and node.discovered and node.labels.get(MIG_CAPABLE_LABEL) != "true"


def expected_devices(node: Node, pool: PoolPlan) -> dict[str, int]:
    """The MIG devices of a node of the pool, by profile; empty if its GPUs are not partitioned."""
    counts: dict[str, int] = {}
    layout = pool.for_node(node.name).sharing.layout
    for index in range(expected_gpus(node, pool) if layout else 0):
        for profile, count in layouts.on_gpu(layout, index).items():
            counts[profile] = counts.get(profile, 0) + count
    return counts


def devices_in_labels(node: Node, pool: PoolPlan) -> dict[str, int]:
    """The expected MIG devices by GFD's profile names, as in Node.mig_devices."""
    return {name.replace("+", "."): count for name, count in expected_devices(node, pool).items()}


def is_gpu_resource(name: str) -> bool:
    """Whether this is the name of a resource for GPUs or MIG devices."""
    return name.startswith(("nvidia.com/gpu", "nvidia.com/mig-"))


def declared_layouts(pool: PoolPlan) -> list[dict[str, t.Any]]:
    """The layouts that a pool with a `model` declares. No nodes are read, so the number of GPUs with each layout is unknown (None)."""
    geometry = geometries.geometry(pool.model) if pool.model else None
    return [_layout_result(geometry, part.profiles, None) for part in pool.sharing.layout] if geometry else []


def node_layouts(pool: PoolPlan, nodes: t.Iterable[Node], known: t.Mapping[str, Geometry]) -> list[dict[str, t.Any]]:
    """The layouts of all GPUs of these nodes, the most frequent first. `known` contains geometries by node; nodes that it lacks are skipped."""
    layout_of: dict[int, layouts.Layout] = {}
    nodes_with: Counter[tuple[int, int, Geometry]] = Counter()
    for node in nodes:
        if node.name in known and node.discovered:
            layout = pool.for_node(node.name).sharing.layout
            layout_of[id(layout)] = layout
            nodes_with[id(layout), expected_gpus(node, pool), known[node.name]] += 1
    gpus_with: Counter[tuple[tuple[tuple[str, int], ...], Geometry]] = Counter()
    for (key, gpus, geometry), count in nodes_with.items():
        for index in range(gpus):
            gpus_with[tuple(sorted(layouts.on_gpu(layout_of[key], index).items())), geometry] += count
    ordered = sorted(gpus_with.items(), key=lambda entry: (not entry[0][0], -entry[1], entry[0][0]))
    return [_layout_result(geometry, dict(profiles), gpus) for (profiles, geometry), gpus in ordered]


def _layout_result(geometry: Geometry, profiles: t.Mapping[str, int], gpus: int | None) -> dict[str, t.Any]:
    # A layout that does not fit is rejected elsewhere, with a reason.
    placed = place(geometry, profiles) or ()
    return {
        "gpus": gpus,
        "profiles": dict(profiles),
        "slices": geometry.slices,
        "devices": [placement._asdict() for placement in placed],
        "unused": unused(geometry, profiles)._asdict() if placed else {},
    }
