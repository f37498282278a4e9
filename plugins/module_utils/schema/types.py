# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the types of fields; each type has rules and a default, and finds all problems in a value.

Ansible's argument specs stop at the first error in a nested list and do not report the element's index.
null counts as omitted everywhere. coerce() first converts text that clearly represents a value of another type.
"""

from __future__ import annotations

import copy
import dataclasses
import re
import typing as t
import unicodedata

from . import coercion
from .messages import field_path, is_whole, join_words, nearest, quote, type_name

# Returns what is wrong with a value and how to correct it, as the end of the sentence "<path>: <value> ..."; None for a valid value.
Rule = t.Callable[[t.Any], "str | None"]
Problems = t.Iterator[str]
Document = dict[str, t.Any]

# Control characters, invisible format characters (which can also change the direction of text), surrogates, line and paragraph separators.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_MAX_TEXT = 1024
# Kubernetes supports up to 5,000 nodes (its documentation, "Considerations for large clusters").
MAX_NODES = 5000
_MAX_SECONDS = 2**31 - 1
_TEMPLATE = re.compile(r"\{\{|\{%|__omit_place_holder__")


class Invalid:
    """Replaces an invalid value, so that later checks neither fail on it nor treat it as omitted."""


INVALID: t.Final = Invalid()


@dataclasses.dataclass(frozen=True)
class Field:
    """The values that one field of the variables can have.

    `blank_is_unset`: empty text counts as omitted. Fields that determine the nodes of a pool, or the effects on their pods, do not
    allow this, because an unanswered survey question would change their values. `quotes_text`: whether messages may show a text value.
    """

    rules: tuple[Rule, ...] = ()
    required: bool = False
    missing: str = ""
    default: t.Any = None
    blank_is_unset: bool = True
    quotes_text: bool = True
    last_rules: t.ClassVar[tuple[Rule, ...]] = ()

    def coerce(self, value: t.Any) -> t.Any:
        """Text converted to the field's type if its meaning is clear, otherwise the value itself."""
        return value

    def problems(self, value: t.Any, path: str) -> Problems:
        """All problems in `value`, one line each, beginning with the path."""
        reason = self.refusal(value)
        if reason is None:
            yield from self.inner(value, path)
        else:
            shown = isinstance(value, (str, int, float) if self.quotes_text else (int, float))
            yield f"{path}: {quote(value)} {reason}" if shown else f"{path}: {reason}"

    def refusal(self, value: t.Any) -> str | None:
        """The first reason to reject the value, apart from nested values; None if there is none."""
        checks = (self.mistyped, *self.rules, *self.last_rules)
        return next((reason for check in checks if (reason := check(value))), None)

    def mistyped(self, value: t.Any) -> str | None:
        """The message if the value has the wrong type; None if the type is correct."""
        raise NotImplementedError

    def inner(self, value: t.Any, path: str) -> Problems:
        """The problems in nested values."""
        yield from ()

    def complete(self, value: t.Any) -> t.Any:
        """A valid value with the defaults filled in."""
        return copy.deepcopy(self.default) if value is None else value

    def without_invalid(self, value: t.Any) -> t.Any:
        """The value with INVALID in place of each invalid part."""
        return INVALID if value is not None and any(self.problems(value, "")) else value


def unrendered_template(value: t.Any) -> str | None:
    """The problem if the value is a template that was not rendered, otherwise None."""
    if isinstance(value, str) and _TEMPLATE.search(value):
        return "still contains a template; set the value itself, or define the variable where the template is read"
    return None


def _converted(value: t.Any, convert: t.Callable[[str], t.Any]) -> t.Any:
    """The converted text; the value itself if it is not text or cannot be converted."""
    converted = convert(value) if isinstance(value, str) else None
    return value if converted is None else converted


def _wrong_type(value: t.Any, expected: str, remedy: str) -> str:
    kind = "an empty string" if coercion.is_blank(value) else type_name(value)
    return f"is {kind}, not {expected}; {remedy}"


def unprintable(value: str) -> str | None:
    """The problem if the text contains control characters, invisible marks or lone surrogates, or is too long; otherwise None."""
    if len(value) > _MAX_TEXT:
        return f"has {len(value)} characters; the limit is {_MAX_TEXT}"
    character = next((each for each in value if unicodedata.category(each) in _UNPRINTABLE), None)
    if character is None:
        return None
    return f"contains the character U+{ord(character):04X}, which is invisible; remove it (this includes line breaks)"


@dataclasses.dataclass(frozen=True)
class Text(Field):
    """One line of printable characters, which may only be empty if the field allows it."""

    empty: bool = False
    # Invisible characters are checked last, because another rule may provide a better reason.
    last_rules: t.ClassVar[tuple[Rule, ...]] = (unprintable,)

    def mistyped(self, value: t.Any) -> str | None:
        if isinstance(value, str):
            allowed = value.strip() or self.empty
            return unrendered_template(value) or (None if allowed else "is empty; set a value or omit it")
        if value is None:
            return 'has no value; write "" for an empty one'
        if isinstance(value, bool):
            return _wrong_type(value, "a string", "put it in quotes (YAML reads yes, no, on and off as booleans)")
        return _wrong_type(
            value, "a string", "put it in quotes" if isinstance(value, (int, float)) else "set a single value"
        )


@dataclasses.dataclass(frozen=True)
class Choice(Text):
    """One of a few known values."""

    known: tuple[str, ...] = ()

    def mistyped(self, value: t.Any) -> str | None:
        reason = super().mistyped(value)
        if reason or value in self.known:
            return reason
        similar = nearest(value, self.known)
        question = f"did you mean {similar}? " if similar else ""
        return f"is not a valid value; {question}known: {', '.join(self.known)}"


@dataclasses.dataclass(frozen=True)
class Integer(Field):
    """A whole number."""

    def coerce(self, value: t.Any) -> t.Any:
        """Convert a number that is written as text."""
        return _converted(value, coercion.integer)

    def mistyped(self, value: t.Any) -> str | None:
        if is_whole(value):
            return None
        if isinstance(value, str):
            return unrendered_template(value) or _wrong_type(
                value, "a whole number", "use only decimal digits, such as 4"
            )
        return _wrong_type(value, "a whole number", "use a whole number")


def integer_between(low: int, high: int, too_low: str, too_high: str, **more: t.Any) -> Integer:
    """A number within bounds, with a reason and a remedy for each bound; `more`: other attributes of the field."""

    def rule(value: int) -> str | None:
        if value < low:
            return f"is not allowed: {too_low}"
        return f"is not allowed: {too_high}" if value > high else None

    return Integer((rule,), **more)


def seconds(**more: t.Any) -> Integer:
    """A number of seconds within the limits of every part of a run; `more`: other attributes of the field."""
    out_of_range = f"set a number from 0 to {_MAX_SECONDS}"
    return integer_between(0, _MAX_SECONDS, out_of_range, out_of_range, **more)


@dataclasses.dataclass(frozen=True)
class Boolean(Field):
    """true or false."""

    def coerce(self, value: t.Any) -> t.Any:
        """Convert text to a boolean, with the words that Ansible accepts."""
        return _converted(value, coercion.boolean)

    def mistyped(self, value: t.Any) -> str | None:
        if isinstance(value, bool):
            return None
        return unrendered_template(value) or _wrong_type(value, "a boolean", "write true or false")


@dataclasses.dataclass(frozen=True)
class Anything(Field):
    """A map whose content is not checked."""

    blank_is_unset: bool = False

    def mistyped(self, value: t.Any) -> str | None:
        if isinstance(value, dict):
            return None
        return unrendered_template(value) or _wrong_type(value, "a map", "write it as `key: value` lines")


@dataclasses.dataclass(frozen=True)
class MapOf(Anything):
    """A map with keys of the user's choice, and values of one type."""

    keys: tuple[Rule, ...] = ()
    item: Field = dataclasses.field(default_factory=Text)

    def coerce(self, value: t.Any) -> t.Any:
        """Convert each value; keys remain text."""
        return {key: self.item.coerce(item) for key, item in value.items()} if isinstance(value, dict) else value

    def inner(self, value: t.Any, path: str) -> Problems:
        for key, item in value.items():
            if reason := Text(self.keys).refusal(key):
                yield f"{field_path(path, key)}: the key {quote(key)} {reason}"
            yield from self.item.problems(item, field_path(path, key))


@dataclasses.dataclass(frozen=True)
class ListOf(Field):
    """A list of elements of one type; `splits`: whether text is split at commas and line breaks, if the elements are text.

    An omitted list becomes an empty list; with `default=None`, it remains omitted.
    """

    default: t.Any = dataclasses.field(default_factory=list)
    item: Field = dataclasses.field(default_factory=Text)
    splits: bool = True

    def coerce(self, value: t.Any) -> t.Any:
        """Convert a list that is written as text, and each of its elements."""
        if isinstance(value, str) and not unrendered_template(value) and not coercion.is_blank(value):
            bracketed = value.strip().startswith("[")
            elements = coercion.elements(value) if bracketed or (self.splits and isinstance(self.item, Text)) else value
            value = elements if elements or value.strip() == "[]" else value
        return [self.item.coerce(item) for item in value] if isinstance(value, list) else value

    def mistyped(self, value: t.Any) -> str | None:
        if isinstance(value, list):
            return None
        return unrendered_template(value) or _wrong_type(value, "a list", "begin each entry with a dash")

    def inner(self, value: t.Any, path: str) -> Problems:
        for index, item in enumerate(value):
            yield from self.item.problems(item, field_path(path, index))

    def complete(self, value: t.Any) -> t.Any:
        value = super().complete(value)
        return None if value is None else [self.item.complete(item) for item in value]

    def without_invalid(self, value: t.Any) -> t.Any:
        if not isinstance(value, list):
            return super().without_invalid(value)
        return [self.item.without_invalid(item) for item in value]


@dataclasses.dataclass(frozen=True)
class Section(Anything):
    """A map with known keys; `hints` suggest what to write instead of other keys.

    An omitted map gets the defaults of its keys; with `default=None`, it remains omitted.

    keys_declare: whether a map counts as omitted if all of its keys are empty, which is how an unanswered survey arrives; `{}` does not count as omitted.
    """

    default: t.Any = dataclasses.field(default_factory=dict)
    keys_declare: bool = False
    fields: t.Mapping[str, Field] = dataclasses.field(default_factory=dict)
    hints: t.Mapping[str, str] = dataclasses.field(default_factory=dict)

    def coerce(self, value: t.Any) -> t.Any:
        """Convert each value with its field; empty text that counts as omitted becomes None."""
        if not isinstance(value, dict):
            return value
        coerced = {key: self._coerced(key, item) for key, item in value.items()}
        # An unknown key is still reported.
        left_out = coerced and coerced.keys() <= self.fields.keys() and is_empty(coerced)
        return None if self.keys_declare and left_out else coerced

    def inner(self, value: t.Any, path: str) -> Problems:
        for key, item in value.items():
            field = self.fields.get(key) if isinstance(key, str) else None
            if field is None:
                yield f"{field_path(path, key)}: is not a known key; {self._hint(key)}"
            elif item is not None:
                yield from field.problems(item, field_path(path, key))
        for key, field in self.fields.items():
            if field.required and value.get(key) is None:
                yield f"{field_path(path, key)}: is missing; {field.missing}"

    def complete(self, value: t.Any) -> t.Any:
        value = super().complete(value)
        if value is None:
            return None
        filled = {key: field.complete(value.get(key)) for key, field in self.fields.items()}
        return {key: item for key, item in filled.items() if item is not None}

    def without_invalid(self, value: t.Any) -> t.Any:
        if not isinstance(value, dict) or self.mistyped(value):
            return super().without_invalid(value)
        return {key: field.without_invalid(value[key]) for key, field in self.fields.items() if key in value}

    def _coerced(self, key: t.Any, item: t.Any) -> t.Any:
        field = self.fields.get(key) if isinstance(key, str) else None
        if field is None:
            return item
        keeps_blank = field.required or not field.blank_is_unset or (isinstance(field, Text) and field.empty)
        return None if coercion.is_blank(item) and not keeps_blank else field.coerce(item)

    def _hint(self, key: t.Any) -> str:
        if not isinstance(key, str):
            return f"keys must be strings, but {quote(key)} is {type_name(key)}"
        if key in self.hints:
            return self.hints[key]
        sections = [name for name, field in self.fields.items() if isinstance(field, Section) and key in field.fields]
        if sections:
            return f"it belongs under {join_words(sections, 'or')}"
        similar = nearest(key, self.fields)
        return f"did you mean {similar}?" if similar else f"known: {', '.join(self.fields)}"


def is_empty(value: t.Any) -> bool:
    """Whether a converted value declares nothing: null, empty text or list, or a map with only such values."""
    if isinstance(value, dict):
        return all(map(is_empty, value.values()))
    return value is None or value in ("", [])


@dataclasses.dataclass(frozen=True)
class PoolVariables:
    """One pool, as declared and as merged with the defaults, for checks that combine several fields. INVALID replaces invalid values."""

    path: str
    declared: Document
    merged: Document

    @property
    def labels(self) -> dict[str, str]:
        """The pool's labels for its nodes, without keys and values that are not text."""
        labels = self.merged.get("labels")
        items = labels.items() if isinstance(labels, dict) else ()
        return {key: value for key, value in items if isinstance(key, str) and isinstance(value, str)}

    @property
    def title(self) -> str:
        """The name of this pool in messages about other pools."""
        name = self.merged.get("name")
        return f"{self.path} ({name})" if isinstance(name, str) else self.path
