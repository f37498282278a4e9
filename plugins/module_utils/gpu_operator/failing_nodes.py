# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the nodes on which NVIDIA's pods keep failing, so that the wait for the operator continues without them."""

from __future__ import annotations

import time
import typing as t

from ..cluster_state.node import parse_node
from ..cluster_state.operand_pods import operand_failures, unready_operands
from ..cluster_state.pool_assignment import can_continue_without, ignorable_nodes
from ..drain.operand_diagnosis import describe_failures, operand_pods
from .readiness import IgnoredNodes, OperatorReadiness

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.plan import PoolPlan

Object = dict[str, t.Any]


class FailingNodes:
    """The nodes that one wait ignores."""

    def __init__(self, client: Client, pools: t.Sequence[PoolPlan]) -> None:
        """Read nothing yet."""
        self._client = client
        self._pools = pools
        # The nodes that were found last.
        self.ignored = IgnoredNodes()

    def find(
        self,
        readiness: OperatorReadiness,
        stalled: t.Sequence[Object],
        namespace: str,
        nodes: t.Sequence[Object],
        read_nodes: t.Callable[[], t.Sequence[Object]],
    ) -> IgnoredNodes | None:
        """The nodes that the run does not wait for; None if there are none.

        A node that a pool uses is only one of them if its pod is among the `stalled` ones and is in back-off. The pods of all other nodes are only read if
        all pods that are not ready may belong to these nodes. As long as no other GPU node works, the run waits for nodes that a pool may claim, because a
        failure on all nodes is not caused by one node.
        """
        missing = max((item.desired - item.available for item in readiness.operands), default=0)
        if readiness.ready or not missing:
            return None
        candidates = {*ignorable_nodes(self._pools, [parse_node(node) for node in nodes]), *self.ignored.reasons}
        if missing > len(candidates) and not stalled:
            return None
        pods = [*operand_pods(self._client, namespace, candidates), *stalled]
        failures = operand_failures(pods, time.time())
        if not failures:
            return None
        current = [parse_node(node) for node in read_nodes()]
        unused = ignorable_nodes(self._pools, current)
        failures = {
            name: failure
            for name, failure in failures.items()
            # If a driver upgrade has stopped, its remedy is more useful.
            if name in unused or (failure.in_back_off and not readiness.blocked)
        }
        if not failures or not can_continue_without(failures, self._pools, current):
            return None
        reasons = describe_failures(self._client, namespace, failures)
        self.ignored = IgnoredNodes(reasons, unready_operands(pods, failures))
        return self.ignored
