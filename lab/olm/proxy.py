# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way from OLM to the registry pods of CatalogSources with an image: a SOCKS proxy (RFC 1928), which OLM uses for gRPC.

The lab has no cluster network. A connection to the Service of a CatalogSource ends at the server of the staging catalog if the
image is that catalog and the registry pod is ready; the proxy rejects all others.
"""

from __future__ import annotations

import socket
import socketserver
import threading

from ..api import Api, ApiError
from ..layout import Lab
from ..relay import relay
from . import catalogs

IMAGE = catalogs.STAGING
_SOURCES = "/apis/operators.coreos.com/v1alpha1/namespaces/{}/catalogsources/{}"
_VERSION, _CONNECT, _DOMAIN = 5, 1, 3
_SUCCEEDED, _REFUSED = 0, 5


class Proxy(socketserver.ThreadingTCPServer):
    """The proxy on its loopback port."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, lab: Lab, port: int, target: int) -> None:
        """Take the port of the proxy and that of the staging catalog's server."""
        super().__init__(("127.0.0.1", port), _Connection)
        self.api, self.target = Api(lab, "runner"), target

    def start(self) -> None:
        """Serve connections in a thread."""
        threading.Thread(target=self.serve_forever, daemon=True).start()


def is_staging(image: str) -> bool:
    """Return whether an image is the staging catalog, in any registry and with any tag or digest."""
    return image.rpartition("/")[2].partition("@")[0].partition(":")[0] == IMAGE


def serves(api: Api, host: str) -> bool:
    """Return whether the Service with this host name belongs to a CatalogSource whose registry pod serves the staging catalog."""
    name, _dot, rest = host.partition(".")
    namespace = rest.partition(".")[0]
    source = api.get(_SOURCES.format(namespace, name))
    if source is None or not is_staging(source["spec"].get("image", "")):
        return False
    pods = api.list(f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"olm.catalogSource={name}")
    conditions = [one for pod in pods for one in pod.get("status", {}).get("conditions", [])]
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


class _Connection(socketserver.BaseRequestHandler):
    server: Proxy

    def handle(self) -> None:
        client: socket.socket = self.request
        host = _read_request(client)
        try:
            accepted = host is not None and serves(self.server.api, host)
            target = socket.create_connection(("127.0.0.1", self.server.target)) if accepted else None
        except (ApiError, OSError):
            target = None
        client.sendall(bytes((_VERSION, _REFUSED if target is None else _SUCCEEDED, 0, 1, 0, 0, 0, 0, 0, 0)))
        if target is not None:
            with target:
                relay(client, target)


def _read_request(client: socket.socket) -> str | None:
    """Read the greeting and the request; return the host name, or None for a request other than CONNECT to a name."""
    _version, methods = _read(client, 2)
    _read(client, methods)
    client.sendall(bytes((_VERSION, 0)))
    _version, command, _reserved, kind = _read(client, 4)
    if command != _CONNECT or kind != _DOMAIN:
        return None
    host = _read(client, _read(client, 1)[0]).decode(errors="replace")
    _read(client, 2)
    return host


def _read(client: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        received = client.recv(size - len(content))
        if not received:
            raise ConnectionError("the client closed the connection")
        content += received
    return content
