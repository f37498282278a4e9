# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small language for documents: a field says its type, rules and default, and finds every mistake in a value.

Ansible's argument specs stop at the first mistake of a nested list and do not say in which element it is.
Nothing (null) counts as left out everywhere. Text that clearly means a value of another type is converted by coerce() first.
"""

from __future__ import annotations

import copy
import dataclasses
import re
import typing as t
import unicodedata

from . import coercion
from .messages import field_path, is_whole, join_words, nearest, quote, type_name

# What is wrong with a value and what to do, as the end of the sentence "<path>: <value> ..."; None when all is well.
Rule = t.Callable[[t.Any], "str | None"]
Problems = t.Iterator[str]

# Control characters, invisible format characters (which can also turn the direction of text), surrogates, line and paragraph separators.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_LONGEST_TEXT = 1024
_TEMPLATE = re.compile(r"\{\{|\{%|__omit_place_holder__")


class Invalid:
    """Stands where a wrong value was, so that later checks neither trip over it nor take it for left out."""


INVALID: t.Final = Invalid()


@dataclasses.dataclass(frozen=True)
class Field:
    """What one place of a document may hold.

    `blank_is_unset`: empty text counts as left out. Fields that decide which nodes a pool has, or what happens to their pods, do not
    allow that, since an unanswered question would change them. `quotes_text`: whether messages may show a text that stands there.
    """

    rules: tuple[Rule, ...] = ()
    required: bool = False
    missing: str = ""
    default: t.Any = None
    blank_is_unset: bool = True
    quotes_text: bool = True

    def coerce(self, value: t.Any) -> t.Any:
        """The value in the field's type where it is text that clearly means such a one; else the value itself."""
        return value

    def problems(self, value: t.Any, path: str) -> Problems:
        """Every mistake in `value`, one line each, beginning with its path."""
        reason = next((reason for check in (self.mistyped, *self.rules) if (reason := check(value))), None)
        if reason is None:
            yield from self.inner(value, path)
        else:
            shown = isinstance(value, (str, int, float) if self.quotes_text else (int, float))
            yield f"{path}: {quote(value)} {reason}" if shown else f"{path}: {reason}"

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
        return INVALID if value is not None and any(self.problems(value, "")) else value


def leftover(value: t.Any) -> str | None:
    """Refuse a template that nobody rendered."""
    if isinstance(value, str) and _TEMPLATE.search(value):
        return "still holds a template; say the value itself, or a variable that is known where this is read"
    return None


def _converted(value: t.Any, convert: t.Callable[[str], t.Any]) -> t.Any:
    """What the text means; the value itself where it is no text, or none that means such a value."""
    found = convert(value) if isinstance(value, str) else None
    return value if found is None else found


def _not(value: t.Any, expected: str, remedy: str) -> str:
    return f"is {type_name(value)}, not {expected}; {remedy}"


def unprintable(value: str) -> str | None:
    """Refuse what no name and no setting contains: control characters, invisible marks, lone surrogates, and pages of text."""
    if len(value) > _LONGEST_TEXT:
        return f"has {len(value)} characters; no setting has more than {_LONGEST_TEXT}"
    strange = next((character for character in value if unicodedata.category(character) in _UNPRINTABLE), None)
    if strange is None:
        return None
    return f"contains the character U+{ord(strange):04X}, which cannot be seen; remove it (a line break is one, too)"


@dataclasses.dataclass(frozen=True)
class Text(Field):
    """A string that is not empty unless the field allows it; always one line of characters that can be seen."""

    empty: bool = False

    def problems(self, value: t.Any, path: str) -> Problems:
        """As for any field; invisible characters come last, since a rule may know better what such a text is."""
        found = False
        for problem in super().problems(value, path):
            found = True
            yield problem
        reason = None if found else unprintable(value)
        if reason:
            yield f"{path}: {quote(value)} {reason}"

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

    def coerce(self, value: t.Any) -> t.Any:
        """A number that is written as text."""
        return _converted(value, coercion.integer)

    def mistyped(self, value: t.Any) -> str | None:
        if is_whole(value):
            return None
        if isinstance(value, str):
            return leftover(value) or _not(value, "a whole number", "give decimal digits alone, such as 4")
        return _not(value, "a whole number", "give a whole number")


@dataclasses.dataclass(frozen=True)
class Boolean(Field):
    """true or false."""

    def coerce(self, value: t.Any) -> t.Any:
        """A boolean that is written as text, by the words that Ansible accepts."""
        return _converted(value, coercion.boolean)

    def mistyped(self, value: t.Any) -> str | None:
        if isinstance(value, bool):
            return None
        return leftover(value) or _not(value, "a boolean", "write true or false")


@dataclasses.dataclass(frozen=True)
class Anything(Field):
    """A map whose content is somebody else's affair."""

    blank_is_unset: bool = False

    def mistyped(self, value: t.Any) -> str | None:
        if isinstance(value, dict):
            return None
        return leftover(value) or _not(value, "a map", "write it as `key: value` lines")


@dataclasses.dataclass(frozen=True)
class MapOf(Anything):
    """A map with keys of the user's choice, and values of one kind."""

    keys: tuple[Rule, ...] = ()
    item: Field = dataclasses.field(default_factory=Text)

    def coerce(self, value: t.Any) -> t.Any:
        """Each value; keys are always text."""
        return {key: self.item.coerce(item) for key, item in value.items()} if isinstance(value, dict) else value

    def inner(self, value: t.Any, path: str) -> Problems:
        for key, item in value.items():
            checks = (Text().mistyped, *self.keys, unprintable)
            reason = next((reason for check in checks if (reason := check(key))), None)
            if reason:
                yield f"{field_path(path, key)}: the key {quote(key)} {reason}"
            yield from self.item.problems(item, field_path(path, key))


@dataclasses.dataclass(frozen=True)
class ListOf(Field):
    """A list of elements of one kind; `splits`: text is split at its commas and line breaks, where the elements are text."""

    item: Field = dataclasses.field(default_factory=Text)
    splits: bool = True

    def coerce(self, value: t.Any) -> t.Any:
        """A list that is written as text, and each element of it."""
        if isinstance(value, str) and not leftover(value) and not coercion.is_blank(value):
            bracketed = value.strip().startswith("[")
            found = coercion.elements(value) if bracketed or (self.splits and isinstance(self.item, Text)) else value
            value = found if found or value.strip() == "[]" else value
        return [self.item.coerce(item) for item in value] if isinstance(value, list) else value

    def mistyped(self, value: t.Any) -> str | None:
        if isinstance(value, list):
            return None
        return leftover(value) or _not(value, "a list", "begin each entry with a dash")

    def inner(self, value: t.Any, path: str) -> Problems:
        for index, item in enumerate(value):
            yield from self.item.problems(item, field_path(path, index))

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

    def coerce(self, value: t.Any) -> t.Any:
        """Each value by its field; None in place of empty text that counts as left out."""
        return {key: self._coerced(key, item) for key, item in value.items()} if isinstance(value, dict) else value

    def inner(self, value: t.Any, path: str) -> Problems:
        for key, item in value.items():
            field = self.fields.get(key) if isinstance(key, str) else None
            if field is None:
                yield f"{field_path(path, key)}: is not known here; {self._meant(key)}"
            elif item is not None:
                yield from field.problems(item, field_path(path, key))
        for key, field in self.fields.items():
            if field.required and value.get(key) is None:
                yield f"{field_path(path, key)}: is missing; {field.missing}"

    def complete(self, value: t.Any) -> t.Any:
        filled = {key: field.complete((value or {}).get(key)) for key, field in self.fields.items()}
        return {key: item for key, item in filled.items() if item is not None}

    def sound(self, value: t.Any) -> t.Any:
        if not isinstance(value, dict) or self.mistyped(value):
            return super().sound(value)
        return {key: field.sound(value[key]) for key, field in self.fields.items() if key in value}

    def _coerced(self, key: t.Any, item: t.Any) -> t.Any:
        field = self.fields.get(key) if isinstance(key, str) else None
        if field is None:
            return item
        keeps = field.required or not field.blank_is_unset or (isinstance(field, Text) and field.empty)
        return None if coercion.is_blank(item) and not keeps else field.coerce(item)

    def _meant(self, key: t.Any) -> str:
        if not isinstance(key, str):
            return f"keys are text, and {quote(key)} is {type_name(key)}"
        if key in self.hints:
            return self.hints[key]
        holders = [name for name, field in self.fields.items() if isinstance(field, Section) and key in field.fields]
        if holders:
            return f"it belongs under {join_words(holders, 'or')}"
        meant = nearest(key, self.fields)
        return f"did you mean {meant}?" if meant else f"known: {', '.join(self.fields)}"
