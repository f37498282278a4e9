# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watching nodes until each is what its pool declares."""

from __future__ import annotations

import time
import typing as t
from dataclasses import replace

from ..fleet.node import Node, parse
from ..fleet.proof import Finding, pending_words, prove, settled
from ..fleet.sorting import awaited
from ..kube.errors import ApiError
from ..kube.paths import NODES
from ..running.wait import Since
from .reading import Fleet

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.plan import Plan
    from ..running.progress import Progress
    from .reading import Reader
    from .scope import Scope

# Nodes that are discovered one after the other are taken together.
_GATHER = 3.0


class Seen(t.NamedTuple):
    """What is known at the end of a look: what of it is not as declared, and which GPU nodes are not discovered."""

    fleet: Fleet
    findings: dict[str, Finding]
    undiscovered: list[str]


class Watcher:
    """Proves nodes, and waits for the proof; nodes outside the scope, and those that are `excused`, prove nothing."""

    def __init__(
        self,
        client: Client,
        plan: Plan,
        reader: Reader,
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
        self.latest: Seen | None = None

    def seen(self, fleet: Fleet, deadline: float) -> Seen:
        """Follow the nodes until each is what its pool declares, a new one is discovered, or the time is over.

        What is returned is kept as `latest`, for a failure that has to tell how far it came.
        """
        self.latest = self._seen(fleet, deadline)
        return self.latest

    def _seen(self, fleet: Fleet, deadline: float) -> Seen:
        nodes = dict(fleet.nodes)
        findings = self.findings(fleet)
        undiscovered = self._awaited(nodes, fleet)
        total = len(fleet.profile.pool_of)
        version = fleet.resource_version
        found_at: float | None = None
        while not settled(findings) or undiscovered:
            left = deadline - self._clock()
            if found_at is not None:
                left = min(left, found_at + _GATHER - self._clock())
            if left <= 0:
                break
            self._progress.say(pending_words(findings, undiscovered), total - len(findings), total)
            try:
                for event in self._client.watch(NODES, resource_version=version, timeout=left):
                    version = event["object"]["metadata"]["resourceVersion"]
                    node = parse(event["object"])
                    if event["type"] == "DELETED":
                        nodes.pop(node.name, None)
                        findings.pop(node.name, None)
                        undiscovered.discard(node.name)
                    else:
                        nodes[node.name] = node
                        self._follow(node, fleet, findings)
                    if node.name in undiscovered and node.discovered:
                        undiscovered.discard(node.name)
                        found_at = found_at or self._clock()
                    if settled(findings) and not undiscovered:
                        break
                    self._progress.say(pending_words(findings, undiscovered), total - len(findings), total)
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
            return Seen(fresh, self.findings(fresh), sorted(undiscovered))
        return Seen(replace(fleet, nodes=nodes, resource_version=version), findings, sorted(undiscovered))

    def findings(self, fleet: Fleet) -> dict[str, Finding]:
        """What is not as declared, by node; a node that is not ready is told elsewhere and proves nothing."""
        found: dict[str, Finding] = {}
        for node in fleet.nodes.values():
            self._follow(node, fleet, found)
        return found

    def _awaited(self, nodes: t.Mapping[str, Node], fleet: Fleet) -> set[str]:
        names = awaited(self._plan.pools, nodes.values(), fleet.membership)
        return {name for name in names if self._scope.holds(nodes[name], None)}

    def _follow(self, node: Node, fleet: Fleet, findings: dict[str, Finding]) -> None:
        pool = fleet.pool(node.name)
        proves = pool is not None and node.ready and node.name not in self.excused and self._scope.holds(node, pool)
        finding = prove(node, pool) if proves and pool else None
        if finding:
            findings[node.name] = finding
            self.since.note(node.name, finding.seen)
        else:
            findings.pop(node.name, None)
