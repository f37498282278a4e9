# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run would cost each pool, and its steps node by node, without a run."""

from __future__ import annotations

import typing as t

from ..cluster_state.impact import NodeImpact, OperandRestart, RunningPods, of_pools
from ..cluster_state.operand_pods import operands
from ..drain.pods_on_nodes import pods_by_node
from .change_plan import ConfigMaps, plan_changes

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..kube.client import Client
    from ..pools.membership import Membership
    from ..pools.plan import Plan
    from .change_plan import ChangePlan

Pods = t.Sequence[t.Mapping[str, t.Any]]


def impact_preview(
    client: Client,
    plan: Plan,
    nodes: t.Sequence[Node],
    membership: Membership,
    before: ChangePlan,
    roll: OperandRestart,
    pods: Pods,
) -> tuple[dict[str, dict[str, int]], ChangePlan]:
    """The counts of cluster_state.impact by pool, and the changes with the pods that are evicted for them.

    `before` is what came of the same nodes when nobody had looked who is on them; `pods` are all that have not ended, or none
    where no step asks.
    """
    asked = pods_by_node(client, pods, plan.config.namespace)
    changes = plan_changes(plan, nodes, membership, ConfigMaps(), asked=asked, before=before)
    felt = {of.node: NodeImpact(of.transition, of.goes) for of in changes.steps}
    running = RunningPods(operands(pods), asked.gpu_pods)
    return of_pools(plan.pools, nodes, membership, felt, roll, running), changes
