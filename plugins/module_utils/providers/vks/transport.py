# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests with a token, tried again where that is safe, and lists page by page."""

from __future__ import annotations

import json
import threading
import time
import typing as t

from ...common.retry import delay
from . import paging
from .endpoints import Endpoints
from .errors import REPEATABLE, VksError
from .http import Http, Query, VksResponse, with_query
from .iam import PART as IAM_PART
from .iam import Tokens

T = t.TypeVar("T")
VKS, VSERVER = "VKS", "vServer"
_PASSING = (429, 500, 502, 503, 504)
_RETRY_AFTER_MAX = 60.0
# What never answered is most likely the wrong address, which nobody wants to wait for.
_FIRST_CONTACT_ATTEMPTS = 3
# A 500 that a gateway's restart makes ends by itself; one that the request makes does not.
_INTERNAL_ERRORS = 3


class VksTransport:
    """Asks VKS and vServer as one account; safe to be used by many threads."""

    def __init__(
        self,
        where: Endpoints,
        http: Http,
        tokens: Tokens,
        *,
        patience: float,
        sleep: t.Callable[[float], None] = time.sleep,
        clock: t.Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask for nothing yet; `patience` is how many seconds one request is tried again when it meets a passing trouble."""
        self._bases = {VKS: where.vks, VSERVER: where.vserver}
        self._http = http
        self._tokens = tokens
        self._patience = patience
        self._sleep = sleep
        self._clock = clock
        self._met: set[str] = set()
        self._lock = threading.Lock()
        self.request_count = 0

    def send(self, part: str, method: str, path: str, *, query: Query | None = None, body: t.Any = None) -> VksResponse:
        """The answer; raises VksError. A POST is sent again only when it certainly was not carried out."""
        return self._sent(part, method, path, query, body, lambda answer: answer)

    def json(self, part: str, method: str, path: str, *, query: Query | None = None, body: t.Any = None) -> t.Any:
        """The body of the answer, None where it is empty; as send()."""
        return self._sent(part, method, path, query, body, VksResponse.json)

    def _sent(
        self, part: str, method: str, path: str, query: Query | None, body: t.Any, read: t.Callable[[VksResponse], T]
    ) -> T:
        url = with_query(self._bases[part] + path, query)
        deadline = self._clock() + self._patience
        attempt = internal = 0
        while True:
            attempt += 1
            try:
                return _read(self._once(part, method, url, body), read, part, method, url)
            except VksError as error:
                internal += error.status == 500
                wait = delay(error, attempt, _RETRY_AFTER_MAX)
                if not self._worth_trying_again(error, part, attempt, internal) or self._clock() + wait > deadline:
                    raise
            self._sleep(wait)

    def items(
        self, part: str, path: str, *, query: Query | None = None, size: int = paging.ASKED
    ) -> list[dict[str, t.Any]]:
        """All entries of a paged list of VKS; raises VksError when the service tells of more than it gives."""
        return paging.collect(
            lambda page, size: self.json(part, "GET", path, query={**(query or {}), "page": page, "pageSize": size}),
            size,
        )

    def _once(self, part: str, method: str, url: str, body: t.Any) -> VksResponse:
        token = self._tokens.bearer(self._http)
        try:
            return self._attempt(part, method, url, body, token)
        except VksError as error:
            if error.status != 401:
                raise
        return self._attempt(part, method, url, body, self._tokens.renewed(self._http, token))

    def _attempt(self, part: str, method: str, url: str, body: t.Any, token: str) -> VksResponse:
        headers = {"Authorization": f"Bearer {token}"}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body, separators=(",", ":")).encode()
        with self._lock:
            self.request_count += 1
        try:
            answer = self._http.request(part, method, url, headers=headers, data=data, scrub=self._tokens.scrub)
        except VksError as error:
            if not error.unreachable:
                self._met.add(part)
            raise
        self._met.add(part)
        return answer

    def _worth_trying_again(self, error: VksError, part: str, attempt: int, internal: int) -> bool:
        if error.part == IAM_PART:
            # What may have been a login is not repeated.
            return error.unreachable and not error.sent and attempt < _FIRST_CONTACT_ATTEMPTS
        if error.unreachable:
            if error.reason in ("TLS", "Proxy"):
                return False
            if part not in self._met and attempt >= _FIRST_CONTACT_ATTEMPTS:
                return False
            return error.method in REPEATABLE or not error.sent
        if error.status == 429:
            return True
        return error.method in REPEATABLE and error.status in _PASSING and internal <= _INTERNAL_ERRORS


def _read(answer: VksResponse, read: t.Callable[[VksResponse], T], part: str, method: str, url: str) -> T:
    try:
        return read(answer)
    except ValueError:
        path = url.partition("?")[0]
    if answer.data.lstrip().startswith(b"<"):
        raise VksError("a web page was answered: is this its address?", part=part, status=400, method=method, path=path)
    raise VksError("the answer broke off", part=part, reason="Broken", method=method, path=path)
