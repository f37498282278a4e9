# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One request to an API server, over the kubernetes library's connection pool; tried again where that is safe."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import typing as t
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from ..common.errors import ConnectionProblem
from ..common.retry import delay
from .connection import KUBERNETES_IMPORT_ERROR, Connection
from .errors import ApiError

if KUBERNETES_IMPORT_ERROR is None:
    import urllib3
    from kubernetes.client.rest import RESTClientObject
    from urllib3 import exceptions as http
    from urllib3._collections import HTTPHeaderDict

CONNECT_TIMEOUT = 5.0
POOL_SIZE = 32
_FIRST_CONTACT_ATTEMPTS = 3
_INTERNAL_ERRORS = 2
_RETRY_AFTER_MAX = 30.0
# What an API server, its etcd or a load balancer before it say while they restart.
_PASSING = (429, 500, 502, 503, 504)
_CHUNK = 64 * 1024
_OBJECT = re.compile(r"^(?:<?[\w.]+(?:\([^)]*\)| object at 0x[0-9a-f]+)>?: )+")
# Nothing is wrong with TLS then: whoever took the connection is gone, as behind a load balancer that has no server left.
# OpenSSL 1.1 and 3 say it in words of their own.
_EOF = re.compile(r"\beof\b", re.IGNORECASE)
_SSL_SOURCE = re.compile(r"^\[SSL: \w+\] | \(_ssl\.c:\d+\)")


@dataclass(frozen=True)
class ApiResponse:
    """Status, headers and the whole body of an answer that is not an error."""

    status: int
    data: bytes

    def json(self) -> dict[str, t.Any]:
        """The body as the object it holds."""
        return t.cast("dict[str, t.Any]", json.loads(self.data))


class Transport:
    """Sends requests to one API server; safe to be used by many threads."""

    def __init__(
        self,
        connection: Connection,
        user_agent: str,
        *,
        request_timeout: float,
        sleep: t.Callable[[float], None] = time.sleep,
        clock: t.Callable[[], float] = time.monotonic,
    ) -> None:
        """Open no connection yet; request_timeout is in seconds and counts for one attempt."""
        connection.configuration.connection_pool_maxsize = POOL_SIZE
        if not connection.configuration.verify_ssl:
            # The user has said so; a warning at each request would tell nothing new.
            urllib3.disable_warnings(http.InsecureRequestWarning)
        self._connection = connection
        self._pool = RESTClientObject(connection.configuration).pool_manager
        self._user_agent = user_agent
        self._timeout = request_timeout
        self._sleep = sleep
        self._clock = clock
        self._lock = threading.Lock()
        self._met = False
        self.request_count = 0
        self.warnings: list[str] = []
        self.guard: t.Callable[[str], None] | None = None

    def send(
        self,
        method: str,
        path: str,
        *,
        query: t.Mapping[str, t.Any] | None = None,
        body: t.Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        repeatable: bool = True,
        budget: float | None = None,
        at_once: t.Callable[[ApiError], bool] = lambda error: False,
    ) -> ApiResponse:
        """The answer, after as many tries as fit into the budget (seconds; twice the request timeout if not said).

        Only what certainly was not carried out is sent again when the request is not repeatable; errors that are the
        caller's `at_once` are not waited out here.
        """
        deadline = self._clock() + (budget if budget is not None else 2 * self._timeout)
        attempt = 0
        while True:
            attempt += 1
            try:
                response = self.open(
                    method,
                    path,
                    query=query,
                    body=body,
                    content_type=content_type,
                    accept=accept,
                    timeout=min(self._timeout, max(1.0, deadline - self._clock())),
                )
                return ApiResponse(response.status, _read(response, method, path))
            except ApiError as error:
                wait = delay(error, attempt, _RETRY_AFTER_MAX)
                if (
                    at_once(error)
                    or not self._worth_trying_again(error, attempt, repeatable)
                    or self._clock() + wait > deadline
                ):
                    raise
            self._sleep(wait)

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
    ) -> t.Any:
        """One attempt; the unread response of urllib3, which the caller reads or streams. Raises what the guard raises."""
        if self.guard is not None:
            self.guard(path)
        with self._lock:
            self.request_count += 1
        headers = HTTPHeaderDict({"User-Agent": self._user_agent, "Accept": accept, **self._connection.authorization()})
        for name, value in self._connection.impersonation:
            # A header for each group: a group's name may hold a comma.
            headers.add(name, value)
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            data = json.dumps(body, separators=(",", ":")).encode()
        read_timeout = timeout if timeout is not None else self._timeout
        try:
            response = self._pool.request(
                method,
                self._url(path, query),
                body=data,
                headers=headers,
                timeout=urllib3.Timeout(connect=min(CONNECT_TIMEOUT, read_timeout), read=read_timeout),
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except (http.HTTPError, OSError) as error:
            raise _no_answer(error, method, path) from error
        except ValueError:
            # Python quotes the header, which may be the token.
            raise ConnectionProblem(
                f"{method} {path} cannot be sent: a header or the address has characters that HTTP does not carry. Check the token and "
                f"impersonate_user ({self._connection.origin})."
            ) from None
        self._met = True
        self._note_warnings(response)
        if response.status >= 300:
            raise _refusal(response, method, path)
        return response

    def rest(self, error: ApiError) -> None:
        """Pause before a stream that broke is taken up again."""
        self._sleep(delay(error, 1, _RETRY_AFTER_MAX))

    def _url(self, path: str, query: t.Mapping[str, t.Any] | None) -> str:
        asked = {key: value for key, value in (query or {}).items() if value is not None}
        encoded = f"?{urlencode(asked, quote_via=quote)}" if asked else ""
        return f"{self._connection.server}{path}{encoded}"

    def _worth_trying_again(self, error: ApiError, attempt: int, repeatable: bool) -> bool:
        if error.unreachable:
            if error.reason in ("TLS", "Proxy"):
                return False
            if not self._met and (attempt >= _FIRST_CONTACT_ATTEMPTS or (error.sent and error.reason == "Timeout")):
                # Never seen alive: most likely the wrong address, which nobody wants to wait for.
                return False
            return repeatable or not error.sent
        if error.status == 429:
            return True
        if error.status == 500 and attempt > _INTERNAL_ERRORS:
            # A change of etcd's leader ends by itself; a body that the schema refuses is a 500 too, and stays one.
            return False
        return repeatable and error.status in _PASSING

    def _note_warnings(self, response: t.Any) -> None:
        """Keep what the API server warns of (RFC 7234 warn-text), each once."""
        for value in response.headers.getlist("Warning"):
            text = value.split('"')[1] if value.count('"') >= 2 else value
            with self._lock:
                if text not in self.warnings:
                    self.warnings.append(text)


def stream_lines(response: t.Any, method: str, path: str) -> t.Iterator[bytes]:
    """The lines of a streamed answer as they come."""
    rest = b""
    try:
        for chunk in response.stream(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line for line in lines if line)
    except (http.HTTPError, OSError) as error:
        raise _no_answer(error, method, path) from error
    finally:
        response.close()


def _read(response: t.Any, method: str, path: str) -> bytes:
    try:
        data = response.read()
    except (http.HTTPError, OSError) as error:
        raise _no_answer(error, method, path) from error
    response.release_conn()
    return t.cast(bytes, data)


def _refusal(response: t.Any, method: str, path: str) -> ApiError:
    data, status = b"", {}
    with contextlib.suppress(ValueError, ApiError):
        data = _read(response, method, path)
        parsed = json.loads(data)
        status = parsed if isinstance(parsed, dict) else {}
    words = "" if data.startswith(b"{") else data.decode(errors="replace").strip()[:300]
    text = status.get("message") or words or str(response.reason)
    return ApiError(
        text,
        status=response.status,
        reason=status.get("reason") or str(response.reason),
        method=method,
        path=path,
        # A 410 on a list carries the token to go on with.
        details={**(status.get("details") or {}), "continue": (status.get("metadata") or {}).get("continue")},
        retry_after=_seconds(response.headers.get("Retry-After")),
    )


def _seconds(value: str | None) -> float | None:
    try:
        return max(0.0, float(value)) if value else None
    except ValueError:
        return None


def _no_answer(error: Exception, method: str, path: str) -> ApiError:
    """Sort a connection's failure by what the user can do about it."""
    reason, sent = "Broken", True
    text = _plain(error)
    if isinstance(error, http.ProxyError):
        reason, sent = "Proxy", False
    elif (isinstance(error, http.SSLError) and not _EOF.search(text)) or "CERTIFICATE_VERIFY_FAILED" in text:
        reason, sent = "TLS", False
    elif isinstance(error, http.NewConnectionError):
        sent = False
        unresolved = "resolve" in text.lower() or "Name or service not known" in text
        reason = "DNS" if unresolved else "Refused"
    elif isinstance(error, http.ConnectTimeoutError):
        reason, sent, text = "Timeout", False, "no connection in time"
    elif isinstance(error, http.ReadTimeoutError):
        reason, text = "Timeout", "no answer in time"
    return ApiError(text, reason=reason, method=method, path=path, sent=sent)


def _plain(error: Exception) -> str:
    """The cause that urllib3's message names, without the names of its objects."""
    text = _OBJECT.sub("", str(error)).strip()
    return _SSL_SOURCE.sub("", text).strip() or type(error).__name__
