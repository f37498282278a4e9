# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small Kubernetes client for the lab itself: raw JSON over persistent connections, one per thread."""

from __future__ import annotations

import http
import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote, urlencode

from .layout import Lab

Object = dict[str, Any]
_PARALLEL = 16
# Seconds during which a request is repeated that the API server asks to send again, for example because a cache of its own is not filled yet.
_MAX_RETRY = 60.0


class ApiError(Exception):
    """The API server rejected a request, or did not answer (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """A client of one lab's API server, as one of the lab's own users."""

    def __init__(self, lab: Lab, client: str = "cli") -> None:
        self._port = lab.ports()["kube-apiserver"]
        self._context = ssl.create_default_context(cafile=str(lab.pki / "ca.crt"))
        self._context.load_cert_chain(lab.pki / f"{client}.crt", lab.pki / f"{client}.key")
        self._agent = f"accel-gpu-lab/{client}"
        self._local = threading.local()

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Object:
        """Send one request and return the JSON of the response."""
        payload = None if body is None else json.dumps(body).encode()
        headers = {"User-Agent": self._agent, "Accept": "application/json"}
        if payload is not None:
            headers["Content-Type"] = content_type
        try:
            answer, content = self._send_until_accepted(method, path, payload, headers)
        except (OSError, http.client.HTTPException) as error:
            self._local.connection = None
            raise ApiError(0, f"no answer from the API server on port {self._port}: {error}") from error
        try:
            document: Object = json.loads(content)
        except ValueError:
            document = {"message": content.decode(errors="replace")}
        if answer.status >= 400:
            raise ApiError(answer.status, str(document.get("message", answer.reason)))
        return document

    def get(self, path: str, **query: str) -> Object | None:
        """Return an object, or None if it does not exist."""
        try:
            return self.request("GET", _with(path, query))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, path: str, **query: str) -> Iterator[Object]:
        """Yield every object of a collection, page by page."""
        query["limit"] = "500"
        while True:
            page = self.request("GET", _with(path, query))
            yield from page["items"]
            token = page["metadata"].get("continue")
            if not token:
                return
            query["continue"] = token

    def merge(self, path: str, patch: Object) -> Object:
        """Send a JSON merge patch."""
        return self.request("PATCH", path, patch, "application/merge-patch+json")

    def apply(self, path: str, body: Object) -> Object:
        """Send a server-side apply that takes ownership of every field it sets."""
        query = {"fieldManager": self._agent.partition("/")[0], "force": "true"}
        return self.request("PATCH", _with(path, query), body, "application/apply-patch+yaml")

    def watch(self, path: str, version: str, **query: str) -> Iterator[Object]:
        """Yield the events after a resource version until the server ends the watch."""
        query |= {"watch": "true", "resourceVersion": version, "timeoutSeconds": "600", "allowWatchBookmarks": "true"}
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._context, timeout=630)
        try:
            connection.request(
                "GET", _with(path, query), headers={"User-Agent": self._agent, "Accept": "application/json"}
            )
            answer = connection.getresponse()
            if answer.status >= 400:
                raise ApiError(answer.status, answer.read().decode(errors="replace"))
            while line := answer.readline():
                event: Object = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiError(event["object"].get("code", 410), str(event["object"].get("message")))
                yield event
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(0, str(error)) from error
        finally:
            connection.close()

    def _send_until_accepted(
        self, method: str, path: str, payload: bytes | None, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        deadline = time.monotonic() + _MAX_RETRY
        while True:
            answer, content = self._send(method, path, payload, headers)
            if answer.status != http.HTTPStatus.TOO_MANY_REQUESTS or time.monotonic() > deadline:
                return answer, content
            time.sleep(float(answer.headers.get("Retry-After") or 1))

    def _send(
        self, method: str, path: str, payload: bytes | None, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        kept: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if kept is not None:
            try:
                return _exchange(kept, method, path, payload, headers)
            except (ssl.SSLEOFError, ConnectionError):
                # The server closes connections that are idle for long; it has not received the request.
                kept.close()
        self._local.connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._context, timeout=60)
        return _exchange(self._local.connection, method, path, payload, headers)


def _exchange(
    connection: http.client.HTTPSConnection, method: str, path: str, payload: bytes | None, headers: dict[str, str]
) -> tuple[http.client.HTTPResponse, bytes]:
    connection.request(method, path, payload, headers)
    answer = connection.getresponse()
    return answer, answer.read()


def in_parallel(call: Callable[[Any], Any], arguments: Iterable[Any]) -> list[Any]:
    """Call the function for every argument on several threads; return the results in order or raise the first failure."""
    with ThreadPoolExecutor(_PARALLEL) as pool:
        return list(pool.map(call, arguments))


def _with(path: str, query: dict[str, str]) -> str:
    return f"{path}?{urlencode(query, quote_via=quote)}" if query else path
