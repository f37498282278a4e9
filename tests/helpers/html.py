# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses HTML strictly: wrong nesting is an error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

EMPTY = {"meta", "link", "input", "br"}


@dataclass
class Element:
    """One element with its attributes and its content."""

    name: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    inside: list[Element | str] = field(default_factory=list)

    def walk(self) -> Iterator[Element]:
        """The element and all elements below it, in document order."""
        yield self
        for part in self.inside:
            if isinstance(part, Element):
                yield from part.walk()

    def find(self, name: str, **attributes: str) -> list[Element]:
        """The elements with a name and attributes (class_ for class)."""
        desired = {key.rstrip("_"): value for key, value in attributes.items()}
        return [
            element for element in self.walk() if element.name == name and desired.items() <= element.attributes.items()
        ]

    @property
    def text(self) -> str:
        """All text in the element."""
        return "".join(part if isinstance(part, str) else part.text for part in self.inside)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("")
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _value in attrs}) == len(attrs), attrs
        element = Element(tag, dict(attrs))
        self.open[-1].inside.append(element)
        if tag not in EMPTY:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].inside.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().name == tag, tag

    def handle_data(self, data: str) -> None:
        self.open[-1].inside.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def parse(text: str) -> Element:
    """Parse a document; every open element must be closed."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == [reader.root], [element.name for element in reader.open]
    return reader.root
