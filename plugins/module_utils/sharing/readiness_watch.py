# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watches the nodes until each node matches its pool's declaration."""

from __future__ import annotations

import collections
import datetime
import math
import time
import typing as t
from dataclasses import replace

from ..catalog.names import CONFIG_LABEL, GPU_TAINT_KEY, OWN_PREFIX
from ..catalog.taints import format_taint, is_temporary, untolerated_taints
from ..cluster_state.cluster_policy import active_policy, policy_tolerations
from ..cluster_state.hidden_gpus import awaited_by_nfd, taint_cause
from ..cluster_state.node import Node, parse_node
from ..cluster_state.node_check import NodeDrift, all_final, check_node, progress_text
from ..cluster_state.operand_pods import node_of, operand_failures
from ..cluster_state.pool_assignment import assign_pools, awaited_nodes
from ..drain.operand_diagnosis import OPERANDS_INTERVAL, failing_operands, operand_pods
from ..kube.errors import ApiError
from ..kube.paths import CLUSTER_POLICIES, NODES, PODS
from . import operand_restart
from .reader import ClusterState
from .scope import PRESENT

if t.TYPE_CHECKING:
    from ..catalog.taints import Taint
    from .run_context import RunContext

# Seconds during which newly discovered nodes are collected before they are compared.
_COLLECT = 3.0
# A node alternates between states if it has entered each of them this number of times.
_ALTERNATIONS = 3
# The maximum time, in seconds, that a run waits for NFD to label a node on which its worker has just started. The next constant contains the labels of the
# workers, as NFD's Helm chart and its operator for OpenShift set them.
_NFD_WAIT = 60.0
_NFD_WORKERS = ("app.kubernetes.io/name=node-feature-discovery,role=worker", "app=nfd-worker")


class ObservedNodes(t.NamedTuple):
    """The cluster at the end of a wait, the nodes that do not match their declaration, and the GPU nodes that are not discovered.

    wait_timeout: the limit of the wait in seconds; 0 without a wait.
    """

    state: ClusterState
    findings: dict[str, NodeDrift]
    undiscovered: list[str]
    wait_timeout: float = 0.0


class ReadinessWatch:
    """Verifies nodes and waits for them; nodes outside the scope are not verified."""

    def __init__(self, context: RunContext) -> None:
        """Store the context; nothing is read yet."""
        self._context = context
        # Restarts gpu-feature-discovery on some nodes, once for each node; set only if the run may change the cluster.
        self.restart_discovery: t.Callable[[t.Collection[str]], None] | None = None
        self._restarted: set[str] = set()
        # How often each node has entered each state, described by its differences.
        self._entered: dict[str, collections.Counter[tuple[str, ...]]] = {}
        # Undiscovered nodes on which NVIDIA's pods fail, with the reason; the run does not wait for them.
        self.failing: dict[str, str] = {}

    def wait(self, state: ClusterState, changed_at: float) -> ObservedNodes:
        """Wait until each node matches its pool's declaration, a new node is discovered, or the time limit after the last change is reached.

        changed_at: the time of the last change, on the clock of time.monotonic().
        """
        limit = self._context.wait_timeout
        nodes = dict(state.nodes)
        findings = self.findings(state)
        undiscovered = self._undiscovered(nodes, state)
        total = len(state.changes.pool_of)
        version = state.resource_version
        discovered_at: float | None = None
        operands_checked: float | None = None
        nfd_until = time.monotonic() + _NFD_WAIT
        while not all_final(findings) or undiscovered:
            seconds_left = changed_at + limit - time.monotonic()
            unlabeled = {name for name in undiscovered if not nodes[name].has_nfd_labels}
            if unlabeled and time.monotonic() >= nfd_until:
                # NFD may be configured to set no label on nodes without GPUs.
                undiscovered -= unlabeled
                continue
            if unlabeled:
                seconds_left = min(seconds_left, nfd_until - time.monotonic())
            if self._waiting_for_discovery(nodes, findings, undiscovered):
                if operands_checked is None or time.monotonic() - operands_checked >= OPERANDS_INTERVAL:
                    self._find_failing(nodes, state, findings, undiscovered)
                    operands_checked = time.monotonic()
                    continue
                seconds_left = min(seconds_left, operands_checked + OPERANDS_INTERVAL - time.monotonic())
            if discovered_at is not None:
                seconds_left = min(seconds_left, discovered_at + _COLLECT - time.monotonic())
            if seconds_left <= 0:
                break
            seconds_left = min(seconds_left, self._until_labels_are_late(findings))
            self._context.progress.report(progress_text(undiscovered), total - len(findings), total)
            try:
                for event in self._context.client.watch(
                    NODES, resource_version=version, timeout=max(seconds_left, 1.0)
                ):
                    version = event["object"]["metadata"]["resourceVersion"]
                    node = parse_node(event["object"])
                    previous = nodes.get(node.name)
                    if event["type"] == "DELETED":
                        nodes.pop(node.name, None)
                        findings.pop(node.name, None)
                        undiscovered.discard(node.name)
                    else:
                        nodes[node.name] = node
                        if node.discovered:
                            self.failing.pop(node.name, None)
                        self._update(node, state, findings)
                        self._update_undiscovered(node, state, undiscovered)
                        if node.discovered and not (previous and previous.discovered):
                            discovered_at = discovered_at or time.monotonic()
                    if all_final(findings) and not undiscovered:
                        break
                    self._context.progress.report(progress_text(undiscovered), total - len(findings), total)
                    if discovered_at is not None and time.monotonic() > discovered_at + _COLLECT:
                        break
            except ApiError as error:
                if not error.gone:
                    raise
                # The server no longer has this version, so start again with a list.
                state = self._context.reader.read()
                nodes, version = dict(state.nodes), state.resource_version
                findings = self.findings(state)
                undiscovered = self._undiscovered(nodes, state)
        if discovered_at is not None:
            fresh = self._context.reader.compare(nodes, version)
            return ObservedNodes(fresh, self.findings(fresh), sorted(undiscovered), limit)
        end = replace(state, nodes=nodes, resource_version=version)
        return ObservedNodes(end, findings, sorted(undiscovered), limit)

    def findings(self, state: ClusterState) -> dict[str, NodeDrift]:
        """The differences from the declaration, by node. Nodes that are not ready are omitted, because they are reported elsewhere."""
        findings: dict[str, NodeDrift] = {}
        for node in state.nodes.values():
            self._update(node, state, findings)
        return findings

    def alternating(self, names: t.Iterable[str]) -> list[str]:
        """The nodes that have changed back and forth between at least two states during the waits."""
        return sorted(
            name
            for name in names
            if sum(count >= _ALTERNATIONS for count in self._entered.get(name, collections.Counter()).values()) > 1
        )

    def findings_of_reported(self, state: ClusterState) -> dict[str, NodeDrift]:
        """The differences of nodes that verification and waits exclude because these nodes have already been reported, by node."""
        findings: dict[str, NodeDrift] = {}
        for name in self._context.scope.excluded:
            node, pool = state.nodes.get(name), state.pool_of(name)
            finding = check_node(node, pool) if node and node.ready and pool else None
            if finding:
                findings[name] = finding
        return findings

    def _until_labels_are_late(self, findings: t.Mapping[str, NodeDrift]) -> float:
        """Restart gpu-feature-discovery on nodes where only labels have differed for too long; returns the seconds until the next node reaches this limit."""
        if self.restart_discovery is None:
            return math.inf
        ages = {
            name: self._context.since.seconds(name, finding.differences)
            for name, finding in findings.items()
            if finding.labels_only and name not in self._restarted
        }
        late = [name for name, seconds in ages.items() if seconds >= operand_restart.LABELS_LATE]
        if late:
            self._context.progress.report(f"restarting gpu-feature-discovery on {len(late)} nodes")
            self._restarted.update(late)
            self.restart_discovery(late)
        return min((operand_restart.LABELS_LATE - ages[name] for name in ages.keys() - set(late)), default=math.inf)

    def _undiscovered(self, nodes: t.Mapping[str, Node], state: ClusterState) -> set[str]:
        plan = self._context.plan
        names = awaited_nodes(plan.pools, nodes.values(), state.membership)
        without_nfd = awaited_by_nfd(plan, list(nodes.values()), state.membership)
        names += self._with_nfd_worker(without_nfd) if without_nfd and self._context.scope.state == PRESENT else []
        return {name for name in names if self._context.scope.contains(nodes[name], None) and name not in self.failing}

    def _update_undiscovered(self, node: Node, state: ClusterState, undiscovered: set[str]) -> None:
        """Stop waiting for a node that is discovered, or on which NFD has found no GPU; wait for a node on which NFD has found one."""
        if node.discovered or (node.has_nfd_labels and not node.has_gpu):
            undiscovered.discard(node.name)
        elif node.has_gpu and node.name not in undiscovered and node.name not in state.membership.undiscovered:
            awaited = awaited_nodes(state.plan.pools, [node], assign_pools(state.plan.pools, [node]))
            if awaited and node.name not in self.failing and self._context.scope.contains(node, None):
                undiscovered.add(node.name)

    def _with_nfd_worker(self, names: t.Collection[str]) -> list[str]:
        """The nodes on which a worker of NFD has just started; only these will be labeled soon."""
        pods = [
            pod
            for selector in _NFD_WORKERS
            for pod in self._context.client.list(PODS, label_selector=selector)
            if node_of(pod) in names and _age(pod) < 2 * _NFD_WAIT
        ]
        failing = operand_failures(pods, time.time())
        return sorted({node_of(pod) for pod in pods} - failing.keys())

    def look_for_failures(self, state: ClusterState) -> None:
        """Find the undiscovered nodes on which NVIDIA's pods fail, without waiting (for a preview)."""
        findings, undiscovered = self.findings(state), self._undiscovered(state.nodes, state)
        self._find_failing(state.nodes, state, findings, undiscovered)

    def _waiting_for_discovery(
        self, nodes: t.Mapping[str, Node], findings: t.Mapping[str, NodeDrift], undiscovered: t.Collection[str]
    ) -> set[str]:
        """The undiscovered nodes that the run waits for, including nodes that belong to pools."""
        members = {name for name, finding in findings.items() if not finding.final and not nodes[name].discovered}
        return members | set(undiscovered)

    def _find_failing(
        self, nodes: t.Mapping[str, Node], state: ClusterState, findings: dict[str, NodeDrift], undiscovered: set[str]
    ) -> None:
        """Record the nodes that cannot be discovered because an NVIDIA pod fails on them."""
        waiting = self._waiting_for_discovery(nodes, findings, undiscovered)
        failing = self._kept_away([nodes[name] for name in waiting if name in nodes])
        waiting -= failing.keys()
        configured = {
            name
            for name in waiting
            if (pool := state.pool_of(name)) is not None and nodes[name].labels.get(CONFIG_LABEL) == pool.config_key
        }
        client, namespace = self._context.client, self._context.namespace
        failing |= failing_operands(client, namespace, waiting, time.time(), configured)
        self.failing.update(failing)
        undiscovered.difference_update(failing)
        for name in failing:
            self._update(nodes[name], state, findings)

    def _kept_away(self, nodes: t.Iterable[Node]) -> dict[str, str]:
        """The nodes with a taint that the ClusterPolicy does not tolerate, so that NVIDIA's pods never run there, with the reason."""
        tainted = {node.name: node.taints for node in nodes if any(map(_may_keep_away, node.taints))}
        # A pod that runs already stays there.
        pods = operand_pods(self._context.client, self._context.namespace, tainted) if tainted else ()
        tainted = {name: taints for name, taints in tainted.items() if name not in set(map(node_of, pods))}
        policy = active_policy(self._context.client.list_known(CLUSTER_POLICIES)) if tainted else None
        if policy is None:
            return {}
        tolerations = [*policy_tolerations(policy), *self._context.reader.expected_tolerations]
        declared = {format_taint(taint) for pool in self._context.plan.pools for taint in pool.taints}
        reasons = {}
        for name, taints in tainted.items():
            untolerated = list(filter(_may_keep_away, untolerated_taints(tolerations, taints)))
            listed = ", ".join(map(format_taint, untolerated))
            if untolerated and declared.issuperset(map(format_taint, untolerated)):
                reasons[name] = (
                    f"the ClusterPolicy does not tolerate its taint {listed} yet, because this would restart drivers: allow the driver rollout with "
                    "gpu_operator_allow_driver_rollout"
                )
            elif untolerated:
                reasons[name] = ": ".join(taint_cause(untolerated))
        return reasons

    def _update(self, node: Node, state: ClusterState, findings: dict[str, NodeDrift]) -> None:
        pool = state.pool_of(node.name)
        verified = pool is not None and node.ready and self._context.scope.contains(node, pool)
        finding = check_node(node, pool) if verified and pool else None
        if finding and not node.discovered and node.name in self.failing:
            finding = NodeDrift(node.name, finding.pool, (self.failing[node.name],), final=True)
        previous = findings.get(node.name)
        states = (previous.differences if previous else (), finding.differences if finding else ())
        if states[0] != states[1]:
            self._entered.setdefault(node.name, collections.Counter())[states[1]] += 1
        if finding:
            findings[node.name] = finding
            self._context.since.seconds(node.name, finding.differences)
        else:
            findings.pop(node.name, None)
            self._context.since.forget(node.name)


def _age(pod: t.Mapping[str, t.Any]) -> float:
    """The age of a pod in seconds."""
    created = pod["metadata"].get("creationTimestamp") or ""
    return time.time() - datetime.datetime.fromisoformat(created).timestamp() if created else math.inf


def _may_keep_away(taint: Taint) -> bool:
    """Whether NVIDIA's pods may not tolerate this taint although it stays on the node."""
    key = str(taint.get("key") or "")
    return key != GPU_TAINT_KEY and not key.startswith(OWN_PREFIX) and not is_temporary(taint)
