# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was, or in check mode would be, taken away; what stays, and why; and both as the module tells them (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..cluster_state.ownership import NodeEdit
from ..schema.messages import abbreviate_nodes

Object = dict[str, t.Any]

SHOWN = 100


@dataclass
class UninstallResult:
    """Grows while a run goes on, so that a failure tells how far it came."""

    gone: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    held_back: list[str] = field(default_factory=list)
    nodes: set[str] = field(default_factory=set)
    unchecked: str | None = None
    _before: Object = field(default_factory=dict)
    _after: Object = field(default_factory=dict)
    _staying: dict[str, list[str]] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        """Whether anything was taken away."""
        return bool(self.gone or self.nodes)

    def node(self, edit: NodeEdit) -> None:
        """A patch of a node; a second one goes on from where the first one ended."""
        before, after = self._before.setdefault("nodes", {}), self._after.setdefault("nodes", {})
        if edit.name in before or len(before) < SHOWN:
            before[edit.name] = _joined(edit.before, before.get(edit.name, {}))
            after[edit.name] = _joined(_remaining(after.get(edit.name, {}), edit), edit.after)
        self.nodes.add(edit.name)

    def stays_on(self, node: str, what: str) -> None:
        """Something on a node stays; told once for all nodes that have it."""
        nodes = self._staying.setdefault(what, [])
        if node not in nodes:
            nodes.append(node)

    def took(self, label: str, before: t.Any = "there", after: t.Any = None, how: str = "deleted") -> None:
        """An object is gone, or (`after`) without our part."""
        line = f"{label}: {how}"
        if line in self.gone:
            return
        self.gone.append(line)
        self._before[label] = before
        if after is not None:
            self._after[label] = after

    def keeps(self, label: str, why: str) -> None:
        """An object stays."""
        line = f"{label}: {why}"
        if line not in self.left:
            self.left.append(line)

    def result(self) -> Object:
        """For the module; of nodes up to SHOWN names."""
        told: Object = {
            "removed": list(self.gone),
            "nodes_changed": len(self.nodes),
            "names_changed": sorted(self.nodes)[:SHOWN],
            "left": [
                *self.left,
                *(f"{abbreviate_nodes(nodes)}: {what}" for what, nodes in sorted(self._staying.items())),
            ],
            "held_back": list(self.held_back),
        }
        return {**told, "unchecked": self.unchecked} if self.unchecked else told

    def diff(self) -> tuple[Object, Object]:
        """Before and after."""
        before, after = dict(self._before), dict(self._after)
        hidden = len(self.nodes) - len(before.get("nodes", {}))
        if hidden > 0:
            after["nodes_not_shown"] = hidden
        return before, after


def _remaining(after: Object, edit: NodeEdit) -> Object:
    """What an earlier patch has set and this one does not take out again."""
    return {
        part: {key: value for key, value in shown.items() if key not in edit.before.get(part, {})}
        if isinstance(shown, dict)
        else shown
        for part, shown in after.items()
    }


def _joined(under: Object, over: Object) -> Object:
    joined = dict(under)
    for key, value in over.items():
        below = joined.get(key)
        joined[key] = {**below, **value} if isinstance(below, dict) and isinstance(value, dict) else value
    return joined
