# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts about nodes that are awaited: progress, and the message of a timeout (pure but for the clock of StateTimer)."""

from __future__ import annotations

import typing as t

from ..common.wait import StateTimer
from ..schema.messages import abbreviate

if t.TYPE_CHECKING:
    from .status import GroupStatus

_NAMES_SHOWN = 3


def progress(groups: t.Sequence[GroupStatus]) -> str:
    """One line about the groups that are not complete."""
    waiting = [f"{status.group.name} {status.ready}/{status.desired}" for status in groups if not status.complete]
    return f"nodes ready: {abbreviate(waiting)}" if waiting else "all nodes are ready"


class StatusHistory:
    """Records since when groups and nodes have their status."""

    def __init__(self, timer: StateTimer | None = None) -> None:
        """Start without records."""
        self._timer = timer or StateTimer()

    def record(self, groups: t.Sequence[GroupStatus]) -> None:
        """Record the current status."""
        for status in groups:
            self._group_age(status)
            for node in status.nodes:
                self._timer.seconds(node.node.name, node.not_ready)

    def timeout_message(self, groups: t.Sequence[GroupStatus], look_at: str) -> str:
        """Each group that is not complete: how many nodes are ready, since when, which are not and why, and what to do."""
        return " ".join(
            [
                *(self._group_message(status) for status in groups if not status.complete),
                f"Check the machines in the cloud ({look_at}), and run again.",
            ]
        )

    def _group_age(self, status: GroupStatus) -> float:
        return self._timer.seconds(status.group.name, (status.ready, status.missing))

    def _group_message(self, status: GroupStatus) -> str:
        parts = [
            f"Node group {status.group.name} (pool {status.pool.name}): {status.ready} of {status.desired} nodes are ready, for "
            f"{self._group_age(status):.0f} s"
        ]
        if status.missing:
            parts.append(f"{status.missing} never joined the cluster")
        not_ready = [node for node in status.nodes if node.not_ready]
        for node in not_ready[:_NAMES_SHOWN]:
            seconds = self._timer.seconds(node.node.name, node.not_ready)
            parts.append(f"{node.node.name} is not ready for {seconds:.0f} s or longer ({node.not_ready})")
        if len(not_ready) > _NAMES_SHOWN:
            parts.append(f"{len(not_ready) - _NAMES_SHOWN} more are not ready")
        return f"{'; '.join(parts)}."
