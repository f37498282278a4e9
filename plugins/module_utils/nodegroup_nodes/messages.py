# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is told of nodes on their way: while they come, and when they have not (pure but for the clock of StateTimer)."""

from __future__ import annotations

import typing as t

from ..common.wait import StateTimer
from ..schema.messages import abbreviate

if t.TYPE_CHECKING:
    from .arrivals import GroupArrival

_NAMES_LIMIT = 3


def progress(found: t.Sequence[GroupArrival]) -> str:
    """One line for whoever waits."""
    waiting = [f"{of.group.name} {of.ready}/{of.wanted}" for of in found if not of.done]
    return f"nodes ready: {abbreviate(waiting)}" if waiting else "all nodes are ready"


class ArrivalMessages:
    """Remembers since when groups and nodes are as they are."""

    def __init__(self, since: StateTimer | None = None) -> None:
        """Know nothing yet."""
        self._since = since or StateTimer()

    def note(self, found: t.Sequence[GroupArrival]) -> None:
        """See how things are."""
        for of in found:
            self._since.seconds(of.group.name, (of.ready, of.missing))
            for arrived in of.nodes:
                self._since.seconds(arrived.node.name, arrived.why)

    def told(self, found: t.Sequence[GroupArrival], look_at: str) -> str:
        """Each group that is not complete: how far it is, since when, which node is not ready and why, and what to do."""
        return " ".join(
            [
                *(self._group(of) for of in found if not of.done),
                f"Look at the machines in the cloud ({look_at}), and run again.",
            ]
        )

    def _group(self, of: GroupArrival) -> str:
        age = self._since.seconds(of.group.name, (of.ready, of.missing))
        parts = [
            f"Node group {of.group.name} (pool {of.pool.name}): {of.ready} of {of.wanted} nodes are ready, for {age:.0f} s"
        ]
        if of.missing:
            parts.append(f"{of.missing} never came to the cluster")
        away = [arrived for arrived in of.nodes if arrived.why]
        for arrived in away[:_NAMES_LIMIT]:
            seconds = self._since.seconds(arrived.node.name, arrived.why)
            parts.append(f"{arrived.node.name} is not ready for {seconds:.0f} s or longer ({arrived.why})")
        if len(away) > _NAMES_LIMIT:
            parts.append(f"{len(away) - _NAMES_LIMIT} more are not ready")
        return f"{'; '.join(parts)}."


def summary(found: t.Sequence[GroupArrival]) -> dict[str, dict[str, t.Any]]:
    """By pool, for the result."""
    return {
        of.pool.name: {"group": of.group.name, "wanted": of.wanted, "nodes": len(of.nodes), "ready": of.ready}
        for of in found
    }
