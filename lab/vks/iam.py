# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IAM: tokens for service accounts, for both API generations, and its rejections.

Tokens are stored only in memory: after a restart they are invalid, as if they had expired.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs

from .rules import CLOUD, VksRules
from .state import AccountState, RequestRefused, Row

_SECONDS = 1800
_ALL = frozenset({"read", "write", "kubeconfig", "metadata"})
# The permissions of each client id; the part or the command line provides the secrets.
CLIENTS = {"lab": _ALL, "lab-reader": frozenset({"read"}), "lab-unprivileged": frozenset({"read", "write"})}


class LoginRefused(RequestRefused):
    """A rejected login, with one of IAM's error codes (SDK, sdk_error/errors.go)."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(status, text)
        self.code = code


@dataclass(frozen=True)
class _Token:
    client: str
    ends: float


class Iam:
    """The service accounts of one account: their secrets by client id."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = known
        self._tokens: dict[str, _Token] = {}

    def login(self, state: AccountState, rules: VksRules, version: str, headers: Mapping[str, str], body: bytes) -> Row:
        """Return a token, or raise LoginRefused."""
        status = int(rules.guess("iam-error-status"))
        client, secret = _credentials(headers.get("Authorization", ""))
        failed = state.data["failed_logins"]
        limit = rules.number("lock-out-after")
        if rules.fault("locked-out") or 0 < limit <= failed.get(client, 0):
            raise LoginRefused(status, "TOO_MANY_FAILED_LOGINS", "Too many failed logins, the account is locked")
        key = "grant_type" if version == "v2" else "grantType"
        if _fields(headers.get("Content-Type", ""), body).get(key) != "client_credentials":
            raise LoginRefused(400, "INVALID_REQUEST", f"{key} must be client_credentials")
        right = secrets.compare_digest(self._known.get(client, "").encode(), secret.encode()) and secret
        if not right or rules.consume("login-rejected"):
            failed[client] = failed.get(client, 0) + 1
            raise LoginRefused(status, "AUTHENTICATION_FAILED", "Client id or client secret is wrong")
        failed.pop(client, None)
        seconds = int(rules.value("token-seconds", _SECONDS) or _SECONDS)
        token = secrets.token_urlsafe(32)
        self._tokens[token] = _Token(client, time.monotonic() + seconds)
        if version == "v1":
            return {"accessToken": token, "expiresIn": seconds}
        return {"token_type": "Bearer", "access_token": token, "expires_in": seconds, "refresh_expires_in": 0}

    def check(self, rules: VksRules, headers: Mapping[str, str], right: str) -> None:
        """Reject a request with an invalid token, or from a client without the permission."""
        self._expire(rules)
        kind, dummy, token = headers.get("Authorization", "").partition(" ")
        login = self._tokens.get(token) if kind.lower() == "bearer" else None
        if login is None or time.monotonic() > login.ends:
            raise RequestRefused(401, "Unauthorized")
        fault = rules.fault("forbidden")
        taken = ({fault.value} if fault.value else {"kubeconfig", "metadata"}) if fault else set()
        if right not in CLIENTS[login.client] - taken:
            raise RequestRefused(403, "Access denied")

    def _expire(self, rules: VksRules) -> None:
        """Apply the fault token-expired, which takes effect after some more requests."""
        fault = rules.fault("token-expired")
        if fault is None:
            return
        if int(fault.value or 0) <= 0:
            self._tokens.clear()
            rules.live.clear(f"{CLOUD}.token-expired")
        else:
            rules.live.consume(f"{CLOUD}.token-expired")
            if int(fault.value or 0) == 1:
                rules.live.inject(type(fault)(fault.name, None, "0"))


def _credentials(header: str) -> tuple[str, str]:
    kind, dummy, value = header.partition(" ")
    if kind.lower() != "basic":
        return "", ""
    try:
        client, dummy, secret = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return client, secret


def _fields(kind: str, body: bytes) -> dict[str, str]:
    """Return the fields of a form or a JSON object: the vendor's clients use both."""
    if "json" in kind:
        try:
            loaded = json.loads(body)
        except ValueError:
            return {}
        return {key: str(value) for key, value in loaded.items()} if isinstance(loaded, dict) else {}
    return {key: values[0] for key, values in parse_qs(body.decode(errors="replace")).items()}
