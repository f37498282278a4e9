# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to VKS, vServer and IAM over urllib3, which the kubernetes library depends on."""

from __future__ import annotations

import json
import threading
import time
import typing as t
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from ...common import http
from ...common.errors import BROKEN
from ...common.http import URLLIB3_IMPORT_ERROR, HttpResponse, Retrier
from . import paging
from .endpoints import Endpoints, is_loopback
from .errors import REPEATABLE, VksError, error_text, is_rejected
from .iam import IAM, Tokens

if URLLIB3_IMPORT_ERROR is None:
    import urllib3
    from urllib3.exceptions import HTTPError

Query = t.Mapping[str, t.Any]
T = t.TypeVar("T")

VKS, VSERVER = "VKS", "vServer"
CONNECT_TIMEOUT = 10.0


@dataclass(frozen=True)
class TlsOptions:
    """Which certificates are accepted, and within how many seconds an answer must arrive."""

    validate_certs: bool = True
    ca_cert: str | None = None
    timeout: float = 30.0


class HttpClient:
    """Connection pools; may be used by many threads. Redirects are not followed: a token is for one host."""

    def __init__(self, tls: TlsOptions, user_agent: str) -> None:
        """Open no connection yet."""
        if not tls.validate_certs:
            http.allow_unverified_tls()
        self._tls = tls
        self._user_agent = user_agent
        self._pools: dict[str | None, t.Any] = {}

    def request(
        self,
        service: str,
        method: str,
        url: str,
        *,
        headers: t.Mapping[str, str],
        data: bytes | None = None,
        mask: t.Callable[[str], str] = str,
    ) -> HttpResponse:
        """One attempt; `mask` removes secrets from what the service answers, before it becomes part of a VksError."""
        path = url.partition("?")[0]
        try:
            response = self._pool(url).request(
                method,
                url,
                body=data,
                headers={"User-Agent": self._user_agent, "Accept": "application/json", **headers},
                timeout=urllib3.Timeout(connect=min(CONNECT_TIMEOUT, self._tls.timeout), read=self._tls.timeout),
                retries=False,
                redirect=False,
            )
        except (HTTPError, OSError) as error:
            raise http.no_answer(
                lambda text, **fields: VksError(mask(text), **fields), error, service=service, method=method, path=path
            ) from None
        except ValueError:
            raise http.not_sendable(path, "Check client_id, client_secret and the token.") from None
        answer = HttpResponse(response.status, response.data)
        if not 200 <= response.status < 300 or is_rejected(answer):
            code, text = error_text(response.data)
            raise VksError(
                mask(text or str(response.reason or "no reason was given")),
                service=service,
                # An error within a 200 is a fault of the request, not of the service.
                status=response.status if response.status >= 300 else 400,
                reason=mask(code),
                method=method,
                path=path,
                retry_after=http.retry_after(response.headers.get("Retry-After")),
            )
        return answer

    def _pool(self, url: str) -> t.Any:
        parts = urlsplit(url)
        direct = is_loopback(parts.hostname) or proxy_bypass(parts.hostname or "")
        proxy = None if direct else getproxies().get(parts.scheme)
        if proxy not in self._pools:
            kind: t.Any = urllib3.ProxyManager if proxy else urllib3.PoolManager
            self._pools[proxy] = kind(
                **({"proxy_url": proxy} if proxy else {}),
                maxsize=http.POOL_SIZE,
                cert_reqs="CERT_REQUIRED" if self._tls.validate_certs else "CERT_NONE",
                ca_certs=self._tls.ca_cert,
            )
        return self._pools[proxy]


class VksTransport:
    """Requests to VKS and vServer with the token of one account; may be used by many threads."""

    def __init__(
        self,
        endpoints: Endpoints,
        client: HttpClient,
        tokens: Tokens,
        *,
        limit: float,
        sleep: t.Callable[[float], None] = time.sleep,
        clock: t.Callable[[], float] = time.monotonic,
    ) -> None:
        """Send nothing yet; `limit` is the number of seconds within which one request is repeated."""
        self._bases = {VKS: endpoints.vks, VSERVER: endpoints.vserver}
        self._client = client
        self._tokens = tokens
        self._limit = limit
        # A 500 of a gateway that restarts passes; one that the request causes does not.
        self._retrier = Retrier(max_retry_after=60.0, max_internal_errors=3, sleep=sleep, clock=clock)
        self._connected_before: set[str] = set()
        self._lock = threading.Lock()
        self.request_count = 0

    def send(
        self, service: str, method: str, path: str, *, query: Query | None = None, body: t.Any = None
    ) -> HttpResponse:
        """The answer; raises VksError. A POST counts as not repeatable; see Retrier.send()."""
        return self._repeated(service, method, path, query, body, lambda answer, dummy_url: answer)

    def json(self, service: str, method: str, path: str, *, query: Query | None = None, body: t.Any = None) -> t.Any:
        """The parsed body of the answer, None where it is empty; as send(). An answer that is cut off counts as none."""
        return self._repeated(
            service, method, path, query, body, lambda answer, url: _parse(answer, service, method, url)
        )

    def _repeated(
        self,
        service: str,
        method: str,
        path: str,
        query: Query | None,
        body: t.Any,
        read: t.Callable[[HttpResponse, str], T],
    ) -> T:
        url = http.with_query(self._bases[service] + path, query)
        return self._retrier.send(
            lambda dummy_left: read(self._authorized(service, method, url, body), url),
            limit=self._limit,
            repeatable=method in REPEATABLE,
            is_connected=lambda error: error.service in self._connected_before,
            # A request that may have been a login is not repeated.
            is_final=lambda error: error.service == IAM and (error.sent or not error.unreachable),
        )

    def items(
        self, service: str, path: str, *, query: Query | None = None, size: int = paging.PAGE_SIZE
    ) -> list[dict[str, t.Any]]:
        """All entries of a paged list of VKS; raises VksError when the service returns fewer than its total."""
        return paging.collect(
            lambda page, size: self.json(service, "GET", path, query={**(query or {}), "page": page, "pageSize": size}),
            size,
        )

    def _authorized(self, service: str, method: str, url: str, body: t.Any) -> HttpResponse:
        """The answer; a token that the service does not accept is replaced once."""
        token = self._tokens.token(self._client)
        try:
            return self._attempt(service, method, url, body, token)
        except VksError as error:
            if error.status != 401:
                raise
        return self._attempt(service, method, url, body, self._tokens.refresh(self._client, token))

    def _attempt(self, service: str, method: str, url: str, body: t.Any, token: str) -> HttpResponse:
        headers = {"Authorization": f"Bearer {token}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        with self._lock:
            self.request_count += 1
        data = None if body is None else http.encode_json(body)
        try:
            answer = self._client.request(service, method, url, headers=headers, data=data, mask=self._tokens.mask)
        except VksError as error:
            if not error.unreachable:
                self._connected_before.add(service)
            raise
        self._connected_before.add(service)
        return answer


def _parse(answer: HttpResponse, service: str, method: str, url: str) -> t.Any:
    path = url.partition("?")[0]
    try:
        return json.loads(answer.data) if answer.data.strip() else None
    except ValueError:
        if answer.data.lstrip().startswith(b"<"):
            raise VksError(
                "the answer is a web page: check the address", service=service, status=400, method=method, path=path
            ) from None
        raise VksError("the answer is incomplete", service=service, reason=BROKEN, method=method, path=path) from None
