# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of a registry's access log."""

from __future__ import annotations

import pytest

from lab.registry.requests import RegistryRequest, parse

START = "127.0.0.1 - - [24/Nov/2026:19:03:45 +0000]"


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        (
            f'{START} "PUT /v2/a/blobs/uploads/1?_state=x&digest=sha256%3A12 HTTP/1.1" 201 0 "" "skopeo/1.9.3"',
            RegistryRequest(
                "24/Nov/2026:19:03:45 +0000",
                "PUT",
                "/v2/a/blobs/uploads/1?_state=x&digest=sha256%3A12",
                201,
                0,
                "skopeo/1.9.3",
            ),
        ),
        (
            f'{START} "GET /v2/ HTTP/2.0" 200 2 "http://a/\\"b" "x \\"y\\""',
            RegistryRequest("24/Nov/2026:19:03:45 +0000", "GET", "/v2/", 200, 2, 'x \\"y\\"'),
        ),
        (f'{START} "GET /?mark=0123 HTTP/1.1" 200 0 "" ""', None),
        ('time="2026-11-24T19:03:45Z" level=info msg="response completed" http.request.uri=/v2/', None),
        ("", None),
    ],
)
def test_parse(line: str, request_: RegistryRequest | None) -> None:
    assert parse(line) == request_


@pytest.mark.parametrize(("method", "writing"), [("GET", False), ("HEAD", False), ("PUT", True), ("DELETE", True)])
def test_requests_that_change_something(method: str, writing: bool) -> None:
    assert RegistryRequest("", method, "/v2/", 200, 0, "").writing is writing
