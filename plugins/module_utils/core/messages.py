# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts for users: cleaned, shortened and joined."""

from __future__ import annotations

import difflib
import json
import re
import textwrap
import typing as t
import urllib.parse

from ..catalog import secrets

# Limits the size of results, formats diffs, and removes the effect that foreign text could have on a terminal.

# The maximum number of names of nodes or pools in a list of a result, and of nodes in a diff; a report file contains
# all names.
MAX_LISTED = 100


def diff_of(before: t.Any, after: t.Any, header: str = "", unchecked: str | None = None) -> dict[str, t.Any]:
    """A diff for Ansible; `header` names the compared objects, and `unchecked` says why a preview may be wrong."""
    header = f"{header} ({unchecked})" if unchecked else header
    return {"before": before, "after": after, "before_header": header, "after_header": header}


def visible(text: str) -> str:
    """The text with an escape for each character that is not printable or cannot be encoded."""
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in text)


def one_line(text: str) -> str:
    """Another program's text without its line breaks, so that none of its lines looks like a line of Ansible."""
    lines = text.splitlines()
    return text if len(lines) < 2 else " ".join(line.strip() for line in lines if line.strip())


def printable(value: t.Any) -> t.Any:
    """A copy of a value in which each character that a terminal could execute or hide is replaced by its escape; line feeds and tabs are kept.

    Terminals act on control characters (C0 and C1), reorder text after bidirectional ones, and do not show zero-width ones.
    """
    if isinstance(value, str):
        if value.isprintable():
            return value
        # A carriage return before a line feed ends the line in the text of Windows programs.
        lines = value.replace("\r\n", "\n").split("\n")
        return "\n".join("\t".join(map(visible, line.split("\t"))) for line in lines)
    if isinstance(value, dict):
        return {printable(key): printable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [printable(item) for item in value]
    return value


# The maximum length of a web address that messages and objects of the cluster contain.
_MAX_URL = 300
# What a URL is made of (RFC 3986), without the characters in which texts and shells enclose a URL.
_URL = re.compile(r"https?://[A-Za-z0-9._~:/?#\[\]@!$&*+,;=%-]+")


def web_url(text: str) -> str:
    """The text if it is a URL that a person can open in a browser without a risk to read it; otherwise an empty string.

    A URL with a user or a password is refused, since it may contain a secret, and since it can pretend to lead to another host.
    """
    if len(text) > _MAX_URL or not _URL.fullmatch(text):
        return ""
    try:
        parts = urllib.parse.urlsplit(text)
        named = bool(parts.hostname) and "@" not in parts.netloc and (parts.port is None or parts.port > 0)
    except ValueError:
        return ""
    return text if named else ""


# Formats values, types and paths of fields for messages.

# The maximum number of names of nodes, pods and other objects that a message lists.
MAX_NAMED = 5

SIMPLE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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
        return f"{path}.{key}" if SIMPLE_KEY.fullmatch(key) else f"{path}['{inside}']"
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


# Formats tables and paragraphs of text for a terminal (pure).

WIDTH = 100
_GAP = "  "
_CUT = ".."

# A heading and its text.
Paragraph = tuple[str, str]


class Column(t.NamedTuple):
    """A column's title, and a function that returns the value for a row. A `number` is right-aligned, and a text that `cuts` is shortened before others."""

    head: str
    value: t.Callable[[t.Any], t.Any]
    number: bool = False
    cuts: bool = False


def table(columns: t.Sequence[Column], rows: t.Iterable[t.Any], width: int = WIDTH) -> list[str]:
    """The titles, and one line for each row. No line is longer than `width`, provided that shortening columns is sufficient."""
    cells = [[str(column.value(row)) for column in columns] for row in rows]
    sizes = [max(len(column.head), *(len(row[at]) for row in cells), 0) for at, column in enumerate(columns)]
    sizes = _fitted(columns, sizes, width)
    lines = [[column.head for column in columns], *cells]
    return [
        _GAP.join(_cell(cell, size, column) for cell, size, column in zip(line, sizes, columns, strict=True)).rstrip()
        for line in lines
    ]


def wrap(paragraphs: t.Iterable[Paragraph], width: int = WIDTH) -> list[str]:
    """Each heading with its text, wrapped; continuation lines are indented by two spaces, and long names are not broken."""
    return [
        line
        for head, text in paragraphs
        for line in textwrap.wrap(
            f"{head}: {text}", width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
    ]


def _fitted(columns: t.Sequence[Column], sizes: list[int], width: int) -> list[int]:
    """Shorten the widest of the columns that may be shortened, until the line fits.

    The first column, which identifies the row, is shortened last of these; other texts only if this is not sufficient, and numbers never.
    """
    sizes = list(sizes)
    for more in (False, True):
        smallest = [
            len(column.head) + len(_CUT) if column.cuts or (more and not column.number) else size
            for column, size in zip(columns, sizes, strict=True)
        ]
        while sum(sizes) + len(_GAP) * (len(sizes) - 1) > width:
            shortenable = [at for at, size in enumerate(sizes) if size > smallest[at]]
            if not shortenable:
                break
            sizes[max(shortenable, key=lambda at: (at > 0, sizes[at] - smallest[at]))] -= 1
    return sizes


def _cell(cell: str, size: int, column: Column) -> str:
    if len(cell) > size:
        cell = cell[: size - len(_CUT)] + _CUT
    return cell.rjust(size) if column.number else cell.ljust(size)
