# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a timed command asked of a lab's servers, by the log that each of them keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lab import audit, cloud_requests
from lab.layout import Lab


@dataclass(frozen=True)
class Asked:
    """How many requests there were, how many of them asked for a page of nodes, and how many could change something."""

    requests: int
    pages: int = 0
    writes: int = 0


class Log(Protocol):
    """A log of requests."""

    def mark(self) -> int:
        """Return its present end."""

    def since(self, mark: int, agent: str) -> Asked:
        """What was asked since then by a client whose user agent contains `agent`."""


class ApiServer:
    """The audit log of the lab's API server."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def mark(self) -> int:
        """As a log does."""
        return audit.mark(self._lab)

    def since(self, mark: int, agent: str) -> Asked:
        """As a log does."""
        asked = list(audit.requests(self._lab, mark, agent))
        pages = sum(1 for of in asked if of.verb == "list" and of.resource == "nodes")
        return Asked(len(asked), pages, sum(1 for of in asked if of.mutating))


class Clouds:
    """The log of the lab's clouds; a request for a token is one, and no write."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def mark(self) -> int:
        """As a log does."""
        return cloud_requests.mark(self._lab)

    def since(self, mark: int, agent: str) -> Asked:
        """As a log does."""
        asked = list(cloud_requests.requests(self._lab, mark, agent))
        return Asked(len(asked), writes=sum(1 for of in asked if of.writing))
