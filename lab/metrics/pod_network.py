# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network path from the API server to pods: an HTTP proxy on a Unix socket, which the API server uses as its egress proxy.

The lab has no network of pods. Connections to an exporter's port end here; those to kwok and to other servers of the lab are passed on, because
the API server uses the proxy for them, too.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import socketserver
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from ..api import ApiError
from ..relay import relay
from .exporter import PORT

# The addresses of pods in lab/kwok/config.yaml.
_PODS = ipaddress.ip_network("10.244.0.0/16")
_SECONDS = 30.0


class PodNetwork(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A thread for each connection."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, path: Path, scrape: Callable[[str], str | None]) -> None:
        """Take the path of the socket, and a function that returns the metrics of the exporter with an address (None: there is none)."""
        path.unlink(missing_ok=True)
        super().__init__(str(path), _Connection)
        self.scrape = scrape


class _Connection(BaseHTTPRequestHandler):
    server: PodNetwork
    protocol_version = "HTTP/1.1"
    # The metrics of the exporter to which the connection was made.
    metrics: str | None = None

    def do_CONNECT(self) -> None:
        """Connect to a server (host:port), or be the exporter at an address of a pod."""
        host, _colon, port = self.path.rpartition(":")
        try:
            if _is_pod(host):
                self.metrics = self.server.scrape(host) if port == str(PORT) else None
                if self.metrics is None:
                    raise ConnectionRefusedError(f"no process listens on {self.path}")
                self._accept()
                return
            target = socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS)
        except (OSError, ApiError) as error:
            self.send_error(HTTPStatus.BAD_GATEWAY, str(error))
            return
        # Either side may break the connection.
        with target, contextlib.suppress(OSError):
            target.settimeout(None)
            target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._accept()
            relay(self.connection, target)
        self.close_connection = True

    def do_GET(self) -> None:
        """Be the exporter."""
        if self.metrics is None or self.path.partition("?")[0] != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        content = self.metrics.encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def _accept(self) -> None:
        self.send_response(HTTPStatus.OK)
        self.end_headers()

    def log_message(self, template: str, *arguments: Any) -> None:
        """Print nothing: the API server's log has its requests."""


def _is_pod(host: str) -> bool:
    try:
        return ipaddress.ip_address(host) in _PODS
    except ValueError:
        # A name, or an IPv6 address in brackets.
        return False
