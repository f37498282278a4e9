# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Talks to VNG Cloud's IAM, VKS and vServer."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import threading
import time
import typing as t
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

from ..core import http
from ..core.errors import BROKEN, ConnectionProblem, InvalidOptions, ServiceError, missing_library
from ..core.http import URLLIB3_IMPORT_ERROR, HttpResponse, Retrier, is_loopback

# Defines the exception for errors from VKS, vServer and IAM, and parses the error bodies of these services (pure).

# The methods of requests that may be repeated. Repeating a change is safe, because a request that writes a map or a set replaces it as a whole.
REPEATABLE = frozenset({"GET", "PUT", "PATCH", "DELETE"})
# "Resource is being processed": vngcloud/greennode-mcp, nodegroup_handler.py.
_BUSY = re.compile(r"being (processed|updated|upgraded)|in progress", re.IGNORECASE)
_MAX_LENGTH = 300
_MAX_DEPTH = 6
_TEXTS = ("message", "errorMsg", "detail", "error_description", "errorMessage", "title")
_CODES = ("code", "errorCode")


class VksError(ServiceError):
    """An error response, or a missing response, for which the status is None.

    message: the message for users. detail: the text from the service.
    """

    timeout_setting = "request_timeout"

    def __init__(self, detail: str, *, service: str = "VKS", **fields: t.Any) -> None:
        """`service` is VKS, vServer or IAM, `path` is the whole URL, and `reason` is the error code from the service."""
        super().__init__("", service=service, **fields)
        self.detail = detail
        self.message = explain(self)

    def __str__(self) -> str:
        """The message for users."""
        return self.message

    @property
    def busy(self) -> bool:
        """Whether the service is still processing the object, and therefore rejects other changes.

        The status is then 409, or it is 400 or 423 and the text mentions the processing.
        """
        return self.status == 409 or (self.status in (400, 423) and bool(_BUSY.search(self.detail)))

    @property
    def transient(self) -> bool:
        """Whether the request may succeed later, because the service is unavailable, overloaded, or processing this object.

        A request that failed because the service is processing the object is not sent again immediately (core/http.py). The processing takes
        minutes, so the caller waits for the object first.
        """
        return self.busy or super().transient


def explain(error: VksError) -> str:
    """One message with the request, the response and the remedy."""
    request = f"({error.operation}): {error.detail}"
    if error.unreachable:
        return f"No response from {error.service} {request}. {error.remedy}"
    if error.status == 401:
        return f"{error.service} does not accept the token {request}. Check that the account belongs to this region."
    if error.status == 403:
        return (
            f"{error.service} denies the request {request}. The service account requires the permission in IAM; policy VKSFullAccess contains "
            "the permissions for VKS."
        )
    if error.status == 429:
        return f"{error.service} temporarily rejects requests {request}. Try again later."
    if error.busy:
        return f"{error.service} is still processing the object {request}. Try again when the processing has finished."
    return f"{error.service} rejected {error.operation} with {error.status}: {error.detail}"


def vks_error_text(data: bytes) -> tuple[str, str]:
    """The code and the text of an error body. Both may be empty.

    The known formats are {"error": {"message"}}, {"message"}, {"errors": [{"code", "message"}]}, {"detail"}, vServer's {"errorCode",
    "errorMsg", "success"}, OAuth's {"error", "error_description"}, and any of these as a string inside another.
    """
    text = data.decode(errors="replace").strip()
    code, message = _code_and_text(_parsed(text), _MAX_DEPTH)
    if not message and not text.startswith(("{", "[", "<")):
        message = text
    return code, " ".join(message.split())[:_MAX_LENGTH]


def is_rejected(answer: HttpResponse) -> bool:
    """Whether the body of a 200 response reports that nothing was done. vServer's gateway can send these responses."""
    body = _parsed(answer.text)
    return isinstance(body, dict) and body.get("success") is False


def _parsed(text: str) -> t.Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _code_and_text(body: t.Any, depth: int) -> tuple[str, str]:
    if depth == 0 or body is None:
        return "", ""
    if isinstance(body, str):
        inner = _parsed(body) if body.lstrip().startswith(("{", "[")) else None
        return _code_and_text(inner, depth - 1) if inner is not None else ("", body)
    if isinstance(body, list):
        each = [_code_and_text(entry, depth - 1) for entry in body]
        return next((code for code, dummy in each if code), ""), "; ".join(text for dummy, text in each if text)
    if not isinstance(body, dict):
        return "", str(body)
    code = next((str(body[key]) for key in _CODES if body.get(key)), "")
    for key in (*_TEXTS, "error", "errors"):
        inner_code, text = _code_and_text(body.get(key), depth - 1)
        if text:
            return code or inner_code, text
    return code, code


# Determines the URLs of VNG Cloud's Kubernetes service, vServer and IAM (pure).
#
# Here, VKS is the service of VNG Cloud (GreenNode), not VMware's vSphere Kubernetes Service, which has the same abbreviation.

DEFAULT_REGION = "HCM-3"
IAM_VERSIONS = ("v2", "v1")
# The URL that the vendor's command-line client has used since version 1.11 (v2), and the URL that earlier versions used (v1).
_IAM = {
    "v2": "https://iam.api.vngcloud.vn/accounts-api/v2/auth/token",
    "v1": "https://iamapis.vngcloud.vn/accounts-api/v1/auth/token",
}
# The URLs of VKS and vServer by region (sources: vngcloud/greennode-mcp, specs/vks.json, servers, and GreenNodeHub/greennode-cli, internal/config).
REGIONS: dict[str, tuple[str, str]] = {
    "HCM-3": ("https://vks.api.vngcloud.vn", "https://hcm-3.api.vngcloud.vn/vserver/vserver-gateway"),
    "HAN": ("https://vks-han-1.api.vngcloud.vn", "https://han-1.api.vngcloud.vn/vserver/vserver-gateway"),
}
# The environment variables that are used for options that are not set. Their names are those of the vendor's command-line client
# (such as GRN_ACCESS_KEY_ID) and MCP server (such as GRN_CLIENT_ID).
ENVIRONMENT: dict[str, tuple[str, ...]] = {
    "client_id": ("GRN_CLIENT_ID", "GRN_ACCESS_KEY_ID"),
    "client_secret": ("GRN_CLIENT_SECRET", "GRN_SECRET_ACCESS_KEY"),
    "region": ("GRN_DEFAULT_REGION",),
    "iam_url": ("VKS_IAM_URL",),
    "vks_url": ("VKS_URL",),
    "vserver_url": ("VKS_VSERVER_URL",),
    "project_id": ("GRN_PROJECT_ID", "GRN_DEFAULT_PROJECT_ID"),
}
_TOKEN_PATH = re.compile(r"/(v[12])/auth/token$")


@dataclass(frozen=True)
class Endpoints:
    """The base URLs of the services, without a trailing slash. `iam` is the complete token URL."""

    iam: str
    iam_version: str
    vks: str
    vserver: str


def endpoints(params: t.Mapping[str, t.Any]) -> Endpoints:
    """The URLs for the options of a module. Raises InvalidOptions with all problems."""
    region = params.get("region") or DEFAULT_REGION
    vks, vserver = REGIONS.get(region, ("", ""))
    vks = params.get("vks_url") or vks
    vserver = params.get("vserver_url") or vserver
    problems = []
    if region not in REGIONS and not (vks and vserver):
        problems.append(
            f"region: {region!r} is unknown; known regions: {', '.join(REGIONS)}. For another region, set vks_url and vserver_url."
        )
    iam, version, wrong = _iam(params.get("iam_url"), params.get("iam_version"))
    problems += wrong
    for option, url in (("iam_url", iam), ("vks_url", vks), ("vserver_url", vserver)):
        problems += _unsafe(option, url)
    if problems:
        raise InvalidOptions(problems)
    # The console shows the URL of VKS with the API version, but the paths of requests already begin with the version.
    return Endpoints(iam, version, vks.rstrip("/").removesuffix("/v1"), vserver.rstrip("/"))


def _iam(url: str | None, version: str | None) -> tuple[str, str, list[str]]:
    """The token URL, the version and the problems. `url` can be a base URL, or the token URL, which contains the version."""
    url = (url or _IAM[version or IAM_VERSIONS[0]]).rstrip("/")
    match = _TOKEN_PATH.search(url)
    if match is None:
        version = version or IAM_VERSIONS[0]
        base = url if url.endswith("/accounts-api") else f"{url}/accounts-api"
        return f"{base}/{version}/auth/token", version, []
    if version and version != match[1]:
        return url, version, [f"iam_version: {version}, but iam_url ends with {match[0]}. Remove one of them."]
    return url, match[1], []


def _unsafe(option: str, url: str) -> list[str]:
    """The reasons why a token must not be sent to this URL."""
    if not url:
        return []
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return [f"{option}: {url!r} is not a URL of the form https://HOST/PATH."]
    if parts.username or parts.password:
        return [f"{option}: the URL contains credentials, which would be shown. Use client_id and client_secret."]
    if parts.query or parts.fragment:
        return [f"{option}: {url!r} has a query or a fragment. Remove it."]
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        return [
            f"{option}: {url!r} would send the token unencrypted; http is allowed for this machine only. Use https."
        ]
    return []


# Gets tokens from IAM. Each process logs in once and renews the token before it expires.
#
# IAM locks an account after failed logins (code TOO_MANY_FAILED_LOGINS), so a rejected login is not repeated.

IAM = "IAM"
# The lifetime of a token in seconds if the response does not contain a lifetime. Both versions of IAM send 1800, but an older
# page of the documentation states 7200.
_DEFAULT_LIFETIME = 1800.0
_MARGIN = 60.0
LOCKED = "TOO_MANY_FAILED_LOGINS"


@dataclass(frozen=True)
class ServiceAccount:
    """A service account, its token URL, and the version of IAM (v1 or v2)."""

    url: str
    version: str
    client_id: str
    client_secret: str = field(repr=False)

    @property
    def basic(self) -> str:
        """The value of the Authorization header (RFC 7617)."""
        return "Basic " + base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()

    @property
    def form(self) -> bytes:
        """The body of the token request. IAM v2 follows RFC 6749, section 4.4.2. IAM v1 uses a different field name."""
        return urlencode({"grant_type" if self.version == "v2" else "grantType": "client_credentials"}).encode()


class Tokens:
    """The token of one service account. The class is thread-safe, and only one thread at a time requests a token."""

    def __init__(self, account: ServiceAccount) -> None:
        """Store the arguments without sending a request."""
        self._account = account
        self._lock = threading.Lock()
        self._token = ""
        self._valid_until = 0.0
        self._rejected: VksError | None = None
        self._secrets = {account.client_secret, account.basic, account.basic.partition(" ")[2]}

    def token(self, client: HttpClient) -> str:
        """A token that does not expire soon. Raises VksError if the login fails."""
        with self._lock:
            if not self._token or time.monotonic() >= self._valid_until:
                self._log_in(client)
            return self._token

    def refresh(self, client: HttpClient, rejected: str) -> str:
        """A new token in place of the rejected one. Another thread may have requested the new token already."""
        with self._lock:
            if self._token == rejected:
                self._log_in(client)
            return self._token

    def mask(self, text: str) -> str:
        """The text from a service, with the secret and the tokens masked."""
        for secret in tuple(self._secrets):
            text = text.replace(secret, "***") if secret else text
        return text

    def _log_in(self, client: HttpClient) -> None:
        if self._rejected is not None:
            raise self._rejected
        try:
            answer = client.request(
                IAM,
                "POST",
                self._account.url,
                headers={
                    "Authorization": self._account.basic,
                    "Content-Type": "application/x-www-form-urlencoded",
                },
                data=self._account.form,
                mask=self.mask,
            )
        except VksError as error:
            if error.status is None or error.status >= 500 or error.declined:
                raise
            self._rejected = _rejection(error, self._account.client_id)
            raise self._rejected from None
        self._token, lifetime = _token_in(answer, self._account.url)
        self._secrets.add(self._token)
        # If the lifetime is too short for the margin, half of the lifetime is used.
        self._valid_until = time.monotonic() + max(lifetime - _MARGIN, lifetime / 2)


# The Tokens objects that the whole process shares.
TOKENS: dict[tuple[str, str, str], Tokens] = {}


def tokens_of(account: ServiceAccount) -> Tokens:
    """The Tokens object of this service account, which the whole process shares."""
    secret = hashlib.sha256(account.client_secret.encode()).hexdigest()
    return TOKENS.setdefault((account.url, account.client_id, secret), Tokens(account))


def _token_in(answer: HttpResponse, url: str) -> tuple[str, float]:
    """The token and its lifetime in seconds, from a response of either version of IAM."""
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        body = answer.json()
        token = body.get("access_token") or body.get("accessToken")
        if token:
            return str(token), float(body.get("expires_in") or body.get("expiresIn") or _DEFAULT_LIFETIME)
    raise VksError(
        "the response contains no token. Check that iam_url is the URL of IAM",
        service=IAM,
        status=400,
        method="POST",
        path=url,
    )


def _rejection(error: VksError, client_id: str) -> VksError:
    """The same error with an explanation. Later logins of this process with the same account fail with this error."""
    if error.reason == LOCKED:
        advice = (
            f"The account of client_id {client_id} is locked after failed logins; wait, and correct the secret first"
        )
    elif error.status in (404, 405):
        advice = (
            "IAM does not have this version of the token URL; set iam_version to v1, or set iam_url to the whole URL"
        )
    else:
        advice = (
            f"The login of client_id {client_id} is not retried, because failed logins lock the account; "
            "check client_id, client_secret and iam_url"
        )
    detail = f"{error.detail}. {advice}"
    rejection = VksError(
        detail, service=IAM, status=error.status, reason=error.reason, method=error.method, path=error.path
    )
    rejection.message = f"{IAM} rejected the login ({rejection.operation}): {detail}."
    return rejection


# Sends requests to VKS, vServer and IAM with urllib3 (a dependency of the kubernetes library), and reads lists page by page.

if URLLIB3_IMPORT_ERROR is None:
    import urllib3
    from urllib3.exceptions import HTTPError

# The vendor's own client uses this page size. No maximum is documented, and the service may return smaller pages.
PAGE_SIZE = 50
_LIST_READS = 2

Row = dict[str, t.Any]
Fetch = t.Callable[[int, int], t.Any]
Query = t.Mapping[str, t.Any]

VKS_API, VSERVER = "VKS", "vServer"
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
            code, text = vks_error_text(response.data)
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
        self._bases = {VKS_API: endpoints.vks, VSERVER: endpoints.vserver}
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
        return collect(lambda page, size: self.get(VKS_API, path, query={"page": page, "pageSize": size}))

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
