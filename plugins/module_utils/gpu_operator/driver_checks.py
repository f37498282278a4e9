# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the reasons why the pools' NVIDIADriver objects cannot be applied: invalid values, foreign objects, and nodes without an object (pure).

Source: gpu-operator v25.10.1 controllers/nvidiadriver_controller.go, internal/validator/validator.go and the CRD's validation rules.
"""

from __future__ import annotations

import json
import typing as t

from ..catalog.names import DRIVER_DEPLOY_LABEL, FIELD_MANAGER, POOL_LABEL
from ..cluster_state.nvidia_driver import MANAGED_BY_LABEL, driver_of_nodes, is_default, is_managed, node_selector
from ..common.nested import get_nested
from ..helm.release import helm_release_of
from ..schema.messages import abbreviate_nodes, join_words

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..pools.plan import Plan, PoolPlan

Document = t.Mapping[str, t.Any]

_IMMUTABLE = ("driverType", "usePrecompiled")


def object_problems(pool: PoolPlan, live: Document | None, body: Document) -> t.Iterator[str]:
    """Messages about values that the operator or the API server would reject."""
    spec, name = body["spec"], body["metadata"]["name"]
    if not spec.get("version"):
        yield f"Pool {pool.name}: neither its driver nor the ClusterPolicy has a version; set driver.version in the pool."
    if spec.get("usePrecompiled") is True and ("gds" in spec or "gdrcopy" in spec):
        yield (
            f"Pool {pool.name}: the operator refuses GPUDirect Storage and GDRCopy with a precompiled driver; remove driver.precompiled, "
            "or disable gds and gdrcopy in the ClusterPolicy."
        )
    for key in _IMMUTABLE if live is not None else ():
        before, after = get_nested(live, "spec", key), spec.get(key)
        if before is not None and after is not None and before != after:
            yield (
                f"Pool {pool.name}: {key} of NVIDIADriver {name} cannot change from {json.dumps(before)} to {json.dumps(after)}. Restore the old "
                f"value. Alternatively, if all nodes of the pool may lose the driver at the same time, run kubectl delete nvidiadriver {name}, "
                "and run the playbook again."
            )


def name_problem(name: str, user: str) -> str:
    """The message about a foreign NVIDIADriver that has the name of a required object; an apply would merge both objects."""
    return (
        f"NVIDIADriver {name} was not created by this collection, but {user} needs its name. Delete this object, and create it again under another "
        f"name if other nodes need it; or hand it over to this collection: kubectl label --overwrite nvidiadriver {name} {MANAGED_BY_LABEL}={FIELD_MANAGER}"
    )


def overlap_problems(
    plan: Plan, drivers: t.Iterable[Document], nodes: t.Iterable[Node], pool_of: t.Mapping[str, str]
) -> t.Iterator[str]:
    """Messages about foreign NVIDIADriver objects that select nodes of the pools; the operator rejects this overlap."""
    for item in drivers:
        if is_managed(item) or is_default(item):
            continue
        selector = node_selector(item)
        pools = {
            pool_of[node.name]
            for node in nodes
            if node.name in pool_of
            and all(
                {**node.labels, POOL_LABEL: pool_of[node.name]}.get(key) == value for key, value in selector.items()
            )
        }
        if not get_nested(item, "spec", "nodeSelector"):
            pools = {pool.name for pool in plan.pools}
        if pools:
            release = helm_release_of(item)
            remedy = (
                "set driver.nvidiaDriverCRD.deployDefaultCR: false in its values"
                if release
                else f"set a different nodeSelector in it, or run kubectl delete nvidiadriver {item['metadata']['name']}"
            )
            of_release = f" of Helm release {release[1]}/{release[0]}" if release else ""
            yield (
                f"NVIDIADriver {item['metadata']['name']}{of_release} selects nodes of pool {join_words(sorted(pools))}, and the operator "
                f"refuses several NVIDIADriver objects for one node: {remedy}; or remove `driver` from the pools."
            )


def uncovered_problems(
    drivers: t.Sequence[Document], nodes: t.Sequence[Node], members: t.Collection[str]
) -> t.Iterator[str]:
    """The message about nodes that would have no driver once NVIDIADriver objects install the drivers."""
    selected = driver_of_nodes(
        [item for item in drivers if not is_managed(item)], [(node.name, node.labels) for node in nodes]
    )
    without = [
        node.name
        for node in nodes
        if node.has_gpu
        and node.labels.get(DRIVER_DEPLOY_LABEL, "true") == "true"
        and node.name not in members
        and not selected.get(node.name)
    ]
    if without:
        yield (
            f"{abbreviate_nodes(without)}: no NVIDIADriver would select a node that belongs to no pool, so it would have no driver (operators "
            "before v26.7 have no default NVIDIADriver). Declare a pool for them. If only their GPU model assigns them to a pool, note that "
            f"the model is not known before a driver runs: select them by match.labels, or label them ({POOL_LABEL}=<pool>)."
        )
