# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One request, from its path to its answer: route, rights, faults, the contract before and after, the handler between."""

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
from .iam import Iam, Refused
from .rules import Rules
from .world import Problem, Row, World

# What a path begins with, by service; the longest first. In life these are hosts.
PREFIXES = {"vserver": "/vserver/vserver-gateway", "vks": "/vks", "iam": ""}
_JSON = "application/json"


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def service(self) -> str:
        """Which service it is for."""
        path = urlsplit(self.target).path
        return next(name for name, prefix in PREFIXES.items() if not prefix or path.startswith(f"{prefix}/"))

    @property
    def path(self) -> str:
        """The path as that service sees it, with the query."""
        return self.target.removeprefix(PREFIXES[self.service])


@dataclass(frozen=True)
class Answer:
    """What is sent back; a body of None is an empty one, status 0 means that nothing is sent at all."""

    status: int
    body: Any = None
    kind: str = _JSON
    headers: tuple[tuple[str, str], ...] = ()
    cut: bool = False

    def content(self) -> bytes:
        """The bytes of the body."""
        if self.body is None:
            return b""
        content = self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()
        return content[: len(content) // 2] if self.cut else content


class Service:
    """All three services of one account; `real` is the name of the cluster whose nodes are machines of the lab's Kubernetes."""

    def __init__(self, world: World, iam: Iam, real: str | None) -> None:
        self._contract = contract.load()
        self._world, self._iam, self._real = world, iam, real
        self._broken: list[str] = []
        self._noting = threading.Lock()

    @property
    def violations(self) -> list[str]:
        """What was wrong with the double itself, such as answers of its own that broke the contract."""
        return list(self._broken)

    def broken(self, what: str) -> None:
        """Note that the double itself was wrong."""
        print(what, file=sys.stderr, flush=True)
        with self._noting:
            self._broken.append(what)

    def answer(self, asked: Asked, rules: Rules) -> Answer:
        """Carry a request out, and say what is to be sent."""
        found = self._contract.route(asked.service, asked.method, urlsplit(asked.path).path)
        try:
            if found is None:
                raise Problem(404, f"no such operation: {asked.method} {urlsplit(asked.path).path}")
            operation, path = found
            self._weather(operation, rules)
            if operation.service == "iam":
                body = self._login(operation, asked, rules)
                return self._kept(operation, Answer(operation.status, body))
            right = operation.right or ("write" if operation.writing else "read")
            with self._world.lock:
                self._iam.check(rules, asked.headers, right)
                answer = self._carried_out(operation, path, asked, rules)
                if operation.writing:
                    self._world.save()
        except Problem as problem:
            return _refusal(asked.service, rules, problem)
        except Exception:
            self.broken(traceback.format_exc())
            return _refusal(asked.service, rules, Problem(500, "the double has a mistake: see its log"))
        if operation.writing and rules.strikes("lost-reply"):
            return Answer(0)
        if answer.body is not None and rules.strikes("broken-json"):
            return Answer(answer.status, answer.body, answer.kind, cut=True)
        return answer

    def _weather(self, operation: Operation, rules: Rules) -> None:
        """Faults that have nothing to do with what is asked."""
        for name, status, text in (
            ("unavailable", 503, "Service Unavailable"),
            ("server-error", 500, "Internal server error"),
            ("throttled", 429, "Too many requests"),
        ):
            if operation.service != "iam" and rules.strikes(name):
                raise Problem(status, text)

    def _login(self, operation: Operation, asked: Asked, rules: Rules) -> Row:
        with self._world.lock:
            version = operation.name.removeprefix("token-")
            return self._iam.login(self._world, rules, version, asked.headers, asked.body)

    def _carried_out(self, operation: Operation, path: dict[str, str], asked: Asked, rules: Rules) -> Answer:
        query = self._query(operation, asked)
        body = self._body(operation, asked, rules)
        if operation.service == "vserver":
            rows, found = lookups.answer(self._world, rules, operation.name, path, query, body)
            self._check(operation, f"[{operation.rows}]", rows)
            return Answer(operation.status, found)
        found = handlers.answer(self._world, rules, operation.name, path, query, body or {}, real=self._real)
        if isinstance(found, str):
            return Answer(operation.status, found, "text/plain")
        guessed = rules.guess("write-status" if operation.writing else "read-status")
        status = int(guessed) if operation.status == 202 else operation.status
        return self._kept(operation, Answer(status, found))

    def _query(self, operation: Operation, asked: Asked) -> Row:
        query = {key: values[-1] for key, values in parse_qs(urlsplit(asked.path).query).items()}
        for key, value in query.items():
            kind = operation.query.get(key)
            good = {"integer": value.isdecimal(), "boolean": value in ("true", "false"), None: False}.get(kind, True)
            if not good:
                raise Problem(400, f"query parameter {key}: {value!r} is not known or is no {kind}")
        return query

    def _body(self, operation: Operation, asked: Asked, rules: Rules) -> Row | None:
        if operation.body is None:
            return None
        try:
            body = json.loads(asked.body or b"null")
        except ValueError as error:
            raise Problem(400, f"the body is no JSON: {error}") from error
        closed = rules.guess("unknown-fields") == "refused"
        if problems := self._contract.schemas.problems(operation.body, body, closed=closed):
            raise Problem(400, "; ".join(problems))
        known = self._contract.schemas.named[operation.body]
        return {key: value for key, value in body.items() if key in known}

    def _kept(self, operation: Operation, answer: Answer) -> Answer:
        """The answer, if the contract allows it; `uid` alone is an alternative of the guess create-answer."""
        alternative = isinstance(answer.body, dict) and answer.body.keys() == {"uid"}
        if answer.body is not None and operation.answer and not alternative:
            self._check(operation, operation.answer, answer.body)
        return answer

    def _check(self, operation: Operation, kind: str, body: Any) -> None:
        if problems := self._contract.schemas.problems(kind, body):
            self.broken(f"{operation.name}: {'; '.join(problems)}")
            raise Problem(500, f"the double broke its contract: {'; '.join(problems)}")


def _refusal(service: str, rules: Rules, problem: Problem) -> Answer:
    text = str(problem)
    headers = (("Retry-After", "1"),) if problem.status == 429 else ()
    if service == "iam":
        code = problem.code if isinstance(problem, Refused) else "NOT_FOUND"
        return Answer(problem.status, {"errors": [{"code": code, "message": text}]})
    if service == "vserver":
        return Answer(
            problem.status, {"errorCode": problem.status, "errorMsg": text, "success": False}, headers=headers
        )
    shapes: dict[str, Row] = {
        "nested": {"error": {"message": text}},
        "message": {"message": text},
        "errors": {"errors": [{"code": str(problem.status), "message": text}]},
        "detail": {"detail": text},
        "text": {"error": text},
    }
    return Answer(problem.status, shapes[rules.guess("error-envelope")], headers=headers)
