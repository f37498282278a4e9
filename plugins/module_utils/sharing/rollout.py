# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings the nodes of a cluster to the sharing their pools declare: read, apply, and wait until it is seen."""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass, field

from ..fleet.node import Node, parse
from ..fleet.proof import Finding, pending_words, prove, settled
from ..fleet.sorting import awaited, sort
from ..kube.bulk import Outcome, is_fatal, run_bounded
from ..kube.errors import ApiError
from ..kube.paths import NODES
from ..kube.wait import Since
from .configmaps import Configs
from .held import held_back
from .mig_manager import renew
from .profile import Profile, node_edit, profile
from .refresh import refresh

if t.TYPE_CHECKING:
    from ..fleet.ownership import NodeEdit
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..kube.progress import Progress
    from ..pools.membership import Membership
    from ..pools.plan import Plan, PoolPlan, Toleration

# A node that somebody else writes at the same time is read again this often before it counts as failed.
_CONFLICTS = 8
# Nodes that are discovered one after the other are taken together.
_GATHER = 3.0


@dataclass(frozen=True)
class Fleet:
    """What one reading of the cluster says, and what differs from the pools."""

    nodes: dict[str, Node]
    resource_version: str
    membership: Membership
    profile: Profile

    def of_pool(self, pool: str) -> list[Node]:
        """The nodes of a pool."""
        return [self.nodes[name] for name in self.membership.by_pool.get(pool, ()) if name in self.nodes]


@dataclass
class Done:
    """What was sent so far."""

    changed: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    refreshed_pods: int = 0
    added: list[str] = field(default_factory=list)
    collected: list[str] = field(default_factory=list)

    @property
    def any(self) -> bool:
        """Whether anything was changed."""
        return bool(self.changed or self.added or self.collected)


class Expected(t.NamedTuple):
    """What is not there in a preview and will be: tolerations of the ClusterPolicy, and ConfigMaps."""

    tolerations: tuple[Toleration, ...] = ()
    configmaps: tuple[t.Mapping[str, t.Any], ...] = ()


class Rollout:
    """One plan on one cluster; keeps count of what was done, so that a failure tells how far it came."""

    def __init__(
        self,
        client: Client,
        plan: Plan,
        run_id: str,
        progress: Progress,
        expected: Expected,
        *,
        clock: t.Callable[[], float] = time.monotonic,
    ) -> None:
        """Send nothing yet."""
        self._client = client
        self._plan = plan
        self._run_id = run_id
        self._progress = progress
        self._expected = expected.tolerations
        self._clock = clock
        self._pools = {pool.name: pool for pool in plan.pools}
        self._configs = Configs(client, plan, expected.configmaps)
        self.since = Since(clock)
        self.done = Done()
        self.latest: tuple[Fleet, dict[str, Finding]] | None = None

    def read(self) -> Fleet:
        """One paged list of the nodes and one look at our ConfigMap (at both where GPUs are cut)."""
        listing = self._client.list(NODES)
        nodes = {node.name: node for node in map(parse, listing)}
        return self._compared(nodes, listing.resource_version)

    def _compared(self, nodes: dict[str, Node], resource_version: str) -> Fleet:
        known = list(nodes.values())
        membership = sort(self._plan.pools, known)
        configmaps = self._configs.read(known)
        wanted = profile(self._plan, known, membership, configmaps)
        held = held_back(self._client, self._plan, wanted.new_taints, self._expected)
        if held:
            wanted = profile(self._plan, known, membership, configmaps, held)
        return Fleet(nodes, resource_version, membership, wanted)

    def apply(self, fleet: Fleet, lease: Lease) -> None:
        """Send what differs, in the order in which the agents can follow it; one bad node does not stop the others."""
        changes = fleet.profile
        self.done.added.extend(self._configs.add(changes, lease))
        if changes.refreshed:
            values = {name: f"{self._key(changes, name)} {self._run_id}" for name in changes.refreshed}
            self.done.refreshed_pods += refresh(self._client, self._plan.config.namespace, values, lease)
        if changes.cut:
            cut = [fleet.nodes[name] for name in changes.cut if name in fleet.nodes]
            renew(self._client, self._plan.mig.namespace, cut, lease, self._progress)
        self._patch(changes, lease)

    def collect(self, fleet: Fleet, lease: Lease) -> None:
        """Take out the entries that no node names any more."""
        self.done.collected.extend(self._configs.collect(fleet.profile, lease))

    def preview(self, fleet: Fleet) -> str | None:
        """Let the server check the ConfigMap and one node of each pool without keeping them; what it did not check."""
        changes = fleet.profile
        try:
            self._configs.add(changes, dry_run=True)
            samples = {fleet.profile.pool_of.get(edit.name, ""): edit for edit in changes.edits}
            for sample in samples.values():
                self._client.patch(f"{NODES}/{sample.name}", sample.patch, dry_run=True)
        except ApiError as error:
            if not error.forbidden:
                raise
            return f"not checked by the server: {error.message}"
        return None

    def seen(self, fleet: Fleet, deadline: float) -> tuple[Fleet, dict[str, Finding], list[str]]:
        """What _seen() returns; kept as `latest` for a failure that has to tell how far it came."""
        known, findings, undiscovered = self._seen(fleet, deadline)
        self.latest = known, findings
        return known, findings, undiscovered

    def _seen(self, fleet: Fleet, deadline: float) -> tuple[Fleet, dict[str, Finding], list[str]]:
        """Follow the nodes until each is what its pool declares, a new one is discovered, or the time is over.

        Returns what is known then, what of it is not as declared, and which GPU nodes are not discovered.
        """
        nodes = dict(fleet.nodes)
        findings = self.findings(fleet)
        undiscovered = set(awaited(self._plan.pools, nodes.values(), fleet.membership))
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
                        self._follow(node, fleet.profile.pool_of, findings)
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
                fleet = self.read()
                nodes, version = dict(fleet.nodes), fleet.resource_version
                findings = self.findings(fleet)
                undiscovered = set(awaited(self._plan.pools, nodes.values(), fleet.membership))
        if found_at is not None:
            fresh = self._compared(nodes, version)
            return fresh, self.findings(fresh), sorted(undiscovered)
        return Fleet(nodes, version, fleet.membership, fleet.profile), findings, sorted(undiscovered)

    def findings(self, fleet: Fleet) -> dict[str, Finding]:
        """What is not as declared, by node; a node that is not ready is told elsewhere and proves nothing."""
        found: dict[str, Finding] = {}
        for node in fleet.nodes.values():
            self._follow(node, fleet.profile.pool_of, found)
        return found

    def _follow(self, node: Node, pool_of: t.Mapping[str, str], findings: dict[str, Finding]) -> None:
        pool = self._pools.get(pool_of.get(node.name, ""))
        finding = prove(node, pool) if pool and node.ready else None
        if finding:
            findings[node.name] = finding
            self.since.note(node.name, finding.seen)
        else:
            findings.pop(node.name, None)

    def _key(self, changes: Profile, name: str) -> str:
        pool = self._pools.get(changes.pool_of.get(name, ""))
        return f"{pool.config_key} {pool.mig_key}".strip() if pool else "none"

    def _patch(self, changes: Profile, lease: Lease) -> None:
        total = len(changes.edits)
        sent = 0

        def on_done(outcome: Outcome[bool]) -> None:
            nonlocal sent
            sent += 1
            if outcome.ok and outcome.value:
                self.done.changed.add(outcome.name)
            elif outcome.error is not None and not is_fatal(outcome.error):
                self.done.failed[outcome.name] = str(outcome.error)
            self._progress.say("nodes labelled", sent, total)

        pools = {edit.name: self._pools.get(changes.pool_of.get(edit.name, "")) for edit in changes.edits}
        calls = [(edit.name, self._patcher(edit, pools[edit.name], changes.held, lease)) for edit in changes.edits]
        for outcome in run_bounded(calls, on_done=on_done, stop=lease.lost):
            if outcome.error is not None and is_fatal(outcome.error):
                raise outcome.error
        lease.check()

    def _patcher(
        self, edit: NodeEdit, pool: PoolPlan | None, held: t.Collection[str], lease: Lease
    ) -> t.Callable[[], bool]:
        def patch() -> bool:
            path = f"{NODES}/{edit.name}"
            wanted: NodeEdit | None = edit
            for attempt in range(_CONFLICTS):
                lease.check()
                try:
                    self._client.patch(path, t.cast("NodeEdit", wanted).patch)
                    return True
                except ApiError as error:
                    if error.not_found:
                        return False
                    if not error.conflict or attempt == _CONFLICTS - 1:
                        raise
                raw = self._client.get(path)
                wanted = node_edit(parse(raw), pool, held) if raw else None
                if wanted is None:
                    return raw is not None
            return False

        return patch
