# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collects the objects that were removed (or would be removed in check mode), and the kept objects with the reasons (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..cluster_state.ownership import NodeEdit
from ..common.nested import apply_merge_patch
from ..common.results import MAX_LISTED
from ..schema.messages import abbreviate_nodes

Object = dict[str, t.Any]
# The text in the diff for an object whose content is not shown.
EXISTS = "exists"


@dataclass
class UninstallResult:
    """The result of a run; it is filled during the run, so that a failed run also reports its changes."""

    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    held_back: list[str] = field(default_factory=list)
    nodes: set[str] = field(default_factory=set)
    unchecked: str | None = None
    _before: Object = field(default_factory=dict)
    _after: Object = field(default_factory=dict)
    _kept_on_nodes: dict[str, list[str]] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        """Whether anything was removed."""
        return bool(self.removed or self.nodes)

    def add_node(self, edit: NodeEdit) -> None:
        """Add the patch of a node; a second patch of the same node is merged into the first."""
        before, after = self._before.setdefault("nodes", {}), self._after.setdefault("nodes", {})
        if edit.name in before or len(before) < MAX_LISTED:
            earlier = before.get(edit.name, {}), _remaining(after.get(edit.name, {}), edit)
            before[edit.name] = _both_taints(apply_merge_patch(edit.before, earlier[0]), earlier[0], edit.before)
            after[edit.name] = _both_taints(apply_merge_patch(earlier[1], edit.after), earlier[1], edit.after)
        self.nodes.add(edit.name)

    def add_kept_on_node(self, node: str, description: str) -> None:
        """Add the description of metadata that is kept on a node; nodes with the same description are reported together."""
        nodes = self._kept_on_nodes.setdefault(description, [])
        if node not in nodes:
            nodes.append(node)

    def add_removed(self, label: str, before: t.Any = EXISTS, after: t.Any = None, action: str = "deleted") -> None:
        """Add an object that was deleted, or (with `after`) from which the collection's part was removed."""
        line = f"{label}: {action}"
        if line in self.removed:
            return
        self.removed.append(line)
        self._before[label] = before
        if after is not None:
            self._after[label] = after

    def add_kept(self, label: str, reason: str) -> None:
        """Add an object that is kept."""
        line = f"{label}: {reason}"
        if line not in self.kept:
            self.kept.append(line)

    def as_dict(self) -> Object:
        """The result of the module, with up to MAX_LISTED names of nodes."""
        on_nodes = sorted(self._kept_on_nodes.items())
        return {
            "removed": list(self.removed),
            "nodes_changed": len(self.nodes),
            "names_changed": sorted(self.nodes)[:MAX_LISTED],
            "kept": [*self.kept, *(f"{abbreviate_nodes(nodes)}: {description}" for description, nodes in on_nodes)],
            "held_back": list(self.held_back),
            **({"unchecked": self.unchecked} if self.unchecked else {}),
        }

    def diff(self) -> tuple[Object, Object]:
        """The states before and after the run."""
        before, after = dict(self._before), dict(self._after)
        hidden = len(self.nodes) - len(before.get("nodes", {}))
        if hidden > 0:
            after["nodes_not_shown"] = hidden
        return before, after


def _both_taints(merged: Object, earlier: Object, later: Object) -> Object:
    """The merged state with the taints of both patches, because each patch only contains the taints that it changes."""
    taints = dict.fromkeys([*earlier.get("taints", ()), *later.get("taints", ())])
    return {**merged, "taints": list(taints)} if taints else merged


def _remaining(after: Object, edit: NodeEdit) -> Object:
    """The part of an earlier patch that a later edit does not remove."""
    return {
        part: {key: value for key, value in values.items() if key not in edit.before.get(part, {})}
        if isinstance(values, dict)
        else [value for value in values if value not in edit.before.get(part, ())]
        if isinstance(values, list)
        else values
        for part, values in after.items()
    }
