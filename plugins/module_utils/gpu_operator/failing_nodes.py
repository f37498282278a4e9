# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the nodes on which NVIDIA's pods keep failing, so that the wait for the operator continues without them."""

from __future__ import annotations

import time
import typing as t

from ..catalog.names import CONFIG_LABEL
from ..catalog.operands import DISCOVERY, MPS_DAEMON, PLUGIN, VALIDATOR
from ..cluster_state.node import Node, parse_node
from ..cluster_state.operand_pods import app_of, operand_failures, unready_operands
from ..cluster_state.pool_assignment import assign_pools, can_continue_without, ignorable_nodes
from ..drain.operand_diagnosis import describe_failures, operand_pods
from .readiness import IgnoredNodes, OperatorReadiness

if t.TYPE_CHECKING:
    from ..cluster_state.operand_pods import ContainerFailure
    from ..kube.client import Client
    from ..pools.plan import PoolPlan

Object = dict[str, t.Any]

# The operands that read the configuration in a node's label, and the validator, which waits for the device plugin.
_CONFIGURED = (PLUGIN, DISCOVERY, MPS_DAEMON)
_WAITING = (*_CONFIGURED, VALIDATOR)


class FailingNodes:
    """Determines the nodes that a wait ignores, and keeps the result of the last search."""

    def __init__(self, client: Client, pools: t.Sequence[PoolPlan]) -> None:
        """Store the arguments; nothing is read yet."""
        self._client = client
        self._pools = pools
        # The stalled pods of the last call, and the broken nodes on which they run, with the apps that fail there and the reason.
        self._stalled: t.Sequence[Object] = ()
        self._broken: dict[str, set[str]] = {}
        self._broken_reasons: dict[str, str] = {}
        # The nodes whose configuration gpu_sharing replaces after this wait, although the operands that read it fail.
        self._replaced: dict[str, ContainerFailure] = {}
        # Whether gpu_sharing runs after this wait.
        self.sharing_follows = False
        # The result of the last call that found nodes.
        self.ignored = IgnoredNodes()

    def find(
        self,
        readiness: OperatorReadiness,
        stalled: t.Sequence[Object],
        namespace: str,
        nodes: t.Sequence[Object],
        read_nodes: t.Callable[[], t.Sequence[Object]],
    ) -> IgnoredNodes | None:
        """Find the nodes that the run does not wait for; None if there are none.

        A discovered node of a pool is broken if one of its pods is in `stalled` and in back-off. The pods of other nodes are read only if all pods that
        are not ready may be on ignored nodes. If no other GPU node works, the run also waits for failing nodes that a pool may claim, because a failure
        on all nodes is not caused by one node.
        """
        missing = max((item.desired - item.available for item in readiness.operands), default=0)
        if readiness.ready or not missing:
            return None
        if stalled is not self._stalled:
            self._replaced = self._find_replaced(stalled, read_nodes) if self.sharing_follows else {}
            broken = self._find_broken(readiness, stalled, read_nodes)
            self._broken_reasons = describe_failures(self._client, namespace, broken)
            self._stalled, self._broken = stalled, _failing_apps(stalled, broken)
        candidates = ignorable_nodes(self._pools, _parsed(nodes)) - self._broken.keys()
        if missing > len(candidates) + len(self._broken) + len(self._replaced):
            return None
        pods = operand_pods(self._client, namespace, candidates)
        failures = operand_failures(pods, time.time())
        if failures:
            current = _parsed(read_nodes())
            ignorable = ignorable_nodes(self._pools, current)
            failures = {name: failure for name, failure in failures.items() if name in ignorable}
            if not can_continue_without({*failures, *self._broken}, self._pools, current):
                return None
        if not failures and not self._broken and not self._replaced:
            return None
        reasons = {**self._broken_reasons, **describe_failures(self._client, namespace, failures)}
        unready = unready_operands([*pods, *stalled], reasons)
        configured = [pod for pod in stalled if app_of(pod) in _WAITING]
        for app, names in unready_operands(configured, self._replaced).items():
            unready.setdefault(app, set()).update(names)
        for name, failure in self._replaced.items():
            reasons.setdefault(name, f"{failure}; the role sharing replaces its label {CONFIG_LABEL}")
        self.ignored = IgnoredNodes(reasons, unready, self._broken)
        return self.ignored

    def _find_replaced(
        self, stalled: t.Sequence[Object], read_nodes: t.Callable[[], t.Sequence[Object]]
    ) -> dict[str, ContainerFailure]:
        """The nodes of pools on which an operand fails that reads the configuration in the node's label, if gpu_sharing replaces this label."""
        failures = operand_failures((pod for pod in stalled if app_of(pod) in _CONFIGURED), time.time())
        if not failures:
            return {}
        nodes = _parsed(read_nodes())
        by_name = {node.name: node for node in nodes}
        membership = assign_pools(self._pools, nodes)
        return {
            name: failures[name]
            for pool in self._pools
            for name in membership.by_pool[pool.name]
            if name in failures and by_name[name].labels.get(CONFIG_LABEL, pool.config_key) != pool.config_key
        }

    def _find_broken(
        self,
        readiness: OperatorReadiness,
        stalled: t.Sequence[Object],
        read_nodes: t.Callable[[], t.Sequence[Object]],
    ) -> dict[str, ContainerFailure]:
        """The broken nodes, with the failure of each; empty if a driver upgrade is blocked, because the remedy for the upgrade is more useful."""
        in_back_off = {
            name: failure for name, failure in operand_failures(stalled, time.time()).items() if failure.in_back_off
        }
        if not in_back_off or readiness.blocked:
            return {}
        nodes = _parsed(read_nodes())
        ignorable = ignorable_nodes(self._pools, nodes)
        broken = {
            name: failure
            for name, failure in in_back_off.items()
            if name not in ignorable and name not in self._replaced
        }
        if not can_continue_without(broken, self._pools, nodes):
            return {}
        return broken


def _failing_apps(pods: t.Iterable[Object], nodes: t.Collection[str]) -> dict[str, set[str]]:
    """The apps whose pods are in back-off, by node; other pods on a node may only be waiting for these pods."""
    apps: dict[str, set[str]] = {name: set() for name in nodes}
    for pod in pods:
        for name, failure in operand_failures([pod], time.time()).items():
            if name in apps and failure.in_back_off:
                apps[name].add(app_of(pod))
    return apps


def _parsed(nodes: t.Iterable[Object]) -> list[Node]:
    return [parse_node(node) for node in nodes]
