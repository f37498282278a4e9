# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet in a small document: nodes, models, pools, totals, and what is not as the pools declare (pure)."""

from __future__ import annotations

import typing as t
from collections import Counter, defaultdict

from ..catalog.names import CONFIG_LABEL, MIG_CAPABLE_LABEL, MIG_CONFIG_LABEL, MIG_STATE_LABEL, POOL_LABEL
from ..mig.layout import format_layout
from ..nvidia_config.device_plugin import MIG
from . import expected_state, gpu_layouts
from .drift import drift_of_node
from .driver_upgrade import state_of, upgrade_of
from .node_check import check

if t.TYPE_CHECKING:
    from ..catalog.mig import Geometry
    from ..pools.membership import Membership
    from ..pools.plan import NodeGroupPlan, PoolPlan
    from .gpu_requests import GpuRequest
    from .mig_allocation import MigAllocation
    from .node import Node
    from .ownership import NodeEdit

DRIFT_LIMIT = 100
DIFFERS_LIMIT = 5
# Labels of a change that are told in other words.
_NOT_NAMED = {CONFIG_LABEL, POOL_LABEL, MIG_CONFIG_LABEL, MIG_STATE_LABEL}


def rows(
    nodes: t.Iterable[Node],
    pools: t.Iterable[PoolPlan],
    membership: Membership | None,
    changing: t.Iterable[NodeEdit] = (),
    held: t.Mapping[str, t.Sequence[GpuRequest]] | None = None,
) -> list[dict[str, t.Any]]:
    """Every GPU node by its name, compared with the pools where a membership says which is whose."""
    pool_of = {node: pool for pool, members in membership.by_pool.items() for node in members} if membership else {}
    edits = {change.name: change for change in changing}
    planned = {pool.name: pool for pool in pools}
    found = []
    for node in sorted((node for node in nodes if node.has_gpu), key=lambda node: node.name):
        name = pool_of.get(node.name) if membership else node.labels.get(POOL_LABEL)
        pool = planned.get(name or "")
        of_node = held.get(node.name, ()) if held is not None else None
        differs = None
        if membership:
            differs = drift_of_node(node, pool, edits.get(node.name), membership.overlaps.get(node.name, ()))
        found.append(node_row(node, name, pool, of_node, differs))
    return found


def node_row(
    node: Node,
    name: str | None,
    pool: PoolPlan | None = None,
    of_node: t.Sequence[GpuRequest] | None = None,
    differs: t.Sequence[str] | None = None,
) -> dict[str, t.Any]:
    """One node as gpu_info returns it; `name` is that of its pool, which need not be a declared one.

    `of_node` is who holds its GPUs, `differs` what is not as declared; None where nobody asked.
    """
    row: dict[str, t.Any] = {
        "name": node.name,
        "pool": name,
        "model": node.model or None,
        "gpus": expected_state.expected_gpus(node, pool) if pool else node.noted_gpus or node.gpus,
        "memory_mib": node.memory_mib,
        "driver": node.driver or None,
        "driver_upgrade": state_of(node.labels) or None,
        "mode": node.mode or None,
        "replicas": node.replicas,
        "config": node.labels.get(CONFIG_LABEL),
        "allocatable": dict(node.allocatable),
        "capacity": dict(node.capacity),
        "mig": _mig(node),
        "ready": node.ready,
        "schedulable": not node.unschedulable,
    }
    if pool and node.name in pool.by_node:
        row["layout"] = _layout(pool.on(node.name))
    if differs is not None:
        row["differs"] = list(differs)
    if of_node is not None:
        row["workloads"] = [
            {"namespace": holder.namespace, "pod": holder.pod, "resource": holder.resource, "count": holder.count}
            for holder in of_node
        ]
    return row


def _mig(node: Node) -> dict[str, t.Any] | None:
    """The node's MIG configuration, what became of it, and its MIG devices by profile; None where there is no MIG."""
    if node.labels.get(MIG_CAPABLE_LABEL) != "true":
        return None
    return {"config": node.mig_config or None, "state": node.mig_state or None, "devices": node.mig_devices}


def observed(nodes: t.Sequence[Node]) -> dict[str, t.Any]:
    """What is told of the nodes whatever the pools are."""
    return {"totals": totals(nodes), "models": models(nodes), "driver_upgrade": driver_upgrade(nodes)}


def totals(nodes: t.Sequence[Node]) -> dict[str, t.Any]:
    """Nodes, GPU nodes, GPUs and what they offer, all together."""
    offered: Counter[str] = Counter()
    for node in nodes:
        offered.update(node.allocatable)
    gpu_nodes = [node for node in nodes if node.has_gpu]
    return {
        "nodes": len(nodes),
        "gpu_nodes": len(gpu_nodes),
        "gpus": sum(node.gpus for node in gpu_nodes),
        "allocatable": dict(sorted(offered.items())),
    }


def driver_upgrade(nodes: t.Iterable[Node]) -> dict[str, t.Any]:
    """How many nodes are in which state of a driver upgrade, those that are done left out, and who needs somebody."""
    return upgrade_of((node.name, node.labels) for node in nodes).as_dict()


def models(nodes: t.Iterable[Node]) -> dict[str, dict[str, t.Any]]:
    """Nodes, GPUs and drivers of each model."""
    found: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        if node.discovered:
            found[node.model].append(node)
    return {
        model: {
            "nodes": len(of_model),
            "gpus": sum(node.gpus for node in of_model),
            "drivers": sorted({node.driver for node in of_model if node.driver}),
        }
        for model, of_model in sorted(found.items())
    }


def pools(
    settled: MigAllocation,
    nodes: t.Sequence[Node],
    membership: Membership,
    changing: t.Iterable[NodeEdit],
    geometries: t.Mapping[str, Geometry],
) -> dict[str, dict[str, t.Any]]:
    """Each pool: what it declares, what is seen, what would change, and whether it is as declared."""
    by_name = {node.name: node for node in nodes}
    edits = {edit.name: edit for edit in changing}
    return {
        pool.name: {
            **_pool(pool, members, edits, settled.missing.get(pool.name, {})),
            "cuts": gpu_layouts.of_nodes(pool, members, geometries) or gpu_layouts.of_model(pool),
        }
        for pool in settled.plan.pools
        for members in [[by_name[name] for name in membership.by_pool.get(pool.name, ()) if name in by_name]]
    }


def declared(pool: PoolPlan) -> dict[str, t.Any]:
    """What a pool declares, without any cluster."""
    return {
        "model": pool.model,
        "group": _group(pool.group),
        "match_labels": dict(pool.match.labels),
        "mode": pool.mode,
        "replicas": pool.sharing.replicas,
        "layout": _layout(pool),
        "demand": dict(pool.sharing.demand),
        "cuts": gpu_layouts.of_model(pool),
        "resource": pool.resource,
        "gpus_per_node": pool.gpus_per_node,
        "shares_per_gpu": pool.shares_per_gpu,
        "memory_mib_per_share": pool.memory_mib_per_share,
    }


def _group(group: NodeGroupPlan | None) -> dict[str, t.Any] | None:
    return None if group is None else {"name": group.name, "flavor": group.flavor, "size": group.size}


def _layout(pool: PoolPlan) -> list[dict[str, t.Any]]:
    return [{"devices": list(part.devices), "profiles": dict(part.profiles)} for part in pool.sharing.layout]


def drift(of_pools: t.Mapping[str, t.Mapping[str, t.Any]], limit: int = DRIFT_LIMIT) -> list[dict[str, t.Any]]:
    """What is not as declared, as a list of pool and words."""
    found = [
        {"pool": name, "what": what}
        for name, pool in of_pools.items()
        for what in (*pool.get("differs", ()), *_changes_in_words(pool.get("changes") or {}))
    ]
    return found[:limit]


def _pool(
    pool: PoolPlan, nodes: t.Sequence[Node], edits: t.Mapping[str, NodeEdit], missing: t.Mapping[str, int]
) -> dict[str, t.Any]:
    findings = [finding for node in nodes for finding in [check(node, pool)] if finding]
    changing = [edits[node.name] for node in nodes if node.name in edits]
    cut = pool.mode == MIG
    memory = {node.memory_mib // pool.sharing.replicas for node in nodes if node.memory_mib and not cut}
    return {
        **declared(pool),
        "memory_mib_per_share": min(memory) if memory else pool.memory_mib_per_share,
        "models": sorted({node.model for node in nodes if node.model}),
        "nodes": len(nodes),
        "gpus": sum(expected_state.expected_gpus(node, pool) for node in nodes),
        **expected_state.expected_resources(nodes, pool),
        "changes": _changes(changing, nodes),
        "differs": [*_lacking(nodes, missing), *(str(finding) for finding in findings)][:DIFFERS_LIMIT],
        "differing_nodes": len({finding.node for finding in findings} | {edit.name for edit in changing}),
        "as_declared": bool(nodes) and not findings and not changing and not missing,
    }


def _lacking(nodes: t.Sequence[Node], missing: t.Mapping[str, int]) -> list[str]:
    return [f"its {len(nodes)} node(s) have no room for {format_layout(missing)} of its demand"] if missing else []


def _changes(changing: t.Sequence[NodeEdit], nodes: t.Sequence[Node]) -> dict[str, t.Any]:
    if not changing:
        return {}
    names = {edit.name for edit in changing}
    switched = {edit.name for edit in changing if {CONFIG_LABEL, MIG_CONFIG_LABEL} & edit.labels.keys()}
    modes = Counter(_mode(node) for node in nodes if node.name in switched)
    labels = {key for edit in changing for key in edit.labels} - _NOT_NAMED
    taints = {
        taint
        for edit in changing
        if "taints" in edit.after
        for taint in set(edit.after["taints"]) ^ set(edit.before["taints"])
    }
    return {
        "nodes": len(names),
        "joining": sum(1 for edit in changing if POOL_LABEL in edit.labels),
        "switched_from": dict(sorted(modes.items())),
        "labels": sorted(labels),
        "taints": sorted(taints),
    }


def _mode(node: Node) -> str:
    if not node.discovered:
        return "undiscovered"
    if node.mig_devices:
        return "mig"
    return f"{node.mode} x{node.replicas}" if node.replicas > 1 else node.mode


def _changes_in_words(changes: t.Mapping[str, t.Any]) -> list[str]:
    return [f"{changes['nodes']} node(s) carry other labels or taints than declared"] if changes else []
