# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Spans of nodes from the audit log."""

from __future__ import annotations

from lab.audit import AuditedRequest
from tests.performance.bench.rolling import spans_of
from tests.performance.bench.schedule import Span


def request(name: str, begun: float, verb: str = "patch", resource: str = "nodes", status: int = 200) -> AuditedRequest:
    return AuditedRequest(verb, f"/{name}", "accel.gpu", "admin", "", status, resource, "", name, begun, begun + 0.5)


def test_span_is_from_first_write_to_last_response() -> None:
    requests = [
        request("a", 90, verb="get"),
        request("a", 100),
        request("b", 101),
        request("a", 104),
        request("a", 107, status=409),
        request("p", 99, resource="pods"),
        request("b", 109),
        request("a", 120, verb="list"),
    ]
    assert spans_of(requests) == [Span("a", 0, 4.5), Span("b", 1, 9.5)]


def test_no_span_without_a_write() -> None:
    assert spans_of([request("a", 1, verb="get")]) == []
