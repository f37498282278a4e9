# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Provides the authorization that a registry requires: a password, or a token from its token service (pure, except for the requests for tokens).

Sources: distribution docs/content/spec/auth/token.md and oauth.md, RFC 7235.
"""

from __future__ import annotations

import json
import re
import threading
import typing as t
from urllib.parse import urlencode, urlsplit

from ..common.errors import ConnectionProblem
from ..common.http import HttpResponse, is_loopback, with_query
from .credentials import Login
from .errors import RegistryError

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
