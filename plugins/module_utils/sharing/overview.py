# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares the pools with the cluster, for modules that do not change nodes but report the required changes or refuse a release."""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass

from ..catalog.names import CONFIG_LABEL, POOL_LABEL
from ..cluster_state.hidden_gpus import hidden_nodes
from ..cluster_state.impact import NodeImpact, OperandRestart, RunningPods, impact_by_pool
from ..cluster_state.operand_pods import operands_by_node
from ..cluster_state.pool_assignment import assign_pools, is_undiscovered
from ..cluster_state.warnings import all_warnings, as_list, unusual_nodes
from ..common.errors import ReleaseRefused
from ..common.results import MAX_LISTED
from ..drain.operand_diagnosis import failing_operands
from ..drain.pods_on_nodes import pods_by_node
from ..kube.errors import ApiError
from ..kube.paths import NODES
from .change_plan import ChangePlan, plan_sharing_changes
from .configmaps import ConfigMaps, SharingConfigMaps
from .reader import StateReader, layout_problems, plan_demand

if t.TYPE_CHECKING:
    from ..catalog.mig import Geometry
    from ..cluster_state.mig_allocation import MigAllocation
    from ..cluster_state.node import Node
    from ..kube.client import Client
    from ..pools.membership import Membership
    from ..pools.plan import Plan

Pods = t.Sequence[t.Mapping[str, t.Any]]
# Returns additional data by pool name, read from objects other than nodes; raises ApiError.
PoolReader = t.Callable[["Client", "Plan", t.Sequence["Node"], "Membership"], t.Mapping[str, t.Any]]


@dataclass(frozen=True)
class Overview:
    """The pools with their demands allocated to nodes, the required changes, and the MIG profiles of the nodes' GPUs."""

    allocation: MigAllocation
    membership: Membership
    changes: ChangePlan
    geometries: t.Mapping[str, Geometry]
    warnings: tuple[str, ...]

    @property
    def plan(self) -> Plan:
        """The plan for these nodes."""
        return self.allocation.plan


def overview(client: Client, plan: Plan, nodes: t.Sequence[Node], pods: t.Callable[[], Pods] | None = None) -> Overview:
    """Compare the pools with the nodes. `pods` returns the pods that have not terminated; it is called only if the choice of GPUs depends on them."""
    membership = assign_pools(plan.pools, nodes)
    configmaps = SharingConfigMaps(client, plan).read(nodes, to_write=False)
    allocation = plan_demand(plan, nodes, membership, configmaps)
    if allocation.needs_usage and pods is not None:
        by_node = pods_by_node(client, pods(), plan.config.namespace)
        allocation = plan_demand(plan, nodes, membership, configmaps, by_node)
    return Overview(
        allocation,
        membership,
        plan_sharing_changes(allocation.plan, nodes, membership, configmaps),
        configmaps.capacity.geometries,
        (*configmaps.capacity.warnings, *layout_problems(allocation.plan, nodes, membership, configmaps)),
    )


def impact_preview(
    client: Client, overview: Overview, nodes: t.Sequence[Node], restart: OperandRestart, pods: Pods
) -> tuple[dict[str, dict[str, int]], ChangePlan]:
    """The impact on each pool (cluster_state.impact), and the changes with the evicted pods.

    `pods` contains all pods that have not terminated; it may be empty if they do not affect the result.
    """
    plan, membership = overview.plan, overview.membership
    by_node = pods_by_node(client, pods, plan.config.namespace)
    changes = plan_sharing_changes(plan, nodes, membership, ConfigMaps(), pods=by_node)
    impacts = {change.node: NodeImpact(change.transition, change.displaced) for change in changes.node_changes}
    running = RunningPods(operands_by_node(pods), by_node.gpu_pods)
    return impact_by_pool(plan.pools, nodes, membership, impacts, restart, running), changes


def add_pool_facts(
    client: Client,
    overview: Overview,
    nodes: t.Sequence[Node],
    readers: t.Mapping[str, PoolReader],
    pools: t.Mapping[str, dict[str, t.Any]],
) -> list[str]:
    """Add the data from each reader to the results of the pools, under the reader's key; returns a warning for each reader that lacks a permission."""
    warnings = []
    for key, read in readers.items():
        try:
            facts = read(client, overview.plan, nodes, overview.membership)
        except ApiError as error:
            if not error.forbidden:
                raise
            warnings.append(
                f"This user is not allowed to read the {key} data of the pools, so the report omits it: {error.message}"
            )
            continue
        for name, fact in facts.items():
            pools[name][key] = fact
    return warnings


def add_nodes(client: Client, overview: Overview, nodes: t.Sequence[Node], result: dict[str, t.Any]) -> None:
    """Add to the result the nodes that need attention (in several pools or in none, released, undiscovered, unusual) and the warnings about nodes.

    Pods are listed only on nodes that are not discovered or that offer no GPU.
    """
    membership, released = overview.membership, overview.changes.released
    result["overlaps"] = dict(sorted(membership.overlaps.items())[:MAX_LISTED])
    result["released"] = released[:MAX_LISTED]
    result["unclaimed"] = membership.unclaimed[:MAX_LISTED]
    undiscovered = [node.name for node in nodes if node.has_gpu and not node.discovered]
    suspects = {node.name for node in nodes if node.has_gpu and not any(node.allocatable.values())}
    failing = failing_operands(client, overview.plan.config.namespace, suspects | set(undiscovered), time.time())
    unusual = unusual_nodes(overview.plan.pools, nodes, membership, failing)
    result["unusual_nodes"] = as_list(unusual, MAX_LISTED)
    result["undiscovered"] = [name for name in undiscovered if name not in unusual][:MAX_LISTED]
    hidden = hidden_nodes(overview.plan, nodes, membership, unusual, before_discovery=is_undiscovered(nodes))
    result["warnings"] += all_warnings(nodes, membership, released, unusual, run=False, hidden=hidden)


def require_allowed(client: Client, plan: Plan, allowed: t.Collection[str]) -> None:
    """Raise ReleaseRefused if gpu_sharing would raise it.

    This function lists the nodes with the label of an undeclared pool (usually none), and sends another list request if some pools do not set
    sharing.mode. Only gpu_sharing finds nodes that leave a declared pool because the pool's match has changed.
    """
    if not any(list(client.list(NODES, label_selector=selector, metadata_only=True)) for selector in _selectors(plan)):
        return
    refusal = StateReader(client, plan).read().changes.releases.refusal(allowed)
    if refusal:
        raise ReleaseRefused(refusal)


def _selectors(plan: Plan) -> t.Iterator[str]:
    """The label selectors for the nodes that may be released or lose their sharing."""
    names = ",".join(sorted(pool.name for pool in plan.pools))
    yield f"{POOL_LABEL},{POOL_LABEL} notin ({names})" if names else POOL_LABEL
    silent = [pool for pool in plan.pools if not pool.declares_sharing]
    if silent:
        whole = ",".join(sorted({pool.config_key for pool in silent}))
        names = ",".join(sorted(pool.name for pool in silent))
        yield f"{POOL_LABEL} in ({names}),{CONFIG_LABEL},{CONFIG_LABEL} notin ({whole})"
