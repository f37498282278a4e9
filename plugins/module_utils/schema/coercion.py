# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts unambiguous text to values of other types, because surveys and extra variables provide only text (pure).

integer(), boolean() and from_json() return None for text that does not clearly represent a value of their type.
"""

from __future__ import annotations

import json
import re
import typing as t

# At most 18 digits, which is enough for every setting and fast to convert. A leading zero could mean an octal number.
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})", re.ASCII)
# The words that Ansible accepts for a boolean (ansible.module_utils.parsing.convert_bool).
_TRUE = frozenset({"y", "yes", "on", "1", "true", "t"})
_FALSE = frozenset({"n", "no", "off", "0", "false", "f"})
_BRACKETS = {"(": ")", "[": "]", "{": "}"}


def is_blank(value: t.Any) -> bool:
    """Whether a value is empty or blank text, which is how an unanswered survey question arrives."""
    return isinstance(value, str) and not value.strip()


def integer(text: str) -> int | None:
    """The decimal number that the text represents, with at most 18 digits."""
    stripped = text.strip()
    return int(stripped) if _INTEGER.fullmatch(stripped) else None


def boolean(text: str) -> bool | None:
    """The boolean that the word represents, regardless of case."""
    word = text.strip().casefold()
    return True if word in _TRUE else False if word in _FALSE else None


def elements(text: str) -> list[t.Any]:
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


def names(value: t.Any) -> list[str]:
    """The names in an option or variable, which is None, text as for elements(), or a list of strings; raises ValueError for other values.

    Ansible splits the text of a list option at every comma, even inside brackets; this function first joins the parts again.
    """
    given = value if isinstance(value, (list, tuple)) else [value]
    if any(isinstance(item, (dict, list, tuple, bool, float)) for item in given):
        raise ValueError("is not a list of names; use comma-separated names")
    texts = [str(item) for item in given if item is not None]
    if any(_is_open(text) for text in texts):
        texts = [",".join(texts)]
    parts = [item for text in texts for item in elements(text)]
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
