# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that knows nobody: it records every request and answers 401, as an API server, Keystone, VNG Cloud's IAM or a registry does to a wrong secret."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_BODY = {
    # Kubernetes
    "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "Unauthorized", "reason": "Unauthorized", "code": 401,
    # Keystone
    "error": {"code": 401, "title": "Unauthorized", "message": "The request you have made requires authentication."},
}  # fmt: skip


@dataclass
class Unauthorized:
    """The running server. requests: method and path of each request. While `answers` is not set, requests wait."""

    port: int = 0
    requests: list[tuple[str, str]] = field(default_factory=list)
    answers: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """The address without a path."""
        return f"http://127.0.0.1:{self.port}"

    def writes(self) -> list[str]:
        """The paths of requests that change something if they are allowed; a login is none."""
        return [path for method, path in self.requests if method not in ("GET", "HEAD") and "token" not in path]


@contextmanager
def unauthorized() -> Iterator[Unauthorized]:
    """Start the server."""
    state = Unauthorized()
    state.answers.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            state.requests.append((self.command, self.path))
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.answers.wait()
            body = b"" if self.command == "HEAD" else json.dumps(_BODY).encode()
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="test"')
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

        def log_message(self, format: str, *arguments: object) -> None:
            """Write no log to the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield state
    finally:
        state.answers.set()
        server.shutdown()
        server.server_close()
