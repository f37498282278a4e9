# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads all nodes and patches those that carry what has to go: bounded, leased, with progress."""

from __future__ import annotations

import typing as t

from ..cluster_state.node import UNREAD, Node, parse
from ..cluster_state.ownership import NodeEdit
from ..common.errors import PartialFailure
from ..common.parallel import Outcome, is_fatal, run_bounded
from ..common.progress import Progress
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.lease import Lease
from ..kube.paths import NODES
from .result import UninstallResult

# A node that somebody else writes at the same time is read again this often before it counts as failed.
_CONFLICTS = 8
_TOLD = 5

Compare = t.Callable[[Node], "NodeEdit | None"]


def read_nodes(client: Client) -> list[Node]:
    """One paged list."""
    return [parse(raw) for raw in client.list(NODES, without=UNREAD)]


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
        progress.say("nodes cleared", sent, len(edits))

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
        client.amend(f"{NODES}/{edits[0].name}", edits[0].patch, dry_run=True)


def _patcher(client: Client, edit: NodeEdit, compare: Compare, lease: Lease) -> t.Callable[[], NodeEdit | None]:
    def patch() -> NodeEdit | None:
        wanted: NodeEdit | None = edit
        for attempt in range(_CONFLICTS):
            if wanted is None:
                return None
            lease.check()
            try:
                client.amend(f"{NODES}/{edit.name}", wanted.patch)
                return wanted
            except ApiError as error:
                if error.not_found:
                    return None
                if not error.conflict or attempt == _CONFLICTS - 1:
                    raise
            raw = client.get(f"{NODES}/{edit.name}")
            wanted = compare(parse(raw)) if raw else None
        return None

    return patch
