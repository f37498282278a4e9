# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Formats values, types and paths of fields for messages."""

from __future__ import annotations

import difflib
import json
import re
import typing as t

from ..catalog import secrets
from ..common.results import visible

# The maximum number of names of nodes, pods and other objects that a message lists.
MAX_NAMED = 5

_SIMPLE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_SHOWN = 60
# Python refuses to convert integers with thousands of digits to text.
_HUGE = 10**_MAX_SHOWN

_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "a boolean"),
    (int, "a number"),
    (float, "a number with a fraction"),
    (str, "a string"),
    (dict, "a map"),
    (list, "a list"),
    (type(None), "nothing"),
)


def type_name(value: t.Any) -> str:
    """The type of a value in the terms of YAML."""
    return next((name for known, name in _TYPE_NAMES if isinstance(value, known)), f"of type {type(value).__name__}")


def is_whole(value: t.Any) -> bool:
    """Whether a value is a whole number in YAML; in Python, true and false are also integers."""
    return isinstance(value, int) and not isinstance(value, bool)


def quote(value: t.Any) -> str:
    """A shortened form of the value as the user wrote it; for a map or list, only its type. Text that may contain a secret is only described."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) >= _HUGE:
        return "a number of more than 60 digits"
    if isinstance(value, (int, float)):
        return _short(repr(value))
    if isinstance(value, str):
        shape = secrets.shape_of(value)
        if shape:
            return f"({shape}; not shown)"
        if not secrets.is_quotable(value):
            return f"(text of {len(value)} characters; not shown)"
        return _short(visible(json.dumps(value[: 2 * _MAX_SHOWN], ensure_ascii=False)))
    return type_name(value)


def field_path(path: str, key: t.Any) -> str:
    """The path of one entry: `a.b` for plain keys, `a['x/y']` for other keys, `a[2]` for elements."""
    if isinstance(key, str):
        if not secrets.is_quotable(key):
            return f"{path}[{quote(key)}]"
        inside = _short(visible(json.dumps(key[: 2 * _MAX_SHOWN], ensure_ascii=False)[1:-1]))
        return f"{path}.{key}" if _SIMPLE_KEY.fullmatch(key) else f"{path}['{inside}']"
    return f"{path}[{quote(key)}]"


def join_words(words: t.Iterable[str], last: str = "and") -> str:
    """The words as a list within a sentence: `a`, `a and b`, `a, b and c`."""
    *head, tail = words
    return f"{', '.join(head)} {last} {tail}" if head else tail


def abbreviate(names: t.Sequence[str], limit: int = MAX_NAMED, separator: str = ", ") -> str:
    """The first names and the number of remaining names: `a, b and 2 more`, or with a different separator, `a; b; and 2 more`."""
    shown = separator.join(names[:limit])
    more = f"{' ' if separator == ', ' else separator}and {len(names) - limit} more" if len(names) > limit else ""
    return shown + more


def abbreviate_nodes(names: t.Iterable[str]) -> str:
    """A sorted and shortened list of node names: `node a`, `5 nodes, a, b, c and 2 more`."""
    ordered = sorted(names)
    word = "node" if len(ordered) == 1 else f"{len(ordered)} nodes,"
    return f"{word} {abbreviate(ordered)}"


def as_sentence(text: str) -> str:
    """The text with a period at its end."""
    return text if text.endswith(".") else f"{text}."


def option_of_role(variable: str, option: str) -> str:
    """The name of an option in messages for users of the role (its variable) and of the module: `gpu_sharing_x (option x of the module)`."""
    return f"{variable} (option {option} of the module)"


def nearest(word: str, known: t.Iterable[str]) -> str | None:
    """The most similar known word, regardless of case and separators."""
    by_folded = {re.sub(r"[-_\s]", "", name).casefold(): name for name in known}
    folded = re.sub(r"[-_\s]", "", word).casefold()
    close = difflib.get_close_matches(folded, by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else None


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."
