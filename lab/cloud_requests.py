# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The log of the requests to a lab's clouds: who asked what, and what the answer was; no bodies, no secrets.

A line is written before the answer is sent, so that whoever has an answer finds its line.
"""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .layout import Lab

# Whoever asks for a token changes nothing.
_LOGINS = ("/v3/auth/tokens", "/auth/token")
_READING = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class Request:
    """One request as a cloud's service answered it."""

    at: str
    service: str
    method: str
    # With the query.
    path: str
    status: int
    user_agent: str
    # Of one service to another, which no client of the cloud has sent.
    internal: bool = False

    @property
    def writing(self) -> bool:
        """Tell whether it could change something."""
        return self.method not in _READING and not self.path.partition("?")[0].endswith(_LOGINS)


def path_of(lab: Lab) -> Path:
    """Return the log's file: one JSON object a line."""
    return lab.logs / "cloud-requests.jsonl"


def write(log: Path, service: str, method: str, path: str, status: int, user_agent: str, *, internal: bool) -> None:
    """Add a request; a line is written at once, so that several processes may write."""
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = json.dumps(vars(Request(at, service, method, path, status, user_agent, internal)))
    with log.open("a") as file:
        file.write(f"{line}\n")


def mark(lab: Lab) -> int:
    """Return the present end of the log."""
    try:
        return path_of(lab).stat().st_size
    except FileNotFoundError:
        return 0


def requests(lab: Lab, since: int = 0, agent: str | None = None) -> Iterator[Request]:
    """Yield the requests of outsiders since a mark, of those alone whose user agent contains `agent`."""
    if not path_of(lab).exists():
        return
    with path_of(lab).open() as log:
        log.seek(since)
        for line in log:
            request = Request(**json.loads(line))
            if not request.internal and (agent or "") in request.user_agent:
                yield request


def count(lab: Lab, since: int = 0, agent: str | None = None) -> Counter[str]:
    """Return how many requests outsiders sent, by service and method: `magnum GET`."""
    return Counter(f"{request.service} {request.method}" for request in requests(lab, since, agent))


def writes(lab: Lab, since: int = 0, agent: str | None = None) -> list[Request]:
    """Return the requests of outsiders that could change something, in order; one for a token is none."""
    return [request for request in requests(lab, since, agent) if request.writing]
