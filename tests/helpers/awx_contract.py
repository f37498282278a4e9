# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Holds requests and answers against the contract of AWX's API (awx_contract.json, which awx_openapi.py writes)."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from lab.awx.server import Awx
from lab.awx.store import KINDS
from tests.helpers.awx_openapi import PATH

_PAGE = {"count", "next", "previous", "results"}
# What Django REST framework answers to every request: the statuses, and whether the only key of the body is `detail`.
_REFUSALS = {400: False, 401: True, 403: True, 404: True, 405: True}
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "id": (int, str),
    "json": (dict, list, str),
    "choice": (str, int),
}
_QUERY = {"page", "page_size", "order_by", "search"}
# awx/main/managers and ansible_base.rest_filters: the comparisons that awx.awx and the role use.
_COMPARISONS = {"in", "contains", "icontains", "exact", "iexact", "gt", "gte", "lt", "lte", "isnull"}
_LINK: dict[str, Any] = {"id": {"type": "integer", "required": True}, "disassociate": {"type": "boolean"}}


@dataclass(frozen=True)
class Exchange:
    """A request to AWX, and the answer."""

    method: str
    target: str
    body: Any
    status: int
    answer: Any


@functools.cache
def contract() -> dict[str, Any]:
    """The contract."""
    loaded: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    requests = loaded["requests"]
    statuses = {name: {int(code): keys for code, keys in answers.items()} for name, answers in requests.items()}
    return {**loaded, "requests": statuses}


def fields(kind: str) -> set[str]:
    """The keys of an object of this kind."""
    known = contract()["kinds"].get(kind, {"writable": {}, "read_only": []})
    return {*known["writable"], *known["read_only"]}


def record(awx: Awx) -> list[Exchange]:
    """Return a list to which the stand-in adds every exchange."""
    exchanges: list[Exchange] = []
    answer = awx.answer

    def answer_and_record(method: str, target: str, headers: Any, content: bytes) -> tuple[int, Any]:
        status, body = answer(method, target, headers, content)
        exchanges.append(Exchange(method, target, json.loads(content) if content else None, status, body))
        return status, body

    awx.answer = answer_and_record  # type: ignore[method-assign]
    return exchanges


def problems(exchange: Exchange) -> list[str]:
    """Return where a request or its answer is outside the contract."""
    parts = urlsplit(exchange.target)
    short = re.sub(r"/\d+/", "/{id}/", parts.path).removeprefix("/api/v2/").rstrip("/")
    request, kind = f"{exchange.method} {short}", short.partition("/")[0]
    statuses = contract()["requests"].get(request)
    if statuses is None:
        # AWX answers 404 to an address that it does not have.
        return [] if exchange.status in (404, 405) else [f"{request}: AWX has no such request"]
    lines: list[str] = []
    if exchange.status < 300:
        lines += _query_problems(kind, short, dict(parse_qsl(parts.query, keep_blank_values=True)))
        lines += _body_problems(request, kind, short, exchange.body)
    lines += _answer_problems(kind, statuses, exchange)
    return [f"{request}: {line}" for line in lines]


def _query_problems(kind: str, short: str, query: dict[str, str]) -> Iterator[str]:
    for key in query.keys() - _QUERY:
        name, *rest = re.sub("^(or|not|chain)__", "", key).split("__")
        # A filter may follow a relation, such as job__name; the description does not say which ones.
        related = name in fields(kind) or (
            name.removesuffix("s") in fields("workflow_job_nodes") and short.endswith("workflow_nodes")
        )
        if (not related and name not in fields("job_templates") & fields("projects")) or [
            each for each in rest[1:] if each not in _COMPARISONS
        ]:
            yield f"the filter {key} names no field"


def _body_problems(request: str, kind: str, short: str, body: Any) -> Iterator[str]:
    part = short.replace("{id}/", "").partition("/")[2]
    links = KINDS[kind].links if kind in KINDS else {}
    allowed: dict[str, Any] | None
    if part in links or (kind == "roles" and part):
        allowed = _LINK
    elif part in ("", "{id}") and kind in KINDS:
        allowed = contract()["kinds"][kind]["writable"]
    else:
        allowed = contract()["bodies"].get(request)
        if allowed is None:
            return
    body = body or {}
    for name, value in body.items():
        ignored = kind in KINDS and name in KINDS[kind].ignored
        if name not in allowed and not ignored:
            yield f"the field {name} does not exist, or can only be read"
        elif name in allowed and (reason := field_problem(allowed[name], value)):
            yield f"the field {name}: {reason}"
    if request.startswith("POST"):
        yield from (
            f"the field {name} is required"
            for name, field in allowed.items()
            if field.get("required") and name not in body
        )


def field_problem(field: dict[str, Any], value: Any) -> str:
    """Return what is wrong with the value of a field; an empty text if nothing is."""
    if value is None:
        return "is null, but required" if field.get("required") else ""
    kind = _TYPES[field["type"]]
    if not isinstance(value, kind) or (isinstance(value, bool) and field["type"] not in ("boolean", "json")):
        return f"{value!r} is not of the type {field['type']}"
    if field.get("choices") and value not in (*field["choices"], ""):
        return f"{value!r} is not one of {field['choices']}"
    if isinstance(value, str) and len(value) > field.get("longest", len(value)):
        return f"has {len(value)} characters, more than {field['longest']}"
    if isinstance(value, int) and value < field.get("lowest", value):
        return f"{value} is lower than {field['lowest']}"
    return ""


def _answer_problems(kind: str, statuses: dict[int, list[str]], exchange: Exchange) -> Iterator[str]:
    status, answer = exchange.status, exchange.answer
    if status >= 300:
        if status not in _REFUSALS and status not in statuses:
            yield f"AWX does not answer with the status {status}"
        elif not isinstance(answer, dict) or (_REFUSALS.get(status) and answer.keys() != {"detail"}):
            yield f"the refusal {answer} does not have the form of AWX"
        return
    if status not in statuses:
        yield f"the status is {status} instead of {sorted(code for code in statuses if code < 300)}"
    if status == 204 and answer is not None:
        yield "an answer without content has content"
    if not isinstance(answer, dict) or status >= 300:
        return
    if "results" in answer:
        yield from (f"the page has the key {name}" for name in answer.keys() ^ _PAGE)
        for row in answer["results"]:
            yield from _object_problems(kind, row)
    elif "survey_spec" not in exchange.target and exchange.method != "DELETE":
        yield from _object_problems(kind, answer, statuses.get(status, []))


def _object_problems(kind: str, row: dict[str, Any], keys: list[str] | None = None) -> Iterator[str]:
    """An object may be of another kind than the address: a list of links, and the job of a template. Its address in `url` names its kind."""
    address = re.fullmatch(r"/api/v2/(\w+)/\d+/", str(row.get("url", "")))
    actual = address[1] if address else kind
    for name in row.keys() - {*fields(actual), *(keys or [])}:
        yield f"{actual} have no field {name}"
