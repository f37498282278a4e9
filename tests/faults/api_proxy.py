# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A loopback proxy in front of a server. It sees each request and can change the response: faults are injected here."""

from __future__ import annotations

import base64
import http.client
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

MUTATING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "content-length"})
_CHUNK = 64 * 1024
_BODILESS = frozenset({204, 304})
# Commands in containers that change nothing.
_READING = frozenset({"nvidia-smi", "sha256sum", "date", "cat", "curl"})


@dataclass(frozen=True)
class Request:
    """One request that the proxy received."""

    method: str
    path: str
    user_agent: str
    accept: str = ""

    @property
    def mutating(self) -> bool:
        """Whether the request changes objects or containers; a dry run, an access review, and a command that reads change nothing."""
        if self.command:
            return self.command not in _READING
        return self.method in MUTATING and "dryRun=" not in self.path and "/selfsubject" not in self.path

    @property
    def command(self) -> str:
        """The name of the command that is executed in a container; empty for other requests."""
        path, _, query = self.path.partition("?")
        return parse_qs(query)["command"][0] if path.endswith("/exec") else ""


@dataclass(frozen=True)
class Answer:
    """A response of the proxy in place of the server's."""

    status: int
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)


class Proxy:
    """Forwards to one server; `before` can respond in place of the server, `after` runs after the server's response."""

    def __init__(self, upstream: str, tls: ssl.SSLContext | None = None) -> None:
        """Take the server's URL and the TLS context for https; nothing is served yet."""
        self.upstream = urlsplit(upstream)
        self.requests: list[Request] = []
        self.before: Callable[[Request], Answer | None] = lambda request: None
        self.after: Callable[[Request, int], None] = lambda request, status: None
        # Whether the server sees the proxy's address, which it then writes into its own redirects.
        self.keeps_host = False
        self._tls = tls
        self._lock = threading.Lock()
        self._server: socketserver.ThreadingTCPServer | None = None

    @property
    def url(self) -> str:
        """The URL that replaces the server's URL while the proxy runs."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}{self.upstream.path}"

    def mutations(self, *user_agents: str) -> list[Request]:
        """Return the changing requests so far, of user agents that contain one of the given words."""
        with self._lock:
            return [
                r
                for r in self.requests
                if r.mutating and (not user_agents or any(u in r.user_agent for u in user_agents))
            ]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve on a free loopback port until the block ends."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                proxy._handle(self)

            do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = handle_one  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                """Stay quiet; the tests read `requests`."""

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A killed client closes its connections, which these tests expect."""

        with Server(("127.0.0.1", 0), Handler) as server:
            self._server = server
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        agent, accept = (", ".join(handler.headers.get_all(name, [])) for name in ("User-Agent", "Accept"))
        request = Request(handler.command, handler.path, agent, accept)
        body = _body(handler)
        answer = self.before(request)
        if answer is not None:
            _send(handler, answer)
            return
        connection = self._connection()
        if handler.headers.get("Upgrade"):
            self._forward_websocket(handler, request, connection)
            return
        try:
            dropped = _HOP_BY_HOP if self.keeps_host else _HOP_BY_HOP | {"host"}
            # skopeo sends one line Accept for each type.
            headers = {
                k: ", ".join(handler.headers.get_all(k, [])) for k in handler.headers if k.lower() not in dropped
            }
            connection.request(handler.command, handler.path, body=body, headers=headers)
            response = connection.getresponse()
            with self._lock:
                self.requests.append(request)
            self.after(request, response.status)
            _stream(handler, response)
        finally:
            connection.close()

    def _forward_websocket(
        self, handler: BaseHTTPRequestHandler, request: Request, connection: http.client.HTTPConnection
    ) -> None:
        """Run the command completely; then `after`, and only then the client gets the output."""
        handler.close_connection = True
        connection.connect()
        server = connection.sock
        try:
            headers = [f"{name}: {value}" for name, value in handler.headers.items() if name.lower() != "host"]
            lines = [f"{request.method} {request.path} HTTP/1.1", f"Host: {self.upstream.netloc}", *headers, "", ""]
            server.sendall("\r\n".join(lines).encode())
            received = b""
            while b"\r\n\r\n" not in received and (chunk := server.recv(_CHUNK)):
                received += chunk
            head, end, output = received.partition(b"\r\n\r\n")
            status = int(head.split()[1])
            handler.wfile.write(head + end)
            threading.Thread(target=_copy, args=(handler, server), daemon=True).start()
            while chunk := server.recv(_CHUNK):
                output += chunk
            with self._lock:
                self.requests.append(request)
            self.after(request, 200 if status == 101 else status)
            handler.wfile.write(output)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        assert self.upstream.hostname is not None
        if self.upstream.scheme == "http":
            return http.client.HTTPConnection(self.upstream.hostname, self.upstream.port)
        return http.client.HTTPSConnection(self.upstream.hostname, self.upstream.port, context=self._tls)


class ApiProxy(Proxy):
    """The proxy in front of the API server of a kubeconfig; the proxy itself uses the client certificate."""

    def __init__(self, kubeconfig: Path) -> None:
        """Read the server and the client certificate of the current context."""
        document = yaml.safe_load(kubeconfig.read_text())
        contexts = {entry["name"]: entry["context"] for entry in document["contexts"]}
        context = contexts[document["current-context"]]
        cluster = next(entry["cluster"] for entry in document["clusters"] if entry["name"] == context["cluster"])
        user = next(entry["user"] for entry in document["users"] if entry["name"] == context["user"])
        super().__init__(cluster["server"], _tls_context(cluster, user, kubeconfig.parent))
        self._document = document

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for the proxy, which needs no credentials, and return its path."""
        document: dict[str, Any] = {**self._document, "users": [{"name": "proxy", "user": {}}]}
        document["clusters"] = [{"name": c["name"], "cluster": {"server": self.url}} for c in document["clusters"]]
        document["contexts"] = [
            {"name": c["name"], "context": {"cluster": c["context"]["cluster"], "user": "proxy"}}
            for c in document["contexts"]
        ]
        path.write_text(yaml.safe_dump(document))
        return path


def _tls_context(cluster: dict[str, Any], user: dict[str, Any], folder: Path) -> ssl.SSLContext:
    if "certificate-authority-data" in cluster:
        context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    else:
        context = ssl.create_default_context(cafile=str(folder / cluster["certificate-authority"]))
    context.load_cert_chain(_as_file(user, "client-certificate", folder), _as_file(user, "client-key", folder))
    return context


def _as_file(user: dict[str, Any], key: str, folder: Path) -> str:
    if key in user:
        return str(folder / user[key])
    path = folder / f".proxy-{key}.pem"
    path.touch(mode=0o600)
    path.write_bytes(base64.b64decode(user[f"{key}-data"]))
    return str(path)


def _copy(handler: BaseHTTPRequestHandler, server: socket.socket) -> None:
    """Forward the input of a command until either side closes its connection."""
    try:
        while chunk := handler.connection.recv(_CHUNK):
            server.sendall(chunk)
    except OSError:
        pass


def _body(handler: BaseHTTPRequestHandler) -> bytes | None:
    """The body of a request, which may be sent in chunks."""
    if handler.headers.get("Transfer-Encoding", "").lower() != "chunked":
        length = int(handler.headers.get("Content-Length") or 0)
        return handler.rfile.read(length) if length else None
    parts = []
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        parts.append(handler.rfile.read(size))
        handler.rfile.readline()
    handler.rfile.readline()
    return b"".join(parts)


def _send(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
    # send_response() would add this machine's date.
    begin = handler.send_response_only if "Date" in answer.headers else handler.send_response
    begin(answer.status)
    for name, value in {"Content-Type": "application/json", **answer.headers}.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(answer.body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(answer.body)


def _stream(handler: BaseHTTPRequestHandler, response: http.client.HTTPResponse) -> None:
    """Forward the response as it arrives, since a watch does not end."""
    handler.send_response(response.status)
    for name, value in response.getheaders():
        if name.lower() not in _HOP_BY_HOP:
            handler.send_header(name, value)
    if handler.command == "HEAD" or response.status in _BODILESS:
        handler.end_headers()
        return
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    while chunk := response.read1(_CHUNK):
        handler.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        handler.wfile.flush()
    handler.wfile.write(b"0\r\n\r\n")
