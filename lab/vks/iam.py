# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""IAM: tokens for service accounts, in both of its generations, and what it refuses.

Tokens live in memory alone: after a restart they are worth nothing, as if they had expired.
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

from .rules import CLOUD, Rules
from .world import Problem, Row, World

_SECONDS = 1800
_ALL = frozenset({"read", "write", "kubeconfig", "metadata"})
# By client id what each may do; their secrets are the part's, or the command line's.
CLIENTS = {"lab": _ALL, "lab-reader": frozenset({"read"}), "lab-unprivileged": frozenset({"read", "write"})}


class Refused(Problem):
    """A login that is refused, by one of IAM's codes (SDK, sdk_error/errors.go)."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(status, text)
        self.code = code


@dataclass(frozen=True)
class _Token:
    client: str
    ends: float


class Iam:
    """The service accounts of one account, by id with their secrets."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = known
        self._tokens: dict[str, _Token] = {}

    def login(self, world: World, rules: Rules, version: str, headers: Mapping[str, str], body: bytes) -> Row:
        """Give a token, or raise Refused."""
        status = int(rules.guess("iam-error-status"))
        client, secret = _credentials(headers.get("Authorization", ""))
        failed = world.data["failed_logins"]
        limit = rules.number("lock-out-after")
        if rules.fault("locked-out") or 0 < limit <= failed.get(client, 0):
            raise Refused(status, "TOO_MANY_FAILED_LOGINS", "Too many failed logins, the account is locked")
        wanted = "grant_type" if version == "v2" else "grantType"
        if _fields(headers.get("Content-Type", ""), body).get(wanted) != "client_credentials":
            raise Refused(400, "INVALID_REQUEST", f"{wanted} must be client_credentials")
        right = secrets.compare_digest(self._known.get(client, "").encode(), secret.encode()) and secret
        if not right or rules.strikes("refused-login"):
            failed[client] = failed.get(client, 0) + 1
            raise Refused(status, "AUTHENTICATION_FAILED", "Client id or client secret is wrong")
        failed.pop(client, None)
        seconds = int(rules.value("token-seconds", _SECONDS) or _SECONDS)
        token = secrets.token_urlsafe(32)
        self._tokens[token] = _Token(client, time.monotonic() + seconds)
        if version == "v1":
            return {"accessToken": token, "expiresIn": seconds}
        return {"token_type": "Bearer", "access_token": token, "expires_in": seconds, "refresh_expires_in": 0}

    def check(self, rules: Rules, headers: Mapping[str, str], right: str) -> None:
        """Refuse a request whose token is none, or whose client lacks the right."""
        self._expire(rules)
        kind, dummy, token = headers.get("Authorization", "").partition(" ")
        found = self._tokens.get(token) if kind.lower() == "bearer" else None
        if found is None or time.monotonic() > found.ends:
            raise Problem(401, "Unauthorized")
        fault = rules.fault("forbidden")
        taken = ({fault.value} if fault.value else {"kubeconfig", "metadata"}) if fault else set()
        if right not in CLIENTS[found.client] - taken:
            raise Problem(403, "Access denied")

    def _expire(self, rules: Rules) -> None:
        """The fault token-expired, which waits for some more requests."""
        fault = rules.fault("token-expired")
        if fault is None:
            return
        if int(fault.value or 0) <= 0:
            self._tokens.clear()
            rules.live.clear(f"{CLOUD}.token-expired")
        else:
            rules.live.spend(f"{CLOUD}.token-expired")
            if int(fault.value or 0) == 1:
                rules.live.put(type(fault)(fault.name, None, "0"))


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
    """The fields of a form, or of a JSON object: both are seen in the vendor's clients."""
    if "json" in kind:
        try:
            loaded = json.loads(body)
        except ValueError:
            return {}
        return {key: str(value) for key, value in loaded.items()} if isinstance(loaded, dict) else {}
    return {key: values[0] for key, values in parse_qs(body.decode(errors="replace")).items()}
