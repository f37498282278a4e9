# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one reading of the cluster says of its nodes, and what differs from the pools."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field

from ..cluster_state.node import Node, parse
from ..cluster_state.pool_assignment import assign_pools
from ..drain.pods_on_nodes import PodsByNode, pods_by_node, pods_on
from ..kube.paths import NODES
from .change_plan import ChangePlan
from .change_plan import plan_changes as profile
from .configmaps import SharingConfigMaps
from .demand import DemandPlan, misfits, plan_demand, unmet_demand
from .preconditions import held_back
from .scope import EVERYTHING, Scope

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..mig.layout import Layout
    from ..pools.membership import Membership
    from ..pools.plan import Plan, PoolPlan, Toleration


@dataclass(frozen=True)
class FleetState:
    """What one reading of the cluster says, and what differs from the pools.

    `plan` is that of these very nodes: a demand is spread over them, as far as there is room (`missing`, by pool).
    `problems` are what of it cannot be, whatever is done.
    """

    nodes: dict[str, Node]
    resource_version: str
    membership: Membership
    profile: ChangePlan
    plan: Plan
    missing: t.Mapping[str, t.Mapping[str, int]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    def pool(self, node: str) -> PoolPlan | None:
        """The pool of a node, None where it belongs to none."""
        return self._pools.get(self.profile.pool_of.get(node, ""))

    @functools.cached_property
    def _pools(self) -> dict[str, PoolPlan]:
        return {pool.name: pool for pool in self.plan.pools}

    def of_pool(self, pool: str) -> list[Node]:
        """The nodes of a pool."""
        return [self.nodes[name] for name in self.membership.by_pool.get(pool, ()) if name in self.nodes]


class ExpectedPolicy(t.NamedTuple):
    """What is not there in a preview and will be: tolerations of the ClusterPolicy, and ConfigMaps."""

    tolerations: tuple[Toleration, ...] = ()
    configmaps: tuple[t.Mapping[str, t.Any], ...] = ()


class StateReader:
    """Reads the nodes, the ConfigMaps and, where it matters, who is on the nodes."""

    def __init__(
        self, client: Client, plan: Plan, *, scope: Scope = EVERYTHING, expected: ExpectedPolicy | None = None
    ) -> None:
        """Ask nothing yet."""
        self._client = client
        self._plan = plan
        self._scope = scope
        self._expected = expected or ExpectedPolicy()
        self.configs = SharingConfigMaps(client, plan, self._expected.configmaps)
        # Nodes that this run has done with, whatever they differ in.
        self.left_out: set[str] = set()
        # How this run cuts the nodes over which a demand is spread: what it has begun it does not decide again.
        self._settled: dict[str, Layout] = {}

    def read(self) -> FleetState:
        """One paged list of the nodes and one look at our ConfigMap (at both where GPUs are cut)."""
        listing = self._client.list(NODES)
        nodes = {node.name: node for node in map(parse, listing)}
        return self.compared(nodes, listing.resource_version)

    def afresh(self) -> FleetState:
        """The same as if this run had decided nothing yet: another one may have changed the cluster in the meantime."""
        self._settled = {}
        return self.read()

    def compared(self, nodes: dict[str, Node], resource_version: str) -> FleetState:
        """What these nodes differ in; pods are listed only where they may make a difference."""
        known = list(nodes.values())
        membership = assign_pools(self._plan.pools, known)
        configmaps = self.configs.read(known)
        scope, left_out = self._scope, self.left_out
        settling = DemandPlan(scope, left_out, self._settled)
        settled = plan_demand(self._plan, known, membership, configmaps, settling=settling)
        asked = self.look() if settled.asks else None
        if asked is not None:
            settled = plan_demand(self._plan, known, membership, configmaps, asked, settling)
        plan = settled.plan
        wanted = profile(plan, known, membership, configmaps, scope=scope, left_out=left_out, asked=asked)
        held = held_back(self._client, plan, wanted.new_taints, self._expected.tolerations)
        if held:
            wanted = profile(plan, known, membership, configmaps, held, scope=scope, left_out=left_out, asked=asked)
        if wanted.asks:
            wanted = profile(
                plan,
                known,
                membership,
                configmaps,
                held,
                scope=scope,
                left_out=left_out,
                asked=self.look(),
                before=wanted,
            )
        self._settled = {name: of.sharing.layout for pool in plan.pools for name, of in pool.by_node.items()}
        return FleetState(
            nodes,
            resource_version,
            membership,
            wanted,
            plan,
            settled.missing,
            problems=(
                *misfits(plan, known, membership, configmaps),
                *unmet_demand(settled, nodes, membership, scope),
            ),
            doubts=configmaps.offered.doubts,
        )

    def look(self, node: str | None = None) -> PodsByNode:
        """Who is on one node, or on all."""
        return pods_by_node(self._client, pods_on(self._client, node), self._plan.config.namespace)
