# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts the requests of a measured command in the logs of the lab's servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lab import audit, cloud_requests
from lab.layout import Lab


@dataclass(frozen=True)
class RequestCounts:
    """Numbers of all requests, of requests for a page of nodes, of write requests, and of requests for any list's page after its first one."""

    requests: int
    pages: int = 0
    writes: int = 0
    further_pages: int = 0


class ServerLog(Protocol):
    """A request log of the lab."""

    def mark(self) -> int:
        """Return a mark for the current end of the log."""

    def since(self, mark: int, agent: str) -> RequestCounts:
        """Count the requests after a mark from clients whose user agent contains `agent`."""


class ApiServerLog:
    """The audit log of the lab's API server."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def mark(self) -> int:
        """Return a mark for the current end of the log."""
        return audit.mark(self._lab)

    def since(self, mark: int, agent: str) -> RequestCounts:
        """Count the requests after a mark from clients whose user agent contains `agent`."""
        actual = list(audit.requests(self._lab, mark, agent))
        pages = sum(1 for request in actual if request.verb == "list" and request.resource == "nodes")
        further = sum(1 for request in actual if request.verb == "list" and "continue=" in request.uri)
        return RequestCounts(len(actual), pages, sum(1 for request in actual if request.mutating), further)


class CloudLog:
    """The request log of the lab's clouds; a request for a token counts as a request, but not as a write."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def mark(self) -> int:
        """Return a mark for the current end of the log."""
        return cloud_requests.mark(self._lab)

    def since(self, mark: int, agent: str) -> RequestCounts:
        """Count the requests after a mark from clients whose user agent contains `agent`."""
        actual = list(cloud_requests.requests(self._lab, mark, agent))
        return RequestCounts(len(actual), writes=sum(1 for request in actual if request.writing))
