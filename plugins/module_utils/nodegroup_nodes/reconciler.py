# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes are received as they come: each gets what its pool declares in one patch, and all are waited for."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field

from ..cluster_state.node import parse_node
from ..cluster_state.ownership import NodeEdit
from ..common.parallel import run_bounded
from ..common.progress import Progress
from ..common.results import diff_of
from ..common.wait import WaitTimeout, wait_until
from ..kube.client import Client
from ..kube.lease import Lease
from ..kube.node_patcher import patch_node
from ..kube.objects import NOT_CHECKED
from ..kube.paths import NODES
from ..pools.plan import Plan
from .arrivals import GroupArrival, arrivals, edit_of
from .messages import ArrivalMessages, progress, summary

NAMES_SHOWN = 100


@dataclass
class ArrivalResult:
    """What was done to nodes, or in check mode would be; `edits` by node."""

    found: list[GroupArrival] = field(default_factory=list)
    edits: dict[str, NodeEdit] = field(default_factory=dict)
    unchecked: bool = False

    def result(self, check: bool) -> dict[str, t.Any]:
        """`changed`, `diff`, and the dict under the module's noun."""
        arriving = {of.pool.name: of.missing for of in self.found if of.missing}
        away = {arrived.node.name: arrived.why for of in self.found for arrived in of.nodes if arrived.why}
        names = sorted(self.edits)
        shown = names[:NAMES_SHOWN]
        told = {
            "pools": summary(self.found),
            "changed_nodes": shown,
            "changed_count": len(names),
            "arriving": arriving,
            "not_ready": dict(sorted(away.items())[:NAMES_SHOWN]),
        }
        if self.unchecked:
            told["unchecked"] = NOT_CHECKED
        return {
            # What nodes that are not there yet will need, nobody knows.
            "changed": bool(names) or (check and bool(arriving)),
            "nodegroup_nodes": told,
            "diff": diff_of(
                {name: self.edits[name].before for name in shown},
                {name: self.edits[name].after for name in shown},
                "nodes",
            ),
        }


class ArrivalReconciler:
    """Receives the nodes of one cluster's pools."""

    def __init__(
        self,
        client: Client,
        plan: Plan,
        told: t.Mapping[str, t.Any],
        only: t.Collection[str],
        *,
        check: bool,
        lease: t.Callable[[], Lease],
    ) -> None:
        """`told` is what the cloud's module says of the groups, by their names; `lease` is asked for whenever a node is to be changed."""
        self._client = client
        self._plan = plan
        self._told = told
        self._only = only
        self._check = check
        self._lease = lease
        self.received = ArrivalResult()

    def look(self) -> list[GroupArrival]:
        """One list of the nodes; those that are there get what they lack."""
        self.received.found = arrivals(self._plan, self._told, self._client.list(NODES), self._only)
        wanting = [(arrived.edit, of) for of in self.received.found for arrived in of.nodes if arrived.edit is not None]
        if wanting:
            with self._lease() as lease:
                calls = [(edit.name, functools.partial(self._send, edit, of, lease)) for edit, of in wanting]
                outcomes = run_bounded(calls, stop=lease.lost)
            failed = [outcome.error for outcome in outcomes if outcome.error is not None]
            if failed:
                raise failed[0]
        return self.received.found

    def wait(self, timeout: float, interval: float, say: Progress, look_at: str) -> None:
        """Look until every group is complete; raises TimeoutStory, with what was reached."""
        story = ArrivalMessages()

        def look() -> list[GroupArrival]:
            found = self.look()
            story.note(found)
            return found

        try:
            wait_until(
                look,
                lambda found: all(of.done for of in found),
                timeout=timeout,
                interval=interval,
                first_interval=min(1.0, interval),
                describe=lambda found: story.told(found, look_at),
                progress_text=progress,
                progress=say,
            )
        except WaitTimeout as error:
            error.partial = self.received.result(self._check)
            raise

    def _send(self, edit: NodeEdit, of: GroupArrival, lease: Lease) -> None:
        result = patch_node(
            self._client,
            edit,
            lambda raw: edit_of(parse_node(raw), of.pool, stays=of.stays),
            lease.check,
            dry_run=self._check,
        )
        self.received.unchecked = self.received.unchecked or result.status == "unchecked"
        if result.status in ("changed", "unchecked"):
            self.received.edits[edit.name] = result.edit
