# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watching nodes until each is what its pool declares."""

from __future__ import annotations

import math
import time
import typing as t
from dataclasses import replace

from ..cluster_state.node import Node, parse
from ..cluster_state.node_check import Finding, check, pending_message, settled
from ..cluster_state.pool_assignment import awaited_nodes
from ..common.wait import Since
from ..drain.operand_diagnosis import failing_operands
from ..kube.errors import ApiError
from ..kube.paths import NODES
from . import late_labels
from .reader import FleetState

if t.TYPE_CHECKING:
    from ..common.progress import Progress
    from ..kube.client import Client
    from ..pools.plan import Plan
    from .reader import StateReader
    from .scope import Scope

# Nodes that are discovered one after the other are taken together.
_GATHER = 3.0
# How often it is looked whether NVIDIA's pods fail on nodes that are not discovered.
_LOOK = 5.0


class ObservedNodes(t.NamedTuple):
    """What is known at the end of a look: what of it is not as declared, and which GPU nodes are not discovered."""

    fleet: FleetState
    findings: dict[str, Finding]
    undiscovered: list[str]


class ReadinessWatch:
    """Proves nodes, and waits for the proof; nodes outside the scope, and those that are `excused`, prove nothing."""

    def __init__(
        self,
        client: Client,
        plan: Plan,
        reader: StateReader,
        scope: Scope,
        progress: Progress,
        *,
        clock: t.Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask nothing yet."""
        self._client = client
        self._plan = plan
        self._reader = reader
        self._scope = scope
        self._progress = progress
        self._clock = clock
        self.since = Since(clock)
        self.excused: set[str] = set()
        # What has gpu-feature-discovery of some nodes started again, once for each of them; set by whoever may change the cluster.
        self.rediscover: t.Callable[[t.Collection[str]], None] | None = None
        self._rediscovered: set[str] = set()
        # Undiscovered nodes on which NVIDIA's pods fail, with what is known of it: not waited for.
        self.failing: dict[str, str] = {}
        self.latest: ObservedNodes | None = None

    def seen(self, fleet: FleetState, deadline: float) -> ObservedNodes:
        """Follow the nodes until each is what its pool declares, a new one is discovered, or the time is over.

        What is returned is kept as `latest`, for a failure that has to tell how far it came.
        """
        self.latest = self._seen(fleet, deadline)
        return self.latest

    def _seen(self, fleet: FleetState, deadline: float) -> ObservedNodes:
        nodes = dict(fleet.nodes)
        findings = self.findings(fleet)
        undiscovered = self._awaited(nodes, fleet)
        total = len(fleet.profile.pool_of)
        version = fleet.resource_version
        found_at: float | None = None
        looked: float | None = None
        while not settled(findings) or undiscovered:
            left = deadline - self._clock()
            if self._undiscovered(nodes, findings, undiscovered):
                if looked is None or self._clock() - looked >= _LOOK:
                    self._find_failing(nodes, fleet, findings, undiscovered)
                    looked = self._clock()
                    continue
                left = min(left, looked + _LOOK - self._clock())
            if found_at is not None:
                left = min(left, found_at + _GATHER - self._clock())
            if left <= 0:
                break
            left = min(left, self._until_labels_are_late(findings))
            self._progress.say(pending_message(findings, undiscovered), total - len(findings), total)
            try:
                for event in self._client.watch(NODES, resource_version=version, timeout=max(left, 1.0)):
                    version = event["object"]["metadata"]["resourceVersion"]
                    node = parse(event["object"])
                    was_failing = False
                    if event["type"] == "DELETED":
                        nodes.pop(node.name, None)
                        findings.pop(node.name, None)
                        undiscovered.discard(node.name)
                    else:
                        nodes[node.name] = node
                        was_failing = node.discovered and self.failing.pop(node.name, "") != ""
                        self._follow(node, fleet, findings)
                    if node.discovered and (node.name in undiscovered or was_failing):
                        undiscovered.discard(node.name)
                        found_at = found_at or self._clock()
                    if settled(findings) and not undiscovered:
                        break
                    self._progress.say(pending_message(findings, undiscovered), total - len(findings), total)
                    if found_at is not None and self._clock() > found_at + _GATHER:
                        break
            except ApiError as error:
                if not error.gone:
                    raise
                # The server has forgotten that version: begin again from a list.
                fleet = self._reader.read()
                nodes, version = dict(fleet.nodes), fleet.resource_version
                findings = self.findings(fleet)
                undiscovered = self._awaited(nodes, fleet)
        if found_at is not None:
            fresh = self._reader.compared(nodes, version)
            return ObservedNodes(fresh, self.findings(fresh), sorted(undiscovered))
        return ObservedNodes(replace(fleet, nodes=nodes, resource_version=version), findings, sorted(undiscovered))

    def findings(self, fleet: FleetState) -> dict[str, Finding]:
        """What is not as declared, by node; a node that is not ready is told elsewhere and proves nothing."""
        found: dict[str, Finding] = {}
        for node in fleet.nodes.values():
            self._follow(node, fleet, found)
        return found

    def _until_labels_are_late(self, findings: t.Mapping[str, Finding]) -> float:
        """Seconds until labels alone have differed for too long somewhere; where they have, their agent is started again."""
        if self.rediscover is None:
            return math.inf
        ages = {
            name: self.since.note(name, finding.seen)
            for name, finding in findings.items()
            if finding.labels_only and name not in self._rediscovered
        }
        late = [name for name, seconds in ages.items() if late_labels.are_late(findings[name], seconds)]
        if late:
            self._progress.say(f"starting gpu-feature-discovery again on {len(late)} nodes")
            self._rediscovered.update(late)
            self.rediscover(late)
        return min((late_labels.LABELS_LATE - ages[name] for name in ages.keys() - set(late)), default=math.inf)

    def _awaited(self, nodes: t.Mapping[str, Node], fleet: FleetState) -> set[str]:
        names = awaited_nodes(self._plan.pools, nodes.values(), fleet.membership)
        return {name for name in names if self._scope.holds(nodes[name], None) and name not in self.failing}

    def look_for_failures(self, fleet: FleetState) -> None:
        """Find the undiscovered nodes on which NVIDIA's pods fail, without a wait: for a preview."""
        findings, undiscovered = self.findings(fleet), self._awaited(fleet.nodes, fleet)
        if self._undiscovered(fleet.nodes, findings, undiscovered):
            self._find_failing(fleet.nodes, fleet, findings, undiscovered)

    def _undiscovered(
        self, nodes: t.Mapping[str, Node], findings: t.Mapping[str, Finding], undiscovered: t.Collection[str]
    ) -> set[str]:
        """The nodes that wait for gpu-feature-discovery, those of pools too."""
        members = {name for name, found in findings.items() if not found.final and not nodes[name].discovered}
        return members | set(undiscovered)

    def _find_failing(
        self, nodes: t.Mapping[str, Node], fleet: FleetState, findings: dict[str, Finding], undiscovered: set[str]
    ) -> None:
        """Nodes that gpu-feature-discovery does not reach, since a pod that it needs fails, are not waited for."""
        waiting = self._undiscovered(nodes, findings, undiscovered)
        found = failing_operands(self._client, self._plan.config.namespace, waiting, time.time())
        self.failing.update(found)
        undiscovered.difference_update(found)
        for name in found:
            self._follow(nodes[name], fleet, findings)

    def _follow(self, node: Node, fleet: FleetState, findings: dict[str, Finding]) -> None:
        pool = fleet.pool(node.name)
        proves = pool is not None and node.ready and node.name not in self.excused and self._scope.holds(node, pool)
        finding = check(node, pool) if proves and pool else None
        if finding and not node.discovered and node.name in self.failing:
            finding = Finding(node.name, finding.pool, (self.failing[node.name],), final=True)
        if finding:
            findings[node.name] = finding
            self.since.note(node.name, finding.seen)
        else:
            findings.pop(node.name, None)
            self.since.forget(node.name)
