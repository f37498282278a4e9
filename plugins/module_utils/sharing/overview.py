# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the pools declare against what is seen, without a run: for whoever only tells it."""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass

from ..cluster_state import warnings as oddities
from ..cluster_state.pool_assignment import assign_pools
from ..cluster_state.unusual_nodes import as_list, unusual_nodes, warnings
from ..cluster_state.warnings import NAMES_LIMIT
from ..drain.operand_diagnosis import failing_operands
from ..drain.pods_on_nodes import pods_by_node
from .change_plan import ChangePlan, plan_changes
from .configmaps import SharingConfigMaps
from .demand import misfits, plan_demand

if t.TYPE_CHECKING:
    from ..catalog.mig import Geometry
    from ..cluster_state.mig_allocation import MigAllocation
    from ..cluster_state.node import Node
    from ..kube.client import Client
    from ..pools.membership import Membership
    from ..pools.plan import Plan
    from .impact_preview import Pods


@dataclass(frozen=True)
class Overview:
    """The pools spread over the nodes that are there, what differs, and what the nodes' hardware says to it."""

    settled: MigAllocation
    membership: Membership
    changes: ChangePlan
    geometries: t.Mapping[str, Geometry]
    doubts: tuple[str, ...]

    @property
    def plan(self) -> Plan:
        """The plan for these very nodes."""
        return self.settled.plan


def overview(client: Client, plan: Plan, nodes: t.Sequence[Node], pods: t.Callable[[], Pods] | None = None) -> Overview:
    """Compare; `pods` lists those that have not ended, which is asked only where it decides whose GPUs are cut."""
    membership = assign_pools(plan.pools, nodes)
    configmaps = SharingConfigMaps(client, plan).read(nodes, to_write=False)
    settled = plan_demand(plan, nodes, membership, configmaps)
    if settled.asks and pods is not None:
        settled = plan_demand(plan, nodes, membership, configmaps, pods_by_node(client, pods(), plan.config.namespace))
    return Overview(
        settled,
        membership,
        plan_changes(settled.plan, nodes, membership, configmaps),
        configmaps.offered.geometries,
        (*configmaps.offered.doubts, *misfits(settled.plan, nodes, membership, configmaps)),
    )


def add_membership(found: Overview, nodes: t.Sequence[Node], result: dict[str, t.Any]) -> None:
    """Add which nodes are of several pools, leave theirs or are of none, and what is odd about the fleet."""
    membership, released = found.membership, found.changes.released
    result["overlaps"] = dict(sorted(membership.overlaps.items())[:NAMES_LIMIT])
    result["released"] = released[:NAMES_LIMIT]
    result["unclaimed"] = membership.unclaimed[:NAMES_LIMIT]
    result["warnings"] += [
        *oddities.all_warnings(nodes, membership, released),
        *oddities.abandoned_pins(nodes, membership),
    ]


def add_unusual(client: Client, found: Overview, nodes: t.Sequence[Node], result: dict[str, t.Any]) -> None:
    """Add the GPU nodes that a run would not wait for; pods are listed only of nodes that are not discovered."""
    waiting = [node.name for node in nodes if node.has_gpu and not node.discovered]
    failing = failing_operands(client, found.plan.config.namespace, waiting, time.time())
    unusual = unusual_nodes(found.plan.pools, nodes, found.membership, failing)
    result["unusual_nodes"] = as_list(unusual, NAMES_LIMIT)
    result["undiscovered"] = [name for name in waiting if name not in unusual][:NAMES_LIMIT]
    result["warnings"] += warnings(unusual, found.changes.pool_of)
