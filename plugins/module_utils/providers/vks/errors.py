# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The exception for errors from VKS, vServer and IAM, and the parser for their various error bodies (pure)."""

from __future__ import annotations

import json
import re
import typing as t

from ...common.errors import ServiceError
from ...common.http import HttpResponse

# The methods of requests that may be repeated, because a request that writes a map or a set replaces it as a whole.
REPEATABLE = frozenset({"GET", "PUT", "PATCH", "DELETE"})
# "Resource is being processed": vngcloud/greennode-mcp, nodegroup_handler.py.
_BUSY = re.compile(r"being (processed|updated|upgraded)|in progress", re.IGNORECASE)
_MAX_LENGTH = 300
_MAX_DEPTH = 6
_TEXTS = ("message", "errorMsg", "detail", "error_description", "errorMessage", "title")
_CODES = ("code", "errorCode")


class VksError(ServiceError):
    """A response with a status outside 200-299, or a missing one (status is None); `message` is for users, `detail` is the service's own text."""

    timeout_setting = "request_timeout"

    def __init__(self, detail: str, *, service: str = "VKS", **fields: t.Any) -> None:
        """`service` is VKS, vServer or IAM, `path` is the whole URL, and `reason` is the service's own code."""
        super().__init__("", service=service, **fields)
        self.detail = detail
        self.message = explain(self)

    def __str__(self) -> str:
        """The message."""
        return self.message

    @property
    def busy(self) -> bool:
        """Whether the service is processing the object and rejects other changes until it is done (409, or 400 or 423 with a text that says so)."""
        return self.status == 409 or (self.status in (400, 423) and bool(_BUSY.search(self.detail)))

    @property
    def transient(self) -> bool:
        """Whether the request may succeed later, because the service is unavailable, overloaded, or processing this object.

        A request that failed because the service is processing the object is not sent again immediately (common/http.py): the processing takes
        minutes, so the caller waits for the object first.
        """
        return self.busy or super().transient


def explain(error: VksError) -> str:
    """One message with the request, the response and the remedy."""
    request = f"({error.operation}): {error.detail}"
    if error.unreachable:
        return f"No response from {error.service} {request}. {error.remedy}"
    if error.status == 401:
        return f"{error.service} does not accept the token {request}. Check that the region is the account's."
    if error.status == 403:
        return (
            f"{error.service} denies the request {request}. The service account requires the permission in IAM; policy VKSFullAccess contains "
            "the permissions for VKS."
        )
    if error.status == 429:
        return f"{error.service} rejects further requests for now {request}. Run again later."
    if error.busy:
        return f"{error.service} is still processing the object {request}. Run again when that is done."
    return f"{error.service} rejected {error.operation} with {error.status}: {error.detail}"


def error_text(data: bytes) -> tuple[str, str]:
    """The code and the text of an error body; both may be empty.

    Known bodies are {"error": {"message"}}, {"message"}, {"errors": [{"code", "message"}]}, {"detail"}, vServer's {"errorCode",
    "errorMsg", "success"}, OAuth's {"error", "error_description"}, and any of these as text nested in another.
    """
    text = data.decode(errors="replace").strip()
    code, message = _code_and_text(_parsed(text), _MAX_DEPTH)
    if not message and not text.startswith(("{", "[", "<")):
        message = text
    return code, " ".join(message.split())[:_MAX_LENGTH]


def is_rejected(answer: HttpResponse) -> bool:
    """Whether the body of a 200 response reports that nothing was done, as vServer's gateway may do."""
    body = _parsed(answer.text)
    return isinstance(body, dict) and body.get("success") is False


def _parsed(text: str) -> t.Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _code_and_text(body: t.Any, depth: int) -> tuple[str, str]:
    if depth == 0 or body is None:
        return "", ""
    if isinstance(body, str):
        inner = _parsed(body) if body.lstrip().startswith(("{", "[")) else None
        return _code_and_text(inner, depth - 1) if inner is not None else ("", body)
    if isinstance(body, list):
        each = [_code_and_text(entry, depth - 1) for entry in body]
        return next((code for code, dummy in each if code), ""), "; ".join(text for dummy, text in each if text)
    if not isinstance(body, dict):
        return "", str(body)
    code = next((str(body[key]) for key in _CODES if body.get(key)), "")
    for key in (*_TEXTS, "error", "errors"):
        inner_code, text = _code_and_text(body.get(key), depth - 1)
        if text:
            return code or inner_code, text
    return code, code
