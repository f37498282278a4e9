# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Common code for all HTTP services: retries of requests, and the interpretation of failed connections.

Each service has its own base URL, authentication, error body and paging; see kube/transport.py, clouds/magnum_client.py,
clouds/vks_client.py, registry/client.py and licensing/servers.py.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import email.utils
import ipaddress
import json
import random
import re
import ssl
import time
import traceback
import typing as t
from dataclasses import dataclass, field
from urllib.parse import quote, unquote_to_bytes, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from .errors import BROKEN, DNS, PROXY, REFUSED, SERVER_FAILURES, TIMEOUT, TLS, ConnectionProblem, ServiceError

URLLIB3_IMPORT_ERROR: str | None = None
try:
    import urllib3
    from urllib3 import exceptions as urllib3_errors
except ImportError:
    URLLIB3_IMPORT_ERROR = traceback.format_exc()

# The exceptions of a request that got no complete response.
HTTP_ERRORS: tuple[type[Exception], ...] = (OSError,) if URLLIB3_IMPORT_ERROR else (OSError, urllib3_errors.HTTPError)
T = t.TypeVar("T")
E = t.TypeVar("E", bound=ServiceError)

POOL_SIZE = 32
# The maximum number of attempts while a server has never responded, because its address is then most likely wrong.
_FIRST_CONTACT_ATTEMPTS = 3
_FIRST_DELAY, _MAX_DELAY = 0.25, 8.0

# Match the names of objects in urllib3's messages, and the names of source files in OpenSSL's messages.
_OBJECT = re.compile(r"^(?:<?[\w.]+(?:\([^)]*\)| object at 0x[0-9a-f]+)>?: )+")
_SSL_SOURCE = re.compile(r"^\[SSL: \w+\] | \(_ssl\.c:\d+\)")
# Matches the error if the peer, for example a load balancer without a server, has closed the connection during the handshake. In this case, TLS is not
# misconfigured. The text differs between OpenSSL 1.1 and 3.
_EOF = re.compile(r"\beof\b", re.IGNORECASE)


@dataclass(frozen=True)
class HttpResponse:
    """A complete response that is not an error; the names of `headers` may be in any case."""

    status: int
    data: bytes
    headers: t.Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.data.decode(errors="replace")

    def json(self) -> dict[str, t.Any]:
        """The object in the body; raises ValueError if the body is not JSON."""
        return t.cast("dict[str, t.Any]", json.loads(self.data))


class ConnectionPools:
    """Manages connections to any number of hosts with the same TLS settings, directly or through the proxies in the environment.

    Several threads can use the same instance.
    """

    def __init__(
        self,
        *,
        validate_certs: bool = True,
        ca_cert: str | None = None,
        add_system_cas: bool = False,
        proxy: str | None = None,
        **settings: t.Any,
    ) -> None:
        """Store the TLS settings; no connection is opened yet.

        add_system_cas: whether to trust the system's CA certificates in addition to ca_cert. proxy: the URL of the proxy for all hosts, instead of those
        in the environment. settings: additional arguments of urllib3's connection pools.
        """
        if not validate_certs:
            allow_unverified_tls()
        self._tls: dict[str, t.Any] = {
            "cert_reqs": "CERT_REQUIRED" if validate_certs else "CERT_NONE",
            "ca_certs": ca_cert,
            **settings,
        }
        self._proxy = proxy
        if ca_cert and add_system_cas and validate_certs:
            self._tls["ssl_context"] = ssl.create_default_context()
        self._pools: dict[str | None, t.Any] = {}

    def for_url(self, url: str) -> t.Any:
        """The urllib3 pool manager for an address; addresses of this machine are reached without a proxy."""
        parts = urlsplit(url)
        direct = is_loopback(parts.hostname) or proxy_bypass(parts.hostname or "")
        proxy = self._proxy or (None if direct else getproxies().get(parts.scheme))
        if proxy not in self._pools:
            kind: t.Any = urllib3.ProxyManager if proxy else urllib3.PoolManager
            settings = _proxy_settings(proxy) if proxy else {}
            self._pools[proxy] = kind(**settings, maxsize=POOL_SIZE, **self._tls)
        return self._pools[proxy]


def _proxy_settings(proxy: str) -> dict[str, t.Any]:
    """The urllib3 options for a proxy in the environment; as in curl, the default scheme is HTTP, and the address may contain a user and password."""
    address = proxy if "://" in proxy else f"http://{proxy}"
    authorization = proxy_authorization(address)
    return {
        "proxy_url": address,
        **({"proxy_headers": {"proxy-authorization": authorization}} if authorization else {}),
    }


def proxy_authorization(address: str) -> str:
    """The header for the user and the password in the address of a proxy, which urllib3 does not send automatically; empty if the address has neither."""
    given = urllib3.util.parse_url(address).auth
    return f"Basic {base64.b64encode(unquote_to_bytes(given)).decode()}" if given else ""


class Retrier:
    """Retries requests to a service with exponential back-off if a repetition does no harm. Several threads can use the same instance."""

    def __init__(
        self,
        *,
        max_retry_after: float = 30.0,
        max_internal_errors: int = 2,
        sleep: t.Callable[[float], None] = time.sleep,
        clock: t.Callable[[], float] = time.monotonic,
    ) -> None:
        """max_retry_after: the maximum number of seconds that a Retry-After delays a retry. max_internal_errors: the number of 500 responses that are retried.

        The latter should be small, because a 500 from Magnum, or from Kubernetes unless etcd is changing its leader, is more often permanent than
        transient.
        """
        self._max_retry_after = max_retry_after
        self._max_internal_errors = max_internal_errors
        self._sleep = sleep
        self._clock = clock

    def send(
        self,
        request: t.Callable[[float], T],
        *,
        limit: float,
        repeatable: bool,
        is_connected: t.Callable[[ServiceError], bool],
        is_final: t.Callable[[t.Any], bool] = lambda error: False,
        declined_limit: float | None = None,
    ) -> T:
        """The result of `request` (called with the remaining seconds) after as many attempts as fit into `limit` seconds.

        A request that is not `repeatable` is sent again only if the service certainly did not carry it out. `is_connected`: whether the
        service that failed has responded to this client before. `is_final`: whether the caller handles an error itself, without a retry.
        `declined_limit`: the limit instead of `limit` after a response that asks the client to send the request again later.
        """
        began = self._clock()
        deadline, declined_deadline = began + limit, began + (limit if declined_limit is None else declined_limit)
        attempts = internal_errors = 0
        outcome_unknown = False
        while True:
            attempts += 1
            try:
                return request(deadline - self._clock())
            except ServiceError as error:
                error.earlier_outcome_unknown = outcome_unknown
                outcome_unknown = outcome_unknown or error.outcome_unknown
                internal_errors += error.status == 500
                delay = self._delay(error, attempts)
                if (
                    is_final(error)
                    or internal_errors > self._max_internal_errors
                    or not should_retry(error, attempts, repeatable=repeatable, connected=is_connected(error))
                    or self._clock() + delay > (declined_deadline if error.declined else deadline)
                ):
                    raise
            self._sleep(delay)

    def backoff(self, error: ServiceError) -> None:
        """Sleep before the first retry after this error."""
        self._sleep(self._delay(error, 1))

    def _delay(self, error: ServiceError, attempts: int) -> float:
        asked = None if error.retry_after is None else min(error.retry_after, self._max_retry_after)
        # A 0, or a date that is over because the clocks differ, must not become a request without a pause after each request.
        if asked is not None and (asked >= 1 or attempts == 1):
            return asked
        return float(min(_MAX_DELAY, _FIRST_DELAY * 2**attempts) * random.uniform(0.5, 1.0))


def should_retry(error: ServiceError, attempts: int, *, repeatable: bool, connected: bool) -> bool:
    """Whether a request that has failed this number of times may be sent again, and may then succeed."""
    if error.declined:
        return True
    if error.unreachable:
        if error.reason in (TLS, PROXY) or (not connected and attempts >= _FIRST_CONTACT_ATTEMPTS):
            return False
    elif error.status not in SERVER_FAILURES:
        return False
    return repeatable or not error.sent


def no_answer(kind: t.Callable[..., E], error: Exception, **fields: t.Any) -> E:
    """The service's error for a failed connection; `error` is an exception of urllib3 or the system, or an exception of requests that wraps it."""
    while not isinstance(error, urllib3_errors.HTTPError) or isinstance(error, urllib3_errors.MaxRetryError):
        inner = getattr(error, "reason", None) or next(iter(error.args), None)
        if not isinstance(inner, Exception):
            break
        error = inner
    text = _SSL_SOURCE.sub("", _OBJECT.sub("", str(error)).strip()).strip() or type(error).__name__
    reason, sent = BROKEN, True
    if isinstance(error, urllib3_errors.ProxyError):
        reason, sent = PROXY, False
    elif (isinstance(error, urllib3_errors.SSLError) and not _EOF.search(text)) or "CERTIFICATE_VERIFY_FAILED" in text:
        reason, sent = TLS, False
    elif isinstance(error, urllib3_errors.NewConnectionError):
        unresolved = "resolve" in text.lower() or "Name or service not known" in text
        reason, sent = DNS if unresolved else REFUSED, False
    elif isinstance(error, urllib3_errors.ConnectTimeoutError):
        reason, sent, text = TIMEOUT, False, "no connection within the time limit"
    elif isinstance(error, urllib3_errors.ReadTimeoutError):
        reason, text = TIMEOUT, "no response within the time limit"
    return kind(text, reason=reason, sent=sent, **fields)


def not_sendable(origin: str, remedy: str) -> ConnectionProblem:
    """The error for a ValueError of http.client, whose text must not be shown because it quotes the header, which may be the token."""
    return ConnectionProblem(
        f"A request cannot be sent ({origin}): a header or the address contains characters that HTTP does not support. {remedy}"
    )


def is_loopback(host: str | None) -> bool:
    """Whether requests to this host do not leave this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def retry_after(value: str | None) -> float | None:
    """The seconds until the time in a Retry-After header, which is a number of seconds or a date (RFC 9110, 10.2.3); None if there is none."""
    if not value:
        return None
    with contextlib.suppress(ValueError):
        return max(0.0, float(value))
    try:
        moment = email.utils.parsedate_to_datetime(value)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
        return max(0.0, moment.timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        # The header is text of the service.
        return None


def only_redirects(limit: int) -> t.Any:
    """The argument `retries` of urllib3 for a request that follows up to `limit` redirects, and is not repeated for any other reason."""
    return urllib3.Retry(total=None, connect=0, read=0, redirect=limit, status=0, other=0)


def with_query(url: str, query: t.Mapping[str, t.Any] | None) -> str:
    """The URL with the parameters that are not None."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (query or {}).items()
        if value is not None
    }
    return f"{url}?{urlencode(given, quote_via=quote)}" if given else url


def encode_json(body: t.Any) -> bytes:
    """A JSON body without white space."""
    return json.dumps(body, separators=(",", ":")).encode()


def allow_unverified_tls() -> None:
    """Suppress urllib3's warning about each request without a verified certificate, because the user has disabled the check."""
    urllib3.disable_warnings(urllib3_errors.InsecureRequestWarning)
