# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gets tokens from IAM. Each process logs in once and renews the token before it expires.

IAM locks an account after failed logins (code TOO_MANY_FAILED_LOGINS), so a rejected login is not repeated.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import threading
import time
import typing as t
from dataclasses import dataclass, field
from urllib.parse import urlencode

from ...common.http import HttpResponse
from .errors import VksError

if t.TYPE_CHECKING:
    from .transport import HttpClient

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
