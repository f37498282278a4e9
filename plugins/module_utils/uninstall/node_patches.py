# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads all nodes and patches those with something to remove: a bounded number at a time, under the lease, with progress."""

from __future__ import annotations

import functools
import typing as t

from ..cluster_state.node import Node, parse_node
from ..cluster_state.ownership import NodeEdit
from ..common.errors import PartialFailure
from ..common.parallel import Outcome, is_fatal, run_bounded
from ..common.progress import Progress
from ..kube.client import Client
from ..kube.lease import Lease
from ..kube.node_patcher import patch_node
from ..kube.paths import NODES
from .result import UninstallResult

_MAX_FAILURES = 5

ComputeEdit = t.Callable[[Node], "NodeEdit | None"]


def read_nodes(client: Client) -> list[Node]:
    """One paged list."""
    return [parse_node(raw) for raw in client.list(NODES)]


def patch_nodes(
    client: Client,
    nodes: t.Iterable[Node],
    compute: ComputeEdit,
    lease: Lease,
    progress: Progress,
    result: UninstallResult,
) -> None:
    """Patch the nodes for which `compute` returns an edit; raises PartialFailure when a node could not be changed."""
    edits = [edit for edit in map(compute, nodes) if edit is not None]
    done = 0

    def on_done(outcome: Outcome[NodeEdit | None]) -> None:
        nonlocal done
        done += 1
        if outcome.value is not None:
            result.add_node(outcome.value)
        progress.report("nodes cleaned up", done, len(edits))

    def patch(edit: NodeEdit) -> NodeEdit | None:
        patched = patch_node(client, edit, lambda raw: compute(parse_node(raw)), lease.check)
        return patched.edit if patched.status == "changed" else None

    calls = [(edit.name, functools.partial(patch, edit)) for edit in edits]
    failed = {}
    for outcome in run_bounded(calls, on_done=on_done, stop=lease.lost):
        if outcome.error is not None and is_fatal(outcome.error):
            raise outcome.error
        if outcome.error is not None:
            failed[outcome.name] = str(outcome.error)
    lease.check()
    if failed:
        messages = "; ".join(f"{name}: {message}" for name, message in sorted(failed.items())[:_MAX_FAILURES])
        raise PartialFailure(f"{len(failed)} node(s) could not be changed: {messages}")


def preview_nodes(client: Client, nodes: t.Iterable[Node], compute: ComputeEdit, result: UninstallResult) -> None:
    """Report the patches, and have the server check one of them in a dry run."""
    edits = [edit for edit in map(compute, nodes) if edit is not None]
    for edit in edits:
        result.add_node(edit)
    if edits:
        client.strategic_merge(f"{NODES}/{edits[0].name}", edits[0].patch, dry_run=True)
