# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A proxy with the method CONNECT only, over TLS or not; it keeps the requests as they arrived on the wire."""

from __future__ import annotations

import contextlib
import select
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.helpers.exec_server import ThreadedServer


@dataclass
class ConnectProxy:
    """The running proxy. `received` are the first bytes of each connection, before TLS; `requests` are the lines of the requests."""

    context: ssl.SSLContext | None = None
    status: int = 200
    received: list[bytes] = field(default_factory=list)
    requests: list[list[str]] = field(default_factory=list)
    port: int = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[ConnectProxy]:
        """Serve on a free port of this machine."""
        proxy = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    proxy._serve(self.request)

        with ThreadedServer(("127.0.0.1", 0), Handler) as listener:
            self.port = listener.server_address[1]
            thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
            thread.start()
            try:
                yield self
            finally:
                listener.shutdown()
                thread.join()

    def _serve(self, client: Any) -> None:
        self.received.append(client.recv(1000, socket.MSG_PEEK))
        if self.context is not None:
            client = self.context.wrap_socket(client, server_side=True)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            if not (data := client.recv(1)):
                return
            head += data
        lines = head.decode().split("\r\n")[:-2]
        self.requests.append(lines)
        client.sendall(f"HTTP/1.1 {self.status} Answer\r\nVia: tests\r\n\r\n".encode())
        if self.status != 200:
            return
        host, dummy, port = lines[0].split(" ")[1].rpartition(":")
        with socket.create_connection((host, int(port))) as server:
            while True:
                pending = isinstance(client, ssl.SSLSocket) and client.pending()
                readable = [client] if pending else select.select([client, server], [], [])[0]
                for source in readable:
                    data = source.recv(65536)
                    if not data:
                        return
                    (server if source is client else client).sendall(data)
