# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPU of which node is cut into what, so that a pool offers the MIG devices that it is asked for (pure).

What is there counts: a GPU that serves the demand as it is cut stays so, and of those that have to be cut anew the ones that
nobody uses come first. A change of a node's GPUs takes everybody who uses one of them, so that all GPUs of a node are used or none.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass, field

from ..catalog.names import MIG_INFIX
from ..mig import layout as layouts
from ..mig.packing import PackedGpu, pack
from ..nvidia_config import mig_parted
from ..pools.per_node_plan import per_node_plan
from . import expected_state
from .mig_capacity import model_of

if t.TYPE_CHECKING:
    from ..catalog.mig import Geometry
    from ..nvidia_config.mig_parted import Entry
    from ..pools.membership import Membership
    from ..pools.plan import Plan, PoolPlan
    from .node import Node

Counts = t.Mapping[str, int]


@dataclass(frozen=True)
class KnownLayouts:
    """What is known of the nodes beside their labels.

    `entries`: the configurations that the MIG manager reads, by name. `geometries`: what each node's GPUs can be cut into. `used`:
    the nodes of whose GPUs somebody uses one; None: nobody has looked. `settled`: how nodes were to be cut by the same run before.
    """

    entries: t.Mapping[str, t.Any] = field(default_factory=dict)
    geometries: t.Mapping[str, Geometry] = field(default_factory=dict)
    used: t.Collection[str] | None = None
    settled: t.Mapping[str, layouts.Layout] = field(default_factory=dict)


@dataclass(frozen=True)
class MigAllocation:
    """The plan in which each node of a pool with a demand has a layout of its own (PoolPlan.on).

    `missing`: by pool, the devices for which no GPU has room. `asks`: GPUs have to be cut, and who uses them would decide which.
    """

    plan: Plan
    missing: t.Mapping[str, Counts] = field(default_factory=dict)
    asks: bool = False


def allocate(
    plan: Plan,
    nodes: t.Iterable[Node],
    membership: Membership,
    known: KnownLayouts,
    free: t.Callable[[Node, PoolPlan], bool] = lambda node, pool: True,
) -> MigAllocation:
    """Spread the demand of each pool over its nodes; `free` says which of them may be cut anew, the others stay as they are.

    A node that is not discovered, or is not ready, cannot be cut; one of which nobody knows into what it can be cut is left whole.
    """
    by_name = {node.name: node for node in nodes}
    found = {
        pool.name: _of_pool(pool, [by_name[name] for name in membership.by_pool[pool.name]], known, free)
        for pool in plan.pools
        if pool.sharing.demand
    }
    return MigAllocation(
        plan=per_node_plan(plan, {name: of.layouts for name, of in found.items()}) if found else plan,
        missing={name: of.missing for name, of in found.items() if of.missing},
        asks=known.used is None and any(of.cuts for of in found.values()),
    )


class _Spread(t.NamedTuple):
    """One pool's demand: by node, its layout and its number of GPUs; what is missing; whether any GPU is to be cut anew."""

    layouts: dict[str, tuple[layouts.Layout, int]]
    missing: Counts
    cuts: bool


def _of_pool(
    pool: PoolPlan, members: t.Sequence[Node], known: KnownLayouts, free: t.Callable[[Node, PoolPlan], bool]
) -> _Spread:
    now = {node.name: _now(node, pool, known) for node in members if node.discovered}
    gpus: list[PackedGpu] = []
    left = Counter(pool.sharing.demand)
    for node in members:
        geometry = known.geometries.get(node.name)
        if (
            geometry
            and node.discovered
            and node.ready
            and not expected_state.incapable_devices(node, pool)
            and free(node, pool)
        ):
            used = known.used is not None and node.name in known.used
            gpus += [
                PackedGpu(node.name, index, cut or None, used, geometry) for index, cut in enumerate(now[node.name])
            ]
        else:
            for cut in now.get(node.name, ()):
                left.subtract(cut)
    packed = pack(gpus, {profile: left[profile] for profile in pool.sharing.demand if left[profile] > 0})
    return _Spread(
        {
            name: (_layout([packed.layouts.get((name, index), cut) for index, cut in enumerate(of_node)]), len(of_node))
            for name, of_node in now.items()
        },
        dict(packed.missing),
        bool(packed.touched),
    )


def _layout(by_gpu: t.Sequence[Counts]) -> layouts.Layout:
    """The same for all GPUs where they are alike, nothing where all are whole."""
    if not any(by_gpu):
        return ()
    if all(dict(of) == dict(by_gpu[0]) for of in by_gpu):
        return layouts.read(dict(by_gpu[0]))
    return layouts.read({index: dict(of) for index, of in enumerate(by_gpu) if of})


def _now(node: Node, pool: PoolPlan, known: KnownLayouts) -> list[Counts]:
    """What each GPU of the node is cut into, or about to be: as its MIG configuration says, else as the devices show it.

    Devices that no configuration explains are those of each GPU alike, where that can be; else the GPUs count as whole.
    """
    if node.name in known.settled:
        layout = known.settled[node.name]
        return [dict(layouts.on_gpu(layout, index)) for index in range(_gpus(node, pool, {}))]
    entry = known.entries.get(node.mig_config)
    parts = _parts(entry, node)
    gpus = _gpus(node, pool, parts[0].get("mig-devices") or {} if len(parts) == 1 else {})
    if parts:
        try:
            found = mig_parted.by_gpu(parts, gpus)
        except KeyError:
            return [{} for dummy in range(gpus)]
        return [found[index] for index in range(gpus)]
    shown = _written(node.mig_devices, known.geometries.get(node.name))
    if gpus and all(count % gpus == 0 for count in shown.values()):
        return [{profile: count // gpus for profile, count in shown.items()} for dummy in range(gpus)]
    return [{} for dummy in range(gpus)]


def _parts(entry: t.Any, node: Node) -> Entry:
    if not isinstance(entry, list) or not all(mig_parted.is_part(part) for part in entry):
        return []
    model = model_of(node)
    devices = [mig_parted.device_id(one) for one in model.pci_ids] if model else []
    return [part for part in entry if mig_parted.concerns(part, devices)]


def _gpus(node: Node, pool: PoolPlan, of_each: Counts) -> int:
    """The physical GPUs: under the strategy single GFD counts the devices, of which each GPU has so many."""
    if MIG_INFIX in node.product and not node.noted_gpus and not pool.gpus_per_node and of_each:
        return max(1, node.gpus // sum(of_each.values()))
    return expected_state.expected_gpus(node, pool)


def _written(devices: Counts, geometry: Geometry | None) -> dict[str, int]:
    """Devices by the profile's own name instead of GFD's, which writes a dot for a plus."""
    names = {of.name.replace("+", "."): of.name for of in (geometry.profiles if geometry else ())}
    return {names.get(name, name): count for name, count in devices.items() if count}
