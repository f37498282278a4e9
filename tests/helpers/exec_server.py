# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server with the subresource pods/exec only: it answers commands over websockets with a function of the test."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import socketserver
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
# The exit code, the standard output and the standard error of a command.
Answer = tuple[int, str, str]


@dataclass
class Command:
    """A command as the server received it; `stdin` is None if it has no standard input."""

    path: str
    container: str
    words: list[str]
    stdin: bytes | None
    headers: dict[str, str]
    raw_query: str


@dataclass
class ExecServer:
    """The running server; `respond` may raise Refusal, ConnectionAbortedError (the connection breaks) or TimeoutError (no end)."""

    respond: Callable[[Command], Answer]
    protocols: tuple[str, ...] = (V5, V4)
    commands: list[Command] = field(default_factory=list)
    # Before each upgrade; returns the status and the body of a refusal.
    refuse: Callable[[dict[str, str]], tuple[int, Any] | None] = lambda headers: None
    # Writes to the connection in place of the answer, until the client ends it.
    stream: Callable[[Callable[[bytes], Any]], None] | None = None
    # Before the upgrade; does not return if the server never answers.
    delay: Callable[[Callable[[bytes], Any]], None] = lambda write: None
    context: ssl.SSLContext | None = None
    address: str = ""
    released: threading.Event = field(default_factory=threading.Event)


class ThreadedServer(socketserver.ThreadingTCPServer):
    """A server with a thread for each connection."""

    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, address: Any) -> None:
        """Print nothing: clients break connections on purpose."""


@contextmanager
def running(server: ExecServer) -> Iterator[ExecServer]:
    """Serve on a free port of this machine."""

    class Handler(socketserver.StreamRequestHandler):
        def setup(self) -> None:
            if server.context is not None:
                self.request = server.context.wrap_socket(self.request, server_side=True)
            super().setup()

        def handle(self) -> None:
            with contextlib.suppress(OSError):
                _serve(self, server)

    with ThreadedServer(("127.0.0.1", 0), Handler) as listener:
        scheme = "https" if server.context else "http"
        server.address = f"{scheme}://127.0.0.1:{listener.server_address[1]}"
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            listener.shutdown()
            thread.join()


def _serve(handler: Any, server: ExecServer) -> None:
    target = handler.rfile.readline().decode().split(" ")[1]
    headers = {}
    while line := handler.rfile.readline().strip():
        name, dummy, value = line.decode().partition(":")
        headers[name.strip().lower()] = value.strip()
    if refusal := server.refuse(headers):
        body = json.dumps(refusal[1]).encode() if not isinstance(refusal[1], bytes) else refusal[1]
        handler.wfile.write(
            f"HTTP/1.1 {refusal[0]} Refused\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
        )
        return
    server.delay(handler.wfile.write)
    offered = [name.strip() for name in headers.get("sec-websocket-protocol", "").split(",")]
    protocol = next(name for name in server.protocols if name in offered)
    accept = base64.b64encode(hashlib.sha1(headers["sec-websocket-key"].encode() + _GUID).digest()).decode()
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    lines += [f"Sec-WebSocket-Accept: {accept}", f"Sec-WebSocket-Protocol: {protocol}", "", ""]
    handler.wfile.write("\r\n".join(lines).encode())
    parts = urlsplit(target)
    query = parse_qs(parts.query)
    stdin = _read_stdin(handler.rfile) if query.get("stdin") else None
    command = Command(parts.path, query["container"][0], query["command"], stdin, headers, parts.query)
    server.commands.append(command)
    if server.stream is not None:
        server.stream(handler.wfile.write)
        return
    try:
        code, output, errors = server.respond(command)
    except TimeoutError:
        server.released.wait(30)
        return
    except ConnectionAbortedError:
        return
    for channel, text in ((1, output), (2, errors)):
        if text:
            handler.wfile.write(frame(bytes([channel]) + text.encode()))
    handler.wfile.write(frame(bytes([3]) + json.dumps(_status(code)).encode()))
    handler.wfile.write(frame(struct.pack("!H", 1000), opcode=8))


def _status(code: int) -> dict[str, Any]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    if code < 0:
        return {"status": "Failure", "message": "container not found", "reason": "InternalError", "code": 500}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}


def _read_stdin(stream: Any) -> bytes:
    data = b""
    while True:
        first, second = stream.read(2)
        length = second & 0x7F
        if length == 126:
            length = struct.unpack("!H", stream.read(2))[0]
        elif length == 127:
            length = struct.unpack("!Q", stream.read(8))[0]
        mask = stream.read(4) if second & 0x80 else b"\0\0\0\0"
        payload = bytes(byte ^ mask[index % 4] for index, byte in enumerate(stream.read(length)))
        if first & 0x0F == 8 or payload[:2] == bytes([255, 0]):
            return data
        data += payload[1:]


def frame(payload: bytes, opcode: int = 2, *, final: bool = True) -> bytes:
    """A frame of a websocket; several that are not final, and a final one, are one message."""
    size, first = len(payload), (0x80 if final else 0) | opcode
    if size < 126:
        return bytes([first, size]) + payload
    if size < 65536:
        return bytes([first, 126]) + struct.pack("!H", size) + payload
    return bytes([first, 127]) + struct.pack("!Q", size) + payload
