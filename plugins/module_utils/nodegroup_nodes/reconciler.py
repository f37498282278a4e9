# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for the nodes of the pools' node groups. When a node joins the cluster, sets the pool's metadata on the node with one patch."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field

from ..cluster_state.node import parse_node
from ..cluster_state.ownership import NodeEdit
from ..common.parallel import run_bounded
from ..common.progress import Progress
from ..common.results import MAX_LISTED, diff_of
from ..common.wait import WaitTimeout, wait_until
from ..kube.client import Client
from ..kube.lease import Lease
from ..kube.node_patcher import patch_node
from ..kube.objects import NOT_CHECKED
from ..kube.paths import NODES
from ..pools.plan import Plan
from .status import GroupStatus, StatusHistory, group_statuses, progress_text


@dataclass
class GroupNodesResult:
    """The changes that a run has made or, in check mode, would make. `edits` contains the edit of each changed node."""

    groups: list[GroupStatus] = field(default_factory=list)
    edits: dict[str, NodeEdit] = field(default_factory=dict)
    unchecked: bool = False

    def result(self, check_mode: bool) -> dict[str, t.Any]:
        """The module's result: `changed`, `diff` and `nodegroup_nodes`."""
        missing = {status.pool.name: status.missing for status in self.groups if status.missing}
        not_ready = {name: reason for status in self.groups for name, reason in status.not_ready.items()}
        names = sorted(self.edits)
        shown = names[:MAX_LISTED]
        result = {
            "pools": {
                status.pool.name: {
                    "group": status.group.name,
                    "desired": status.desired,
                    "nodes": len(status.nodes),
                    "ready": status.ready,
                }
                for status in self.groups
            },
            "changed_nodes": shown,
            "changed_count": len(names),
            "missing": missing,
            "not_ready": dict(sorted(not_ready.items())[:MAX_LISTED]),
        }
        if self.unchecked:
            result["unchecked"] = NOT_CHECKED
        return {
            # The changes to missing nodes cannot be predicted.
            "changed": bool(names) or (check_mode and bool(missing)),
            "nodegroup_nodes": result,
            "diff": diff_of(
                {name: self.edits[name].before for name in shown},
                {name: self.edits[name].after for name in shown},
                "nodes",
            ),
        }


@dataclass(kw_only=True)
class GroupNodesReconciler:
    """Reconciles the nodes of one cluster's node groups.

    `nodegroups` is the result of the cloud's module, by group; `lease` returns a new lease, and is called whenever nodes must be changed.
    """

    client: Client
    plan: Plan
    nodegroups: t.Mapping[str, t.Any]
    pool_names: t.Collection[str]
    check_mode: bool
    lease: t.Callable[[], Lease]
    result: GroupNodesResult = field(default_factory=GroupNodesResult)

    def reconcile(self) -> list[GroupStatus]:
        """List the nodes once, and patch those that differ from their pools."""
        nodes = self.client.list(NODES)
        groups = self.result.groups = group_statuses(self.plan, self.nodegroups, nodes, self.pool_names)
        edits = [
            (edit, status) for status in groups for node in status.nodes if (edit := status.edit_of(node)) is not None
        ]
        if edits:
            with self.lease() as lease:
                calls = [(edit.name, functools.partial(self._patch, edit, status, lease)) for edit, status in edits]
                outcomes = run_bounded(calls, stop=lease.lost)
            errors = [outcome.error for outcome in outcomes if outcome.error is not None]
            if errors:
                raise errors[0]
        return groups

    def wait(self, timeout: float, interval: float, say: Progress, look_at: str) -> None:
        """Reconcile until every group is complete; raises WaitTimeout with the result so far."""
        history = StatusHistory()

        def read() -> list[GroupStatus]:
            groups = self.reconcile()
            history.record(groups)
            return groups

        try:
            wait_until(
                read,
                lambda groups: all(status.complete for status in groups),
                timeout=timeout,
                interval=interval,
                first_interval=1.0,
                describe=lambda groups: history.timeout_message(groups, look_at),
                progress_text=progress_text,
                progress=say,
            )
        except WaitTimeout as error:
            error.partial = self.result.result(self.check_mode)
            raise

    def _patch(self, edit: NodeEdit, status: GroupStatus, lease: Lease) -> None:
        patched = patch_node(
            self.client,
            edit,
            lambda item: status.edit_of(parse_node(item)),
            lease.check,
            dry_run=self.check_mode,
        )
        self.result.unchecked = self.result.unchecked or patched.status == "unchecked"
        if patched.status in ("changed", "unchecked"):
            self.result.edits[edit.name] = patched.edit
