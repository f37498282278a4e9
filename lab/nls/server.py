# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTPS server of the look-ups."""

from __future__ import annotations

import hmac
import json
import ssl
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ..api import ApiError
from .lookups import Lookups

_SECONDS = 30.0


class NlsServer(ThreadingHTTPServer):
    """A thread for each connection; a client that only opens a connection does not delay the others."""

    daemon_threads = True

    def __init__(self, port: int, certificate: Path, key: str, lookups: Lookups) -> None:
        """Take the path of the certificate without its suffix, and the API key."""
        super().__init__(("127.0.0.1", port), _Handler)
        self.key, self.lookups = key, lookups
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate.with_suffix(".crt"), certificate.with_suffix(".key"))

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; the thread of the connection performs the handshake, with its first read."""
        connection, address = super().get_request()
        connection.settimeout(_SECONDS)
        return self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, *args: Any) -> None:
        """Print nothing about a client that is gone or makes no TLS connection."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(*args)


class _Handler(BaseHTTPRequestHandler):
    server: NlsServer
    protocol_version = "HTTP/1.1"
    wbufsize = 65536

    def do_GET(self) -> None:
        if not hmac.compare_digest(self.headers.get("X-API-KEY", "").encode(), self.server.key.encode()):
            self._send(HTTPStatus.UNAUTHORIZED, {"message": "unauthorized"})
            return
        try:
            answer = self.server.lookups.answer(
                self.path.partition("?")[0], self.headers.get("x-nv-service-instance-id", "")
            )
        except ApiError as error:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, {"message": str(error)})
            return
        if answer is None:
            self._send(HTTPStatus.NOT_FOUND, {"message": "unknown"})
        else:
            self._send(HTTPStatus.OK, answer)

    def _send(self, status: HTTPStatus, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, template: str, *arguments: Any) -> None:
        """Print the request, without headers."""
        print(f"nls: {template % arguments}", flush=True)
