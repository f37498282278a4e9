# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validates values against the contract's schemas (pure functions)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
}


@dataclass(frozen=True)
class SchemaField:
    """One field of a schema: its type, its limits, and its sources."""

    kind: str
    sources: tuple[str, ...]
    text: str = ""
    required: bool = False
    nullable: bool = False
    pattern: str | None = None
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> SchemaField:
        """Return a field from an entry of the contract's files; raise TypeError for unknown keys."""
        renamed = {"is": "kind", "from": "sources", "enum": "choices", "min": "low", "max": "high"}
        values: dict[str, Any] = {
            renamed.get(key, key): tuple(value) if isinstance(value, list) else value for key, value in entry.items()
        }
        return cls(**values)


@dataclass(frozen=True)
class Schemas:
    """All schemas by name, each with its fields by name."""

    named: Mapping[str, Mapping[str, SchemaField]] = field(default_factory=dict)

    def problems(self, kind: str, value: Any, *, closed: bool = True, at: str = "") -> list[str]:
        """Return the errors in a value of this type, each with its position; with `closed`, unknown fields are errors."""
        return list(self._problems(kind, value, closed, at))

    def _problems(self, kind: str, value: Any, closed: bool, at: str) -> Iterator[str]:
        if kind == "any":
            return
        if kind[0] == "[":
            yield from self._list(kind[1:-1], value, closed, at)
        elif kind[0] == "{":
            yield from self._map(kind[1:-1], value, closed, at)
        elif kind in _KINDS:
            if not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind != "boolean"):
                yield f"{at or 'body'}: {value!r} is not {'an' if kind[0] in 'aeio' else 'a'} {kind}"
        elif not isinstance(value, dict):
            yield f"{at or 'body'}: {value!r} is not an object"
        else:
            yield from self._object(kind, value, closed, at)

    def _object(self, kind: str, value: dict[str, Any], closed: bool, at: str) -> Iterator[str]:
        fields = self.named[kind]
        for name in value if closed else ():
            if name not in fields:
                yield f"{_join(at, name)}: unknown field; known: {', '.join(fields)}"
        for name, one in fields.items():
            place = _join(at, name)
            if name not in value:
                if one.required:
                    yield f"{place}: is required"
            elif value[name] is None:
                if not one.nullable:
                    yield f"{place}: must not be null"
            else:
                problems = list(self._problems(one.kind, value[name], closed, place))
                yield from problems or _limits(one, value[name], place)

    def _list(self, kind: str, value: Any, closed: bool, at: str) -> Iterator[str]:
        if not isinstance(value, list):
            yield f"{at or 'body'}: {value!r} is not a list"
            return
        for index, one in enumerate(value):
            yield from self._problems(kind, one, closed, f"{at}[{index}]")

    def _map(self, kind: str, value: Any, closed: bool, at: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{at or 'body'}: {value!r} is not a map"
            return
        for key, one in value.items():
            yield from self._problems(kind, one, closed, f"{at}.{key}")


def _limits(one: SchemaField, value: Any, at: str) -> Iterator[str]:
    size = value if isinstance(value, (int, float)) else len(value)
    what = "" if isinstance(value, (int, float)) else " characters" if isinstance(value, str) else " entries"
    if one.choices and value not in one.choices:
        yield f"{at}: {value!r} is not one of {', '.join(one.choices)}"
    if one.pattern is not None and not re.fullmatch(one.pattern, value):
        yield f"{at}: {value!r} does not match {one.pattern}"
    if isinstance(value, bool):
        return
    if one.low is not None and size < one.low:
        yield f"{at}: {size}{what} is less than {one.low}"
    if one.high is not None and size > one.high:
        yield f"{at}: {size}{what} is more than {one.high}"


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name
