# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One list, then a bounded number of patches at a time: the nodes of some sets brought to what they are to carry."""

from __future__ import annotations

import collections
import functools
import json
import typing as t
from dataclasses import dataclass, field

from ..cluster_state.node import parse
from ..cluster_state.ownership import NodeEdit
from ..common import private_file
from ..common.errors import InvalidOptions, PartialFailure
from ..common.parallel import DEFAULT_LIMIT, Outcome, is_fatal, run_bounded
from ..common.progress import Progress
from ..kube.client import Client
from ..kube.errors import ApiError, explain
from ..kube.lease import Lease, LeaseLost
from ..kube.node_patcher import PatchStatus, patch_node
from ..kube.objects import NOT_CHECKED
from ..kube.paths import NODES
from .node_patch import ConflictingSets, metadata_of, node_edit
from .node_sets import NodeSet, is_discovered

NAMES_SHOWN = 100


@dataclass
class SetMatches:
    """What one list of the nodes says."""

    edits: dict[str, NodeEdit] = field(default_factory=dict)
    by_set: collections.Counter[str] = field(default_factory=collections.Counter)
    matched: int = 0
    undiscovered: list[str] = field(default_factory=list)


@dataclass
class NodesOutcome:
    """What was done to the nodes; `failures` maps a node to its message."""

    sets: list[NodeSet]
    survey: SetMatches
    check: bool
    fates: dict[str, PatchStatus] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    cause: ApiError | LeaseLost | PartialFailure | None = None

    @property
    def changed(self) -> list[str]:
        """Names of the nodes that were changed, or in check mode would be."""
        return [name for name, fate in self.fates.items() if fate in ("changed", "unchecked")]

    def result(self, report_path: str | None) -> dict[str, t.Any]:
        """The module's result; the report gets all names, the result 100 of them."""
        gone = sum(fate == "gone" for fate in self.fates.values())
        said: dict[str, t.Any] = {
            "matched": self.survey.matched,
            "changed": len(self.changed),
            "unchanged": self.survey.matched - len(self.changed) - len(self.failures) - gone,
            "failed": len(self.failures),
            "gone": gone,
            "names_changed": self.changed,
            "failures": self.failures,
            "sets": {chosen.name: self.survey.by_set[chosen.name] for chosen in self.sets},
        }
        waiting = [chosen.name for chosen in self.sets if chosen.model is not None]
        if waiting and self.survey.undiscovered:
            said["after_discovery"] = {"sets": waiting, "undiscovered": self.survey.undiscovered}
        if "unchecked" in self.fates.values():
            said["note"] = NOT_CHECKED
        if report_path:
            private_file.write(report_path, json.dumps(said, indent=2), keep_mode=True)
            said["report_path"] = report_path
        return {
            "changed": bool(self.changed) or (self.check and "after_discovery" in said),
            "nodes": _shortened(said),
            "diff": self._diff(),
        }

    def raise_failures(self, result: dict[str, t.Any]) -> None:
        """Fail, with the result, when a node could not be changed."""
        if self.cause is not None:
            self.cause.partial = result
            raise self.cause

    def _diff(self) -> dict[str, t.Any]:
        edits = [self.survey.edits[name] for name in self.changed[:NAMES_SHOWN]]
        header = "nodes"
        if len(self.changed) > NAMES_SHOWN:
            header = f"nodes (the first {NAMES_SHOWN} of {len(self.changed)})"
        return {
            "before": {edit.name: edit.before for edit in edits},
            "after": {edit.name: edit.after for edit in edits},
            "before_header": header,
            "after_header": header,
        }


def reconcile(
    client: Client,
    sets: list[NodeSet],
    *,
    check: bool,
    lease: Lease,
    progress: Progress,
    parallel: int = DEFAULT_LIMIT,
) -> NodesOutcome:
    """Read all nodes, patch those that differ; the lease is taken only when there are any, and then all is read again.

    Raises InvalidOptions before anything is sent when sets contradict each other or name nodes that are not there.
    """
    survey = _read(client, sets)
    if not survey.edits:
        return NodesOutcome(sets, survey, check)
    with lease:
        if not check:
            survey = _read(client, sets)
        outcome = NodesOutcome(sets, survey, check)
        done = 0

        def count(dummy: Outcome[PatchStatus]) -> None:
            nonlocal done
            done += 1
            progress.say("nodes checked" if check else "nodes changed", done, len(survey.edits))

        outcomes = run_bounded(
            (
                (name, functools.partial(_send, client, sets, edit, check=check, lease=lease))
                for name, edit in survey.edits.items()
            ),
            parallel,
            on_done=count,
            stop=lease.lost,
        )
        _note(outcome, outcomes, client)
    return outcome


def _read(client: Client, sets: list[NodeSet]) -> SetMatches:
    """Stream the nodes past the sets; without taints to look at, only their metadata is asked for."""
    survey = SetMatches()
    problems: list[str] = []
    missing = {name for chosen in sets for name in chosen.names or ()}
    undiscovered: list[str] = []
    for raw in client.list(NODES, metadata_only=not any(chosen.needs_taints for chosen in sets)):
        node = parse(raw)
        missing.discard(node.name)
        if (node.has_gpu and not node.product) or not (node.has_gpu or is_discovered(node.labels)):
            undiscovered.append(node.name)
        try:
            wish = metadata_of(node, sets)
        except ConflictingSets as error:
            problems.append(str(error))
            continue
        if wish is None:
            continue
        survey.matched += 1
        survey.by_set.update(chosen.name for chosen in sets if chosen.holds(node))
        edit = node_edit(node, wish)
        if edit is not None:
            survey.edits[node.name] = edit
    problems.extend(f"Node {name} does not exist, but is one of the names of a set." for name in sorted(missing))
    if problems:
        raise InvalidOptions(problems[:NAMES_SHOWN], "The sets do not fit the nodes:")
    survey.undiscovered = undiscovered
    return survey


def _send(client: Client, sets: list[NodeSet], edit: NodeEdit, *, check: bool, lease: Lease) -> PatchStatus:
    def compute(raw: t.Mapping[str, t.Any]) -> NodeEdit | None:
        node = parse(raw)
        wish = metadata_of(node, sets)
        return node_edit(node, wish) if wish is not None else None

    return patch_node(client, edit, compute, lease.check, dry_run=check).status


def _note(outcome: NodesOutcome, outcomes: list[Outcome[PatchStatus]], client: Client) -> None:
    for done in outcomes:
        if done.value is not None:
            outcome.fates[done.name] = done.value
        elif isinstance(done.error, (ApiError, LeaseLost)):
            said = explain(done.error, client) if isinstance(done.error, ApiError) else str(done.error)
            outcome.failures[done.name] = said
            # What meets every node (no rights, no connection, a lost lease) is told as itself.
            if is_fatal(done.error):
                outcome.cause = done.error
        elif done.error is not None:
            raise done.error
    if outcome.failures and outcome.cause is None:
        name, said = next(iter(outcome.failures.items()))
        outcome.cause = PartialFailure(f"{len(outcome.failures)} nodes could not be changed; {name}: {said}")


def _shortened(said: dict[str, t.Any]) -> dict[str, t.Any]:
    short = {
        **said,
        "names_changed": said["names_changed"][:NAMES_SHOWN],
        "failures": dict(list(said["failures"].items())[:NAMES_SHOWN]),
    }
    if "after_discovery" in said:
        found = said["after_discovery"]
        short["after_discovery"] = {**found, "undiscovered": found["undiscovered"][:NAMES_SHOWN]}
    return short
