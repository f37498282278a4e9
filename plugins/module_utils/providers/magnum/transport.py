# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends requests to an OpenStack service through openstacksdk's session."""

from __future__ import annotations

import typing as t
from urllib.parse import urlsplit

from ...common import http
from ...common.errors import ConnectionProblem
from ...common.http import HttpResponse, Retrier
from .errors import OpenStackError, error_text
from .session import IMPORT_ERROR, Session

if IMPORT_ERROR is None:
    from keystoneauth1 import exceptions as keystone

Object = dict[str, t.Any]

KEYSTONE = "Keystone"


class Service:
    """A client for one service in Keystone's catalog. It is thread-safe."""

    def __init__(
        self,
        session: Session,
        service_type: str,
        name: str,
        base: str = "",
    ) -> None:
        """Store the arguments without sending a request. `base`, such as `/v1`, is prepended to each path unless the URL in the catalog ends with it."""
        self.name = name
        self._session = session
        self._adapter = session.adapter(service_type)
        self._type = service_type
        self._base = base
        self._retrier = Retrier()
        self._connected_before = False
        self._prefix: str | None = None
        self._url = ""

    def send(
        self,
        method: str,
        path: str,
        *,
        body: t.Any = None,
        headers: t.Mapping[str, str] | None = None,
        repeatable: bool = True,
    ) -> HttpResponse:
        """Send a request, and return the response. The time limit for all attempts is twice the timeout for one request; see Retrier.send()."""
        return self._retrier.send(
            lambda dummy_left: self._attempt(method, path, body, headers or {}),
            limit=2 * self._session.timeout,
            repeatable=repeatable,
            is_connected=lambda error: self._connected_before,
        )

    def pages(self, path: str, key: str, send: t.Callable[[str], HttpResponse] | None = None) -> list[Object]:
        """All items of a collection. Magnum and Glance return the link to the next page as `next`, and Nova returns it in KEY_links."""
        send = send or (lambda page: self.send("GET", page))
        items: list[Object] = []
        page: str | None = path
        while page:
            answer = send(page).json()
            items.extend(answer.get(key) or [])
            links = [link["href"] for link in answer.get(f"{key}_links") or () if link.get("rel") == "next"]
            page = self._path_of(str(answer.get("next") or next(iter(links), "")))
        return items

    def _path_of(self, url: str) -> str | None:
        """The path of a page for send(), or None if the URL is empty. The host in the URL is ignored, because it often differs from the service's host."""
        if not url:
            return None
        parts = urlsplit(url)
        path = parts.path.removeprefix(urlsplit(self._url).path.rstrip("/")).removeprefix(self._prefix or "")
        return f"{path}?{parts.query}" if parts.query else path

    def _attempt(self, method: str, path: str, body: t.Any, headers: t.Mapping[str, str]) -> HttpResponse:
        try:
            answer = self._adapter.request(
                self._path_prefix() + path,
                method,
                json=body,
                headers={"Accept": "application/json", **headers},
                timeout=self._session.timeout,
            )
        except keystone.HttpError as error:
            # The error comes from Keystone's response to the token request, because error responses of the service
            # itself are not raised.
            content = error.response.content if error.response is not None else b""
            raise OpenStackError(
                error_text(content) or str(error.message),
                status=error.http_status,
                method="POST",
                path="/auth/tokens",
                service=KEYSTONE,
                url=self._session.auth_url,
                # The request to the service would have been sent after the request for the token.
                sent=False,
            ) from None
        except keystone.ConnectionError as error:
            cause = error.__context__
            if isinstance(cause, ValueError):
                raise self._not_sendable() from None
            # Until the service has responded for the first time, it may be Keystone that does not respond.
            by_keystone = not self._url or (not self._connected_before and self._session.auth_url in str(error))
            raise http.no_answer(
                OpenStackError,
                cause if isinstance(cause, Exception) else error,
                method=method,
                path=path,
                service=KEYSTONE if by_keystone else self.name,
                url=self._session.auth_url if by_keystone else self._url,
            ) from None
        except keystone.ClientException as error:
            raise ConnectionProblem(f"Keystone cannot be used ({self._session.origin}): {error}") from None
        except ValueError:
            raise self._not_sendable() from None
        self._connected_before = True
        if answer.status_code >= 300:
            raise OpenStackError(
                error_text(answer.content) or str(answer.reason or ""),
                status=answer.status_code,
                reason=str(answer.reason or ""),
                method=method,
                path=path,
                retry_after=http.retry_after(answer.headers.get("Retry-After")),
                service=self.name,
                url=self._url,
            )
        return HttpResponse(answer.status_code, answer.content, answer.headers)

    def _not_sendable(self) -> ConnectionProblem:
        return http.not_sendable(self._session.origin, "Check the token.")

    def _path_prefix(self) -> str:
        """The prefix of each path. The first call looks up the service in the catalog."""
        if self._prefix is None:
            url = self._adapter.get_endpoint()
            if not url:
                raise ConnectionProblem(
                    f"Keystone's catalog does not contain {self.name} (service type {self._type}; {self._session.origin}). Check the region "
                    "and the interface, and whether the cloud provides this service."
                )
            self._session.require_secure(url)
            self._url = str(url)
            self._prefix = "" if urlsplit(self._url).path.rstrip("/").endswith(self._base) else self._base
        return self._prefix
