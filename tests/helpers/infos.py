# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deterministic results of gpu_info for generated fleets of any size, for tests of reports."""

from __future__ import annotations

import random
import typing as t
from dataclasses import dataclass, field

Document = dict[str, t.Any]

NAMESPACES = ("research", "vision", "teaching", "speech-to-text", "batch", "forecasting", "sandbox-annika")
WORK = ("trainer", "notebook", "serve", "finetune", "eval", "preprocess")


@dataclass(frozen=True)
class Kind:
    """The nodes of one pool: how many in twenty, and how their GPUs are shared."""

    pool: str
    prefix: str
    model: str
    memory_mib: int
    weight: int
    gpus: int = 8
    mode: str = "none"
    replicas: int = 1
    resource: str = "nvidia.com/gpu"
    devices: dict[str, int] = field(default_factory=dict)
    mig: bool = False
    busy: float = 0.6


KINDS = (
    Kind("notebooks", "t4", "Tesla-T4", 15360, 6, gpus=1, mode="time-slicing", replicas=4),
    Kind(
        "inference",
        "l40s",
        "NVIDIA-L40S",
        46068,
        4,
        gpus=2,
        mode="time-slicing",
        replicas=2,
        resource="nvidia.com/gpu.shared",
    ),
    Kind("serving", "a10", "NVIDIA-A10", 23028, 2, gpus=4, mode="mps", replicas=8, resource="nvidia.com/gpu.shared"),
    Kind(
        "slices", "a100", "NVIDIA-A100-SXM4-80GB", 81920, 3, mode="mig", devices={"3g.40gb": 1, "2g.20gb": 2}, mig=True
    ),
    Kind("train-h100", "h100", "NVIDIA-H100-80GB-HBM3", 81559, 3, mig=True, busy=0.8),
    Kind("train-h200", "h200", "NVIDIA-H200", 143771, 2, mig=True, busy=0.3),
)
FULL = (Kind("shared", "gpu", "NVIDIA-H100-80GB-HBM3", 81559, 1, mode="time-slicing", replicas=4, busy=1.0),)


def fleet(nodes: int, kinds: t.Sequence[Kind] = KINDS, troubled: bool = True, workloads: bool = True) -> Document:
    """A fleet of about this number of GPU nodes; in a troubled one some nodes have problems."""
    chance = random.Random(7)
    weights = sum(kind.weight for kind in kinds)
    rows: list[Document] = []
    pools: dict[str, Document] = {}
    for kind in kinds:
        count = max(1, round(nodes * kind.weight / weights))
        members = [_row(kind, f"{kind.prefix}-{number + 1}", chance) for number in range(count)]
        rows += members
        pools[kind.pool] = _pool(kind, members)
    info = _info(rows, pools)
    if troubled:
        _trouble(info)
    if not workloads:
        for row in rows:
            del row["workloads"]
    return info


def full(nodes: int) -> Document:
    """The largest page: eight GPUs with four shares on each node, and a pod for every share."""
    return fleet(nodes, FULL, troubled=False)


def _row(kind: Kind, name: str, chance: random.Random) -> Document:
    offered = (
        {f"nvidia.com/mig-{profile}": count * kind.gpus for profile, count in kind.devices.items()}
        if kind.devices
        else {kind.resource: kind.gpus * kind.replicas}
    )
    taken = {"nvidia.com/gpu": 0} if "nvidia.com/gpu" not in offered else {}
    row: Document = {
        "name": name,
        "pool": kind.pool,
        "model": kind.model,
        "gpus": kind.gpus,
        "memory_mib": kind.memory_mib,
        "driver": "580.95.05",
        "mode": "none" if kind.mode == "mig" else kind.mode,
        "replicas": kind.replicas,
        "config": f"{kind.mode}-1c2f0a9b",
        "allocatable": {**taken, **offered},
        "capacity": {**taken, **offered},
        "ready": True,
        "schedulable": True,
        "mig": _mig(kind),
        "drift": [],
        "workloads": [],
    }
    tenants = chance.sample(NAMESPACES, 2)
    level = 1.0 if kind.busy == 1 else chance.choice([0, 1, kind.busy, chance.random()])
    for resource, count in offered.items():
        row["workloads"] += _pods(resource, round(count * level), 1 if kind.busy == 1 else 4, tenants, chance)
    return row


def _mig(kind: Kind) -> Document | None:
    if not kind.mig:
        return None
    config = "mig-3g.40gb-1-2g.20gb-2-5a1be09c" if kind.devices else "all-disabled"
    devices = {profile: count * kind.gpus for profile, count in kind.devices.items()}
    return {"config": config, "state": "success", "devices": devices}


def _pods(
    resource: str, units: int, most: int, tenants: t.Sequence[str], chance: random.Random
) -> t.Iterator[Document]:
    while units > 0:
        shared = not resource.endswith("/gpu") or most == 1
        count = 1 if shared else min(units, chance.randint(1, most))
        suffix = "".join(chance.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
        pod = f"{chance.choice(WORK)}-{chance.randint(1, 40)}-7d9c5b8f6-{suffix}"
        yield {"namespace": chance.choice(tenants), "pod": pod, "resource": resource, "count": count}
        units -= count


def _pool(kind: Kind, members: t.Sequence[Document]) -> Document:
    each = {
        name: sum(row["allocatable"].get(name, 0) for row in members)
        for row in members[:1]
        for name, count in row["allocatable"].items()
        if count
    }
    offered = sum(each.values())
    return {
        "model": kind.model.removeprefix("NVIDIA-"),
        "match_labels": {},
        "mode": kind.mode,
        "replicas": kind.replicas,
        "layout": [{"devices": [], "profiles": dict(kind.devices)}] if kind.devices else [],
        "resource": max(each, key=lambda name: each[name]),
        "resources": {name: {"expected": count, "allocatable": count} for name, count in each.items()},
        "gpus_per_node": kind.gpus,
        "shares_per_gpu": sum(kind.devices.values()) or kind.replicas,
        "memory_mib_per_share": None if kind.devices else kind.memory_mib // kind.replicas,
        "models": [kind.model],
        "nodes": len(members),
        "gpus": kind.gpus * len(members),
        "expected": offered,
        "allocatable": offered,
        "changes": {},
        "drift": [],
        "drifted_nodes": 0,
        "as_declared": True,
        "validation": {"node": members[0]["name"], "devices": {"GPU-0": 4}, "current": True},
    }


def _info(rows: list[Document], pools: dict[str, Document]) -> Document:
    models: dict[str, Document] = {}
    offered: dict[str, int] = {}
    for row in rows:
        model = models.setdefault(row["model"], {"nodes": 0, "gpus": 0, "driver_versions": [row["driver"]]})
        model["nodes"] += 1
        model["gpus"] += row["gpus"]
        for resource, count in row["allocatable"].items():
            offered[resource] = offered.get(resource, 0) + count
    gpus = sum(row["gpus"] for row in rows)
    return {
        "cluster": "prod",
        "reachable": True,
        "totals": {"nodes": len(rows) + 4, "gpu_nodes": len(rows), "gpus": gpus, "allocatable": offered},
        "models": models,
        "undiscovered": [],
        "pools": pools,
        "drift": [],
        "overlaps": {},
        "released": [],
        "unclaimed": [],
        "nodes": rows,
        "nodes_not_shown": 0,
    }


def _trouble(info: Document) -> None:
    """Problems: a missing GPU, unreachable, cordoned, crashed and not yet changed nodes, one without a pool, a new one."""
    rows, pools = info["nodes"], info["pools"]
    by_pool: dict[str, list[Document]] = {pool: [row for row in rows if row["pool"] == pool] for pool in pools}
    lame, crashed, late = by_pool["train-h100"][0], by_pool["serving"][-1], by_pool["notebooks"][-1]
    lame["allocatable"] = {"nvidia.com/gpu": 7}
    lame["workloads"] = [hold for hold in lame["workloads"] if hold["count"] == 1]
    _differs(
        pools, lame, 1, "allocatable nvidia.com/gpu is 7 of a capacity of 8: GPUs are unhealthy, but 8 is expected"
    )
    crashed["allocatable"] = dict.fromkeys(crashed["allocatable"], 0)
    why = "allocatable nvidia.com/gpu.shared is 0 of a capacity of 32: no plugin is registered, or all its GPUs are unhealthy, but 32 is expected"
    _differs(pools, crashed, 32, why)
    late.update(
        allocatable={"nvidia.com/gpu": 1}, capacity={"nvidia.com/gpu": 1}, mode="none", replicas=1, workloads=[]
    )
    why = "label nvidia.com/gpu.replicas is 1, but 4 is expected; allocatable nvidia.com/gpu is 1, but 4 is expected"
    _differs(pools, late, 3, why)
    pools["notebooks"]["changes"] = {
        "nodes": 1,
        "joining": 0,
        "switched_from": {"none": 1},
        "labels": ["team"],
        "removed_labels": [],
        "annotations": [],
        "removed_annotations": [],
        "taints": [],
        "removed_taints": [],
    }
    by_pool["notebooks"][0]["ready"] = False
    by_pool["inference"][0]["schedulable"] = False
    by_pool["slices"][-1]["mig"]["state"] = "pending"
    _differs(pools, by_pool["slices"][-1], 0, "nvidia.com/mig.config.state is pending")
    pools["train-h200"]["validation"] = None
    empty: Document = {"allocatable": {}, "capacity": {}, "workloads": [], "mig": None, "config": None, "ready": True}
    one = {"allocatable": {"nvidia.com/gpu": 1}, "capacity": {"nvidia.com/gpu": 1}, "mode": "none", "replicas": 1}
    none = {"model": None, "gpus": 0, "memory_mib": 0, "driver": None, "mode": None, "replicas": 0}
    stray = {**rows[0], **empty, **one, "name": "rtx-lab", "pool": None, "model": "NVIDIA-RTX-6000-Ada-Generation"}
    info["nodes"] += [stray, {**rows[0], **empty, **none, "name": "new-1", "pool": None}]
    info["totals"]["gpu_nodes"] += 2
    info["totals"]["nodes"] += 2
    info["unclaimed"] = ["new-1", "rtx-lab"]
    info["undiscovered"] = ["new-1"]


def _differs(pools: dict[str, Document], row: Document, lost: int, why: str) -> None:
    """Record in a node and in its pool that it is not as declared."""
    pool = pools[row["pool"]]
    row["drift"] = why.split("; ")
    text = f"{row['name']} (pool {row['pool']}): {why}"
    pool.update(as_declared=False, drift=[text], drifted_nodes=1, allocatable=pool["allocatable"] - lost)
