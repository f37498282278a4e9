# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens of IAM: asked for once a process, renewed before they end, and never again after a refusal.

IAM locks an account after failed logins (its code TOO_MANY_FAILED_LOGINS), so that a login that was refused is not tried twice.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
import typing as t
from dataclasses import dataclass, field
from urllib.parse import urlencode

from .errors import VksError
from .http import Http, VksResponse

PART = "IAM"
# Both generations give 1800 s today, an older page tells of 7200: what the answer says counts.
_FALLBACK_LIFE = 1800.0
_MARGIN = 60.0
LOCKED = "TOO_MANY_FAILED_LOGINS"


@dataclass(frozen=True)
class Login:
    """Who asks for tokens, where, and in which of IAM's two generations."""

    url: str
    version: str
    client_id: str
    client_secret: str = field(repr=False)

    @property
    def basic(self) -> str:
        """The value of the header Authorization (RFC 7617)."""
        return "Basic " + base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()

    @property
    def form(self) -> bytes:
        """The body: RFC 6749, 4.4.2 in v2, the same with a name of its own in v1."""
        return urlencode({"grant_type" if self.version == "v2" else "grantType": "client_credentials"}).encode()


class Tokens:
    """The token of one login; many threads ask, one logs in."""

    def __init__(self, login: Login, clock: t.Callable[[], float] = time.monotonic) -> None:
        """Ask for nothing yet."""
        self._login = login
        self._clock = clock
        self._lock = threading.Lock()
        self._token = ""
        self._until = 0.0
        self._refused: VksError | None = None
        self._secrets = {login.client_secret, login.basic, login.basic.partition(" ")[2]}

    def bearer(self, http: Http) -> str:
        """A token that is good for a while yet; raises VksError."""
        with self._lock:
            if not self._token or self._clock() >= self._until:
                self._ask(http)
            return self._token

    def renewed(self, http: Http, refused: str) -> str:
        """Another token than the one that a service did not accept; that of another thread, where it was faster."""
        with self._lock:
            if self._token == refused:
                self._ask(http)
            return self._token

    def scrub(self, text: str) -> str:
        """A service's words without anything that is secret."""
        for secret in tuple(self._secrets):
            text = text.replace(secret, "***") if secret else text
        return text

    def _ask(self, http: Http) -> None:
        if self._refused is not None:
            raise self._refused
        try:
            answer = http.request(
                PART,
                "POST",
                self._login.url,
                headers={
                    "Authorization": self._login.basic,
                    "Content-Type": "application/x-www-form-urlencoded",
                },
                data=self._login.form,
                scrub=self.scrub,
            )
        except VksError as error:
            if error.status is None or error.status >= 500 or error.status == 429:
                raise
            self._refused = _refusal(error, self._login.client_id)
            raise self._refused from None
        self._token, life = _token_in(answer, self._login.url)
        self._secrets.add(self._token)
        # Of a life too short for the margin, half is used.
        self._until = self._clock() + max(life - _MARGIN, life / 2)


_KNOWN: dict[tuple[str, str, str], Tokens] = {}
_KNOWN_LOCK = threading.Lock()


def tokens_of(login: Login) -> Tokens:
    """The tokens of this login, the same for everybody in this process."""
    secret = hashlib.sha256(login.client_secret.encode()).hexdigest()
    with _KNOWN_LOCK:
        return _KNOWN.setdefault((login.url, login.client_id, secret), Tokens(login))


def forget() -> None:
    """Log in anew from now on, as a new process would."""
    with _KNOWN_LOCK:
        _KNOWN.clear()


def _token_in(answer: VksResponse, url: str) -> tuple[str, float]:
    """The token and its life in seconds, in either generation's spelling."""
    try:
        body = json.loads(answer.data)
        token = body.get("access_token") or body.get("accessToken")
        life = body.get("expires_in") or body.get("expiresIn") or _FALLBACK_LIFE
        return str(token) if token else _no_token(url), float(life)
    except (ValueError, AttributeError, TypeError):
        return _no_token(url), 0.0


def _no_token(url: str) -> t.NoReturn:
    raise VksError("the answer has no token in it: is iam_url IAM's?", part=PART, status=400, method="POST", path=url)


def _refusal(error: VksError, client_id: str) -> VksError:
    """The same, told as what it means; it stays so for the rest of the process."""
    if error.reason == LOCKED:
        words = f"{error.words}. The account of client_id {client_id} is locked after failed logins; wait, and mend the secret first"
    elif error.status in (404, 405):
        words = (
            f"{error.words}. There is no IAM of this generation; give iam_version v1, or its whole address as iam_url"
        )
    else:
        words = (
            f"{error.words}. The login of client_id {client_id} is not tried again, because failed logins lock the account; "
            "check client_id, client_secret and iam_url"
        )
    told = VksError(words, part=PART, status=error.status, reason=error.reason, method=error.method, path=error.path)
    told.message = f"{PART} refused the login (POST {error.path}): {words}."
    return told
