# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bad network on demand: toxiproxy on loopback, between clients and an API server or a registry."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.labs import LAB
from tests.programs import run

_START = 30.0


class Toxiproxy:
    """The connection to one server; toxics add up until heal(). TLS stays between client and server."""

    def __init__(self, port: int, server: str = "", name: str = "api") -> None:
        """Forward a free port to the server (host:port), or use the existing proxy `name`; `port` is that of toxiproxy's own API."""
        self._port = port
        self._ends: list[threading.Timer] = []
        self._proxy = f"/proxies/{name}"
        if server:
            self._request("POST", "/proxies", {"name": name, "listen": "127.0.0.1:0", "upstream": server})
        self.address: str = self._request("GET", self._proxy)["listen"]

    def latency(self, milliseconds: int = 200) -> None:
        """Delay all data of the server by this time."""
        self._toxic("latency", {"latency": milliseconds}, 1.0)

    def resets(self, share: float = 0.01) -> None:
        """Reset this share of the connections, chosen at random, at the server's first data, in the TLS handshake."""
        self._toxic("reset_peer", {"timeout": 0}, share)

    def endings(self, share: float = 0.01) -> None:
        """Close this share without data instead, as a load balancer without servers does."""
        self._toxic("limit_data", {"bytes": 0}, share)

    def bandwidth(self, kilobytes: int, stream: str = "downstream") -> None:
        """Limit the server's data to this amount per second, or the client's (`upstream`)."""
        self._toxic("bandwidth", {"rate": kilobytes}, 1.0, stream)

    def block(self) -> None:
        """Break every connection and refuse new ones until heal()."""
        self._request("POST", self._proxy, {"enabled": False})

    def cut(self, seconds: float) -> None:
        """Break every connection and refuse new ones for this time; returns at once."""
        self.block()
        end = threading.Timer(seconds, self._request, ("POST", self._proxy, {"enabled": True}))
        self._ends.append(end)
        end.start()

    def heal(self) -> None:
        """Remove all toxics and the block, and wait until a cut is over."""
        for end in self._ends:
            end.join()
        self._ends.clear()
        self._request("POST", self._proxy, {"enabled": True})
        for toxic in self._request("GET", f"{self._proxy}/toxics"):
            self._request("DELETE", f"{self._proxy}/toxics/{toxic['name']}")

    def forget(self) -> None:
        """Cancel the end of a cut, since toxiproxy itself ends."""
        for end in self._ends:
            end.cancel()

    def _toxic(self, kind: str, attributes: dict[str, Any], share: float, stream: str = "downstream") -> None:
        toxic = {"type": kind, "stream": stream, "attributes": attributes, "toxicity": share}
        self._request("POST", f"{self._proxy}/toxics", toxic)

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            message = response.read()
            assert response.status < 300, f"toxiproxy: {method} {path}: {response.status} {message.decode()}"
            return json.loads(message) if message else None
        finally:
            connection.close()


@contextmanager
def toxiproxy(kubeconfig: Path, folder: Path) -> Iterator[tuple[Toxiproxy, Path]]:
    """A proxy for the API server of a kubeconfig, and a kubeconfig for it, while the block runs.

    The server's certificate must be valid for 127.0.0.1, as a lab's is: it is verified as without the proxy.
    """
    document = yaml.safe_load(kubeconfig.read_text())
    [cluster] = [entry["cluster"] for entry in document["clusters"]]
    built = run(LAB, "build", "toxiproxy").splitlines()[-1].split(maxsplit=1)[1]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (folder / "toxiproxy.log").open("w") as log:
        command = [f"{built}/bin/toxiproxy-server", "-host", "127.0.0.1", "-port", str(port)]
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until = time.monotonic() + _START
        while not _answers(port):
            assert server.poll() is None, (folder / "toxiproxy.log").read_text()
            assert time.monotonic() < until, f"no toxiproxy answers on port {port}"
            time.sleep(0.05)
        proxy = Toxiproxy(port, urlsplit(cluster["server"]).netloc)
        cluster["server"] = f"https://{proxy.address}"
        path = folder / "toxic.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(document))
        try:
            yield proxy, path
        finally:
            proxy.forget()
    finally:
        server.terminate()
        server.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
