# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts requests in the API server's audit log, by user agent and verb, since a mark."""

from __future__ import annotations

import datetime
import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from .api import Api
from .layout import Lab

_SETTLE_SECONDS = 60.0
# Bytes at the end of the log that contain the last event.
_TAIL = 1 << 20
MUTATING = ("create", "update", "patch", "delete", "deletecollection")


@dataclass(frozen=True)
class AuditedRequest:
    """One request as the API server logged it."""

    verb: str
    uri: str
    agent: str
    user: str
    # The user that the client impersonates, or an empty string.
    impersonated: str
    status: int
    resource: str
    namespace: str
    name: str
    # Seconds since 1970, by the server's clock.
    begun: float
    answered: float

    @property
    def mutating(self) -> bool:
        """Return whether the request can change something (including dry runs)."""
        return self.verb in MUTATING


def mark(lab: Lab) -> int:
    """Return the current end of the log: earlier requests are logged before it, later requests after it."""
    _settle(lab)
    return lab.audit_log.stat().st_size


def requests(lab: Lab, since: int = 0, agent: str = "") -> Iterator[AuditedRequest]:
    """Yield each request that began after the mark once, if the client's user agent contains `agent`."""
    _settle(lab)
    seen: set[str] = set()
    with lab.audit_log.open("rb") as log:
        marked = _last_time(log, since)
        for line in log:
            event = json.loads(line)
            if event["auditID"] in seen or agent not in event.get("userAgent", ""):
                continue
            # A watch is logged when it starts and again when it ends, perhaps after a mark.
            seen.add(event["auditID"])
            request = _request(event)
            if request.begun >= marked:
                yield request


def count(lab: Lab, since: int = 0, agent: str = "") -> Counter[str]:
    """Return the number of requests, by verb."""
    return Counter(request.verb for request in requests(lab, since, agent))


def _settle(lab: Lab) -> None:
    """Send a request and wait until the log contains it: the server writes an event only after it has answered."""
    token = f"settle-{uuid.uuid4().hex}"
    Api(lab, "admin").request("GET", f"/version?{token}")
    deadline = time.monotonic() + _SETTLE_SECONDS
    with lab.audit_log.open("rb") as log:
        log.seek(max(0, lab.audit_log.stat().st_size - _TAIL))
        tail = b""
        while token.encode() not in tail:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the API server no longer writes the audit log {lab.audit_log}")
            more = log.read()
            tail = (tail + more)[-_TAIL:]
            if not more:
                time.sleep(0.01)


def _last_time(log: BinaryIO, end: int) -> float:
    """Go to this position in the log; return the time of the last event before it, or 0."""
    log.seek(max(0, end - _TAIL))
    before = log.read(min(end, _TAIL)).splitlines()
    return _seconds(json.loads(before[-1])["stageTimestamp"]) if before else 0.0


def _request(event: dict[str, object]) -> AuditedRequest:
    def part(key: str) -> dict[str, str]:
        value = event.get(key)
        return value if isinstance(value, dict) else {}

    reference = part("objectRef")
    return AuditedRequest(
        verb=str(event["verb"]),
        uri=str(event["requestURI"]),
        agent=str(event.get("userAgent", "")),
        user=part("user").get("username", ""),
        impersonated=part("impersonatedUser").get("username", ""),
        status=int(part("responseStatus").get("code", 0)),
        resource=reference.get("resource", ""),
        namespace=reference.get("namespace", ""),
        name=reference.get("name", ""),
        begun=_seconds(event["requestReceivedTimestamp"]),
        answered=_seconds(event["stageTimestamp"]),
    )


def _seconds(timestamp: object) -> float:
    return datetime.datetime.fromisoformat(str(timestamp)).timestamp()
