# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One list of a cluster's node groups for all who wait at the same time; a group is read whole when the list says it has settled."""

from __future__ import annotations

import dataclasses
import threading

from .provider import ListedGroup, NodeGroupProvider
from .spec import NodeGroupState


class GroupListCache:
    """The cloud's list; of those who want it at the same time, one asks and all have the answer."""

    def __init__(self, cloud: NodeGroupProvider) -> None:
        """Ask for nothing yet."""
        self.cloud = cloud
        # Lists that were asked for so far, by which somebody knows whether one is newer than what he did.
        self.begun = 0
        self._lock = threading.Lock()
        self._answered = 0
        self._rows: list[ListedGroup] = []

    def after(self, number: int) -> tuple[int, list[ListedGroup]]:
        """A list that was asked for after the one of this number, with its own number."""
        with self._lock:
            if self._answered <= number:
                self.begun += 1
                self._rows = self.cloud.listed()
                self._answered = self.begun
            return self._answered, self._rows


class CachedGroups:
    """How one group's follower looks at it: never twice at one list, and never at one that is older than what he asked for."""

    def __init__(self, looks: GroupListCache) -> None:
        """Any list will do at first."""
        self._looks = looks
        self._seen = 0

    def asked(self) -> None:
        """Something was asked of the cloud: only a list from now on can show it."""
        self._seen = self._looks.begun

    def get(self, of: NodeGroupState) -> NodeGroupState | None:
        """The group as it is now, None when it is gone; while something is under way in it, only its status is newer than in `of`."""
        row = next((row for row in self._rows() if row.id == of.id), None)
        if row is None or row.settled:
            # A list may come late; what it does not show is gone when the cloud says so of the group itself.
            return self._looks.cloud.get(of.id)
        return dataclasses.replace(of, status=row.status, settled=False, failed=False)

    def find(self, name: str) -> NodeGroupState | None:
        """The group of exactly that name, None when there is none (yet); while something is under way in it, only its status is known."""
        row = next((row for row in self._rows() if row.name == name), None)
        if row is None:
            return None
        if row.settled:
            return self._looks.cloud.get(row.id)
        return NodeGroupState(row.id, row.name, row.status, settled=False, failed=False, count=0)

    def _rows(self) -> list[ListedGroup]:
        self._seen, rows = self._looks.after(self._seen)
        return rows
