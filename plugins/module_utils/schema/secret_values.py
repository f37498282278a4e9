# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where values of a document hold a secret in clear: every path with what is there, and the values themselves for masking (pure)."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ..catalog import secrets

# One line of a configuration file, an environment file or an argument: `name: value`, `name=value`, `--name=value`.
_SETTING = re.compile(
    r"^\s*(?:-\s+|--?|export\s+)?[\"']?(?P<name>[A-Za-z_][\w.-]*)[\"']?\s*[:=]\s*[\"']?(?P<value>[^\s\"'#]+)"
)
_SIMPLE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What charts put under `secret`, `existingSecret` or `pullSecret` is the name of a Secret.
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
# What charts put under `passwordSecretKey` is the key of an entry of a Secret: `password`, `tls.key`.
_ENTRY_NAME = re.compile(r"[a-z][a-z._-]{0,30}")


@dataclass(frozen=True)
class SecretValue:
    """One secret: its path, what it is in words, and the value, which is never to be shown."""

    path: str
    what: str
    value: str = field(repr=False)


def find_secrets(document: t.Any, path: str = "") -> t.Iterator[SecretValue]:
    """Every secret in a document; `path` is the document's own, with which each finding's path begins."""
    yield from _look(document, path, "")


def secret_texts(document: t.Any) -> set[str]:
    """The secrets themselves, to be masked wherever a program would print them."""
    return {found.value for found in find_secrets(document)}


def without_secrets(document: t.Any) -> tuple[t.Any, list[str]]:
    """A copy of a document from which every field that holds a secret is left out, and the paths of these fields."""
    paths = [found.path for found in find_secrets(document)]
    return _without(document, "", frozenset(paths)), paths


def _look(value: t.Any, path: str, name: str) -> t.Iterator[SecretValue]:
    """`name` is the field that decides what a text is: the key, that of the list around it, or the `name` of a variable."""
    if isinstance(value, dict):
        yield from _in_map(value, path, name)
    elif isinstance(value, (list, tuple)):
        yield from _in_list(value, path, name)
    elif isinstance(value, str):
        what = _text(value, name)
        if what:
            yield SecretValue(path, what, value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and secrets.names_a_password(name):
        yield SecretValue(path, "a password", str(value))


def _in_map(value: t.Mapping[t.Any, t.Any], path: str, name: str) -> t.Iterator[SecretValue]:
    variable = value.get("name")
    for key, item in value.items():
        place, named = _place(path, key), str(key)
        if named == "auth" and isinstance(item, str) and secrets.is_docker_auth(item):
            yield SecretValue(place, "the credentials of a registry", item)
            continue
        if named == "value" and isinstance(variable, str):
            # An environment variable, or a parameter, which is called by its neighbour.
            named = variable
        elif _is_plural(name) and isinstance(item, str):
            # Of `passwords: {alice: ...}` and `stringData: {...}` every entry is one.
            named = name
        yield from _look(item, place, named)


def _in_list(value: t.Sequence[t.Any], path: str, name: str) -> t.Iterator[SecretValue]:
    option = ""
    for index, item in enumerate(value):
        yield from _look(item, f"{path}[{index}]", option or name)
        # `["--token", "..."]`: the next argument is the option's.
        is_option = isinstance(item, str) and re.fullmatch(r"--?[A-Za-z][\w-]*", item)
        option = str(item) if is_option and secrets.names_a_secret(str(item)) else ""


def _text(text: str, name: str) -> str | None:
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
    if secrets.is_telling(name) and secrets.looks_random(text):
        return "a long random value"
    return _setting(text)


def _setting(text: str) -> str | None:
    """A secret on a line of a file, or in an argument, that this text holds."""
    lines = text.splitlines()
    if len(lines) == 1 and not re.match(r"--?\w|[A-Z_]+=", text):
        return None
    for line in lines:
        found = _SETTING.match(line)
        if found and secrets.names_a_secret(found["name"]) and not secrets.is_reference(found["value"]):
            return f"a value for {secrets.words_of(found['name'])[-1]}"
    return None


def _is_plural(name: str) -> bool:
    """Whether every text in a map of this name is a secret."""
    words = secrets.words_of(name)
    return words[-2:] == ("string", "data") or bool({"passwords", "tokens"} & set(words[-1:]))


def _place(path: str, key: t.Any) -> str:
    if isinstance(key, str) and _SIMPLE_KEY.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}['{str(key)[:60]}']"


def _without(value: t.Any, path: str, left_out: frozenset[str]) -> t.Any:
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if _place(path, key) not in left_out}
        return {key: _without(item, _place(path, key), left_out) for key, item in kept.items()}
    if isinstance(value, (list, tuple)):
        places = [f"{path}[{index}]" for index in range(len(value))]
        return [
            _without(item, place, left_out)
            for item, place in zip(value, places, strict=True)
            # Of a variable without its value nothing is left to say.
            if place not in left_out
            and not (isinstance(item, dict) and "name" in item and f"{place}.value" in left_out)
        ]
    return value
