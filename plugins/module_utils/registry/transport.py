# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends requests to one registry with urllib3 (a dependency of the kubernetes library)."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

from ..catalog.secrets import NOT_SHOWN
from ..common import http
from ..common.errors import TIMEOUT, missing_library
from ..common.http import URLLIB3_IMPORT_ERROR, ConnectionPools, HttpResponse, Retrier
from ..common.parallel import call_within
from .authorization import PULL, PUSH, Authorization, parse_challenge
from .credentials import Login
from .errors import HTTPS_EXPECTED, REPEATABLE, RegistryError, error_text, hides_a_limit
from .reference import HUB, HUB_FOLDER

if URLLIB3_IMPORT_ERROR is None:
    import urllib3
    from urllib3.exceptions import HTTPError

CONNECT_TIMEOUT = 10.0
_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 5
# Manifests are limited to 4 MiB (distribution-spec), and image configurations are smaller.
MAX_BODY = 8 << 20
_CHUNK = 1 << 16
_CHALLENGE = "WWW-Authenticate"
# The host of Docker Hub's API differs from the host in the names of its images.
_API_HOSTS = {HUB: "registry-1.docker.io"}


@dataclass(frozen=True)
class RegistryAccess:
    """The settings for connections to a registry. `plain_http` determines whether to connect without TLS."""

    registry: str
    ca_cert: str | None = None
    validate_certs: bool = True
    plain_http: bool = False


class RegistryTransport:
    """Sends requests to one registry, with the password or token that it requires; thread-safe."""

    def __init__(
        self,
        access: RegistryAccess,
        find_login: t.Callable[[str], Login | None],
        user_agent: str,
        *,
        timeout: float = 30.0,
        retrier: Retrier | None = None,
    ) -> None:
        """Store the arguments; no connection is opened yet. `timeout` is the number of seconds to wait for a response; a request with all its retries takes at
        most three times as long.
        """
        if URLLIB3_IMPORT_ERROR is not None:
            raise missing_library("urllib3", "The access to registries")
        self.access = access
        scheme = "http" if access.plain_http else "https"
        self._base = f"{scheme}://{_API_HOSTS.get(access.registry, access.registry)}"
        self._authorization = Authorization(access.registry, find_login, plain_http=access.plain_http)
        pools = functools.partial(ConnectionPools, validate_certs=access.validate_certs, ca_cert=access.ca_cert)
        # Token services, and storage to which blobs are redirected, may be public.
        self._pools, self._other_pools = pools(), pools(add_system_cas=True)
        self._user_agent, self._timeout = user_agent, timeout
        self._retrier = retrier or Retrier(max_retry_after=60.0)
        self._connected_before = False

    def request(
        self,
        method: str,
        repository: str,
        path: str,
        *,
        accept: t.Sequence[str] = (),
        data: bytes | None = None,
        content_type: str = "",
    ) -> HttpResponse:
        """Send a request for a path below a repository, and return the response; raises RegistryError."""
        headers = {"Accept": ", ".join(accept)} if accept else {}
        if content_type:
            headers["Content-Type"] = content_type
        repository = self._full_name(repository)
        url = f"{self._base}/v2/{repository}/{path}"
        send = functools.partial(
            self._retrier.send,
            lambda dummy_left: self._authorized(method, repository, url, headers, data),
            limit=2 * self._timeout,
            repeatable=method in REPEATABLE,
            is_connected=lambda dummy: self._connected_before,
        )
        # urllib3 applies its timeout to each part of a response. The last retry starts within the limit of the retrier, so it has enough time.
        limit = 3 * self._timeout
        try:
            return call_within(send, limit)
        except TimeoutError:
            raise RegistryError(
                f"the response was not complete after {limit:g} seconds",
                reason=TIMEOUT,
                method=method,
                path=urlsplit(url).path,
                registry=self.access.registry,
            ) from None

    def _full_name(self, repository: str) -> str:
        if self.access.registry in _API_HOSTS and "/" not in repository:
            return f"{HUB_FOLDER}/{repository}"
        return repository

    def _authorized(
        self,
        method: str,
        repository: str,
        url: str,
        headers: t.Mapping[str, str],
        data: bytes | None,
    ) -> HttpResponse:
        """Send a request, and return the response. If the registry requires credentials, the request is repeated once with them."""
        actions = PULL if method in ("GET", "HEAD") else PUSH
        authorization = self._authorization
        source = authorization.source(repository)
        send = functools.partial(self._token_request, source)
        header = authorization.header(repository, actions, send, self._ping)
        first = self._followed(method, url, _with(headers, header), data)
        if first.status == 401:
            challenge = parse_challenge(first.headers.get(_CHALLENGE) or "")
            renewed = authorization.renew(challenge, repository, actions, send, header)
            if renewed is not None:
                first = self._followed(method, url, _with(headers, renewed), data)
        if not 200 <= first.status < 300 or hides_a_limit(first.data):
            raise self._error(first, method, url, source, accepted=authorization.has_token(repository, actions))
        return first

    def _ping(self) -> str:
        """The challenge of the registry; empty if it allows anonymous requests."""
        url = f"{self._base}/v2/"
        answer = self._attempt("GET", url, {}, None)
        if answer.status == 400 and HTTPS_EXPECTED in answer.text:
            raise self._error(answer, "GET", url, "")
        return answer.headers.get(_CHALLENGE) or ""

    def _token_request(
        self, source: str, method: str, url: str, headers: t.Mapping[str, str], data: bytes | None
    ) -> HttpResponse:
        answer = self._attempt(method, url, headers, data)
        if not 200 <= answer.status < 300 or hides_a_limit(answer.data):
            raise self._error(answer, method, url, source)
        return answer

    def _error(
        self, answer: HttpResponse, method: str, url: str, source: str, *, accepted: bool = False
    ) -> RegistryError:
        data = answer.data
        for secret in self._authorization.secrets:
            # Some registries repeat the request's headers in the error message.
            data = data.replace(secret.encode(), NOT_SHOWN.encode())
        code, text = error_text(data)
        return RegistryError(
            text or code or "no reason was given",
            registry=self.access.registry,
            login=source,
            accepted=accepted,
            status=answer.status,
            reason=code,
            method=method,
            path=urlsplit(url).path,
            retry_after=http.retry_after(answer.headers.get("Retry-After")),
        )

    def _followed(self, method: str, url: str, headers: t.Mapping[str, str], data: bytes | None) -> HttpResponse:
        """Send a request, and return the response after any redirects, which registries use for blobs. The credentials are not sent to another host."""
        answer = self._attempt(method, url, headers, data)
        for dummy in range(_MAX_REDIRECTS):
            target = (answer.headers.get("Location") or "") if answer.status in _REDIRECTS else ""
            if not target or method not in ("GET", "HEAD"):
                break
            try:
                following = urljoin(url, target)
                moved = urlsplit(following)[:2] != urlsplit(url)[:2]
            except ValueError:
                # The redirect itself becomes the error.
                break
            if moved:
                headers = {name: text for name, text in headers.items() if name != "Authorization"}
            url = following
            answer = self._attempt(method, url, headers, data)
        return answer

    def _attempt(self, method: str, url: str, headers: t.Mapping[str, str], data: bytes | None) -> HttpResponse:
        try:
            pools = self._pools if url.startswith(f"{self._base}/") else self._other_pools
            response = pools.for_url(url).request(
                method,
                url,
                body=data,
                headers={"User-Agent": self._user_agent, **headers},
                timeout=urllib3.Timeout(connect=min(CONNECT_TIMEOUT, self._timeout), read=self._timeout),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            body = self._body(response, method, url)
        except (HTTPError, OSError) as error:
            raise http.no_answer(
                RegistryError, error, method=method, path=urlsplit(url).path, registry=self.access.registry
            ) from None
        except ValueError:
            raise http.not_sendable(self.access.registry, "Check user and password.") from None
        self._connected_before = True
        return HttpResponse(response.status, body, response.headers)

    def _body(self, response: t.Any, method: str, url: str) -> bytes:
        """The whole body; raises RegistryError if it is larger than MAX_BODY, so that a registry cannot exhaust the memory."""
        parts, size = [], 0
        try:
            for part in response.stream(_CHUNK):
                parts.append(part)
                size += len(part)
                if size > MAX_BODY:
                    raise RegistryError(
                        f"the response is larger than {MAX_BODY >> 20} MiB",
                        registry=self.access.registry,
                        status=200,
                        method=method,
                        path=urlsplit(url).path,
                    )
        except BaseException:
            response.close()
            raise
        response.release_conn()
        return b"".join(parts)


def _with(headers: t.Mapping[str, str], authorization: str | None) -> dict[str, str]:
    return {**headers, **({"Authorization": authorization} if authorization else {})}
