# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Allocates the MIG devices that pools demand to the GPUs of their nodes (pure).

A GPU whose layout already serves the demand keeps its layout. If GPUs must be repartitioned, unused GPUs come first. Repartitioning a GPU evicts all
pods that use any GPU of the node, so all GPUs of a node count as in use as soon as one of them is in use.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass, field

from ..catalog.names import MIG_INFIX
from ..mig import layout as layouts
from ..mig.layout import Counts
from ..mig.packing import PackedGpu, PackingResult, pack
from ..nvidia_config import mig_parted
from ..pools.derive import per_node_plan
from . import expected_state
from .generated_mig_config import device_ids

if t.TYPE_CHECKING:
    from ..catalog.mig import Geometry
    from ..nvidia_config.mig_parted import Entry
    from ..pools.membership import Membership
    from ..pools.plan import Plan, PoolPlan
    from .node import Node


@dataclass(frozen=True)
class KnownLayouts:
    """The data about the nodes that their labels do not contain.

    `entries`: the MIG manager's configurations by name. `geometries`: the MIG profiles of each node's GPUs. `nodes_in_use`: the nodes with
    pods that use a GPU; None if they are not known yet. `previous`: the layouts that the same run has already allocated, by node.
    """

    entries: t.Mapping[str, t.Any] = field(default_factory=dict)
    geometries: t.Mapping[str, Geometry] = field(default_factory=dict)
    nodes_in_use: t.Collection[str] | None = None
    previous: t.Mapping[str, layouts.Layout] = field(default_factory=dict)


@dataclass(frozen=True)
class MigAllocation:
    """The result of an allocation. In `plan`, each node of a pool with a demand has its own layout (PoolPlan.for_node).

    `missing`: by pool, the devices that fit on no GPU. `needs_usage`: whether GPUs must be repartitioned while it is not known yet which GPUs are in
    use; the choice depends on that.
    """

    plan: Plan
    missing: t.Mapping[str, Counts] = field(default_factory=dict)
    needs_usage: bool = False


def allocate(
    plan: Plan,
    nodes: t.Iterable[Node],
    membership: Membership,
    known: KnownLayouts,
    may_change: t.Callable[[Node, PoolPlan], bool] = lambda node, pool: True,
) -> MigAllocation:
    """Allocate the demand of each pool to its nodes; only nodes that `may_change` selects may be repartitioned.

    Nodes that are not discovered or not ready cannot be repartitioned. The GPUs of a node without known geometry stay whole.
    """
    by_name = {node.name: node for node in nodes}
    by_pool: dict[str, dict[str, tuple[layouts.Layout, int]]] = {}
    missing: dict[str, Counts] = {}
    repartitions = False
    for pool in plan.pools:
        if not pool.sharing.demand:
            continue
        members = [by_name[name] for name in membership.by_pool[pool.name]]
        current = {node.name: _current_devices(node, pool, known) for node in members if node.discovered}
        packed = _pack(pool, members, current, known, may_change)
        by_pool[pool.name] = {
            name: (
                _layout([packed.layouts.get((name, index), devices) for index, devices in enumerate(by_gpu)]),
                len(by_gpu),
            )
            for name, by_gpu in current.items()
        }
        if packed.missing:
            missing[pool.name] = dict(packed.missing)
        repartitions = repartitions or bool(packed.touched)
    return MigAllocation(
        plan=per_node_plan(plan, by_pool) if by_pool else plan,
        missing=missing,
        needs_usage=known.nodes_in_use is None and repartitions,
    )


def _pack(
    pool: PoolPlan,
    members: t.Sequence[Node],
    current: t.Mapping[str, t.Sequence[Counts]],
    known: KnownLayouts,
    may_change: t.Callable[[Node, PoolPlan], bool],
) -> PackingResult:
    """Subtract from the pool's demand the devices of nodes whose layouts are kept, and distribute the remainder over the other nodes."""
    gpus: list[PackedGpu] = []
    remaining = Counter(pool.sharing.demand)
    for node in members:
        geometry = known.geometries.get(node.name)
        changeable = node.discovered and node.ready and not expected_state.lacks_mig_support(node, pool)
        if geometry and changeable and may_change(node, pool):
            in_use = known.nodes_in_use is not None and node.name in known.nodes_in_use
            gpus += [
                PackedGpu(node.name, index, devices or None, in_use, geometry)
                for index, devices in enumerate(current[node.name])
            ]
        else:
            for devices in current.get(node.name, ()):
                remaining.subtract(devices)
    return pack(gpus, {profile: remaining[profile] for profile in pool.sharing.demand if remaining[profile] > 0})


def _layout(by_gpu: t.Sequence[Counts]) -> layouts.Layout:
    """One layout for all GPUs if they have the same devices, otherwise a layout by GPU index; empty if all GPUs are whole."""
    if not any(by_gpu):
        return ()
    if all(dict(devices) == dict(by_gpu[0]) for devices in by_gpu):
        return layouts.parse_layout(dict(by_gpu[0]))
    return layouts.parse_layout({index: dict(devices) for index, devices in enumerate(by_gpu) if devices})


def _current_devices(node: Node, pool: PoolPlan, known: KnownLayouts) -> list[Counts]:
    """The MIG devices of each GPU of the node, from its MIG configuration (even if this is not applied yet) or, without one, from its labels.

    Devices from labels are divided equally between the GPUs if possible; otherwise the GPUs count as whole.
    """
    if node.name in known.previous:
        layout = known.previous[node.name]
        return [dict(layouts.on_gpu(layout, index)) for index in range(_gpu_count(node, pool, {}))]
    parts = _parts(known.entries.get(node.mig_config), node)
    gpus = _gpu_count(node, pool, parts[0].get("mig-devices") or {} if len(parts) == 1 else {})
    whole: list[Counts] = [{} for dummy in range(gpus)]
    if parts:
        try:
            return list(mig_parted.layouts_by_gpu(parts, gpus).values())
        except KeyError:
            return whole
    devices = _with_profile_names(node.mig_devices, known.geometries.get(node.name))
    if gpus and all(count % gpus == 0 for count in devices.values()):
        return [{profile: count // gpus for profile, count in devices.items()} for dummy in range(gpus)]
    return whole


def _parts(entry: t.Any, node: Node) -> Entry:
    if not isinstance(entry, list) or not all(mig_parted.is_valid_part(part) for part in entry):
        return []
    devices = device_ids(node)
    return [part for part in entry if mig_parted.applies_to(part, devices)]


def _gpu_count(node: Node, pool: PoolPlan, devices_of_gpu: Counts) -> int:
    """The number of physical GPUs. Under the MIG strategy single, GFD counts MIG devices, so their number is divided by the devices per GPU."""
    if MIG_INFIX in node.product and not node.recorded_gpus and not pool.gpus_per_node and devices_of_gpu:
        return max(1, node.gpus // sum(devices_of_gpu.values()))
    return expected_state.expected_gpus(node, pool)


def _with_profile_names(devices: Counts, geometry: Geometry | None) -> dict[str, int]:
    """The devices by the profile names of the geometry; GFD's names have a dot instead of a plus."""
    names = {profile.name.replace("+", "."): profile.name for profile in (geometry.profiles if geometry else ())}
    return {names.get(name, name): count for name, count in devices.items()}
