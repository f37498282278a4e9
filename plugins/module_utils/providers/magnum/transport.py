# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One request to a service of OpenStack over openstacksdk's session; tried again where that is safe."""

from __future__ import annotations

import json
import re
import time
import typing as t
from dataclasses import dataclass
from urllib.parse import urlsplit

from ...common.errors import ConnectionProblem
from ...common.retry import delay
from .errors import OpenStackError, text_of
from .sdk import IMPORT_ERROR
from .session import Session

if IMPORT_ERROR is None:
    from keystoneauth1 import exceptions as keystone

Object = dict[str, t.Any]

_RETRY_AFTER_MAX = 30.0
_PASSING = (429, 500, 502, 503, 504)
# A 500 of Magnum is more often a mistake of its own that stays than one that passes.
_INTERNAL_ERRORS = 2
_FIRST_CONTACT_ATTEMPTS = 3
_OBJECT = re.compile(r"<[\w.]+ object at 0x[0-9a-f]+>:? ?")


@dataclass(frozen=True)
class MagnumResponse:
    """Status, headers (any case) and body of an answer that is not an error."""

    status: int
    headers: t.Mapping[str, str]
    data: bytes

    def json(self) -> Object:
        """The body as the object it holds."""
        return t.cast("Object", json.loads(self.data))


class Service:
    """One service of the catalog; safe to be used by many threads."""

    def __init__(
        self,
        session: Session,
        service_type: str,
        called: str,
        base: str = "",
        *,
        sleep: t.Callable[[float], None] = time.sleep,
        clock: t.Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is sent yet; `base` (`/v1`) is put before each path where the catalog's URL does not end so."""
        self.called = called
        self._session = session
        self._adapter = session.adapter(service_type)
        self._type = service_type
        self._base = base
        self._sleep = sleep
        self._clock = clock
        self._met = False
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
    ) -> MagnumResponse:
        """The answer, after as many tries as fit into twice the request's timeout; OpenStackError for any of 400 and more.

        Only what certainly was not carried out is sent again when the request is not repeatable.
        """
        deadline = self._clock() + 2 * self._session.timeout
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._once(method, path, body, headers or {})
            except OpenStackError as error:
                wait = delay(error, attempt, _RETRY_AFTER_MAX)
                if not self._worth_trying_again(error, attempt, repeatable) or self._clock() + wait > deadline:
                    raise
            self._sleep(wait)

    def pages(self, path: str, key: str, send: t.Callable[[str], MagnumResponse] | None = None) -> list[Object]:
        """All items of a collection, page after page (Magnum and Glance name the next one `next`, Nova in KEY_links)."""
        ask = send or (lambda at: self.send("GET", at))
        items: list[Object] = []
        at: str | None = path
        while at:
            answer = ask(at).json()
            items.extend(answer.get(key) or [])
            links = [link["href"] for link in answer.get(f"{key}_links") or () if link.get("rel") == "next"]
            at = self._below(str(answer.get("next") or next(iter(links), "")))
        return items

    def _below(self, url: str) -> str | None:
        """The path of a page's URL as send() takes it: the host in it is often not the one by which we reach the service."""
        if not url:
            return None
        parts = urlsplit(url)
        root = urlsplit(self._url).path.rstrip("/")
        path = parts.path.removeprefix(root)
        prefix = self._prefix or ""
        return f"{path.removeprefix(prefix)}?{parts.query}" if parts.query else path.removeprefix(prefix)

    def _once(self, method: str, path: str, body: t.Any, headers: t.Mapping[str, str]) -> MagnumResponse:
        try:
            where = self._located() + path
            answer = self._adapter.request(
                where,
                method,
                json=body,
                headers={"Accept": "application/json", **headers},
                timeout=self._session.timeout,
            )
        except keystone.HttpError as error:
            # Answers of the service itself are not raised; this is Keystone's, when it was asked for a token.
            body_of = error.response.content if error.response is not None else b""
            raise OpenStackError(
                text_of(body_of) or str(error.message),
                status=error.http_status,
                method="POST",
                path="/auth/tokens",
                asked="Keystone",
                url=self._session.auth_url,
            ) from None
        except keystone.ConnectionError as error:
            if isinstance(error.__context__, ValueError):
                raise self._not_sendable() from None
            raise self._no_answer(error, method, path) from None
        except keystone.ClientException as error:
            raise ConnectionProblem(f"Keystone cannot be used ({self._session.origin}): {error}") from None
        except ValueError:
            raise self._not_sendable() from None
        self._met = True
        if answer.status_code >= 300:
            raise self._refusal(answer, method, path)
        return MagnumResponse(answer.status_code, answer.headers, answer.content)

    def _not_sendable(self) -> ConnectionProblem:
        """Instead of the words of requests, which quote the header: it may be the token."""
        return ConnectionProblem(
            f"A request cannot be sent ({self._session.origin}): a header or the address has characters that HTTP does not carry. Check "
            "the token."
        )

    def _located(self) -> str:
        """What stands before each path; finds the service in the catalog at first."""
        if self._prefix is None:
            url = self._adapter.get_endpoint()
            if not url:
                raise ConnectionProblem(
                    f"The catalog of Keystone has no {self.called} (service type {self._type}; {self._session.origin}): "
                    "the region or the interface is another, or the cloud does not offer it."
                )
            self._session.check_way(url)
            self._url = str(url)
            self._prefix = "" if urlsplit(self._url).path.rstrip("/").endswith(self._base) else self._base
        return self._prefix

    def _refusal(self, answer: t.Any, method: str, path: str) -> OpenStackError:
        retry = answer.headers.get("Retry-After")
        return OpenStackError(
            text_of(answer.content) or str(answer.reason or ""),
            status=answer.status_code,
            reason=str(answer.reason or ""),
            method=method,
            path=path,
            retry_after=float(retry) if retry and retry.isdigit() else None,
            asked=self.called,
            url=self._url,
        )

    def _no_answer(self, error: Exception, method: str, path: str) -> OpenStackError:
        """Sort a connection's failure by what the user can do about it."""
        cause = error.__context__ or error
        told, sort = _OBJECT.sub("", str(cause)), type(cause).__name__
        reason, sent = "Broken", True
        if isinstance(error, keystone.SSLError) or "CERTIFICATE_VERIFY_FAILED" in told:
            reason, sent = "TLS", False
        elif sort == "ConnectTimeout" or "ConnectTimeoutError" in told:
            reason, sent, told = "Timeout", False, "no connection in time"
        elif isinstance(error, keystone.ConnectTimeout):
            reason, told = "Timeout", "no answer in time"
        elif "NameResolutionError" in told or "Name or service not known" in told or "resolve" in told:
            reason, sent, told = "DNS", False, "the name does not resolve"
        elif "refused" in told or "NewConnectionError" in told:
            reason, sent, told = "Refused", False, "connection refused"
        # Before the first answer of the service it may be Keystone that is silent.
        at_keystone = not self._url or (not self._met and self._session.auth_url in str(error))
        return OpenStackError(
            told,
            reason=reason,
            method=method,
            path=path,
            sent=sent,
            asked="Keystone" if at_keystone else self.called,
            url=self._session.auth_url if at_keystone else self._url,
        )

    def _worth_trying_again(self, error: OpenStackError, attempt: int, repeatable: bool) -> bool:
        if error.unreachable:
            if error.reason == "TLS" or (not self._met and attempt >= _FIRST_CONTACT_ATTEMPTS):
                return False
            return repeatable or not error.sent
        if error.status == 429:
            return True
        if error.status == 500 and attempt > _INTERNAL_ERRORS:
            return False
        # Keystone's refusal comes before the request itself.
        return (repeatable or error.asked == "Keystone") and error.status in _PASSING
