# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One request over urllib3, which the kubernetes library brings, and what its failure means."""

from __future__ import annotations

import json
import re
import traceback
import typing as t
from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from .endpoints import is_loopback
from .errors import VksError, error_text, is_refusal

URLLIB3_IMPORT_ERROR: str | None = None
try:
    import urllib3
    from urllib3 import exceptions as broken
except ImportError:
    URLLIB3_IMPORT_ERROR = traceback.format_exc()

CONNECT_TIMEOUT = 10.0
POOL_SIZE = 32
_OBJECT = re.compile(r"^(?:<?[\w.]+(?:\([^)]*\)| object at 0x[0-9a-f]+)>?: )+")
_SSL_SOURCE = re.compile(r"^\[SSL: \w+\] | \(_ssl\.c:\d+\)")

Query = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class TlsOptions:
    """How a connection is made: whose certificates are believed, and how long an answer may take (seconds)."""

    validate_certs: bool = True
    ca_cert: str | None = None
    timeout: float = 30.0


@dataclass(frozen=True)
class VksResponse:
    """Status and body of an answer of 200 to 299."""

    status: int
    data: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.data.decode(errors="replace")

    def json(self) -> t.Any:
        """What the body holds; None where there is none, as after most writes. Raises ValueError when it is no JSON."""
        return json.loads(self.data) if self.data.strip() else None


class Http:
    """A pool of connections; safe to be used by many threads. Redirects are not followed: a token belongs to one host."""

    def __init__(self, trust: TlsOptions, user_agent: str) -> None:
        """Open no connection yet."""
        if not trust.validate_certs:
            # The user has said so; a warning at each request would tell nothing new.
            urllib3.disable_warnings(broken.InsecureRequestWarning)
        self._trust = trust
        self._agent = user_agent
        self._pools: dict[str | None, t.Any] = {}

    def request(
        self,
        part: str,
        method: str,
        url: str,
        *,
        headers: t.Mapping[str, str],
        data: bytes | None = None,
        scrub: t.Callable[[str], str] = lambda text: text,
    ) -> VksResponse:
        """One attempt; raises VksError, whose words `scrub` has been through."""
        timeout = urllib3.Timeout(connect=min(CONNECT_TIMEOUT, self._trust.timeout), read=self._trust.timeout)
        shown = url.partition("?")[0]
        try:
            response = self._pool(url).request(
                method,
                url,
                body=data,
                headers={"User-Agent": self._agent, "Accept": "application/json", **headers},
                timeout=timeout,
                retries=False,
                redirect=False,
            )
        except (broken.HTTPError, OSError) as error:
            reason, sent, words = _no_answer(error)
            raise VksError(scrub(words), part=part, reason=reason, method=method, path=shown, sent=sent) from None
        except ValueError:
            # Python quotes the header, which may be the token; a status says that to try again is of no use.
            words = "a header or the address has characters that HTTP does not carry"
            raise VksError(words, part=part, status=400, method=method, path=shown, sent=False) from None
        answer = VksResponse(response.status, response.data)
        if not 200 <= response.status < 300 or is_refusal(_lenient(answer)):
            code, words = error_text(response.data)
            raise VksError(
                scrub(words or str(response.reason or "no reason was given")),
                part=part,
                # A refusal within a 200 is the request's fault, not the service's.
                status=response.status if response.status >= 300 else 400,
                reason=scrub(code),
                method=method,
                path=shown,
                retry_after=_seconds(response.headers.get("Retry-After")),
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
                maxsize=POOL_SIZE,
                cert_reqs="CERT_REQUIRED" if self._trust.validate_certs else "CERT_NONE",
                ca_certs=self._trust.ca_cert,
            )
        return self._pools[proxy]


def with_query(url: str, query: Query | None) -> str:
    """The address with those parameters that are given."""
    asked = {name: _plain_value(value) for name, value in (query or {}).items() if value is not None}
    return f"{url}?{urlencode(asked, quote_via=quote)}" if asked else url


def _plain_value(value: t.Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _lenient(answer: VksResponse) -> t.Any:
    try:
        return answer.json()
    except ValueError:
        return None


def _seconds(value: str | None) -> float | None:
    try:
        return max(0.0, float(value)) if value else None
    except ValueError:
        return None


def _no_answer(error: Exception) -> tuple[str, bool, str]:
    """Sort a connection's failure by what the user can do about it: the reason, whether it may have arrived, and in words."""
    text = _SSL_SOURCE.sub("", _OBJECT.sub("", str(error)).strip()).strip() or type(error).__name__
    if isinstance(error, broken.ProxyError):
        return "Proxy", False, text
    if isinstance(error, broken.SSLError) or "CERTIFICATE_VERIFY_FAILED" in text:
        return "TLS", False, text
    if isinstance(error, broken.NewConnectionError):
        unresolved = "resolve" in text.lower() or "Name or service not known" in text
        return "DNS" if unresolved else "Refused", False, text
    if isinstance(error, broken.ConnectTimeoutError):
        return "Timeout", False, "no connection in time"
    if isinstance(error, broken.ReadTimeoutError):
        return "Timeout", True, "no answer in time"
    return "Broken", True, text
