# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the cluster and compares it with the pools."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field

from ..cluster_state.gpu_pods import PodsByNode
from ..cluster_state.node import Node, parse_node
from ..cluster_state.pool_assignment import assign_pools
from ..drain.pods_on_nodes import pods_by_node, pods_on
from ..kube.paths import NODES
from .change_plan import ChangePlan, plan_changes
from .configmaps import SharingConfigMaps
from .demand import demand_problems, layout_problems, plan_demand
from .preconditions import taints_to_hold_back
from .scope import EVERYTHING, Scope

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..mig.layout import Layout
    from ..pools.membership import Membership
    from ..pools.plan import Plan, PoolPlan, Toleration


@dataclass(frozen=True)
class ClusterState:
    """One reading of the cluster, and how it differs from the pools.

    plan: with each demand spread over these nodes. missing: by pool, the devices of a demand that do not fit.
    problems: what makes a run impossible. warnings: what does not.
    """

    nodes: dict[str, Node]
    resource_version: str
    membership: Membership
    changes: ChangePlan
    plan: Plan
    missing: t.Mapping[str, t.Mapping[str, int]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def pool_of(self, node: str) -> PoolPlan | None:
        """The pool of a node, None if it belongs to none."""
        return self._pools.get(self.changes.pool_of.get(node, ""))

    @functools.cached_property
    def _pools(self) -> dict[str, PoolPlan]:
        return {pool.name: pool for pool in self.plan.pools}

    def members(self, pool: str) -> list[Node]:
        """The nodes of a pool."""
        return [self.nodes[name] for name in self.membership.by_pool.get(pool, ()) if name in self.nodes]


class ExpectedPolicy(t.NamedTuple):
    """What a preview counts as present although it is not yet: tolerations of the ClusterPolicy, and ConfigMaps."""

    tolerations: tuple[Toleration, ...] = ()
    configmaps: tuple[t.Mapping[str, t.Any], ...] = ()


class StateReader:
    """Reads the nodes, the ConfigMaps and, if they matter, the pods on the nodes."""

    def __init__(
        self, client: Client, plan: Plan, *, scope: Scope = EVERYTHING, expected: ExpectedPolicy | None = None
    ) -> None:
        """Keep the arguments; nothing is read."""
        self._client = client
        self._plan = plan
        self._scope = scope
        self._expected = expected or ExpectedPolicy()
        self.configmaps = SharingConfigMaps(client, plan, self._expected.configmaps)
        # Nodes that this run does not change any more.
        self.excluded: set[str] = set()
        # The layouts that this run has chosen for nodes whose pool has a demand; it does not choose again.
        self._settled: dict[str, Layout] = {}

    def read(self) -> ClusterState:
        """Read the cluster: one paged list of the nodes, and one or both ConfigMaps."""
        listing = self._client.list(NODES)
        nodes = {node.name: node for node in map(parse_node, listing)}
        return self.compare(nodes, listing.resource_version)

    def read_again(self) -> ClusterState:
        """Read the cluster and choose layouts again, because another run may have changed it in the meantime."""
        self._settled = {}
        return self.read()

    def compare(self, nodes: dict[str, Node], resource_version: str) -> ClusterState:
        """Compare these nodes with the pools; pods are listed only if they may make a difference."""
        node_list = list(nodes.values())
        membership = assign_pools(self._plan.pools, node_list)
        configmaps = self.configmaps.read(node_list)
        spread = functools.partial(
            plan_demand,
            self._plan,
            node_list,
            membership,
            configmaps,
            scope=self._scope,
            excluded=self.excluded,
            settled=self._settled,
        )
        allocation = spread()
        pods = self.list_pods() if allocation.needs_usage else None
        if pods is not None:
            allocation = spread(pods)
        plan = allocation.plan
        compare = functools.partial(
            plan_changes, plan, node_list, membership, configmaps, scope=self._scope, excluded=self.excluded
        )
        changes = compare(pods=pods)
        held_back = taints_to_hold_back(self._client, plan, changes.new_taints, self._expected.tolerations)
        if held_back:
            changes = compare(held_back, pods=pods)
        if changes.needs_pods:
            changes = compare(held_back, pods=self.list_pods(), previous=changes)
        self._settled = {
            name: node_plan.sharing.layout for pool in plan.pools for name, node_plan in pool.by_node.items()
        }
        return ClusterState(
            nodes,
            resource_version,
            membership,
            changes,
            plan,
            allocation.missing,
            problems=(
                *layout_problems(plan, node_list, membership, configmaps),
                *demand_problems(allocation, nodes, membership, self._scope),
            ),
            warnings=configmaps.capacity.warnings,
        )

    def list_pods(self, node: str | None = None) -> PodsByNode:
        """The pods on one node, or on all."""
        return pods_by_node(self._client, pods_on(self._client, node), self._plan.config.namespace)
