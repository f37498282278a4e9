# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How messages speak of values, types and places in a document."""

from __future__ import annotations

import difflib
import json
import re
import typing as t

from ..catalog import secrets

_SIMPLE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST = 60
# Python refuses to write out integers of thousands of digits.
_HUGE = 10**_LONGEST

_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "a boolean"),
    (int, "a number"),
    (float, "a number with a fraction"),
    (str, "text"),
    (dict, "a map"),
    (list, "a list"),
    (type(None), "nothing"),
)


def type_name(value: t.Any) -> str:
    """The type of a value in the words of somebody who writes YAML."""
    return next((words for known, words in _KINDS if isinstance(value, known)), f"of type {type(value).__name__}")


def is_whole(value: t.Any) -> bool:
    """Whether it is a whole number to somebody who writes YAML; to Python true and false are numbers, too."""
    return isinstance(value, int) and not isinstance(value, bool)


def quote(value: t.Any) -> str:
    """A value as its author wrote it, cut short; maps and lists by their type only. A text that may hold a secret is described."""
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
        return _short(_visible(json.dumps(value[: 2 * _LONGEST], ensure_ascii=False)))
    return type_name(value)


def field_path(path: str, key: t.Any) -> str:
    """The path of one entry: `a.b` for plain keys, `a['x/y']` for others, `a[2]` for elements."""
    if isinstance(key, str):
        if not secrets.is_quotable(key):
            return f"{path}[{quote(key)}]"
        inside = _short(_visible(json.dumps(key[: 2 * _LONGEST], ensure_ascii=False)[1:-1]))
        return f"{path}.{key}" if _SIMPLE_KEY.fullmatch(key) else f"{path}['{inside}']"
    return f"{path}[{quote(key)}]"


def join_words(things: t.Iterable[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    *head, tail = things
    return f"{', '.join(head)} {last} {tail}" if head else tail


def abbreviate(names: t.Sequence[str], limit: int = 5) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def abbreviate_nodes(names: t.Iterable[str]) -> str:
    """The same of nodes, in the order of their names: `node a`, `5 nodes, a, b, c and 2 more`."""
    found = sorted(names)
    word = "node" if len(found) == 1 else f"{len(found)} nodes,"
    return f"{word} {abbreviate(found, 3)}"


def nearest(word: str, known: t.Iterable[str]) -> str | None:
    """The known word that is most likely meant, whatever case and separators were used."""
    candidates = list(known)
    alike = {re.sub(r"[-_\s]", "", name).casefold(): name for name in candidates}
    folded = re.sub(r"[-_\s]", "", word).casefold()
    close = difflib.get_close_matches(folded, alike, n=1, cutoff=0.6)
    return alike[close[0]] if close else None


def _visible(text: str) -> str:
    """The text with an escape for each character that cannot be seen, or not be encoded."""
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in text)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
