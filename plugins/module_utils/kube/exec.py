# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs commands in containers through the API server, over a websocket of the library that kubernetes itself uses.

Source: kubernetes, staging/src/k8s.io/apimachinery/pkg/util/remotecommand/constants.go and k8s.io/apiserver, StreamTranslator. The subprotocol v5
(API servers from v1.30 on) can close the standard input of a command; with v4, only the end of the connection does.
"""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import ssl
import time
import typing as t
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

from ..common.errors import BROKEN, DNS, PROXY, REFUSED, TIMEOUT, TLS
from .errors import ApiError

if t.TYPE_CHECKING:
    from .connection import Connection

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _STATUS, _CLOSE = 0, 1, 2, 3, 255
_CHUNK = 32 * 1024
# More output than any command of this collection has, so that a container cannot fill the memory of the run.
_MAX_OUTPUT = 4 * 1024 * 1024
_CONNECT_TIMEOUT = 10.0
_HTTP_REASONS = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 429: "TooManyRequests"}


@dataclass(frozen=True)
class ExecResult:
    """The end of a command. `exit_code` is None if the server cannot report it, because it had to end the connection to close the standard input."""

    exit_code: int | None
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        """Whether the command has succeeded, as far as the server can report this."""
        return self.exit_code in (0, None)


@dataclass(frozen=True)
class ExecRequest:
    """A command in a container of a pod. It becomes part of an address that servers log, so it must not contain a secret; `stdin` may."""

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
        """The query of the address."""
        given = [("container", self.container), *(("command", part) for part in self.command)]
        given += [("stdin", "true")] if self.stdin is not None else []
        return urlencode([*given, ("stdout", "true"), ("stderr", "true")], quote_via=quote)


class CommandRunner:
    """Opens a connection for each command, with the TLS settings, the credentials and the proxy of one API server; safe for use by many threads."""

    def __init__(self, connection: Connection, headers: t.Sequence[tuple[str, str]], proxy: t.Any) -> None:
        """headers: without those of the authorization. proxy: the parsed address of the proxy (urllib3.util.Url); None without one."""
        self._connection = connection
        self._headers = headers
        self._proxy = proxy

    @functools.cached_property
    def _context(self) -> ssl.SSLContext:
        """The settings of TLS, as urllib3 has them for all other requests."""
        import certifi
        from urllib3.util.ssl_ import create_urllib3_context

        configuration = self._connection.configuration
        context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if configuration.verify_ssl else ssl.CERT_NONE)
        context.check_hostname = bool(configuration.verify_ssl) and configuration.assert_hostname is not False
        if configuration.verify_ssl:
            context.load_verify_locations(configuration.ssl_ca_cert or certifi.where())
        if getattr(configuration, "disable_strict_ssl_verification", False):
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
        return context

    def run(self, request: ExecRequest, timeout: float) -> ExecResult:
        """Run a command for at most this number of seconds; raises ApiError if it cannot be started, or does not end in time."""
        import websocket

        deadline = time.monotonic() + timeout
        channel = None
        sent = False
        try:
            channel = self._connect(request, min(_CONNECT_TIMEOUT, timeout))
            sent = True
            return _Conversation(channel, request, deadline).result()
        except websocket.WebSocketBadStatusException as error:
            raise _refused(request, error) from None
        except (websocket.WebSocketTimeoutException, TimeoutError):
            text = f"{request.command[0]} did not end within {timeout:.0f} s" if sent else "no answer in time"
            raise _no_answer(request, text, TIMEOUT, sent=sent) from None
        except websocket.WebSocketProxyException as error:
            raise _no_answer(request, str(error), PROXY, sent=False) from None
        except websocket.WebSocketAddressException as error:
            raise _no_answer(request, str(error), DNS, sent=False) from None
        except socket.gaierror as error:
            raise _no_answer(request, str(error), DNS, sent=False) from None
        except ssl.SSLError as error:
            reason = BROKEN if sent else TLS
            raise _no_answer(request, str(error.reason or error), reason, sent=sent) from None
        except (websocket.WebSocketException, OSError, ValueError) as error:
            # A ValueError of a connection that another thread has closed. Its text names no header.
            reason = REFUSED if isinstance(error, ConnectionRefusedError) else BROKEN
            raise _no_answer(request, str(error) or type(error).__name__, reason, sent=sent) from None
        finally:
            if channel is not None:
                with contextlib.suppress(Exception):
                    channel.shutdown()

    def _connect(self, request: ExecRequest, timeout: float) -> t.Any:
        import websocket

        address = urlsplit(self._connection.server)
        secure = address.scheme == "https"
        name = str(getattr(self._connection.configuration, "tls_server_name", None) or address.hostname or "")
        options = {"context": self._context, "server_hostname": name} if secure else {}
        headers = [*self._headers, *self._connection.authorization().items()]
        channel: t.Any = websocket.WebSocket(sslopt=options, skip_utf8_validation=True)
        given = (
            self._proxy_options() if self._proxy else {"socket": self._open(address, name if secure else "", timeout)}
        )
        server = self._connection.server.partition("://")[2]
        channel.connect(
            f"{'wss' if secure else 'ws'}://{server}{request.path}?{request.query}",
            timeout=timeout,
            header=[f"{header}: {value}" for header, value in headers],
            subprotocols=[V5, V4],
            suppress_origin=True,
            redirect_limit=0,
            **given,
        )
        if channel.subprotocol not in (V4, V5):
            raise websocket.WebSocketException("the server supports no known version of the protocol for commands")
        return channel

    def _open(self, address: SplitResult, tls_name: str, timeout: float) -> socket.socket:
        """A connection without a proxy. The library itself would take one from the environment."""
        port = address.port or (443 if tls_name else 80)
        connection = socket.create_connection((address.hostname or "", port), timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not tls_name:
            return connection
        try:
            return self._context.wrap_socket(connection, server_hostname=tls_name)
        except BaseException:
            connection.close()
            raise

    def _proxy_options(self) -> dict[str, t.Any]:
        user, dummy, password = (self._proxy.auth or "").partition(":")
        return {
            "http_proxy_host": self._proxy.host,
            "http_proxy_port": self._proxy.port or 80,
            "http_proxy_auth": (unquote(user), unquote(password)) if user else None,
            "proxy_type": "http" if self._proxy.scheme in ("http", "https") else self._proxy.scheme,
            # The library of kubernetes has evaluated no_proxy already; an empty list would mean that of the environment.
            "http_no_proxy": ["localhost.invalid"],
        }


class _Conversation:
    """The frames of one command: the input is sent, then the output is read until the server reports the end."""

    def __init__(self, channel: t.Any, request: ExecRequest, deadline: float) -> None:
        self._channel = channel
        self._request = request
        self._deadline = deadline
        self._output: dict[int, bytearray] = {_STDOUT: bytearray(), _STDERR: bytearray(), _STATUS: bytearray()}

    def result(self) -> ExecResult:
        if self._request.stdin is not None and not self._send(self._request.stdin):
            return ExecResult(None, "", "")
        while not self._output[_STATUS] and self._receive():
            pass
        # The status is one frame, and the last one.
        return ExecResult(self._exit_code(), self._text(_STDOUT), self._text(_STDERR))

    def _send(self, data: bytes) -> bool:
        """Send the input and close it; returns False if this ends the connection."""
        for start in range(0, len(data), _CHUNK):
            self._set_timeout()
            self._channel.send_binary(bytes([_STDIN]) + data[start : start + _CHUNK])
        if self._channel.subprotocol == V5:
            self._channel.send_binary(bytes([_CLOSE, _STDIN]))
            return True
        self._set_timeout()
        self._channel.close(timeout=2)
        return False

    def _receive(self) -> bool:
        """Read one frame; returns False after the last one."""
        import websocket

        self._set_timeout()
        opcode, data = self._channel.recv_data()
        if opcode == websocket.ABNF.OPCODE_CLOSE:
            return False
        if opcode in (websocket.ABNF.OPCODE_BINARY, websocket.ABNF.OPCODE_TEXT) and data:
            buffer = self._output.get(data[0])
            if buffer is not None:
                buffer += data[1:]
                if len(buffer) > _MAX_OUTPUT:
                    raise websocket.WebSocketException(f"the output of {self._request.command[0]} is too long")
        return True

    def _set_timeout(self) -> None:
        import websocket

        left = self._deadline - time.monotonic()
        if left <= 0:
            raise websocket.WebSocketTimeoutException("timed out")
        self._channel.settimeout(left)

    def _exit_code(self) -> int:
        """The exit code in the status; raises ApiError if the command was not started, or the connection ended before it."""
        try:
            status = json.loads(self._output[_STATUS])
            outcome, details = status["status"], status.get("details") or {}
            if outcome == "Success":
                return 0
            causes = {cause.get("reason"): cause.get("message") for cause in details.get("causes") or ()}
            if "ExitCode" in causes:
                return int(causes["ExitCode"])
        except (ValueError, TypeError, KeyError, AttributeError):
            raise _no_answer(self._request, "the connection ended before the command", BROKEN, sent=True) from None
        raise ApiError(
            str(status.get("message") or "the command could not be started"),
            status=int(status.get("code") or 500),
            reason=str(status.get("reason") or ""),
            method="GET",
            path=self._request.path,
        )

    def _text(self, channel: int) -> str:
        return self._output[channel].decode(errors="replace")


def _refused(request: ExecRequest, error: t.Any) -> ApiError:
    """The error of the API server, in whose body is a Status object unless it comes from a proxy."""
    status: dict[str, t.Any] = {}
    body = error.resp_body or b""
    with contextlib.suppress(ValueError):
        parsed = json.loads(body)
        status = parsed if isinstance(parsed, dict) else {}
    code = int(error.status_code or 500)
    text = "" if status else bytes(body[:300]).decode(errors="replace").strip()
    return ApiError(
        str(status.get("message") or text or error.status_message or "the API server refuses the command"),
        status=code,
        reason=str(status.get("reason") or _HTTP_REASONS.get(code, "")),
        method="GET",
        path=request.path,
        details=status.get("details") or {},
        sent=False,
    )


def _no_answer(request: ExecRequest, text: str, reason: str, *, sent: bool) -> ApiError:
    return ApiError(text, reason=reason, method="GET", path=request.path, sent=sent)
