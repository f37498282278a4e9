# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shares one list of a cluster's node groups between all waits. A group is read in full once the list shows that the group is settled."""

from __future__ import annotations

import dataclasses
import threading

from .provider import ListedGroup, NodeGroupProvider
from .spec import NodeGroupState


class GroupListCache:
    """The cloud's list of groups. If several callers need the list at the same time, one of them sends the request, and all share the result."""

    def __init__(self, provider: NodeGroupProvider) -> None:
        """Store the arguments; no request is sent yet."""
        self.provider = provider
        # The number of the latest list that was requested. A caller compares this number with the number at the time of its own last change.
        self.requested = 0
        self._lock = threading.Lock()
        self._received = 0
        self._rows: list[ListedGroup] = []

    def newer_than(self, number: int) -> tuple[int, list[ListedGroup]]:
        """The number and the content of a list that was requested after the list with the given number."""
        with self._lock:
            if self._received <= number:
                self.requested += 1
                self._rows = self.provider.list_groups()
                self._received = self.requested
            return self._received, self._rows


class GroupView:
    """One group's view of the shared list. It never uses the same list twice, or a list that is older than the group's last change."""

    def __init__(self, cache: GroupListCache) -> None:
        """Accept any list at first."""
        self._cache = cache
        self._last = 0

    def invalidate(self) -> None:
        """Require a list that has not been requested yet, because older lists cannot show the change that was just sent."""
        self._last = self._cache.requested

    def get(self, group: NodeGroupState) -> NodeGroupState | None:
        """The group's current state; None if it is gone. While an operation is in progress, only the status is current."""
        row = next((row for row in self._rows() if row.id == group.id), None)
        if row is None or row.settled:
            # The list may lag behind, so a group only counts as gone if the cloud returns no group for its id.
            return self._cache.provider.get(group.id)
        return dataclasses.replace(group, status=row.status, settled=False, failed=False)

    def find(self, name: str) -> NodeGroupState | None:
        """The group with exactly this name; None if there is none (yet). While an operation is in progress, only the status is known."""
        row = next((row for row in self._rows() if row.name == name), None)
        if row is None:
            return None
        if row.settled:
            return self._cache.provider.get(row.id)
        return NodeGroupState(row.id, row.name, row.status, settled=False, failed=False, count=0)

    def _rows(self) -> list[ListedGroup]:
        self._last, rows = self._cache.newer_than(self._last)
        return rows
