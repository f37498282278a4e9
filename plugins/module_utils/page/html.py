# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Markup in which text cannot become markup: whatever is not Html is escaped when it is put in (pure)."""

from __future__ import annotations

import re
import typing as t

# Elements that never have anything inside, and how they end: SVG's need the slash, HTML's do not have it.
_EMPTY = {"meta": "", "link": "", "input": "", "br": "", "rect": "/", "path": "/", "use": "/"}
_ENTITIES = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    '"': "&quot;",
    "'": "&#39;",
    # Whoever takes the page for a template finds nothing in it to be evaluated.
    "{": "&#123;",
    "}": "&#125;",
}
# Control characters and lone surrogates have no place in HTML; those that turn the direction of writing could make one
# name look like another.
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff\ud800-\udfff]")
_SPACE = re.compile(r"[\t\n\r\f]")
_TABLE = str.maketrans(_ENTITIES)
# Nearly every name of a cluster is made of these alone.
_PLAIN = re.compile(r"[A-Za-z0-9 .,:;/#()_-]*")


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


NOTHING = Html("")


def html(value: object) -> Html:
    """Markup as it is, anything else as escaped text."""
    if isinstance(value, Html):
        return value
    text = str(value)
    if _PLAIN.fullmatch(text):
        return Html(text)
    text = _SPACE.sub(" ", text)
    return Html(_UNFIT.sub("\ufffd", text).translate(_TABLE))


def join(parts: t.Iterable[object], between: object = NOTHING) -> Html:
    """The parts one behind the other."""
    return Html(html(between).join(html(part) for part in parts))


def tag(element: str, *inside: object, **attributes: object) -> Html:
    """One element; None and False leave an attribute out, True writes its name alone.

    The names of elements and attributes are the caller's own words. An underscore at the end of an attribute is dropped
    (class_), others are written as a hyphen.
    """
    head = [element]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        shown = name.rstrip("_").replace("_", "-")
        head.append(shown if value is True else f'{shown}="{html(value)}"')
    opening = " ".join(head)
    if element in _EMPTY:
        return Html(f"<{opening}{_EMPTY[element]}>")
    return Html(f"<{opening}>{join(inside)}</{element}>")
