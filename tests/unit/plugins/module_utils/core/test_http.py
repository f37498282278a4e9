# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which requests are repeated, how often and when; and what a failed connection means, through urllib3 and through keystoneauth."""

from __future__ import annotations

import base64
import email.utils
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import urllib3
from keystoneauth1 import exceptions as keystone
from keystoneauth1 import session as keystone_session

from ansible_collections.accel.gpu.plugins.module_utils.core import http
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ServiceError
from ansible_collections.accel.gpu.plugins.module_utils.core.http import Retrier


class Attempts:
    """A clock that only sleeping moves, and the requests that were sent."""

    def __init__(self, *errors: ServiceError) -> None:
        """The last error repeats."""
        self.errors = list(errors)
        self.count = 0
        self.now = 0.0
        self.left: list[float] = []
        self.retrier = Retrier(sleep=self.sleep, clock=lambda: self.now)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def request(self, remaining: float) -> str:
        self.count += 1
        self.left.append(remaining)
        if not self.errors:
            return "done"
        raise self.errors.pop(0) if len(self.errors) > 1 else self.errors[0]

    def send(self, *, limit: float = 1000, repeatable: bool = True, connected: bool = True, **options: Any) -> str:
        return self.retrier.send(
            self.request, limit=limit, repeatable=repeatable, is_connected=lambda error: connected, **options
        )


def answer(status: int, **fields: Any) -> ServiceError:
    return ServiceError("no", status=status, **fields)


class Early(ServiceError):
    """A service that declines requests with one more status."""

    retry_statuses = frozenset({425, 429})


MANY = 20
CASES = [
    # error, repeatable, connected before, requests (MANY: until the time is over)
    (answer(400), True, True, 1),
    (answer(425), True, True, 1),
    (Early("no", status=425), False, True, MANY),
    (answer(401), True, True, 1),
    (answer(404), True, True, 1),
    (answer(409), True, True, 1),
    (answer(501), True, True, 1),
    (answer(429), True, True, MANY),
    (answer(429), False, True, MANY),
    (answer(500), True, True, 3),
    (answer(500), False, True, 1),
    (answer(503), True, True, MANY),
    (answer(503), False, True, 1),
    # Of the service that gives the token: the request itself was not sent.
    (answer(503, sent=False), False, True, MANY),
    (ServiceError("cut", reason="Broken"), True, True, MANY),
    (ServiceError("cut", reason="Broken"), False, True, 1),
    (ServiceError("cut", reason="Broken"), True, False, 3),
    (ServiceError("no", reason="Refused", sent=False), False, True, MANY),
    (ServiceError("no", reason="Refused", sent=False), False, False, 3),
    (ServiceError("no", reason="DNS", sent=False), True, False, 3),
    (ServiceError("no", reason="TLS", sent=False), True, True, 1),
    (ServiceError("no", reason="Proxy", sent=False), True, True, 1),
]


@pytest.mark.parametrize(("error", "repeatable", "connected", "requests"), CASES)
def test_how_often_a_request_is_sent(error: ServiceError, repeatable: bool, connected: bool, requests: int) -> None:
    attempts = Attempts(error)
    with pytest.raises(ServiceError) as caught:
        attempts.send(limit=100, repeatable=repeatable, connected=connected)
    assert caught.value is error
    assert attempts.count == requests if requests < MANY else attempts.count > 10


@pytest.mark.parametrize("status", [400, 401, 404, 409, 429, 500, 501, 502, 503, 504, 505])
def test_the_statuses_that_are_transient_are_those_that_are_retried(status: int) -> None:
    assert answer(status).transient is http.should_retry(answer(status), 1, repeatable=True, connected=True)


def test_a_result_after_transient_errors() -> None:
    attempts = Attempts(answer(503), answer(429))
    attempts.errors.append(answer(503))
    with pytest.raises(ServiceError):
        attempts.send(limit=0.1)
    attempts.errors.clear()
    assert attempts.send() == "done"


@pytest.mark.parametrize(
    ("first", "maybe_applied"), [(answer(504), True), (answer(429), False), (answer(503, sent=False), False)]
)
def test_a_refusal_may_follow_an_attempt_that_was_carried_out(first: ServiceError, maybe_applied: bool) -> None:
    with pytest.raises(ServiceError) as failure:
        Attempts(first, answer(409)).send()
    assert failure.value.conflict
    assert failure.value.maybe_applied is maybe_applied


def test_delays_double_up_to_eight_seconds() -> None:
    attempts = Attempts(answer(503))
    with pytest.raises(ServiceError):
        attempts.send(limit=60)
    times = [60 - remaining for remaining in attempts.left]
    delays = [after - before for before, after in itertools.pairwise(times)]
    for number, delay in enumerate(delays, 1):
        longest = min(8.0, 0.25 * 2**number)
        assert longest / 2 <= delay <= longest


@pytest.mark.parametrize(("seconds", "delay"), [(0.0, 0.0), (5.0, 5.0), (900.0, 30.0)])
def test_retry_after_is_honoured_up_to_a_limit(seconds: float, delay: float) -> None:
    attempts = Attempts(answer(429, retry_after=seconds))
    attempts.retrier.backoff(attempts.errors[0])
    assert attempts.now == delay


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_a_retry_after_of_nothing_is_no_permission_for_requests_without_a_pause(seconds: float) -> None:
    """The header is 0, or a date that is over by this machine's clock."""
    attempts = Attempts(answer(429, retry_after=seconds))
    with pytest.raises(ServiceError):
        attempts.send(limit=60)
    assert attempts.count < MANY


def test_a_declined_request_may_have_a_limit_of_its_own() -> None:
    attempts = Attempts(answer(429, retry_after=30), answer(429, retry_after=30), answer(503))
    with pytest.raises(ServiceError):
        attempts.send(limit=40, declined_limit=90)
    assert (attempts.count, attempts.now) == (3, 60)


def test_nothing_is_sent_after_the_limit() -> None:
    attempts = Attempts(answer(429, retry_after=20))
    with pytest.raises(ServiceError):
        attempts.send(limit=50)
    assert (attempts.count, attempts.now) == (3, 40)


def test_errors_that_the_caller_handles_are_raised_at_once() -> None:
    attempts = Attempts(answer(429))
    with pytest.raises(ServiceError):
        attempts.send(is_final=lambda error: error.status == 429)
    assert attempts.count == 1


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("7", 7),
        ("-1", 0),
        ("Fri, 31 Dec", None),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", None),
        ("Mon, 01 Jan 2024 00:00:00 +99999999999999999999", None),
    ],
)
def test_retry_after(header: str | None, seconds: float | None) -> None:
    assert http.retry_after(header) == seconds


@pytest.mark.parametrize(("offset", "low", "high"), [(90, 85, 90), (-90, 0, 0)])
def test_retry_after_a_date(offset: int, low: float, high: float) -> None:
    actual = http.retry_after(email.utils.formatdate(time.time() + offset, usegmt=True))
    assert actual is not None
    assert low <= actual <= high


def test_query() -> None:
    assert http.with_query("/x", None) == http.with_query("/x", {"a": None}) == "/x"
    assert http.with_query("/x", {"a": "b c/d", "e": True, "f": 0}) == "/x?a=b%20c%2Fd&e=true&f=0"


def over_urllib3(url: str) -> ServiceError:
    with pytest.raises((urllib3.exceptions.HTTPError, OSError)) as caught:
        urllib3.PoolManager().request("GET", url, retries=False, timeout=urllib3.Timeout(connect=1, read=0.3))
    return http.no_answer(ServiceError, caught.value, path="/x")


def over_keystoneauth(url: str) -> ServiceError:
    with pytest.raises(keystone.ConnectionError) as caught:
        keystone_session.Session(timeout=0.3).request(url, "GET", connect_retries=0)
    cause = caught.value.__context__
    assert isinstance(cause, Exception)
    return http.no_answer(ServiceError, cause, path="/x")


@contextmanager
def server(behave: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that accepts one connection after the other; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()

        def run() -> None:
            while not stop.is_set():
                try:
                    connection, dummy = listener.accept()
                except OSError:
                    return
                with connection:
                    behave(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stop.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def close(connection: socket.socket) -> None:
    connection.recv(65536)


def wait(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.settimeout(5)
    connection.recv(1)


def speak_plain(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize("request_over", [over_urllib3, over_keystoneauth])
@pytest.mark.parametrize(
    ("scheme", "behave", "reason", "sent"),
    [
        ("http", close, "Broken", True),
        ("http", wait, "Timeout", True),
        # As a load balancer without a server does; TLS is not misconfigured.
        ("https", close, "Broken", True),
        ("https", speak_plain, "TLS", False),
    ],
)
def test_what_a_failed_connection_means(
    request_over: Callable[[str], ServiceError], scheme: str, behave: Any, reason: str, sent: bool
) -> None:
    with server(behave) as address:
        error = request_over(f"{scheme}://{address}/x?secret=1")
    assert (error.reason, error.sent, error.status, error.path) == (reason, sent, None, "/x"), error.message
    assert error.message
    assert " object at 0x" not in error.message
    assert error.remedy


@pytest.mark.parametrize("request_over", [over_urllib3, over_keystoneauth])
@pytest.mark.parametrize(
    ("host", "reason", "text"),
    [("127.0.0.1:9", "Refused", "refused"), ("nowhere.invalid", "DNS", "resolve")],
)
def test_a_server_that_is_not_there(
    request_over: Callable[[str], ServiceError], host: str, reason: str, text: str
) -> None:
    error = request_over(f"http://{host}/x")
    assert (error.reason, error.sent) == (reason, False)
    assert text in error.message


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("localhost", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("127.example", False),
        ("10.0.0.1", False),
        (None, False),
    ],
)
def test_loopback(host: str | None, here: bool) -> None:
    assert http.is_loopback(host) is here


@pytest.mark.parametrize(
    ("proxy", "address", "headers"),
    [
        ("http://proxy.example.com:3128", "http://proxy.example.com:3128", {}),
        ("proxy.example.com:3128", "http://proxy.example.com:3128", {}),
        ("http://u:p%40%C3%BC@proxy.example.com:3128", "http://proxy.example.com:3128", "u:p@\u00fc"),
        ("u:p@proxy.example.com:3128", "http://proxy.example.com:3128", "u:p"),
    ],
)
def test_proxies_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, proxy: str, address: str, headers: str | dict[str, str]
) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    pool = http.ConnectionPools().for_url("https://registry.example.com/v2/")
    assert f"{pool.proxy.scheme}://{pool.proxy.netloc}" == address
    if isinstance(headers, str):
        headers = {"proxy-authorization": f"Basic {base64.b64encode(headers.encode()).decode()}"}
    assert pool.proxy_headers == headers
