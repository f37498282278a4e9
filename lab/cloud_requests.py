# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The log of the requests to a lab's clouds: client, request and response status; no bodies, no secrets.

A line is written before the response is sent, so a client that has the response can rely on the line.
"""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .layout import Lab

# A token request changes nothing.
_LOGINS = ("/v3/auth/tokens", "/auth/token")
_READ_METHODS = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class CloudRequest:
    """One request that a cloud's service answered."""

    at: str
    service: str
    method: str
    # Includes the query string.
    path: str
    status: int
    user_agent: str
    # Sent by one of the cloud's services to another, not by a client.
    internal: bool = False

    @property
    def writing(self) -> bool:
        """Return whether the request can change something."""
        return self.method not in _READ_METHODS and not self.path.partition("?")[0].endswith(_LOGINS)


def path_of(lab: Lab) -> Path:
    """Return the path of the log file: one JSON object per line."""
    return lab.logs / "cloud-requests.jsonl"


def write(log: Path, service: str, method: str, path: str, status: int, user_agent: str, *, internal: bool) -> None:
    """Append a request; each line is a single write, so several processes can write concurrently."""
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = json.dumps(vars(CloudRequest(at, service, method, path, status, user_agent, internal)))
    with log.open("a") as file:
        file.write(f"{line}\n")


def mark(lab: Lab) -> int:
    """Return the current end of the log."""
    try:
        return path_of(lab).stat().st_size
    except FileNotFoundError:
        return 0


def requests(lab: Lab, since: int = 0, agent: str | None = None) -> Iterator[CloudRequest]:
    """Yield the clients' requests since a mark; with `agent`, only those whose user agent contains it."""
    if not path_of(lab).exists():
        return
    with path_of(lab).open() as log:
        log.seek(since)
        for line in log:
            request = CloudRequest(**json.loads(line))
            if not request.internal and (agent or "") in request.user_agent:
                yield request


def count(lab: Lab, since: int = 0, agent: str | None = None) -> Counter[str]:
    """Return the number of clients' requests by service and method: `magnum GET`."""
    return Counter(f"{request.service} {request.method}" for request in requests(lab, since, agent))


def writes(lab: Lab, since: int = 0, agent: str | None = None) -> list[CloudRequest]:
    """Return the clients' requests that can change something, in order; token requests are excluded."""
    return [request for request in requests(lab, since, agent) if request.writing]
