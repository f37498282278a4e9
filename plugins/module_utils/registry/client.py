# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads from and writes to a registry over the distribution API."""

from __future__ import annotations

import functools
import json
import math
import re
import threading
import typing as t
from dataclasses import dataclass
from urllib.parse import urlencode, urljoin, urlsplit

from ..catalog.secrets import NOT_SHOWN
from ..core import http
from ..core.errors import TIMEOUT, ConnectionProblem, ServiceError, missing_library
from ..core.http import URLLIB3_IMPORT_ERROR, ConnectionPools, HttpResponse, Retrier, is_loopback, with_query
from ..core.waits import call_within
from .reference import (
    ACCEPTED,
    DIGEST,
    HUB,
    HUB_FOLDER,
    ImageReference,
    InvalidManifest,
    Manifest,
    digest_of,
    json_object,
)

if t.TYPE_CHECKING:
    from ..core.values import Object
    from .credentials import Login

# Defines the error of a registry, and the message that explains the error to users (pure).
#
# Source: opencontainers/distribution-spec spec.md, "Error Codes".

# The requests that may be repeated. A repeated PUT writes the same content again, under its digest or to the same tag.
REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})
# Harbor, Quay, GitLab and Artifactory use different statuses and codes for a full quota.
_QUOTA = re.compile(
    r"quota|exceeds? (the )?(configured upper )?(limit|storage)|insufficient storage|no space left|storage limit",
    re.IGNORECASE,
)
# The code of the distribution specification, and the texts of Docker Hub, ECR and proxies.
TOO_MANY_REQUESTS = re.compile(r"too ?many ?requests|rate (limit )?exceeded|rate limit", re.IGNORECASE)
# Google's quotas for requests are named like quotas for storage.
_REQUESTS = re.compile(r"too ?many ?requests|requests? per |per (second|minute|hour|day)|\brates?\b", re.IGNORECASE)
# OpenSSL's message for a response that does not begin a TLS handshake.
_NO_TLS = re.compile(r"wrong version number|record layer failure", re.IGNORECASE)
_EXPIRED = re.compile(r"expired", re.IGNORECASE)
# The response of servers written in Go to an HTTP request on an HTTPS port.
HTTPS_EXPECTED = "HTTP request to an HTTPS server"
_MAX_LENGTH = 300
# The longest pause in seconds before a request that a registry has declined is sent again. GitLab counts the requests of a minute.
_MAX_RETRY_AFTER = 60.0
# An error body is small; a manifest or a configuration of this size is not searched.
_CODE_WITHIN = 4096
_TITLE = re.compile(r"<title>\s*(.*?)\s*</title>", re.IGNORECASE | re.DOTALL)
# No role has a variable for this option.
REQUEST_TIMEOUT_OPTION = (
    "request_timeout of the module (for a role: in module_defaults of group/accel.gpu.registry in your own play)"
)
# Harbor, Quay, GitLab and ECR give the same response for a repository that the user may not use and for a project that does not exist.
MISSING_PROJECT = (
    "The project (Harbor), organization (Quay), group (GitLab) or repository (ECR, Artifactory) may also be missing, or the user may not be a member: "
    "create it there, or check its name."
)
_REFUSED_MANIFEST = ("MANIFEST_INVALID", "TAG_INVALID", "UNSUPPORTED", "NAME_INVALID")


class RegistryError(ServiceError):
    """An error response from a registry, or a missing response (status is None). `reason` is the registry's own code."""

    service = "The registry"
    address_setting = "the name of the registry"
    timeout_setting = REQUEST_TIMEOUT_OPTION
    ca_setting = "ca_cert of the registry in gpu_registries (option registries of the module)"
    proxy_setting = "HTTPS_PROXY and NO_PROXY"

    def __init__(
        self, detail: str, *, registry: str = "", login: str = "", accepted: bool = False, **fields: t.Any
    ) -> None:
        """detail: the registry's own text. login: the origin of the credentials; empty for an anonymous request. accepted: whether the registry has
        issued a token for these credentials.
        """
        super().__init__("", **fields)
        self.detail = detail.rstrip(". ")
        self.registry, self.login, self.accepted = registry, login, accepted
        self.message = explain(self)

    def __str__(self) -> str:
        """The message."""
        return self.message

    @property
    def over_quota(self) -> bool:
        """Whether the registry has no space for the image."""
        if self.status == 429 and _REQUESTS.search(f"{self.reason} {self.detail}"):
            return False
        return (self.status in (403, 413, 429, 507) and bool(_QUOTA.search(self.detail))) or self.status == 507

    @property
    def declined(self) -> bool:
        """Whether the request may be sent again later. This is not the case if the quota is full, because waiting does not free space."""
        return (super().declined or self.too_many_requests) and not self.over_quota

    @property
    def too_many_requests(self) -> bool:
        """Whether the registry limits the number of requests. Some registries and proxies say so only in the code or the text of another status."""
        return self.status == 429 or bool(
            self.status
            and TOO_MANY_REQUESTS.search(f"{self.reason} {self.detail}" if self.status >= 400 else self.reason)
        )


def explain(error: RegistryError) -> str:
    """One message with the registry, the request, the response and the remedy."""
    where = f"Registry {error.registry}"
    request = f"({error.operation}): {error.detail}"
    if error.unreachable:
        remedy = (
            "If the registry has no TLS, set plain_http of the registry in gpu_registries (option registries of the module)."
            if _NO_TLS.search(error.detail)
            else error.remedy
        )
        return f"Registry {error.registry} did not respond {request}. {remedy}"
    if error.over_quota:
        return f"{where} has no space for the image {request}. Raise its quota or delete images there, and run the playbook again."
    if error.too_many_requests:
        wait = error.retry_after or 0
        asked = f"It asks to wait {math.ceil(wait)} seconds. " if wait > _MAX_RETRY_AFTER else ""
        remedy = f"{asked}Run the playbook again later, or log in: the limits for authenticated users are higher."
        return f"{where} limits the number of requests {request}. {remedy}"
    if error.status == 401:
        return f"{where} requires other credentials {request}. {_login_remedy(error)}"
    if error.status == 403:
        return (
            f"{where} denies the request {request}. The user needs permission to "
            f"{'read' if error.method in ('GET', 'HEAD') else 'write to'} this repository. {MISSING_PROJECT}"
        )
    if error.not_found:
        return f"{where} does not have the repository or the image {request}. {MISSING_PROJECT}"
    if error.reason in _REFUSED_MANIFEST or error.status == 415:
        return (
            f"{where} rejects the manifest {request}. It may not support this type of image (OCI index, several platforms): set "
            "platforms to one platform, or check the documentation of the registry."
        )
    if HTTPS_EXPECTED in error.detail:
        return f"{where} expects TLS {request}. Remove plain_http of the registry."
    if error.status == 405:
        return f"{where} does not allow the request {request}. A pull-through cache does not accept pushed images: use a repository that stores images."
    if error.status == 200:
        return f"{where} returns no manifest {request}. Check its name: a proxy or a login page may have responded."
    return f"{where} rejected {error.operation} with {error.status}: {error.detail}"


def _login_remedy(error: RegistryError) -> str:
    if not error.login:
        return "Set username and password of the registry in gpu_registries (option registries of the module), or auth_file."
    if _EXPIRED.search(error.detail):
        return f"The credentials from {error.login} have expired: log in again, or create a new token."
    if error.accepted:
        return f"It accepts the credentials from {error.login}, but not for this repository. {MISSING_PROJECT}"
    return (
        f"It rejects the credentials from {error.login}: check user and password. If `skopeo login {error.registry}` accepts them, they are right. "
        f"{MISSING_PROJECT}"
    )


def error_text(data: bytes) -> tuple[str, str]:
    """The code and the message in the body of an error response; both may be empty."""
    text = data.decode(errors="replace").strip()
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        # Of a page, only the title is shown.
        title = _TITLE.search(text)
        text = title[1] if title else "" if text.startswith("<") else text
        return "", " ".join(text.split())[:_MAX_LENGTH]
    errors = document.get("errors") if isinstance(document, dict) else None
    if not isinstance(errors, list) or not errors:
        messages = (
            document.get("message") or document.get("details") or document.get("error")
            if isinstance(document, dict)
            else ""
        )
        return "", " ".join(str(messages or "").split())[:_MAX_LENGTH]
    entries = [entry for entry in errors if isinstance(entry, dict)]
    code = next((str(entry["code"]) for entry in entries if entry.get("code")), "")
    texts = [_entry_text(entry) for entry in entries]
    return code, " ".join("; ".join(filter(None, texts)).split())[:_MAX_LENGTH]


def hides_a_limit(data: bytes) -> bool:
    """Whether a body has the code for too many requests, which some proxies send with status 200."""
    return b"TOOMANYREQUESTS" in data[:_CODE_WITHIN].upper() and error_text(data)[0].upper() == "TOOMANYREQUESTS"


def _entry_text(entry: t.Mapping[str, t.Any]) -> str:
    detail = entry.get("detail")
    message = str(entry.get("message") or entry.get("code") or "")
    return f"{message} ({detail})" if isinstance(detail, str) and detail and detail not in message else message


# Provides the authorization that a registry requires: a password, or a token from its token service (pure, except for the requests for tokens).
#
# Sources: distribution docs/content/spec/auth/token.md and oauth.md, RFC 7235.

PULL, PUSH = "pull", "pull,push"
# The lookbehind keeps the search linear for a long word without a value.
_PARAMETER = re.compile(r'(?<!\w)(\w+)="((?:[^"\\]|\\.)*)"')

# Sends one request: method, address, headers, body.
Send = t.Callable[[str, str, t.Mapping[str, str], "bytes | None"], HttpResponse]


class Challenge(t.NamedTuple):
    """The content of a WWW-Authenticate header: the scheme in lower case, and its parameters."""

    scheme: str
    parameters: dict[str, str]


def parse_challenge(value: str) -> Challenge:
    """The challenge in a header. Authorization ignores challenges with an unknown scheme."""
    scheme, dummy, rest = value.strip().partition(" ")
    return Challenge(scheme.lower(), {name.lower(): text for name, text in _PARAMETER.findall(rest)})


class Authorization:
    """The Authorization header for the repositories of one registry; safe for use by many threads."""

    def __init__(self, registry: str, find_login: t.Callable[[str], Login | None], *, plain_http: bool) -> None:
        """find_login: returns the login for an image (registry and repository)."""
        self._registry, self._find_login, self._plain_http = registry, find_login, plain_http
        self._headers: dict[tuple[str, str], str] = {}
        self._challenge: Challenge | None = None
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def header(self, repository: str, actions: str, send: Send, ping: t.Callable[[], str]) -> str | None:
        """The header for a repository; None if the registry requires none. ping: returns the challenge of the registry; empty if there is none.

        The challenge is read once, before the first request, so that no request for a manifest fails because of missing credentials.
        """
        with self._lock:
            if self._challenge is None:
                self._challenge = parse_challenge(ping())
        if (repository, actions) not in self._headers and self._challenge.scheme:
            return self.renew(self._challenge, repository, actions, send, None)
        return self._headers.get((repository, actions))

    @property
    def secrets(self) -> set[str]:
        """The tokens and encoded logins that have been sent."""
        # This uses a copy instead of the lock, because the lock is held during the request for the challenge, which may fail.
        return {secret for header in list(self._headers.values()) if (secret := header.partition(" ")[2])}

    def has_token(self, repository: str, actions: str) -> bool:
        """Whether the registry's token service has issued a token for the repository, so it has accepted the login."""
        return self._headers.get((repository, actions), "").startswith("Bearer ")

    def source(self, repository: str) -> str:
        """Where the login comes from; empty if there is no login."""
        login = self._find_login(f"{self._registry}/{repository}")
        return login.source if login else ""

    def renew(
        self, challenge: Challenge, repository: str, actions: str, send: Send, rejected: str | None
    ) -> str | None:
        """The header that the challenge requires; None if there is none. rejected: the header of the request that the registry has rejected."""
        with self._lock_of(repository):
            current = self._headers.get((repository, actions))
            if current is not None and current != rejected:
                # Another thread has fetched a token in the meantime.
                return current
            answer = self._answer(challenge, repository, actions, send)
            if answer is None or answer == rejected:
                return None
            self._headers[repository, actions] = answer
            return answer

    def _lock_of(self, repository: str) -> threading.Lock:
        """The lock of a repository. Each repository has its own lock, so that tokens of different repositories are fetched in parallel."""
        with self._lock:
            return self._locks.setdefault(repository, threading.Lock())

    def _answer(self, challenge: Challenge, repository: str, actions: str, send: Send) -> str | None:
        login = self._find_login(f"{self._registry}/{repository}")
        if challenge.scheme == "basic":
            return login.basic if login and login.password else None
        realm = challenge.parameters.get("realm")
        if challenge.scheme != "bearer" or not realm:
            return None
        return f"Bearer {self._token(realm, challenge.parameters, repository, actions, login, send)}"

    def _token(
        self,
        realm: str,
        parameters: t.Mapping[str, str],
        repository: str,
        actions: str,
        login: Login | None,
        send: Send,
    ) -> str:
        try:
            parts = urlsplit(realm)
        except ValueError:
            raise ConnectionProblem(
                f"Registry {self._registry}: the address of its token service is not valid."
            ) from None
        if login and parts.scheme != "https" and not (self._plain_http or is_loopback(parts.hostname)):
            raise ConnectionProblem(
                f"Registry {self._registry}: its token service {realm} has no TLS, so the credentials from {login.source} are not sent. Use a token service "
                "with TLS, or set plain_http of the registry if the network is trusted."
            )
        query = {"service": parameters.get("service"), "scope": f"repository:{repository}:{actions}"}
        if login and login.identity_token:
            form = {
                **query,
                "grant_type": "refresh_token",
                "client_id": "accel.gpu",
                "refresh_token": login.identity_token,
            }
            data = urlencode({name: text for name, text in form.items() if text}).encode()
            answer = send("POST", realm, {"Content-Type": "application/x-www-form-urlencoded"}, data)
        else:
            answer = send("GET", with_query(realm, query), {"Authorization": login.basic} if login else {}, None)
        try:
            document = json.loads(answer.data)
            token = document.get("token") or document.get("access_token")
        except (ValueError, AttributeError, RecursionError):
            token = None
        if not token:
            raise RegistryError(
                "its token service returns no token", registry=self._registry, status=401, method="GET", path=realm
            )
        return str(token)


# Sends requests to one registry with urllib3 (a dependency of the kubernetes library).

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
        most three times as long, or five times while the registry limits the number of requests.
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
        self._retrier = retrier or Retrier(max_retry_after=_MAX_RETRY_AFTER)
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

        def send(left: float) -> HttpResponse:
            # urllib3 applies its timeout to each part of a response. The last retry starts within the limit of the retrier, so it has enough time.
            limit = max(left, 0.0) + self._timeout
            try:
                return call_within(lambda: self._authorized(method, repository, url, headers, data), limit)
            except TimeoutError:
                raise RegistryError(
                    f"the response was not complete after {limit:.3g} seconds",
                    reason=TIMEOUT,
                    method=method,
                    path=urlsplit(url).path,
                    registry=self.access.registry,
                ) from None

        return self._retrier.send(
            send,
            limit=2 * self._timeout,
            declined_limit=4 * self._timeout,
            repeatable=method in REPEATABLE,
            is_connected=lambda dummy: self._connected_before,
        )

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
        send = functools.partial(self._token_request, source, repository)
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
        self, source: str, repository: str, method: str, url: str, headers: t.Mapping[str, str], data: bytes | None
    ) -> HttpResponse:
        answer = self._attempt(method, url, headers, data)
        if not 200 <= answer.status < 300 or hides_a_limit(answer.data):
            raise self._error(answer, method, url, source, purpose=f" for {repository}")
        return answer

    def _error(
        self, answer: HttpResponse, method: str, url: str, source: str, *, accepted: bool = False, purpose: str = ""
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
            path=f"{urlsplit(url).path}{purpose}",
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


# Reads and writes the manifests in one or more registries.

_DIGEST_HEADER = "Docker-Content-Digest"


class RegistryClient:
    """Reads and writes manifests by reference, in any registry; safe for use by many threads."""

    def __init__(self, transport_of: t.Callable[[str], RegistryTransport]) -> None:
        """transport_of: returns the transport for a registry; each call must return the same object."""
        self._transport_of = transport_of

    def digest(self, image: ImageReference) -> str | None:
        """The digest of an image, normally from a single request; None if the image does not exist."""
        try:
            answer = self._manifests("HEAD", image, image.selector)
        except RegistryError as error:
            if error.not_found:
                return None
            if error.status != 405:
                raise
        else:
            digest = answer.headers.get(_DIGEST_HEADER) or ""
            if DIGEST.fullmatch(digest) and image.digest in (None, digest):
                return digest
        # The registry does not return the header, or does not support HEAD.
        manifest = self.manifest(image)
        return manifest.digest if manifest else None

    def manifest(self, image: ImageReference) -> Manifest | None:
        """The manifest or index of an image; None if the image does not exist."""
        try:
            answer = self._manifests("GET", image, image.selector)
        except RegistryError as error:
            if error.not_found:
                return None
            raise
        media_type = (answer.headers.get("Content-Type") or "").partition(";")[0].strip()
        try:
            _verify(answer.data, image.digest)
            manifest = Manifest(answer.data, media_type)
            manifest = manifest if media_type in ACCEPTED else Manifest(answer.data, manifest.declared_type)
            manifest.check()
        except InvalidManifest as error:
            raise _invalid(error, image, f"manifests/{image.selector}", answer.status) from None
        return manifest

    def put(self, image: ImageReference, manifest: Manifest) -> None:
        """Write a manifest whose blobs the repository already contains. The same bytes have the same digest under each tag."""
        self._transport_of(image.registry).request(
            "PUT",
            image.repository,
            f"manifests/{image.selector}",
            data=manifest.data,
            content_type=manifest.media_type,
        )

    def config(self, image: ImageReference, manifest: Manifest) -> Object:
        """The configuration of an image for one platform, which contains labels, the creation time and the platform; empty if the image has none."""
        if not manifest.config_digest:
            return {}
        path = f"blobs/{manifest.config_digest}"
        answer = self._transport_of(image.registry).request("GET", image.repository, path)
        try:
            _verify(answer.data, manifest.config_digest)
            config = json_object(answer.data)
        except InvalidManifest as error:
            raise _invalid(error, image, path, answer.status) from None
        return config

    def _manifests(self, method: str, image: ImageReference, selector: str) -> t.Any:
        transport = self._transport_of(image.registry)
        return transport.request(method, image.repository, f"manifests/{selector}", accept=ACCEPTED)


def _verify(data: bytes, digest: str | None) -> None:
    """Raise InvalidManifest if a registry has returned something other than what the digest identifies."""
    if digest and digest_of(data) != digest:
        raise InvalidManifest(f"the response has the digest {digest_of(data)} instead of {digest}")


def _invalid(error: InvalidManifest, image: ImageReference, path: str, status: int) -> RegistryError:
    return RegistryError(
        f"{error}", registry=image.registry, status=status, method="GET", path=f"/v2/{image.repository}/{path}"
    )
