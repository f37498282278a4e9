# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The types of declared values: conversion, problems, documentation, and which values are secrets."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
import typing as t
import unicodedata
from dataclasses import dataclass, field

from ..catalog import secrets
from .errors import InvalidOptions
from .messages import SIMPLE_KEY, field_path, is_whole, join_words, nearest, quote, type_name
from .values import Object, get_nested

# Converts unambiguous text to values of other types, because surveys and extra variables provide only text (pure).
#
# integer(), boolean() and from_json() return None for text that does not clearly represent a value of their type.

# At most 18 digits, which is enough for every setting and fast to convert. A leading zero could mean an octal number.
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})", re.ASCII)
# The words that Ansible accepts for a boolean (ansible.module_utils.parsing.convert_bool).
_TRUE = frozenset({"y", "yes", "on", "1", "true", "t"})
_FALSE = frozenset({"n", "no", "off", "0", "false", "f"})
_BRACKETS = {"(": ")", "[": "]", "{": "}"}


def is_blank(value: t.Any) -> bool:
    """Whether a value is empty or blank text, which is how an unanswered survey question arrives."""
    return isinstance(value, str) and not value.strip()


def to_integer(text: str) -> int | None:
    """The decimal number that the text represents, with at most 18 digits."""
    stripped = text.strip()
    return int(stripped) if _INTEGER.fullmatch(stripped) else None


def to_boolean(text: str) -> bool | None:
    """The boolean that the word represents, regardless of case."""
    word = text.strip().casefold()
    return True if word in _TRUE else False if word in _FALSE else None


def to_elements(text: str) -> list[t.Any]:
    """The non-empty elements of a list that is written as text.

    The list may be in brackets as JSON or YAML, written as lines with dashes, or separated by commas or line breaks. Commas inside brackets are
    not separators, so a label selector such as `zone in (a, b)` stays one element.
    """
    stripped = text.strip()
    lines = [line.strip() for line in stripped.splitlines() if line.strip()]
    if stripped.startswith("[") and stripped.endswith("]"):
        parsed = from_json(stripped)
        return parsed if isinstance(parsed, list) else _unquoted(_split(stripped[1:-1]))
    if lines and all(line == "-" or line.startswith("- ") for line in lines):
        return _unquoted(line[1:] for line in lines)
    return _unquoted(_split(stripped))


def to_names(value: t.Any) -> list[str]:
    """The names in an option or variable, which is None, text as for elements(), or a list of strings; raises ValueError for other values.

    Ansible splits the text of a list option at every comma, even inside brackets; this function first joins the parts again.
    """
    given = value if isinstance(value, (list, tuple)) else [value]
    if any(isinstance(item, (dict, list, tuple, bool, float)) for item in given):
        raise ValueError("is not a list of names; use comma-separated names")
    texts = [str(item) for item in given if item is not None]
    if any(_is_open(text) for text in texts):
        texts = [",".join(texts)]
    parts = [item for text in texts for item in to_elements(text)]
    if any(not isinstance(item, (str, int)) or isinstance(item, bool) for item in parts):
        raise ValueError("is not a list of names; use comma-separated names")
    return list(dict.fromkeys(map(str, parts)))


def _is_open(text: str) -> bool:
    """Whether a bracket is unbalanced because the text was split inside a pair."""
    return any(text.count(opening) != text.count(closing) for opening, closing in _BRACKETS.items())


def from_json(text: str) -> t.Any:
    """The value of JSON text; None if the text is not valid JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _split(text: str) -> t.Iterator[str]:
    """The parts between commas and line breaks outside brackets."""
    part, closing = "", list[str]()
    for character in text:
        if character in _BRACKETS:
            closing.append(_BRACKETS[character])
        elif closing and character == closing[-1]:
            closing.pop()
        if character in ",\n\r" and not closing:
            yield part
            part = ""
        else:
            part += character
    yield part


def _unquoted(parts: t.Iterable[str]) -> list[str]:
    stripped = (part.strip() for part in parts)
    plain = (part[1:-1] if len(part) > 1 and part[0] == part[-1] and part[0] in "\"'" else part for part in stripped)
    return [part for part in plain if part.strip()]


# Defines the types of fields; each type has rules and a default, and finds all problems in a value.
#
# Ansible's argument specs stop at the first error in a nested list and do not report the element's index.
# null counts as omitted everywhere. coerce() first converts text that clearly represents a value of another type.

# Returns what is wrong with a value and how to correct it, as the end of the sentence "<path>: <value> ..."; None for a valid value.
Rule = t.Callable[[t.Any], "str | None"]
Problems = t.Iterator[str]

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
    `doc`: the description of the key, with Ansible's markup C(), V() and M(); `make docs` writes it to docs/variables.md and to the role pools.
    """

    rules: tuple[Rule, ...] = ()
    required: bool = False
    missing: str = ""
    default: t.Any = None
    blank_is_unset: bool = True
    quotes_text: bool = True
    doc: str = ""
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
    kind = "an empty string" if is_blank(value) else type_name(value)
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
        return _converted(value, to_integer)

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
        return _converted(value, to_boolean)

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
        if isinstance(value, str) and not unrendered_template(value) and not is_blank(value):
            bracketed = value.strip().startswith("[")
            elements = to_elements(value) if bracketed or (self.splits and isinstance(self.item, Text)) else value
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
        return None if is_blank(item) and not keeps_blank else field.coerce(item)

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
    declared: Object
    merged: Object

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


# Finds plain-text secrets in values; provides their paths for messages, the secrets for masking, and checks of variables (pure).

# One line of a configuration file, an environment file or an argument: `name: value`, `name=value`, `--name=value`.
_SETTING = re.compile(
    r"^\s*(?:-\s+|--?|export\s+)?[\"']?(?P<name>[A-Za-z_][\w.-]*)[\"']?\s*[:=]\s*[\"']?(?P<value>[^\s\"'#]+)"
)
# In charts, the value of `secret`, `existingSecret` or `pullSecret` is the name of a Secret.
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
# In charts, the value of `passwordSecretKey` is the key of an entry of a Secret, such as `password` or `tls.key`.
_ENTRY_NAME = re.compile(r"[a-z][a-z._-]{0,30}")


@dataclass(frozen=True)
class SecretValue:
    """One secret: its path, its description, and the value, which must never be shown."""

    path: str
    description: str
    value: str = field(repr=False)


def find_secrets(value: t.Any, path: str = "", name: str = "") -> t.Iterator[SecretValue]:
    """Every secret in a value; `path` is the path of the value, and the beginning of each secret's path.

    `name` is the name that describes a string: its key, the key of the list around it, or the `name` of a variable.
    """
    if isinstance(value, dict):
        yield from _in_map(value, path, name)
    elif isinstance(value, (list, tuple)):
        yield from _in_list(value, path, name)
    elif isinstance(value, str):
        description = _describe(value, name)
        if description:
            yield SecretValue(path, description, value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and secrets.names_a_password(name):
        yield SecretValue(path, "a password", str(value))


def secret_texts(document: t.Any) -> set[str]:
    """The secrets themselves, for masking."""
    return {secret.value for secret in find_secrets(document)}


def without_secrets(document: t.Any) -> tuple[t.Any, list[str]]:
    """A copy of a document without the fields that hold a secret, and the paths of these fields."""
    paths = [secret.path for secret in find_secrets(document)]
    return _without(document, "", frozenset(paths)), paths


def _in_map(value: t.Mapping[t.Any, t.Any], path: str, name: str) -> t.Iterator[SecretValue]:
    # Entries of Google Cloud's metadata have `key` and `value`.
    variable = value.get("name") or value.get("key")
    for key, item in value.items():
        item_path, item_name = _item_path(path, key), str(key)
        if item_name == "auth" and isinstance(item, str) and secrets.is_docker_auth(item):
            yield SecretValue(item_path, "the credentials of a registry", item)
            continue
        if item_name == "value" and isinstance(variable, str):
            # An environment variable, or a parameter, whose name is in the field next to it.
            item_name = variable
        elif _is_plural(name) and isinstance(item, str):
            # Every entry of `passwords: {alice: ...}` and `stringData: {...}` is a secret.
            item_name = name
        yield from find_secrets(item, item_path, item_name)


def _in_list(value: t.Sequence[t.Any], path: str, name: str) -> t.Iterator[SecretValue]:
    option = ""
    for index, item in enumerate(value):
        yield from find_secrets(item, f"{path}[{index}]", option or name)
        # In `["--token", "..."]`, the next argument is the value of the option.
        is_option = isinstance(item, str) and re.fullmatch(r"--?[A-Za-z][\w-]*", item)
        option = str(item) if is_option and secrets.names_a_secret(str(item)) else ""


def _describe(text: str, name: str) -> str | None:
    if secrets.is_reference(text):
        return None
    shape = secrets.shape_of(text)
    if shape:
        return shape
    words = secrets.words_of(name)
    if secrets.names_a_secret(name) and not (words[-2:] == ("secret", "key") and _ENTRY_NAME.fullmatch(text)):
        return f"a value for {words[-1]}"
    if words[-1:] == ("secret",) and not _OBJECT_NAME.fullmatch(text):
        return "a value that cannot be the name of a Secret"
    if secrets.suggests_a_secret(name) and secrets.looks_random(text):
        return "a long random value"
    return _setting(text)


def _setting(text: str) -> str | None:
    """Describe the first secret in this text, which is one argument or the lines of a file; None if there is none."""
    lines = text.splitlines()
    if len(lines) == 1 and not re.match(r"--?\w|[A-Z_]+=", text):
        return None
    for line in lines:
        match = _SETTING.match(line)
        if match and secrets.names_a_secret(match["name"]) and not secrets.is_reference(match["value"]):
            return f"a value for {secrets.words_of(match['name'])[-1]}"
    return None


def _is_plural(name: str) -> bool:
    """Whether every string in a map with this name is a secret."""
    words = secrets.words_of(name)
    return words[-2:] == ("string", "data") or bool({"passwords", "tokens"} & set(words[-1:]))


def _item_path(path: str, key: t.Any) -> str:
    if isinstance(key, str) and SIMPLE_KEY.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}['{str(key)[:60]}']"


def _without(value: t.Any, path: str, left_out: frozenset[str]) -> t.Any:
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if _item_path(path, key) not in left_out}
        return {key: _without(item, _item_path(path, key), left_out) for key, item in kept.items()}
    if isinstance(value, (list, tuple)):
        paths = [f"{path}[{index}]" for index in range(len(value))]
        return [
            _without(item, item_path, left_out)
            for item, item_path in zip(value, paths, strict=True)
            # A variable whose value is removed is removed as a whole.
            if item_path not in left_out
            and not (isinstance(item, dict) and "name" in item and f"{item_path}.value" in left_out)
        ]
    return value


_OPERATOR = "gpu_cluster.operator.values"
_READABLE = "which other users could read"
# Helm stores values in records, charts copy them to objects that many users can read, and programs print them.
_IN_HELM = "which must not be in Helm values"


def secret_problems(value: t.Any, path: str, reason: str, remedy: str | t.Callable[[SecretValue], str]) -> Problems:
    """The message for each secret in a value; `reason` is a relative clause, and `remedy` says what to do."""
    for secret in find_secrets(value, path):
        text = remedy if isinstance(remedy, str) else remedy(secret)
        yield f"{secret.path}: contains a secret ({secret.description}; not shown), {reason}; {text}"


def cluster_secret_problems(cluster: Object) -> Problems:
    """Free-form values in gpu_cluster must not contain secrets."""
    for keys, reason, remedy in _CLUSTER_VALUES:
        yield from secret_problems(get_nested(cluster, *keys), ".".join(("gpu_cluster", *keys)), reason, remedy)


def pool_secret_problems(pool: PoolVariables) -> Problems:
    """Free-form values in a pool must not contain secrets."""
    for keys, reason, remedy in _POOL_VALUES:
        yield from secret_problems(get_nested(pool.merged, *keys), ".".join((pool.path, *keys)), reason, remedy)


def _helm_remedy(secret: SecretValue) -> str:
    if "registry" in secret.description or "docker" in secret.path.lower():
        return "create a Secret of type kubernetes.io/dockerconfigjson in the release's namespace and name it in gpu_cluster.operator.image_pull_secrets"
    if "licens" in secret.path.lower():
        return "store it in a Secret in the operator's namespace, and set driver.licensingConfig.secretName"
    if secret.path.startswith(f"{_OPERATOR}.driver."):
        return "store the variable in a Secret in the operator's namespace, and name the Secret in gpu_cluster.operator.driver.secret_env"
    return "store it in a Secret and reference the Secret (secretName, secretKeyRef, imagePullSecrets, or as the chart defines it)"


_IN_SUBSCRIPTION = "store it in a Secret in the operator's namespace, and reference the Secret in envFrom"

_Checked = tuple[tuple[str, ...], str, "str | t.Callable[[SecretValue], str]"]
# The keys whose values are checked, why they must not contain a secret, and what to do instead.
_CLUSTER_VALUES: tuple[_Checked, ...] = (
    (("operator", "values"), _IN_HELM, _helm_remedy),
    (("nfd", "values"), _IN_HELM, _helm_remedy),
    (("operator", "olm", "subscription_config"), _READABLE, _IN_SUBSCRIPTION),
    (("nfd", "olm", "subscription_config"), _READABLE, _IN_SUBSCRIPTION),
    (("autoscaler", "values"), _READABLE, "remove it"),
)
_POOL_VALUES: tuple[_Checked, ...] = (
    # Every user of the machine can read a command line, and the role new_nodes stores the command in a ConfigMap.
    (("rollout", "reboot", "command"), _READABLE, "have the application read it from a file"),
)


# The previous name of a cluster is an option of the run that renames the cluster. As a key of gpu_cluster, it would stay there, and rename other clusters.
RENAMED_FROM = "renamed_from"
RENAMED_FROM_HINT = "remove it, and add -e gpu_renamed_from=NAME to the run that renames the cluster"


def renaming_problems(cluster: Object, renamed_from: str) -> Problems:
    """The problems in the option renamed_from of a module, and in gpu_cluster, which not every module checks."""
    name = cluster.get("name")
    if cluster.get(RENAMED_FROM) is not None:
        yield f"gpu_cluster.{RENAMED_FROM}: is not a known key; {RENAMED_FROM_HINT}"
    if renamed_from and not name:
        yield f"{RENAMED_FROM}: has no effect without gpu_cluster.name; set the new name there"
    elif renamed_from and renamed_from == name:
        yield (
            f"{RENAMED_FROM}: {quote(name)} is already the name of this cluster (gpu_cluster.name); set its previous name, or limit the run to the cluster "
            "that is renamed (--limit)"
        )


# The keys of gpu_cluster.lease: fields of Lease (kube/lease.py) with the same names.

LEASE = Section(
    doc="The Lease C(kube-system/accel-gpu), which a run holds while it changes the cluster.",
    fields={
        "wait_timeout": seconds(
            doc="Seconds to wait for another run that is changing the cluster. With V(0), the run fails immediately.",
            default=300,
        )
    },
)


def lease_settings(cluster: Object, wait_timeout: int | None) -> Object:
    """All keys of gpu_cluster.lease, with their defaults; a module's option `wait_timeout` takes precedence.

    Raises InvalidOptions for invalid settings, because not every module checks gpu_cluster.
    """
    declared = LEASE.coerce(cluster.get("lease"))
    problems = [] if declared is None else list(LEASE.problems(declared, "gpu_cluster.lease"))
    if problems:
        raise InvalidOptions(problems)
    settings: Object = LEASE.complete(declared)
    return settings if wait_timeout is None else {**settings, "wait_timeout": wait_timeout}
