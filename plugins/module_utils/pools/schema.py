# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small language for documents: a field says its type, rules and default, and finds every mistake in a value.

Ansible's argument specs stop at the first mistake of a nested list and do not say in which element it is.
Nothing (null) counts as left out everywhere.
"""

from __future__ import annotations

import copy
import dataclasses
import re
import typing as t

from .words import is_whole, kind, listed, nearest, place, said

# What is wrong with a value and what to do, as the end of the sentence "<path>: <value> ..."; None when all is well.
Rule = t.Callable[[t.Any], "str | None"]
Problems = t.Iterator[str]

_TEMPLATE = re.compile(r"\{\{|\{%|__omit_place_holder__")


class Unsound:
    """Stands where a wrong value was, so that later checks neither trip over it nor take it for left out."""


UNSOUND: t.Final = Unsound()


@dataclasses.dataclass(frozen=True)
class Field:
    """What one place of a document may hold."""

    rules: tuple[Rule, ...] = ()
    required: bool = False
    missing: str = ""
    default: t.Any = None

    def problems(self, value: t.Any, path: str) -> Problems:
        """Every mistake in `value`, one line each, beginning with its path."""
        reason = next((reason for check in (self.mistyped, *self.rules) if (reason := check(value))), None)
        if reason is None:
            yield from self.inner(value, path)
        else:
            shown = isinstance(value, (str, int, float))
            yield f"{path}: {said(value)} {reason}" if shown else f"{path}: {reason}"

    def mistyped(self, value: t.Any) -> str | None:
        """The rule that the value's type breaks."""
        raise NotImplementedError

    def inner(self, value: t.Any, path: str) -> Problems:
        """The mistakes further down."""
        yield from ()

    def complete(self, value: t.Any) -> t.Any:
        """A sound value with the defaults filled in."""
        return copy.deepcopy(self.default) if value is None else value

    def sound(self, value: t.Any) -> t.Any:
        """The value with UNSOUND in place of each part that has a mistake."""
        return UNSOUND if value is not None and any(self.problems(value, "")) else value


def leftover(value: t.Any) -> str | None:
    """Refuse a template that nobody rendered."""
    if isinstance(value, str) and _TEMPLATE.search(value):
        return "still holds a template; say the value itself, or a variable that is known where this is read"
    return None


def _not(value: t.Any, expected: str, remedy: str) -> str:
    return f"is {kind(value)}, not {expected}; {remedy}"


@dataclasses.dataclass(frozen=True)
class Text(Field):
    """A string that is not empty unless the field allows it."""

    empty: bool = False

    def mistyped(self, value: t.Any) -> str | None:
        if isinstance(value, str):
            allowed = value.strip() or self.empty
            return leftover(value) or (None if allowed else "is empty; say something or leave it out")
        if value is None:
            return 'has no value; write "" for an empty one'
        if isinstance(value, bool):
            return _not(value, "text", "put it in quotes (YAML reads yes, no, on and off as booleans)")
        return _not(value, "text", "put it in quotes" if isinstance(value, (int, float)) else "give one value")


@dataclasses.dataclass(frozen=True)
class Choice(Text):
    """One of a few known words."""

    known: tuple[str, ...] = ()

    def mistyped(self, value: t.Any) -> str | None:
        reason = super().mistyped(value)
        if reason or value in self.known:
            return reason
        meant = nearest(value, self.known)
        question = f"did you mean {meant}? " if meant else ""
        return f"is not known here; {question}known: {', '.join(self.known)}"


@dataclasses.dataclass(frozen=True)
class Integer(Field):
    """A whole number."""

    def mistyped(self, value: t.Any) -> str | None:
        if is_whole(value):
            return None
        if isinstance(value, str):
            remedy = (
                "write it without quotes (a template gives a number from ansible-core 2.19 on, or with jinja2_native)"
            )
            return leftover(value) or _not(value, "a number", remedy)
        return _not(value, "a whole number", "give a whole number")


@dataclasses.dataclass(frozen=True)
class Boolean(Field):
    """true or false."""

    def mistyped(self, value: t.Any) -> str | None:
        if isinstance(value, bool):
            return None
        return leftover(value) or _not(value, "a boolean", "write true or false, without quotes")


@dataclasses.dataclass(frozen=True)
class Anything(Field):
    """A map whose content is somebody else's affair."""

    def mistyped(self, value: t.Any) -> str | None:
        if isinstance(value, dict):
            return None
        return leftover(value) or _not(value, "a map", "write it as `key: value` lines")


@dataclasses.dataclass(frozen=True)
class MapOf(Anything):
    """A map with keys of the user's choice, and values of one kind."""

    keys: tuple[Rule, ...] = ()
    item: Field = dataclasses.field(default_factory=Text)

    def inner(self, value: t.Any, path: str) -> Problems:
        for key, item in value.items():
            reason = next((reason for check in (Text().mistyped, *self.keys) if (reason := check(key))), None)
            if reason:
                yield f"{place(path, key)}: the key {said(key)} {reason}"
            yield from self.item.problems(item, place(path, key))


@dataclasses.dataclass(frozen=True)
class ListOf(Field):
    """A list of elements of one kind."""

    item: Field = dataclasses.field(default_factory=Text)

    def mistyped(self, value: t.Any) -> str | None:
        if isinstance(value, list):
            return None
        return leftover(value) or _not(value, "a list", "begin each entry with a dash")

    def inner(self, value: t.Any, path: str) -> Problems:
        for index, item in enumerate(value):
            yield from self.item.problems(item, place(path, index))

    def complete(self, value: t.Any) -> t.Any:
        return [self.item.complete(item) for item in value or ()]

    def sound(self, value: t.Any) -> t.Any:
        if not isinstance(value, list):
            return super().sound(value)
        return [self.item.sound(item) for item in value]


@dataclasses.dataclass(frozen=True)
class Section(Anything):
    """A map with known keys; `hints` say of other keys what to write in their place."""

    fields: t.Mapping[str, Field] = dataclasses.field(default_factory=dict)
    hints: t.Mapping[str, str] = dataclasses.field(default_factory=dict)

    def inner(self, value: t.Any, path: str) -> Problems:
        for key, item in value.items():
            field = self.fields.get(key) if isinstance(key, str) else None
            if field is None:
                yield f"{place(path, key)}: is not known here; {self._meant(key)}"
            elif item is not None:
                yield from field.problems(item, place(path, key))
        for key, field in self.fields.items():
            if field.required and value.get(key) is None:
                yield f"{place(path, key)}: is missing; {field.missing}"

    def complete(self, value: t.Any) -> t.Any:
        filled = {key: field.complete((value or {}).get(key)) for key, field in self.fields.items()}
        return {key: item for key, item in filled.items() if item is not None}

    def sound(self, value: t.Any) -> t.Any:
        if not isinstance(value, dict) or self.mistyped(value):
            return super().sound(value)
        return {key: field.sound(value[key]) for key, field in self.fields.items() if key in value}

    def _meant(self, key: t.Any) -> str:
        if not isinstance(key, str):
            return f"keys are text, and {said(key)} is {kind(key)}"
        if key in self.hints:
            return self.hints[key]
        holders = [name for name, field in self.fields.items() if isinstance(field, Section) and key in field.fields]
        if holders:
            return f"it belongs under {listed(holders, 'or')}"
        meant = nearest(key, self.fields)
        return f"did you mean {meant}?" if meant else f"known: {', '.join(self.fields)}"
