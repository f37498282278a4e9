# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts unambiguous text to the type that is meant: surveys, extra variables and old templates give text only (pure).

A function returns None for text that does not clearly mean a value of its type.
"""

from __future__ import annotations

import json
import re
import typing as t

# Eighteen digits: every real setting, and nothing that is slow to convert. A leading zero could mean an octal number.
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})", re.ASCII)
# The words that Ansible accepts for a boolean (ansible.module_utils.parsing.convert_bool).
_TRUE = frozenset({"y", "yes", "on", "1", "true", "t"})
_FALSE = frozenset({"n", "no", "off", "0", "false", "f"})
_BRACKETS = {"(": ")", "[": "]", "{": "}"}


def is_blank(value: t.Any) -> bool:
    """Whether it is text without any content, as an unanswered question of a survey gives it."""
    return isinstance(value, str) and not value.strip()


def integer(text: str) -> int | None:
    """A decimal number of at most 18 digits."""
    stripped = text.strip()
    return int(stripped) if _INTEGER.fullmatch(stripped) else None


def boolean(text: str) -> bool | None:
    """A word for a boolean, in any case."""
    word = text.strip().casefold()
    return True if word in _TRUE else False if word in _FALSE else None


def elements(text: str) -> list[t.Any]:
    """The elements of a list that is written as text, without empty ones.

    Written in brackets as JSON or YAML, as lines with dashes, or with commas or line breaks between the elements. A comma inside
    brackets separates nothing, so that a label selector such as `zone in (a, b)` stays whole.
    """
    stripped = text.strip()
    lines = [line.strip() for line in stripped.splitlines() if line.strip()]
    if stripped.startswith("[") and stripped.endswith("]"):
        found = _from_json(stripped)
        return found if found is not None else _unquoted(_split(stripped[1:-1]))
    if lines and all(line == "-" or line.startswith("- ") for line in lines):
        return _unquoted(line[1:] for line in lines)
    return _unquoted(_split(stripped))


def names(value: t.Any) -> list[str]:
    """The names that an option or a variable holds: None, text as for elements(), or a list of texts; raises ValueError for others.

    Ansible splits the text of a list option at every comma, also inside brackets: this is undone first.
    """
    if value is None:
        return []
    if isinstance(value, (list, tuple)):
        if any(isinstance(item, (dict, list, tuple, bool)) for item in value):
            raise ValueError("is not a list of names; give names, with commas between them")
        value = [str(item) for item in value if item is not None]
        if any(_is_open(item) for item in value):
            value = [",".join(value)]
        return [name for item in value for name in names(item)]
    if isinstance(value, (bool, float)) or not isinstance(value, (str, int)):
        raise ValueError("is not a list of names; give names, with commas between them")
    return list(dict.fromkeys(str(item) for item in elements(str(value))))


def _is_open(text: str) -> bool:
    """Whether some bracket has no partner: the text was split inside a pair."""
    return any(text.count(opening) != text.count(closing) for opening, closing in _BRACKETS.items())


def _from_json(text: str) -> list[t.Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None


def _split(text: str) -> t.Iterator[str]:
    """The parts between commas and line breaks that are in no brackets."""
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
