# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What VKS, vServer and IAM refuse or cannot be asked, as one exception, and how their many envelopes are read; pure."""

from __future__ import annotations

import json
import re
import typing as t

from ...common.errors import ServiceError

# Requests that may be sent again: a map or a set is written whole, so that twice is once.
REPEATABLE = frozenset({"GET", "PUT", "PATCH", "DELETE"})
# "Resource is being processed": vngcloud/greennode-mcp, nodegroup_handler.py.
_BUSY = re.compile(r"being (processed|updated|upgraded)|in progress", re.IGNORECASE)
_SHOWN = 300
_DEPTH = 6
_TEXTS = ("message", "errorMsg", "detail", "error_description", "errorMessage", "title")
_CODES = ("code", "errorCode")


class VksError(ServiceError):
    """An answer outside 200 to 299, or no answer at all (status is None); `message` is for a user, `words` are the service's."""

    service = "VNG Cloud"

    def __init__(
        self,
        words: str,
        *,
        part: str = "VKS",
        status: int | None = None,
        reason: str = "",
        method: str = "",
        path: str = "",
        retry_after: float | None = None,
        sent: bool = True,
    ) -> None:
        """Keep what was said by which `part` (VKS, vServer, IAM); `path` is the whole address, `reason` the service's own code."""
        super().__init__("", status=status, reason=reason, method=method, path=path, retry_after=retry_after, sent=sent)
        self.words = words
        self.part = part
        self.message = explain(self)

    def __str__(self) -> str:
        """The message."""
        return self.message

    @property
    def busy(self) -> bool:
        """The service is at work on the object, and refuses another change of it until it is done: 409, or a 400 that says so."""
        return self.status == 409 or (self.status in (400, 423) and bool(_BUSY.search(self.words)))

    @property
    def passing(self) -> bool:
        """It may end by itself: the service is away, has too much to do, or is busy with this very object."""
        return self.busy or super().passing


def explain(error: VksError) -> str:
    """One message for a user: what was asked, what came back, and what to do about it."""
    asked = f"{error.method} {error.path}".strip()
    if error.unreachable:
        return f"No answer from {error.part} ({asked}): {error.words}. {_ADVICE.get(error.reason, 'Run again.')}"
    if error.status == 401:
        return f"{error.part} does not accept the token ({asked}): {error.words}. Is it the account's region?"
    if error.status == 403:
        return (
            f"{error.part} denies this ({asked}): {error.words}. The service account needs the right in IAM; "
            "policy VKSFullAccess has those of VKS."
        )
    if error.status == 429:
        return f"{error.part} refuses more requests for now ({asked}): {error.words}. Run again later."
    if error.busy:
        return f"{error.part} is at work on it ({asked}): {error.words}. Run again when that is done."
    return f"{error.part} refused {asked} with {error.status}: {error.words}"


_ADVICE = {
    "Refused": "Nothing listens there: check the address.",
    "DNS": "The name does not resolve from this machine: check the address and the network.",
    "Timeout": "Check the network and proxies, or raise request_timeout.",
    "TLS": "Give the CA as ca_cert; validate_certs=false switches the check off.",
    "Proxy": "Check HTTPS_PROXY and NO_PROXY.",
}


def error_text(data: bytes) -> tuple[str, str]:
    """The service's code and its words, whichever envelope they come in; both may be empty.

    Known are {"error": {"message"}}, {"message"}, {"errors": [{"code", "message"}]}, {"detail"}, vServer's {"errorCode",
    "errorMsg", "success"}, OAuth's {"error", "error_description"}, and each of them as a text within another.
    """
    text = data.decode(errors="replace").strip()
    code, words = _said(_parsed(text), _DEPTH)
    if not words and not text.startswith(("{", "[", "<")):
        words = text
    return code, " ".join(words.split())[:_SHOWN]


def is_refusal(body: t.Any) -> bool:
    """True for an answer of 200 that says in its body that nothing was done, as vServer's gateway may."""
    return isinstance(body, dict) and body.get("success") is False


def _parsed(text: str) -> t.Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _said(body: t.Any, depth: int) -> tuple[str, str]:
    if depth == 0 or body is None:
        return "", ""
    if isinstance(body, str):
        inner = _parsed(body) if body.lstrip().startswith(("{", "[")) else None
        return _said(inner, depth - 1) if inner is not None else ("", body)
    if isinstance(body, list):
        each = [_said(entry, depth - 1) for entry in body]
        return next((code for code, dummy in each if code), ""), "; ".join(words for dummy, words in each if words)
    if not isinstance(body, dict):
        return "", str(body)
    code = next((str(body[key]) for key in _CODES if body.get(key)), "")
    for key in (*_TEXTS, "error", "errors"):
        inner_code, words = _said(body.get(key), depth - 1)
        if words:
            return code or inner_code, words
    return code, code
