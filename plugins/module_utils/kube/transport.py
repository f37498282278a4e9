# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends requests with retries, and runs commands in containers."""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import functools
import json
import socket
import ssl
import threading
import time
import typing as t
from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit

from ..core import http
from ..core.errors import BROKEN, DNS, PROXY, REFUSED, TIMEOUT, TLS
from ..core.http import HttpResponse, Retrier
from ..core.messages import visible
from ..core.waits import call_within
from .connection import KUBERNETES_IMPORT_ERROR, connect
from .errors import ApiError, parse_status, status_error

if t.TYPE_CHECKING:
    from .connection import Connection
    from .connection_options import ConnectionOptions

# Sends requests to a Kubernetes API server through the connection pool of the kubernetes library.

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


# Runs commands in containers through the API server, with the websocket library that the kubernetes library itself uses.
#
# Source: kubernetes, staging/src/k8s.io/apimachinery/pkg/util/remotecommand/constants.go and k8s.io/apiserver, StreamTranslator. The subprotocol v5
# (API servers since v1.30) can close the standard input of a command; with v4, only the end of the connection closes it.

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _STATUS, _CLOSE = 0, 1, 2, 3, 255
_EXEC_CHUNK = 32 * 1024
# The maximum size of the output: far more than this collection's commands print, but too little to exhaust the memory of the run.
_MAX_RECEIVED = 4 * 1024 * 1024
_CONNECT_TIMEOUT = 10.0
_HTTP_REASONS = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 429: "TooManyRequests"}


@dataclass(frozen=True)
class ExecResult:
    """A command's result. `exit_code` is None if the server cannot report it, because closing the standard input required closing the connection."""

    exit_code: int | None
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        """Whether the command has succeeded, as far as the server can report this."""
        return self.exit_code in (0, None)


@dataclass(frozen=True)
class ExecRequest:
    """A command in a container of a pod. The command becomes part of a URL that servers log, so it must not contain a secret; `stdin` may."""

    pod_path: str
    container: str
    command: tuple[str, ...]
    stdin: bytes | None = None

    @property
    def path(self) -> str:
        """The path of the subresource, without the command."""
        return f"{self.pod_path}/exec"

    @property
    def query(self) -> str:
        """The query string of the URL."""
        given = [("container", self.container), *(("command", part) for part in self.command)]
        given += [("stdin", "true")] if self.stdin is not None else []
        return urlencode([*given, ("stdout", "true"), ("stderr", "true")], quote_via=quote)


class CommandRunner:
    """Opens a connection for each command, with the TLS settings, credentials and proxy of one API server; it is safe for use by many threads."""

    def __init__(
        self,
        connection: Connection,
        headers: t.Sequence[tuple[str, str]],
        proxy: t.Any = None,
        proxy_headers: t.Mapping[str, str] | None = None,
    ) -> None:
        """`headers` contains all headers except those for authorization. `proxy` is the parsed URL of the proxy (urllib3.util.Url); None without a proxy."""
        self._connection = connection
        self._headers = headers
        self._proxy = proxy
        self._proxy_headers = proxy_headers or {}

    @functools.cached_property
    def _context(self) -> ssl.SSLContext:
        """The TLS settings for the API server."""
        configuration = self._connection.configuration
        context = self._new_context()
        context.check_hostname = bool(configuration.verify_ssl) and configuration.assert_hostname is not False
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
        return context

    @functools.cached_property
    def _proxy_context(self) -> ssl.SSLContext:
        """The TLS settings for a proxy, which does not get the client certificate."""
        context = self._new_context()
        context.check_hostname = bool(self._connection.configuration.verify_ssl)
        return context

    def _new_context(self) -> ssl.SSLContext:
        """The TLS settings that urllib3 also uses for all other requests."""
        import certifi
        from urllib3.util.ssl_ import create_urllib3_context

        configuration = self._connection.configuration
        context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if configuration.verify_ssl else ssl.CERT_NONE)
        if configuration.verify_ssl:
            context.load_verify_locations(configuration.ssl_ca_cert or certifi.where())
        if getattr(configuration, "disable_strict_ssl_verification", False):
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context

    def run(self, request: ExecRequest, timeout: float) -> ExecResult:
        """Run a command for at most this number of seconds; raises ApiError if it cannot be started or does not end in time."""
        import websocket

        deadline = time.monotonic() + timeout
        connection = channel = None
        try:
            connection, limits = self._open(request, min(deadline, time.monotonic() + _CONNECT_TIMEOUT))
            channel = self._upgrade(connection, request)
            limits.deadline = deadline
            return _Conversation(channel, request).result()
        except websocket.WebSocketBadStatusException as error:
            raise _refused(request, error) from None
        except (websocket.WebSocketTimeoutException, TimeoutError):
            text = (
                f"{request.command[0]} did not end within {timeout:.0f} s"
                if channel
                else "no response within the time limit"
            )
            raise _no_answer(request, text, TIMEOUT, sent=connection is not None) from None
        except _ProxyRefusal as error:
            raise _no_answer(request, str(error), PROXY, sent=False) from None
        except socket.gaierror as error:
            raise _no_answer(request, str(error), DNS, sent=False) from None
        except ssl.SSLError as error:
            # A load balancer that has no backend ends the handshake.
            reason = BROKEN if connection or isinstance(error, ssl.SSLEOFError) else TLS
            raise _no_answer(request, str(error.reason or error), reason, sent=connection is not None) from None
        except (websocket.WebSocketException, OSError, ValueError) as error:
            # A ValueError means that another thread has closed the connection. Its text contains no header.
            reason = REFUSED if isinstance(error, ConnectionRefusedError) else BROKEN
            raise _no_answer(request, str(error) or type(error).__name__, reason, sent=connection is not None) from None
        finally:
            if connection is not None:
                with contextlib.suppress(Exception):
                    connection.close()

    def _upgrade(self, connection: t.Any, request: ExecRequest) -> t.Any:
        """Ask the API server to start the command, which may be running even if no response arrives."""
        import websocket

        scheme, dummy, server = self._connection.server.partition("://")
        headers = [*self._headers, *self._connection.authorization().items()]
        channel: t.Any = websocket.WebSocket(skip_utf8_validation=True)
        channel.connect(
            f"{'wss' if scheme == 'https' else 'ws'}://{server}{request.path}?{request.query}",
            header=[f"{header}: {value}" for header, value in headers],
            subprotocols=[V5, V4],
            suppress_origin=True,
            redirect_limit=0,
            # Otherwise, the library would use a proxy from the environment.
            socket=connection,
        )
        if channel.subprotocol not in (V4, V5):
            raise websocket.WebSocketException("the server supports no known version of the protocol for commands")
        return channel

    def _open(self, request: ExecRequest, deadline: float) -> tuple[t.Any, _LimitedSocket]:
        """Open a connection to the API server. Returns the connection and the socket that enforces its limits."""
        address = urlsplit(self._connection.server)
        host, secure = address.hostname or "", address.scheme == "https"
        port = address.port or (443 if secure else 80)
        context = self._context if secure else None
        name = str(getattr(self._connection.configuration, "tls_server_name", None) or host)
        label = request.command[0]
        if self._proxy is None:
            limited = _LimitedSocket(_connect(host, port, context, name, deadline), deadline, label)
            return limited, limited
        if self._proxy.scheme not in ("http", "https"):
            raise _ProxyRefusal(f"commands cannot be sent through a proxy of the type {self._proxy.scheme}")
        # Only TLS to the proxy itself encrypts the proxy's password.
        proxy_context = self._proxy_context if self._proxy.scheme == "https" else None
        proxy_host = self._proxy.host.strip("[]")
        connection = _connect(proxy_host, self._proxy.port, proxy_context, proxy_host, deadline)
        limited = _LimitedSocket(connection, deadline, label)
        try:
            self._tunnel(limited, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
            return self._encrypted(limited, context, name) if context else limited, limited
        except BaseException:
            limited.close()
            raise

    def _tunnel(self, connection: _LimitedSocket, target: str) -> None:
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        lines += [f"{name}: {value}" for name, value in self._proxy_headers.items()]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            data = connection.recv(1)
            if not data:
                raise _ProxyRefusal("the proxy has closed the connection")
            head += data
        status = head.partition(b"\r\n")[0].decode(errors="replace")
        if status.split(" ")[1:2] != ["200"]:
            raise _ProxyRefusal(f"the proxy refuses the connection: {status[:200]}")

    @staticmethod
    def _encrypted(connection: _LimitedSocket, context: ssl.SSLContext, name: str) -> t.Any:
        """Start TLS inside a connection that may itself be encrypted; sockets of the standard library do not support this."""
        from urllib3.util.ssltransport import SSLTransport

        return SSLTransport(t.cast("socket.socket", connection), context, name)


class _ProxyRefusal(Exception):
    """The proxy did not connect to the API server."""


class _LimitedSocket:
    """A socket with a deadline for everything that is sent and received, and with a limit on the number of received bytes.

    The limits also apply to pings and to parts of messages, which the websocket library reads without returning.
    """

    def __init__(self, connection: socket.socket, deadline: float, label: str) -> None:
        self.deadline = deadline
        self._connection = connection
        self._label = label
        self._left = _MAX_RECEIVED
        self._timeout: float | None = None

    def recv(self, size: int) -> bytes:
        import websocket

        self._set_timeout()
        data = self._connection.recv(size)
        self._left -= len(data)
        if self._left < 0:
            raise websocket.WebSocketException(f"the output of {self._label} is too long")
        return data

    def send(self, data: bytes) -> int:
        self._set_timeout()
        return self._connection.send(data)

    def sendall(self, data: bytes) -> None:
        while data:
            data = data[self.send(data) :]

    def _set_timeout(self) -> None:
        seconds_left = self.deadline - time.monotonic()
        if seconds_left <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(seconds_left if self._timeout is None else min(seconds_left, self._timeout))

    def settimeout(self, timeout: float | None) -> None:
        self._timeout = timeout

    def gettimeout(self) -> float | None:
        return self._connection.gettimeout()

    def fileno(self) -> int:
        return self._connection.fileno()

    def shutdown(self, how: int) -> None:
        self._connection.shutdown(how)

    def close(self) -> None:
        self._connection.close()


def _connect(host: str, port: int, context: ssl.SSLContext | None, name: str, deadline: float) -> socket.socket:
    """Open a connection, encrypted with TLS if `context` is given."""
    connection = socket.create_connection((host, port), max(0.1, deadline - time.monotonic()))
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(max(0.1, deadline - time.monotonic()))
        return context.wrap_socket(connection, server_hostname=name) if context else connection
    except BaseException:
        connection.close()
        raise


class _Conversation:
    """Exchanges the messages of one command: sends the input, then reads the output until the server reports the end."""

    def __init__(self, channel: t.Any, request: ExecRequest) -> None:
        self._channel = channel
        self._request = request
        self._output: dict[int, bytearray] = {_STDOUT: bytearray(), _STDERR: bytearray(), _STATUS: bytearray()}

    def result(self) -> ExecResult:
        if self._request.stdin is not None and not self._send(self._request.stdin):
            return ExecResult(None, "", "")
        while not self._output[_STATUS] and self._receive():
            pass
        # The status is a single message, and it is the last message.
        return ExecResult(self._exit_code(), self._text(_STDOUT), self._text(_STDERR))

    def _send(self, data: bytes) -> bool:
        """Send the input and close the standard input. Returns False if this ends the connection."""
        for start in range(0, len(data), _EXEC_CHUNK):
            self._channel.send_binary(bytes([_STDIN]) + data[start : start + _EXEC_CHUNK])
        if self._channel.subprotocol == V5:
            self._channel.send_binary(bytes([_CLOSE, _STDIN]))
            return True
        self._channel.close(timeout=2)
        return False

    def _receive(self) -> bool:
        """Read one message. Returns False after the last one."""
        import websocket

        opcode, data = self._channel.recv_data()
        if opcode == websocket.ABNF.OPCODE_CLOSE:
            return False
        if opcode in (websocket.ABNF.OPCODE_BINARY, websocket.ABNF.OPCODE_TEXT) and data and data[0] in self._output:
            self._output[data[0]] += data[1:]
        return True

    def _exit_code(self) -> int:
        """The exit code in the status; raises ApiError if the command was not started or if the connection ended before the command did."""
        try:
            status = json.loads(self._output[_STATUS])
            outcome, details = status["status"], status.get("details") or {}
            if outcome == "Success":
                return 0
            causes = {cause.get("reason"): cause.get("message") for cause in details.get("causes") or ()}
            if "ExitCode" in causes:
                return int(causes["ExitCode"])
            code = int(status.get("code") or 500)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            raise _no_answer(self._request, "the connection ended before the command", BROKEN, sent=True) from None
        error = ApiError(
            str(status.get("message") or "the command could not be started"),
            status=code,
            reason=str(status.get("reason") or ""),
            method="GET",
            path=self._request.path,
        )
        error.has_status_object = True
        raise error

    def _text(self, channel: int) -> str:
        return self._output[channel].decode(errors="replace")


def _refused(request: ExecRequest, error: t.Any) -> ApiError:
    """The error in a response; the body is a Status object unless it comes from a proxy."""
    body = error.resp_body or b""
    status = parse_status(body)
    code = int(error.status_code or 500)
    text = "" if status else bytes(body[:300]).decode(errors="replace").strip()
    return status_error(
        status,
        text or error.status_message or "the API server refuses the command",
        code=code,
        reason=_HTTP_REASONS.get(code, ""),
        method="GET",
        path=request.path,
        sent=False,
    )


def _no_answer(request: ExecRequest, text: str, reason: str, *, sent: bool) -> ApiError:
    return ApiError(text, reason=reason, method="GET", path=request.path, sent=sent)
