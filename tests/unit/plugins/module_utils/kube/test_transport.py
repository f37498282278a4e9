# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Responses that no API server sends, but a proxy in front of it, a webhook or a pod."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.kube.connection_options import ConnectionOptions
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.transport import PodLimits, Transport
from tests.faults.api_proxy import Answer, Proxy

PATH = "/api/v1/nodes/n1"
LIMITS = PodLimits(seconds=5, size=4096)


@pytest.fixture(scope="module")
def server() -> Iterator[Proxy]:
    proxy = Proxy("http://127.0.0.1:9")
    with proxy.running():
        yield proxy


def client_of(server: Proxy, answer: Answer) -> Transport:
    """A client of a server with this answer."""
    server.before = lambda request: answer
    return Transport(ConnectionOptions(host=server.url, request_timeout=5), "test")


def error_of(server: Proxy, answer: Answer) -> ApiError:
    """The error of a request without a second attempt."""
    with pytest.raises(ApiError) as caught:
        client_of(server, answer).send("GET", PATH, budget=0)
    return caught.value


@pytest.mark.parametrize(
    ("status", "body", "message", "reason", "details"),
    [
        (
            404,
            '{"kind": "Status", "message": "gone", "reason": "NotFound", "details": {"name": "n1"}}',
            "gone",
            "NotFound",
            {"name": "n1"},
        ),
        (410, '{"message": "old", "metadata": {"continue": "abc"}}', "old", "Gone", {"continue": "abc"}),
        (500, '{"message": ["a"], "details": "x"}', "Internal Server Error", "Internal Server Error", {}),
        (404, '{"metadata": [1], "reason": 1, "details": 1.5}', "Not Found", "Not Found", {}),
        (410, '{"metadata": {"continue": {"a": 1}}}', "Gone", "Gone", {}),
        (
            429,
            '{"details": {"causes": [1, {"reason": ["a"]}, {"reason": "b"}]}}',
            "Too Many Requests",
            "Too Many Requests",
            {"causes": [{}, {"reason": "b"}]},
        ),
        (404, '{"details": {"causes": 5}}', "Not Found", "Not Found", {"causes": []}),
        (404, "[" * 20_000, "[" * 300, "Not Found", {}),
        (404, "<html>no</html>", "<html>no</html>", "Not Found", {}),
    ],
)
def test_the_fields_of_an_error_have_the_types_of_the_api(
    status: int, body: str, message: str, reason: str, details: dict[str, Any], server: Proxy
) -> None:
    error = error_of(server, Answer(status, body.encode()))
    assert (error.status, error.message, error.reason) == (status, message, reason)
    assert {"continue": None, **details} == error.details


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["kind", "message", "reason", "details", "metadata", "causes", "continue", "field", "name"]
            ),
            values,
            max_size=6,
        )
    ),
    max_leaves=12,
)


@given(body=JSON, status=st.sampled_from([400, 401, 403, 404, 409, 410, 422, 429, 500, 503]))
def test_each_json_body_is_an_error_of_the_api(body: Any, status: int, server: Proxy) -> None:
    error = error_of(server, Answer(status, json.dumps(body).encode()))
    assert error.status == status
    assert isinstance(error.message, str)
    assert isinstance(error.refuses_eviction or error.lacks_right or error.quota, (bool, str))


def test_a_warning_has_no_control_characters(server: Proxy) -> None:
    client = client_of(server, Answer(200, b"{}", {"Warning": '299 - "old \x1b[31mversion\x9b1m"'}))
    client.send("GET", PATH)
    client.send("GET", PATH)
    assert client.warnings == ["old \\u001b[31mversion\\u009b1m"]


def test_the_warning_of_a_pod_is_ignored(server: Proxy) -> None:
    client = client_of(server, Answer(200, b"text", {"Warning": '299 - "from a pod"', "Content-Encoding": "identity"}))
    assert client.read_pod(PATH, LIMITS) == b"text"
    assert client.warnings == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(200, b"a" * 5000), "the pod's response has more than 4096 bytes"),
        (
            Answer(200, gzip.compress(b"a" * 5000), {"Content-Encoding": "gzip"}),
            "the pod's response is compressed (gzip), although this was not requested",
        ),
        (
            Answer(200, b"broken", {"Content-Encoding": "gzip"}),
            "the pod's response is compressed (gzip), although this was not requested",
        ),
        (Answer(429, b"busy", {"Retry-After": "1000"}), "busy"),
        (Answer(500, b"a" * 5000), "Internal Server Error"),
    ],
)
def test_a_response_of_a_pod_that_is_not_read(answer: Answer, message: str, server: Proxy) -> None:
    client = client_of(server, answer)
    with pytest.raises(ApiError) as caught:
        client.read_pod(PATH, LIMITS, is_final=lambda error: error.status == 500)
    assert (caught.value.status, caught.value.message) == (answer.status, message)
    assert client.request_count == 1


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("status", "chunked"), [(200, True), (200, False), (500, True)])
def test_a_pod_that_sends_slowly(status: int, chunked: bool) -> None:
    released = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", "1000")))
            self.end_headers()
            while not released.wait(0.1):
                self.wfile.write(b"1\r\na\r\n" if chunked else b"a")

        def log_message(self, format: str, *args: Any) -> None:
            """Stay quiet."""

        def handle(self) -> None:
            with suppress(OSError):
                super().handle()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        client = Transport(ConnectionOptions(host=address, request_timeout=30), "test")
        started = time.monotonic()
        with pytest.raises(ApiError) as caught:
            client.read_pod(PATH, PodLimits(seconds=0.2, size=4096))
        assert time.monotonic() - started < 5
        released.set()
        server.shutdown()
    assert caught.value.sent
    assert caught.value.message in ("the pod's response did not end in time", "Internal Server Error")
