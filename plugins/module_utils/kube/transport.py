# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends requests to a Kubernetes API server through the connection pool of the kubernetes library."""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import threading
import time
import typing as t
from dataclasses import dataclass

from ..common import http
from ..common.errors import TIMEOUT
from ..common.http import HttpResponse, Retrier
from ..common.parallel import call_within
from ..common.results import visible
from .connection import KUBERNETES_IMPORT_ERROR, connect
from .errors import ApiError, parse_status, status_error

if t.TYPE_CHECKING:
    from .connection_options import ConnectionOptions

if KUBERNETES_IMPORT_ERROR is None:
    import urllib3
    from kubernetes.client.rest import RESTClientObject
    from urllib3._collections import HTTPHeaderDict
    from urllib3.exceptions import HTTPError

T = t.TypeVar("T")
CONNECT_TIMEOUT = 5.0
_CHUNK = 64 * 1024
# The size of one read, which is small because urllib3 waits for all of its bytes.
_PIECE = 4 * 1024
_NO_END = "the pod's response did not end in time"
# A request to a pod is abandoned if it has not ended this number of seconds after its time limit.
_GRACE = 1.0


@dataclass(frozen=True)
class PodLimits:
    """The limits for a response that a pod sends through the API server's proxy: `seconds` for all attempts together, and `size` in bytes."""

    seconds: float
    size: int


class Transport:
    """Sends requests to one API server; it is safe for use by many threads."""

    def __init__(
        self,
        options: ConnectionOptions,
        user_agent: str,
        sleep: t.Callable[[float], None] = time.sleep,
        clock: t.Callable[[], float] = time.monotonic,
    ) -> None:
        """Load the configuration, or raise ConnectionProblem or WrongCluster; no connection is opened yet.

        `guard` is called with the path of each request before each attempt; it may raise an error, for example for a lost lease.
        """
        self.options = options
        self.connection = connect(options)
        configuration = self.connection.configuration
        configuration.connection_pool_maxsize = http.POOL_SIZE
        if not configuration.verify_ssl:
            http.allow_unverified_tls()
        proxy = configuration.proxy
        if proxy and not configuration.proxy_headers and (authorization := http.proxy_authorization(proxy)):
            configuration.proxy_headers = {"Proxy-Authorization": authorization}
        self._pool = RESTClientObject(configuration).pool_manager
        self.user_agent = user_agent
        self._timeout = options.request_timeout
        self._clock = clock
        self._retrier = Retrier(sleep=sleep, clock=clock)
        self._lock = threading.Lock()
        self._connected_before = False
        self.request_count = 0
        # The Date of the newest response, and when it was received.
        self._dated: tuple[str | None, float] = (None, 0.0)
        self.warnings: list[str] = []
        self.guard: t.Callable[[str], None] | None = None

    def send(
        self,
        method: str,
        path: str,
        *,
        repeatable: bool = True,
        budget: float | None = None,
        is_final: t.Callable[[ApiError], bool] = lambda error: False,
        **request: t.Any,
    ) -> HttpResponse:
        """Send a request and return the response, after as many attempts as `budget` allows (seconds; twice the request timeout by default).

        For the attempts, see Retrier.send(). `request` contains the other arguments of open().
        """

        def attempt(seconds_left: float) -> HttpResponse:
            response = self.open(method, path, timeout=min(self._timeout, max(1.0, seconds_left)), **request)
            self._dated = response.headers.get("Date"), time.monotonic()
            return HttpResponse(response.status, _read(response, method, path))

        limit = budget if budget is not None else 2 * self._timeout
        return self.retry(attempt, limit=limit, repeatable=repeatable, is_final=is_final)

    def server_time(self) -> datetime.datetime:
        """The server's time according to its newest response, with a precision of a second; this machine's time if the server sends no Date."""
        date, received = self._dated
        try:
            sent = email.utils.parsedate_to_datetime(date or "")
        except ValueError:
            return datetime.datetime.now(datetime.UTC)
        return sent.astimezone(datetime.UTC) + datetime.timedelta(seconds=time.monotonic() - received)

    def read_pod(
        self, path: str, limits: PodLimits, *, is_final: t.Callable[[ApiError], bool] = lambda error: False
    ) -> bytes:
        """The body of a pod's response through the API server's proxy. The pod is not trusted: raises ApiError if the response exceeds the limits."""
        deadline = self._clock() + limits.seconds

        def read(response: t.Any) -> bytes:
            return _read_within(response, path, limits.size, lambda: self._clock() > deadline)

        def attempt(seconds_left: float) -> bytes:
            timeout = min(self._timeout, max(1.0, seconds_left))
            return read(self.open("GET", path, accept="*/*", timeout=timeout, read_of_pod=read))

        try:
            return call_within(
                lambda: self.retry(attempt, limit=limits.seconds, repeatable=True, is_final=is_final),
                limits.seconds + _GRACE,
            )
        except TimeoutError:
            raise ApiError(_NO_END, reason=TIMEOUT, method="GET", path=path) from None

    def retry(
        self,
        attempt: t.Callable[[float], T],
        *,
        limit: float,
        repeatable: bool,
        is_final: t.Callable[[ApiError], bool] = lambda error: False,
    ) -> T:
        """The result of a request after as many attempts as fit into the limit; see Retrier.send()."""
        return self._retrier.send(
            attempt,
            limit=limit,
            repeatable=repeatable,
            is_connected=lambda error: self._connected_before,
            is_final=lambda error: is_final(error) or self._is_first_timeout(error),
        )

    def admit(self, path: str) -> None:
        """Call the guard, which may raise an error, and count the request."""
        if self.guard is not None:
            self.guard(path)
        with self._lock:
            self.request_count += 1

    @property
    def proxy(self) -> t.Any:
        """The address of the proxy to the API server as urllib3 parses it; None if there is none."""
        # The pool for SOCKS has only the address.
        address = getattr(self._pool, "proxy_url", None)
        return getattr(self._pool, "proxy", None) or (urllib3.util.parse_url(address) if address else None)

    @property
    def proxy_headers(self) -> t.Mapping[str, str]:
        """The headers for the proxy, such as the one with its password."""
        return t.cast("t.Mapping[str, str]", getattr(self._pool, "proxy_headers", None) or {})

    def _is_first_timeout(self, error: ApiError) -> bool:
        """Whether the server accepts connections but has never responded; another attempt would only take the same time again."""
        return not self._connected_before and error.sent and error.reason == TIMEOUT

    def open(
        self,
        method: str,
        path: str,
        *,
        query: t.Mapping[str, t.Any] | None = None,
        body: t.Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: float | None = None,
        read_of_pod: t.Callable[[t.Any], bytes] | None = None,
    ) -> t.Any:
        """Make one attempt and return the unread response of urllib3, which the caller reads or streams. Errors of the guard are raised.

        `read_of_pod` is the function that reads the body of an error in a pod's response.
        """
        self.admit(path)
        headers = HTTPHeaderDict({"User-Agent": self.user_agent, "Accept": accept, **self.connection.authorization()})
        for name, value in self.connection.impersonation:
            # One header for each group, because the name of a group may contain a comma.
            headers.add(name, value)
        if body is not None:
            headers["Content-Type"] = content_type
        read_timeout = timeout if timeout is not None else self._timeout
        try:
            response = self._pool.request(
                method,
                http.with_query(f"{self.connection.server}{path}", query),
                body=None if body is None else http.encode_json(body),
                headers=headers,
                timeout=urllib3.Timeout(connect=min(CONNECT_TIMEOUT, read_timeout), read=read_timeout),
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except (HTTPError, OSError) as error:
            raise http.no_answer(ApiError, error, method=method, path=path) from error
        except ValueError:
            raise http.not_sendable(self.connection.origin, "Check the token and impersonate_user.") from None
        self._connected_before = True
        if read_of_pod is None:
            self._collect_warnings(response)
        if response.status >= 300:
            raise _http_error(response, method, path, read_of_pod)
        return response

    def backoff(self, error: ApiError) -> None:
        """Sleep before the caller repeats a failed request or stream."""
        self._retrier.backoff(error)

    def _collect_warnings(self, response: t.Any) -> None:
        """Keep each warning of the API server once (RFC 7234 warn-text)."""
        for value in response.headers.getlist("Warning"):
            text = visible(value.split('"')[1] if value.count('"') >= 2 else value)
            with self._lock:
                if text not in self.warnings:
                    self.warnings.append(text)


def stream_lines(response: t.Any, method: str, path: str) -> t.Iterator[bytes]:
    """The lines of a streamed response as they arrive."""
    rest = b""
    try:
        for chunk in response.stream(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line for line in lines if line)
    except (HTTPError, OSError) as error:
        raise http.no_answer(ApiError, error, method=method, path=path) from error
    finally:
        response.close()


def _read(response: t.Any, method: str, path: str) -> bytes:
    try:
        data = response.read()
    except (HTTPError, OSError) as error:
        raise http.no_answer(ApiError, error, method=method, path=path) from error
    response.release_conn()
    return t.cast("bytes", data)


def _read_within(response: t.Any, path: str, size: int, is_late: t.Callable[[], bool]) -> bytes:
    """The body, read in pieces; raises ApiError if it exceeds `size` bytes, is late, or is compressed (its real size is then unknown)."""
    data, problem = bytearray(), ""
    if (encoding := response.headers.get("Content-Encoding", "identity")) != "identity":
        problem = f"the pod's response is compressed ({visible(encoding[:20])}), although this was not requested"
    try:
        for piece in () if problem else response.stream(_PIECE, decode_content=False):
            data += piece
            if len(data) > size:
                problem = f"the pod's response has more than {size} bytes"
            elif is_late():
                problem = _NO_END
            if problem:
                break
    except (HTTPError, OSError) as error:
        raise http.no_answer(ApiError, error, method="GET", path=path) from error
    finally:
        # Also closes the connection, unless all of the body was read.
        response.close()
    if problem:
        # The error has the status of the response, so the request is not sent again.
        raise ApiError(problem, status=response.status, method="GET", path=path)
    return bytes(data)


def _http_error(response: t.Any, method: str, path: str, read: t.Callable[[t.Any], bytes] | None = None) -> ApiError:
    """The error in a response; the body is a Status object unless it comes from a proxy."""
    data = b""
    with contextlib.suppress(ApiError):
        data = read(response) if read is not None else _read(response, method, path)
    status = parse_status(data)
    token = status.get("metadata", {}).get("continue")
    text = "" if data.startswith(b"{") else data.decode(errors="replace").strip()[:300]
    return status_error(
        status,
        text or str(response.reason),
        code=response.status,
        reason=str(response.reason),
        # A 410 for a list contains the token for continuing the list.
        details={"continue": token if isinstance(token, str) else None},
        method=method,
        path=path,
        retry_after=http.retry_after(response.headers.get("Retry-After")),
    )
