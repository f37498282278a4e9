# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of the fake, in one JSON file that is replaced atomically: clusters, node groups, events, keys."""

from __future__ import annotations

import datetime
import json
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .rules import VksRules

Row = dict[str, Any]
_NAMESPACE = uuid.UUID("6ad9a3d1-6f0c-4f5e-9a3b-0d1b8f6d9c55")


class RequestRefused(Exception):
    """A rejected request: HTTP status and message."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class AccountState:
    """The state of one account; hold `lock` to read or write it."""

    def __init__(self, file: Path, seed: Row) -> None:
        """Load the file, or start with the seed."""
        self.lock = threading.RLock()
        self._file = file
        try:
            self.data: Row = json.loads(file.read_text())
        except FileNotFoundError:
            self.data = seed
            self.save()

    @property
    def clusters(self) -> dict[str, Row]:
        """Clusters by id."""
        clusters: dict[str, Row] = self.data["clusters"]
        return clusters

    @property
    def groups(self) -> dict[str, Row]:
        """Node groups of all clusters by id."""
        groups: dict[str, Row] = self.data["groups"]
        return groups

    def groups_of(self, cluster: str) -> Iterator[Row]:
        """Yield the node groups of a cluster, oldest first."""
        return (group for group in self.groups.values() if group["cluster"] == cluster)

    def new_id(self, rules: VksRules, prefix: str) -> str:
        """Return a new unique id, which is the same in each run with the same seed and requests."""
        self.data["serial"] += 1
        made = uuid.uuid5(_NAMESPACE, f"{rules.guess('seed')} {self.data['serial']}")
        return f"{prefix}-{made}"

    def add_event(self, cluster: str, kind: str, action: str, message: str, group: str | None = None) -> None:
        """Add an event."""
        event = {"type": kind, "action": action, "message": message, "createdAt": stamp(), "group": group}
        self.data["events"].setdefault(cluster, []).append(event)

    def save(self) -> None:
        """Write the state to the file."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(self.data))
        fresh.replace(self._file)


def stamp(at: float | None = None) -> str:
    """Return a time in the format of the service (OAS1's example)."""
    moment = datetime.datetime.fromtimestamp(time.time() if at is None else at, datetime.UTC)
    return moment.isoformat(timespec="milliseconds")
