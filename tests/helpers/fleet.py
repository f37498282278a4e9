# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes and pools for tables of test cases."""

from __future__ import annotations

import typing as t

from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import PoolPlan, Registration, RolloutPlan
from ansible_collections.accel.gpu.plugins.module_utils.schema.validators import Match
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import mig, modes
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.modes import Sharing


def pool(
    name: str = "notebooks", replicas: int = 1, rename: bool = False, mode: str = "", **changes: t.Any
) -> PoolPlan:
    """A pool with this sharing; 1 replica is exclusive, `layout` is written as in the variables."""
    layout = mig.parse_layout(changes.pop("layout")) if "layout" in changes else ()
    strategy = changes.pop("strategy", ("single" if mig.uniform(layout) else "mixed") if layout else "")
    mode = mode or ("mig" if layout else "time-slicing" if replicas > 1 else "none")
    sharing = Sharing(mode, replicas, layout, strategy, rename=rename)
    key = modes.plugin_entry_name(sharing)
    cut = {"nvidia.com/mig.config": "cut"} if layout else {}
    labels = changes.pop("labels", {})
    values: dict[str, t.Any] = {
        "name": name,
        "match": Match("Tesla-T4", "Tesla-T4", ("Tesla-T4",), {}),
        "nodegroup": None,
        "labels": labels,
        "taints": (),
        "tolerations": (),
        "sharing": sharing,
        "gpus_per_node": None,
        "resource": sharing.resources[0],
        "resources": sharing.resources,
        "quota_keys": tuple(f"requests.{resource}" for resource in sharing.resources),
        "accelerator": None,
        "shares_per_gpu": sum(sharing.offers(1).values()),
        "config_key": key,
        "mig_key": "cut" if layout else "",
        "mig_entry": [],
        "memory_mib_per_share": 15360 // replicas,
        "node_labels": {"accel.gpu/pool": name, "nvidia.com/device-plugin.config": key, **cut, **labels},
    }
    values["registration"] = Registration(values["node_labels"], values["taints"])
    values["model"] = changes.get("match", values["match"]).model
    return PoolPlan(**{"rollout": rollout(), **values, **changes})


def rollout(**written: t.Any) -> RolloutPlan:
    """A pool's rollout settings, with defaults for missing keys."""
    document = {"name": "any", "match": {"model": "Tesla-T4"}, "rollout": written}
    return derive({"name": "lab"}, {}, [document]).pools[0].rollout


def node(
    name: str = "n1",
    model: str = "Tesla-T4",
    gpus: int = 1,
    replicas: int = 1,
    rename: bool = False,
    labels: t.Mapping[str, str | None] | None = None,
    **changes: t.Any,
) -> Node:
    """A node after NVIDIA's agents have applied this sharing; a label of None is removed."""
    mode = "time-slicing" if replicas > 1 else "none"
    resource = "nvidia.com/gpu.shared" if rename else "nvidia.com/gpu"
    all_labels = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": model + ("-SHARED" if replicas > 1 and not rename else ""),
        "nvidia.com/gpu.count": str(gpus),
        "nvidia.com/gpu.replicas": str(replicas),
        "nvidia.com/gpu.sharing-strategy": mode,
        "nvidia.com/gpu.memory": "15360",
        "nvidia.com/cuda.driver-version.full": "580.95.05",
        **(labels or {}),
    }
    values: dict[str, t.Any] = {
        "labels": {key: value for key, value in all_labels.items() if value is not None},
        "allocatable": {resource: gpus * replicas},
        "capacity": {resource: gpus * replicas},
        "ready": True,
    }
    return Node(name, **{**values, **changes})


def pod(
    name: str, on: str = "", phase: str = "Running", limits: dict[str, int] | None = None, **status: t.Any
) -> dict[str, t.Any]:
    """A pod as the API returns it."""
    resources = {"limits": {key: str(value) for key, value in (limits or {}).items()}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": on, "containers": [{"name": "main", "resources": resources}]},
        "status": {"phase": phase, **status},
    }
