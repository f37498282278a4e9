# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Applies the metadata of node sets, with one list request and a bounded number of parallel patches."""

from __future__ import annotations

import collections
import functools
import json
import typing as t
from dataclasses import dataclass, field

from ..cluster_state.node import parse_node
from ..cluster_state.ownership import NodeEdit
from ..common import private_file
from ..common.errors import ConnectionProblem, InvalidOptions, PartialFailure
from ..common.parallel import DEFAULT_LIMIT, Outcome, is_fatal, run_bounded
from ..common.progress import Progress
from ..common.results import MAX_LISTED, diff_of
from ..kube.client import Client
from ..kube.connection import explain
from ..kube.errors import ApiError
from ..kube.lease import Lease, LeaseLost
from ..kube.node_patcher import PatchStatus, patch_node
from ..kube.objects import NOT_CHECKED
from ..kube.paths import NODES
from .node_patch import ConflictingSets, required_metadata, required_metadata_edit
from .node_sets import NodeSet


@dataclass
class SetMatches:
    """The result of comparing the sets with one list of the nodes; `by_set` counts the nodes of each set."""

    edits: dict[str, NodeEdit] = field(default_factory=dict)
    by_set: collections.Counter[str] = field(default_factory=collections.Counter)
    matched: int = 0
    undiscovered: list[str] = field(default_factory=list)


@dataclass
class NodesOutcome:
    """The result of the patches; `failures` contains the error messages by node."""

    sets: list[NodeSet]
    matches: SetMatches
    check: bool
    statuses: dict[str, PatchStatus] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    cause: ApiError | LeaseLost | PartialFailure | None = None

    @property
    def changed(self) -> list[str]:
        """The nodes that were changed, or, in check mode, would be changed."""
        return [name for name, status in self.statuses.items() if status in ("changed", "unchecked")]

    def result(self, report_path: str | None, warn: t.Callable[[str], None]) -> dict[str, t.Any]:
        """The module's result with up to MAX_LISTED names. Also writes the report with all names; if that fails, only warns, because nodes may have changed."""
        report = self._report(MAX_LISTED)
        if report_path:
            try:
                private_file.write(report_path, json.dumps(self._report(), indent=2), keep_mode=True)
                report["report_path"] = report_path
            except ConnectionProblem as error:
                warn(f"The report {error}")
        return {
            "changed": bool(self.changed) or (self.check and "after_discovery" in report),
            "node_metadata": report,
            "diff": self._diff(),
        }

    def _report(self, limit: int | None = None) -> dict[str, t.Any]:
        """The result with at most `limit` names in each list."""
        statuses = list(self.statuses.values())
        gone = statuses.count("gone")
        report: dict[str, t.Any] = {
            "matched": self.matches.matched,
            "changed": len(self.changed),
            "unchanged": self.matches.matched - len(self.changed) - len(self.failures) - gone,
            "failed": len(self.failures),
            "gone": gone,
            "names_changed": self.changed[:limit],
            "failures": dict(list(self.failures.items())[:limit]),
            "sets": {node_set.name: self.matches.by_set[node_set.name] for node_set in self.sets},
        }
        by_model = [node_set.name for node_set in self.sets if node_set.products]
        if by_model and self.matches.undiscovered:
            report["after_discovery"] = {"sets": by_model, "undiscovered": self.matches.undiscovered[:limit]}
        if "unchecked" in statuses:
            report["unchecked"] = NOT_CHECKED
        return report

    def raise_failures(self, result: dict[str, t.Any]) -> None:
        """Raise the error, with the result as its partial result, if a node could not be changed."""
        if self.cause is not None:
            self.cause.partial = result
            raise self.cause

    def _diff(self) -> dict[str, t.Any]:
        edits = [self.matches.edits[name] for name in self.changed[:MAX_LISTED]]
        header = f"nodes (the first {MAX_LISTED} of {len(self.changed)})" if len(self.changed) > MAX_LISTED else "nodes"
        return diff_of({edit.name: edit.before for edit in edits}, {edit.name: edit.after for edit in edits}, header)


def reconcile(
    client: Client,
    sets: list[NodeSet],
    *,
    check: bool,
    lease: Lease,
    progress: Progress,
    parallel: int = DEFAULT_LIMIT,
) -> NodesOutcome:
    """Read all nodes and patch those that differ. Before the first patch, the lease is acquired and the nodes are read again.

    Raises InvalidOptions before the first patch if sets conflict or contain the names of nodes that do not exist.
    """
    outcome = NodesOutcome(sets, _read(client, sets), check)
    if not outcome.matches.edits:
        return outcome
    with lease:
        if not check:
            outcome.matches = _read(client, sets)
        edits = outcome.matches.edits

        failed = 0

        def on_done(ended: Outcome[PatchStatus], finished: int) -> None:
            nonlocal failed
            failed += ended.error is not None
            progress.report("nodes checked" if check else "nodes changed", finished - failed, len(edits), failed=failed)

        def patch(edit: NodeEdit) -> PatchStatus:
            def compute(raw: t.Mapping[str, t.Any]) -> NodeEdit | None:
                node = parse_node(raw)
                required = required_metadata(node, sets)
                return required_metadata_edit(node, required) if required is not None else None

            return patch_node(client, edit, compute, lease.check, dry_run=check).status

        calls = [(name, functools.partial(patch, edit)) for name, edit in edits.items()]
        _record(outcome, run_bounded(calls, parallel, on_done=on_done, stop=lease.lost), client)
    return outcome


def _read(client: Client, sets: list[NodeSet]) -> SetMatches:
    """List the nodes and compare them with the sets; if no set concerns taints, only the nodes' metadata is requested."""
    matches = SetMatches()
    problems: list[str] = []
    missing = {name for node_set in sets for name in node_set.names or ()}
    for raw in client.list(NODES, metadata_only=not any(node_set.needs_taints for node_set in sets)):
        node = parse_node(raw)
        missing.discard(node.name)
        if not (node.discovered if node.has_gpu else node.has_nfd_labels):
            matches.undiscovered.append(node.name)
        try:
            required = required_metadata(node, sets)
        except ConflictingSets as error:
            problems.append(str(error))
            continue
        if required is None:
            continue
        matches.matched += 1
        matches.by_set.update(required.sets)
        edit = required_metadata_edit(node, required)
        if edit is not None:
            matches.edits[node.name] = edit
    problems += [f"Node {name} does not exist, but a set contains its name." for name in sorted(missing)]
    if problems:
        raise InvalidOptions(problems[:MAX_LISTED], "The sets do not fit the nodes:")
    return matches


def _record(outcome: NodesOutcome, patches: list[Outcome[PatchStatus]], client: Client) -> None:
    for patch in patches:
        error = patch.error
        if patch.value is not None:
            outcome.statuses[patch.name] = patch.value
        elif isinstance(error, (ApiError, LeaseLost)):
            outcome.failures[patch.name] = (
                explain(error, client.connection) if isinstance(error, ApiError) else str(error)
            )
            # An error that affects every node (missing permissions, no connection, a lost lease) is raised directly.
            if is_fatal(error):
                outcome.cause = error
        elif error is not None:
            raise error
    if outcome.failures and outcome.cause is None:
        name, message = next(iter(outcome.failures.items()))
        outcome.cause = PartialFailure(f"{len(outcome.failures)} nodes could not be changed; {name}: {message}")
