# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The requests to a lab's registries, from the registries' own access logs."""

from __future__ import annotations

import http.client
import re
import secrets
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import LabError
from ..layout import Lab
from . import layout

# Apache's combined format: host, -, user, time, request, status, bytes, referrer and user agent.
_LINE = re.compile(
    r'\S+ - \S+ \[(?P<at>[^]]+)\] "(?P<method>[A-Z]+) (?P<path>\S+) HTTP/[0-9.]+" (?P<status>\d{3}) (?P<size>\d+)'
    r' "(?:[^"\\]|\\.)*" "(?P<user_agent>(?:[^"\\]|\\.)*)"'
)
# Only requests of the registry's API; the others are those of the lab.
_API = "/v2/"
_READ_METHODS = ("GET", "HEAD", "OPTIONS")
_SECONDS = 30.0


@dataclass(frozen=True)
class RegistryRequest:
    """One request that a registry answered."""

    at: str
    method: str
    # Includes the query string.
    path: str
    status: int
    # The size of the response's body in bytes.
    size: int
    user_agent: str

    @property
    def writing(self) -> bool:
        """Return whether the request can change something."""
        return self.method not in _READ_METHODS


def mark(lab: Lab, registry: str) -> int:
    """Return the end of a registry's log, after every request that was answered before."""
    _await_log(lab, registry)
    return _path(lab, registry).stat().st_size


def requests(lab: Lab, registry: str, since: int = 0, agent: str | None = None) -> Iterator[RegistryRequest]:
    """Yield the requests to a running registry since a mark; with `agent`, only those whose user agent contains it."""
    _await_log(lab, registry)
    with _path(lab, registry).open(errors="replace") as log:
        log.seek(since)
        yield from (request for line in log if (request := parse(line)) and (agent or "") in request.user_agent)


def count(lab: Lab, registry: str, since: int = 0, agent: str | None = None) -> Counter[str]:
    """Return the number of requests by method."""
    return Counter(request.method for request in requests(lab, registry, since, agent))


def writes(lab: Lab, registry: str, since: int = 0, agent: str | None = None) -> list[RegistryRequest]:
    """Return the requests that can change something, in order."""
    return [request for request in requests(lab, registry, since, agent) if request.writing]


def parse(line: str) -> RegistryRequest | None:
    """Return the request of a line in the log, or None for other lines."""
    match = _LINE.match(line)
    if not match or not match["path"].startswith(_API):
        return None
    numbers = int(match["status"]), int(match["size"])
    return RegistryRequest(match["at"], match["method"], match["path"], *numbers, match["user_agent"])


def _path(lab: Lab, registry: str) -> Path:
    return lab.logs / f"{registry}.log"


def _await_log(lab: Lab, registry: str) -> None:
    """Wait until the log contains a request that is sent now: the supervisor writes the lines of the registry later."""
    if registry not in layout.REGISTRIES:
        raise LabError(f"unknown registry '{registry}'; known: {', '.join(layout.REGISTRIES)}")
    text = f"/?mark={secrets.token_hex(8)}"
    start = _path(lab, registry).stat().st_size
    with_tls = ssl.create_default_context(cafile=str(layout.authority(lab)))
    port = lab.ports()[registry]
    connection = (
        http.client.HTTPSConnection("127.0.0.1", port, context=with_tls, timeout=_SECONDS)
        if layout.is_secure(registry)
        else http.client.HTTPConnection("127.0.0.1", port, timeout=_SECONDS)
    )
    try:
        connection.request("GET", text)
        connection.getresponse().read()
    finally:
        connection.close()
    deadline = time.monotonic() + _SECONDS
    while text not in _read(_path(lab, registry), start):
        if time.monotonic() > deadline:
            raise LabError(f"{registry} writes no access log: see 'lab/lab{lab.option} logs {registry}'")
        time.sleep(0.01)


def _read(path: Path, start: int) -> str:
    with path.open(errors="replace") as log:
        log.seek(start)
        return log.read()
