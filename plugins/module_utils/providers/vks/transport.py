# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends requests to VKS, vServer and IAM with urllib3 (a dependency of the kubernetes library), and reads lists page by page."""

from __future__ import annotations

import json
import typing as t

from ...common import http
from ...common.errors import BROKEN, ConnectionProblem, missing_library
from ...common.http import URLLIB3_IMPORT_ERROR, HttpResponse, Retrier
from .endpoints import Endpoints, endpoints
from .errors import REPEATABLE, VksError, error_text, is_rejected
from .iam import IAM, ServiceAccount, Tokens, tokens_of

if URLLIB3_IMPORT_ERROR is None:
    import urllib3
    from urllib3.exceptions import HTTPError

# The vendor's own client uses this page size. No maximum is documented, and the service may return smaller pages.
PAGE_SIZE = 50
_LIST_READS = 2

Row = dict[str, t.Any]
Fetch = t.Callable[[int, int], t.Any]
Query = t.Mapping[str, t.Any]

VKS, VSERVER = "VKS", "vServer"
CONNECT_TIMEOUT = 10.0


class HttpClient:
    """A thread-safe client with connection pools. Redirects are not followed, because a token is intended for only one host."""

    def __init__(
        self, user_agent: str, *, validate_certs: bool = True, ca_cert: str | None = None, timeout: float = 30.0
    ) -> None:
        """Create the pools without opening a connection. `timeout` is the time limit for a response in seconds."""
        self._user_agent = user_agent
        self._pools = http.ConnectionPools(validate_certs=validate_certs, ca_cert=ca_cert)
        self._timeout = timeout

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
        """Send a request once. `mask` removes secrets from the service's text before the text becomes part of a VksError."""
        path = url.partition("?")[0]
        try:
            response = self._pools.for_url(url).request(
                method,
                url,
                body=data,
                headers={"User-Agent": self._user_agent, "Accept": "application/json", **headers},
                timeout=urllib3.Timeout(connect=min(CONNECT_TIMEOUT, self._timeout), read=self._timeout),
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
                # An error inside a 200 response is caused by the request, not by the service.
                status=response.status if response.status >= 300 else 400,
                reason=mask(code),
                method=method,
                path=path,
                retry_after=http.retry_after(response.headers.get("Retry-After")),
            )
        return answer


class VksTransport:
    """Sends requests to VKS and vServer with the token of one account. The class is thread-safe."""

    def __init__(self, endpoints: Endpoints, client: HttpClient, tokens: Tokens, *, limit: float) -> None:
        """Store the arguments without sending a request. `limit` is the time limit in seconds for all attempts of one request."""
        self._bases = {VKS: endpoints.vks, VSERVER: endpoints.vserver}
        self._client = client
        self._tokens = tokens
        self._limit = limit
        # A response with status 500 from a restarting gateway is temporary. A response with status 500 that the request causes is not.
        self._retrier = Retrier(max_retry_after=60.0, max_internal_errors=3)
        self._connected_before: set[str] = set()

    def get(self, service: str, path: str, *, query: Query | None = None) -> t.Any:
        """The parsed body of the response, or None if it is empty. Raises VksError, including for a truncated response."""
        return self._repeated(service, "GET", path, query, None)

    def find(self, service: str, path: str, *, query: Query | None = None) -> t.Any:
        """Like get(), but returns None if the object does not exist."""
        try:
            return self.get(service, path, query=query)
        except VksError as error:
            if error.not_found:
                return None
            raise

    def send(self, service: str, method: str, path: str, *, query: Query | None = None, body: t.Any = None) -> None:
        """Send a request that makes a change. Raises VksError. A POST request counts as not repeatable; see Retrier.send()."""
        self._repeated(service, method, path, query, body)

    def _repeated(self, service: str, method: str, path: str, query: Query | None, body: t.Any) -> t.Any:
        url = http.with_query(self._bases[service] + path, query)

        def attempt(dummy_left: float) -> t.Any:
            answer = self._authorized(service, method, url, body)
            return _parse(answer, service, url) if method == "GET" else None

        return self._retrier.send(
            attempt,
            limit=self._limit,
            repeatable=method in REPEATABLE,
            is_connected=lambda error: error.service in self._connected_before,
            # A login that may have reached IAM must not be repeated.
            is_final=lambda error: error.service == IAM and (error.sent or not error.unreachable),
        )

    def items(self, path: str) -> list[Row]:
        """All entries of a paged VKS list. Raises VksError if the service returns fewer entries than the total that it reports."""
        return collect(lambda page, size: self.get(VKS, path, query={"page": page, "pageSize": size}))

    def _authorized(self, service: str, method: str, url: str, body: t.Any) -> HttpResponse:
        """Send a request, and return the response. A rejected token is replaced once."""
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
        data = None if body is None else http.encode_json(body)
        try:
            answer = self._client.request(service, method, url, headers=headers, data=data, mask=self._tokens.mask)
        except VksError as error:
            if not error.unreachable:
                self._connected_before.add(service)
            raise
        self._connected_before.add(service)
        return answer


def _parse(answer: HttpResponse, service: str, url: str) -> t.Any:
    try:
        return json.loads(answer.data) if answer.data.strip() else None
    except ValueError:
        fields: dict[str, t.Any] = {"service": service, "method": "GET", "path": url.partition("?")[0]}
        if answer.data.lstrip().startswith(b"<"):
            raise VksError("the response is a web page: check the address", status=400, **fields) from None
        raise VksError("the response is incomplete", reason=BROKEN, **fields) from None


def connect(params: t.Mapping[str, t.Any], user_agent: str) -> VksTransport:
    """Create the transport without sending a request. Raises InvalidOptions, or ConnectionProblem if credentials or urllib3 are missing."""
    if URLLIB3_IMPORT_ERROR is not None:
        raise missing_library("urllib3", "VKS")
    missing = [option for option in ("client_id", "client_secret") if not params.get(option)]
    if missing:
        raise ConnectionProblem(
            f"{' and '.join(missing)}: missing. Set the credentials of a service account in VNG Cloud's IAM, as options or in the environment "
            "(GRN_CLIENT_ID, GRN_CLIENT_SECRET)."
        )
    services = endpoints(params)
    account = ServiceAccount(services.iam, services.iam_version, params["client_id"], params["client_secret"])
    timeout = float(params.get("request_timeout") or 30)
    validate = params.get("validate_certs") is not False
    client = HttpClient(user_agent, validate_certs=validate, ca_cert=params.get("ca_cert"), timeout=timeout)
    return VksTransport(services, client, tokens_of(account), limit=2 * timeout)


def collect(fetch: Fetch, size: int = PAGE_SIZE) -> list[Row]:
    """All entries of a VKS list. `fetch(page, size)` returns {items, total, page, pageSize}, and page numbers begin with 0.

    Raises VksError if the list is incomplete twice in a row, because a group that is missing from the list would be created a second time.
    """
    for dummy in range(_LIST_READS):
        rows, total = _read_pages(fetch, size)
        if len(rows) >= total:
            return rows
    raise VksError(f"the list is incomplete: {len(rows)} of {total} entries were returned", status=502, method="GET")


def rows_of(body: t.Any, *names: str) -> list[Row]:
    """The entries of a response: the response itself if it is a list, or else the first of these fields that is a list."""
    if isinstance(body, list):
        return [row for row in body if isinstance(row, dict)]
    if isinstance(body, dict):
        for name in (*names, "listData", "items", "data"):
            if isinstance(body.get(name), list):
                return [row for row in body[name] if isinstance(row, dict)]
    return []


def _read_pages(fetch: Fetch, size: int) -> tuple[list[Row], int]:
    rows: dict[str, Row] = {}
    page = 0
    while True:
        body = fetch(page, size)
        received = {str(row.get("id")): row for row in rows_of(body)}
        total = body.get("total") if isinstance(body, dict) else None
        if not isinstance(total, int):
            raise VksError("the response is not a page of a list", status=502, method="GET")
        if not received.keys() - rows.keys():
            return list(rows.values()), total
        rows.update(received)
        if len(rows) >= total:
            return list(rows.values()), total
        if page == 0:
            # If a page is smaller than requested, all other pages are requested with that size, so that no entry
            # is skipped.
            size = min(size, len(received))
        page += 1
