# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes a request: routing, permissions, faults, validation of request and response by the contract, handler."""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from . import contract, handlers, lookups
from .contract import Operation
from .iam import Iam, LoginRefused
from .rules import VksRules
from .state import AccountState, RequestRefused, Row

# The path prefix of each service, longest first. The real services have separate hosts.
PREFIXES = {"vserver": "/vserver/vserver-gateway", "vks": "/vks", "iam": ""}
_JSON = "application/json"


@dataclass(frozen=True)
class HttpRequest:
    """An HTTP request."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def service(self) -> str:
        """The name of the service."""
        path = urlsplit(self.target).path
        return next(name for name, prefix in PREFIXES.items() if not prefix or path.startswith(f"{prefix}/"))

    @property
    def path(self) -> str:
        """The path within the service, with the query."""
        return self.target.removeprefix(PREFIXES[self.service])


@dataclass(frozen=True)
class HttpResponse:
    """An HTTP response; None is an empty body, status 0 closes the connection without a response."""

    status: int
    body: Any = None
    kind: str = _JSON
    headers: tuple[tuple[str, str], ...] = ()
    cut: bool = False

    def content(self) -> bytes:
        """Return the body as bytes."""
        if self.body is None:
            return b""
        content = self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()
        return content[: len(content) // 2] if self.cut else content


class Dispatcher:
    """All three services of one account; `real` is the name of the cluster whose nodes are nodes of the lab's cluster."""

    def __init__(self, state: AccountState, iam: Iam, real: str | None) -> None:
        self._contract = contract.load()
        self._state, self._iam, self._real = state, iam, real
        self._violations: list[str] = []
        self._lock = threading.Lock()

    @property
    def violations(self) -> list[str]:
        """The errors of the fake itself, such as responses that violate the contract."""
        return list(self._violations)

    def record_violation(self, what: str) -> None:
        """Record an error of the fake itself."""
        print(what, file=sys.stderr, flush=True)
        with self._lock:
            self._violations.append(what)

    def answer(self, request: HttpRequest, rules: VksRules) -> HttpResponse:
        """Execute a request and return the response."""
        route = self._contract.route(request.service, request.method, urlsplit(request.path).path)
        try:
            if route is None:
                raise RequestRefused(404, f"no such operation: {request.method} {urlsplit(request.path).path}")
            operation, path = route
            self._apply_transport_faults(operation, rules)
            if operation.service == "iam":
                body = self._login(operation, request, rules)
                return self._validated(operation, HttpResponse(operation.status, body))
            right = operation.right or ("write" if operation.writing else "read")
            with self._state.lock:
                self._iam.check(rules, request.headers, right)
                answer = self._execute(operation, path, request, rules)
                if operation.writing:
                    self._state.save()
        except RequestRefused as problem:
            return _refusal(request.service, rules, problem)
        except Exception:
            self.record_violation(traceback.format_exc())
            return _refusal(request.service, rules, RequestRefused(500, "internal error of the fake: see its log"))
        if operation.writing and rules.consume("lost-reply"):
            return HttpResponse(0)
        if answer.body is not None and rules.consume("broken-json"):
            return HttpResponse(answer.status, answer.body, answer.kind, cut=True)
        return answer

    def _apply_transport_faults(self, operation: Operation, rules: VksRules) -> None:
        """Apply the faults that do not depend on the operation."""
        for name, status, text in (
            ("unavailable", 503, "Dispatcher Unavailable"),
            ("server-error", 500, "Internal server error"),
            ("throttled", 429, "Too many requests"),
        ):
            if operation.service != "iam" and rules.consume(name):
                raise RequestRefused(status, text)

    def _login(self, operation: Operation, request: HttpRequest, rules: VksRules) -> Row:
        with self._state.lock:
            version = operation.name.removeprefix("token-")
            return self._iam.login(self._state, rules, version, request.headers, request.body)

    def _execute(
        self, operation: Operation, path: dict[str, str], request: HttpRequest, rules: VksRules
    ) -> HttpResponse:
        query = self._query(operation, request)
        body = self._body(operation, request, rules)
        if operation.service == "vserver":
            rows, result = lookups.answer(self._state, rules, operation.name, path, query, body)
            self._check(operation, f"[{operation.rows}]", rows)
            return HttpResponse(operation.status, result)
        result = handlers.answer(self._state, rules, operation.name, path, query, body or {}, real=self._real)
        if isinstance(result, str):
            return HttpResponse(operation.status, result, "text/plain")
        guessed = rules.guess("write-status" if operation.writing else "read-status")
        status = int(guessed) if operation.status == 202 else operation.status
        return self._validated(operation, HttpResponse(status, result))

    def _query(self, operation: Operation, request: HttpRequest) -> Row:
        query = {key: values[-1] for key, values in parse_qs(urlsplit(request.path).query).items()}
        for key, value in query.items():
            kind = operation.query.get(key)
            good = {"integer": value.isdecimal(), "boolean": value in ("true", "false"), None: False}.get(kind, True)
            if not good:
                raise RequestRefused(400, f"query parameter {key}: unknown, or {value!r} is not of type {kind}")
        return query

    def _body(self, operation: Operation, request: HttpRequest, rules: VksRules) -> Row | None:
        if operation.body is None:
            return None
        try:
            body = json.loads(request.body or b"null")
        except ValueError as error:
            raise RequestRefused(400, f"the body is not JSON: {error}") from error
        closed = rules.guess("unknown-fields") == "refused"
        if problems := self._contract.schemas.problems(operation.body, body, closed=closed):
            raise RequestRefused(400, "; ".join(problems))
        known = self._contract.schemas.named[operation.body]
        return {key: value for key, value in body.items() if key in known}

    def _validated(self, operation: Operation, answer: HttpResponse) -> HttpResponse:
        """Validate and return the response; `uid` alone is an alternative of the guess create-response."""
        alternative = isinstance(answer.body, dict) and answer.body.keys() == {"uid"}
        if answer.body is not None and operation.answer and not alternative:
            self._check(operation, operation.answer, answer.body)
        return answer

    def _check(self, operation: Operation, kind: str, body: Any) -> None:
        if problems := self._contract.schemas.problems(kind, body):
            self.record_violation(f"{operation.name}: {'; '.join(problems)}")
            raise RequestRefused(500, f"the fake violated its contract: {'; '.join(problems)}")


def _refusal(service: str, rules: VksRules, problem: RequestRefused) -> HttpResponse:
    text = str(problem)
    headers = (("Retry-After", "1"),) if problem.status == 429 else ()
    if service == "iam":
        code = problem.code if isinstance(problem, LoginRefused) else "NOT_FOUND"
        return HttpResponse(problem.status, {"errors": [{"code": code, "message": text}]})
    if service == "vserver":
        return HttpResponse(
            problem.status, {"errorCode": problem.status, "errorMsg": text, "success": False}, headers=headers
        )
    shapes: dict[str, Row] = {
        "nested": {"error": {"message": text}},
        "message": {"message": text},
        "errors": {"errors": [{"code": str(problem.status), "message": text}]},
        "detail": {"detail": text},
        "text": {"error": text},
    }
    return HttpResponse(problem.status, shapes[rules.guess("error-envelope")], headers=headers)
