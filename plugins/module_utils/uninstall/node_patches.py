# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads all nodes and patches those that carry what has to go: bounded, leased, with progress."""

from __future__ import annotations

import typing as t

from ..cluster_state.node import Node, parse
from ..cluster_state.ownership import NodeEdit
from ..common.errors import PartialFailure
from ..common.parallel import Outcome, is_fatal, run_bounded
from ..common.progress import Progress
from ..kube.client import Client
from ..kube.lease import Lease
from ..kube.node_patcher import patch_node
from ..kube.paths import NODES
from .result import UninstallResult

_TOLD = 5

Compare = t.Callable[[Node], "NodeEdit | None"]


def read_nodes(client: Client) -> list[Node]:
    """One paged list."""
    return [parse(raw) for raw in client.list(NODES)]


def patch_nodes(
    client: Client,
    nodes: t.Iterable[Node],
    compare: Compare,
    lease: Lease,
    progress: Progress,
    account: UninstallResult,
) -> None:
    """Patch the nodes on which `compare` finds something; raises SomeFailed when a node could not be changed."""
    edits = [edit for edit in map(compare, nodes) if edit is not None]
    sent = 0

    def on_done(outcome: Outcome[NodeEdit | None]) -> None:
        nonlocal sent
        sent += 1
        if outcome.value is not None:
            account.node(outcome.value)
        progress.report("nodes cleared", sent, len(edits))

    calls = [(edit.name, _patcher(client, edit, compare, lease)) for edit in edits]
    failed = {}
    for outcome in run_bounded(calls, on_done=on_done, stop=lease.lost):
        if outcome.error is not None and is_fatal(outcome.error):
            raise outcome.error
        if outcome.error is not None:
            failed[outcome.name] = str(outcome.error)
    lease.check()
    if failed:
        told = "; ".join(f"{name}: {why}" for name, why in sorted(failed.items())[:_TOLD])
        raise PartialFailure(f"{len(failed)} node(s) could not be changed: {told}")


def preview_nodes(client: Client, nodes: t.Iterable[Node], compare: Compare, account: UninstallResult) -> None:
    """Note the patches, and let the server judge one of them without keeping it."""
    edits = [edit for edit in map(compare, nodes) if edit is not None]
    for edit in edits:
        account.node(edit)
    if edits:
        client.strategic_merge(f"{NODES}/{edits[0].name}", edits[0].patch, dry_run=True)


def _patcher(client: Client, edit: NodeEdit, compare: Compare, lease: Lease) -> t.Callable[[], NodeEdit | None]:
    def patch() -> NodeEdit | None:
        result = patch_node(client, edit, lambda raw: compare(parse(raw)), lease.check)
        return result.edit if result.status == "changed" else None

    return patch
