# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines a stage of the uninstallation: a list of removals, and an edit of each node."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field

from ..cluster_state.node import Node, parse_node
from ..cluster_state.ownership import NodeEdit
from ..common.errors import PartialFailure
from ..common.parallel import Outcome, is_fatal, run_bounded
from ..common.progress import Progress
from ..common.wait import WaitOptions
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.lease import Lease
from ..kube.node_patcher import patch_node
from ..kube.objects import NOT_CHECKED
from ..kube.paths import NODES
from ..schema.messages import abbreviate, abbreviate_nodes
from .result import EXISTS, UninstallResult


@dataclass(frozen=True)
class Removal:
    """The removal of one object, or of a part of it; `label` is its name in the result.

    action: the kind of removal; empty if the result does not mention it. kept: the reason why the object, or the rest of it, is kept.
    after: the part of the object that is kept; None if it is deleted. held_back: a field that is not removed because its removal would restart the driver.
    send: sends the requests. check: sends them as a dry run. wait: waits for their effect.
    """

    label: str
    action: str = "deleted"
    kept: str = ""
    before: t.Any = EXISTS
    after: t.Any = None
    held_back: str = ""
    send: t.Callable[[], object] | None = None
    check: t.Callable[[], object] | None = None
    wait: t.Callable[[WaitOptions], object] | None = None

    def report(self, result: UninstallResult) -> None:
        """Add the object to the result."""
        if self.action:
            result.add_removed(self.label, self.before, self.after, self.action)
        if self.kept:
            result.add_kept(self.label, self.kept)
        if self.held_back:
            result.held_back.append(self.held_back)


@dataclass(kw_only=True)
class Stage:
    """One stage on one cluster. read() sets `nodes` and `removals`; `result` contains the changes so far."""

    client: Client
    progress: Progress
    # None means that the stage does not wait.
    waiting: WaitOptions | None
    nodes: list[Node] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    result: UninstallResult = field(default_factory=UninstallResult)

    def read(self) -> None:
        """Read the nodes and the objects to remove."""
        raise NotImplementedError

    def node_edit(self, _node: Node) -> NodeEdit | None:
        """The patch of a node; None if nothing must be removed from it."""
        return None

    def kept_on_node(self, _node: Node) -> t.Iterable[str]:
        """Descriptions of the metadata that is kept on a node."""
        return ()

    def warnings(self) -> t.Iterable[str]:
        """Warnings for the user before anything is removed."""
        return ()

    def has_changes(self) -> bool:
        """Whether there are any changes."""
        return any(removal.action for removal in self.removals) or any(map(self.node_edit, self.nodes))

    def planned(self) -> list[str]:
        """Descriptions of the changes, for the confirmation."""
        nodes = [node.name for node in self.nodes if self.node_edit(node) is not None]
        removals = [removal.label for removal in self.removals if removal.action]
        return [*removals, *([f"metadata of nodes {abbreviate_nodes(nodes)}"] if nodes else [])]

    def preview(self) -> None:
        """Report the changes of a run; the server checks one patch of a node, and all objects that can be checked."""
        edits = [edit for edit in map(self.node_edit, self.nodes) if edit is not None]
        for edit in edits:
            self.result.add_node(edit)
        for removal in self.removals:
            removal.report(self.result)
        self.report_kept_on_nodes()
        try:
            for edit in edits[:1]:
                checked = patch_node(
                    self.client, edit, lambda raw: self.node_edit(parse_node(raw)), lambda: None, dry_run=True
                )
                if checked.status == "unchecked":
                    self.result.unchecked = NOT_CHECKED
            for removal in self.removals:
                if removal.check is not None:
                    removal.check()
        except ApiError as error:
            if not error.lacks_right:
                raise
            self.result.unchecked = NOT_CHECKED

    def remove(self, lease: Lease) -> None:
        """Remove everything; raises WaitTimeout, and PartialFailure if nodes cannot be changed."""
        self.patch_nodes(lease)
        self.send(self.removals, lease)
        self.report_kept_on_nodes()

    def finish(self) -> None:
        """Remove the objects that are needed until the lease is released; called after the release."""

    def send(self, removals: t.Iterable[Removal], lease: Lease) -> None:
        """Remove these objects one after another."""
        for removal in removals:
            lease.check()
            if removal.send is not None:
                removal.send()
            removal.report(self.result)
            if removal.wait is not None and self.waiting is not None:
                removal.wait(self.waiting)

    def report_kept_on_nodes(self) -> None:
        """Add the metadata that is kept on nodes to the result."""
        for node in self.nodes:
            for description in self.kept_on_node(node):
                self.result.add_kept_on_node(node.name, description)

    def patch_nodes(self, lease: Lease) -> None:
        """Patch the nodes in parallel; raises PartialFailure if a node could not be changed.

        What a patch removes from a node is first removed from the node's Machine.
        """
        changed = [node for node in self.nodes if self.node_edit(node) is not None]

        def on_done(outcome: Outcome[NodeEdit | None], finished: int) -> None:
            if outcome.value is not None:
                self.result.add_node(outcome.value)
            self.progress.report("nodes cleaned up", finished, len(changed))

        def patch(node: Node) -> NodeEdit | None:
            edit = self.node_edit(node)
            if edit is None:
                return None
            patched = patch_node(self.client, edit, lambda raw: self.node_edit(parse_node(raw)), lease.check)
            return patched.edit if patched.status == "changed" else None

        calls = [(node.name, functools.partial(patch, node)) for node in changed]
        failed = {}
        for outcome in run_bounded(calls, on_done=on_done, stop=lease.lost):
            if outcome.error is not None and is_fatal(outcome.error):
                raise outcome.error
            if outcome.error is not None:
                failed[outcome.name] = str(outcome.error)
        lease.check()
        if failed:
            messages = [f"{name}: {message}" for name, message in sorted(failed.items())]
            raise PartialFailure(f"{len(failed)} node(s) could not be changed: {abbreviate(messages, separator='; ')}")


def read_nodes(client: Client) -> list[Node]:
    """All nodes, read with one paged list."""
    return [parse_node(raw) for raw in client.list(NODES)]


def deletion(
    client: Client,
    path: str,
    live: t.Mapping[str, t.Any],
    label: str,
    *,
    wait: t.Callable[[WaitOptions], object] | None = None,
) -> Removal:
    """The deletion of an object, unless another object has replaced it; check mode sends a dry run."""
    delete = functools.partial(client.delete, path, body={"preconditions": {"uid": live["metadata"]["uid"]}})
    return Removal(label, send=delete, check=functools.partial(delete, dry_run=True), wait=wait)


def await_gone(
    client: Client,
    path: str,
    uid: str,
    label: str,
    reason: t.Callable[[t.Mapping[str, t.Any]], str],
    waiting: WaitOptions,
) -> None:
    """Wait until a deleted object is gone; raises WaitTimeout with the reason for the delay."""
    waiting.until(
        lambda: client.get(path),
        lambda live: live is None or live["metadata"].get("uid") != uid,
        max_interval=0.5,
        describe=lambda live: f"{label} still exists: {reason(live or {})}",
        progress_text=lambda dummy: f"waiting for the deletion of {label}",
    )
