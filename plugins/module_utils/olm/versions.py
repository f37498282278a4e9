# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses semantic versions and the ranges of `olm.skipRange` (pure).

Sources: semver.org 2.0.0 (precedence), github.com/blang/semver/v4 range.go (ranges).
"""

from __future__ import annotations

import functools
import re
import typing as t
from dataclasses import dataclass

_VERSION = re.compile(
    r"v?(?P<numbers>\d{1,9}(?:\.\d{1,9}){1,2})(?:-(?P<pre>[0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII
)
_CONDITION = re.compile(r"(?P<sign>>=|<=|==|!=|>|<|=|!)?\s*(?P<version>[^\s<>=!|]+)")
_COMPARE: dict[str, t.Callable[[Version, Version], bool]] = {
    ">=": lambda one, other: one >= other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    "<": lambda one, other: one < other,
    "!=": lambda one, other: one != other,
    "!": lambda one, other: one != other,
    "=": lambda one, other: one == other,
    "==": lambda one, other: one == other,
}


@functools.total_ordering
@dataclass(frozen=True)
class Version:
    """A version, ordered by precedence; build metadata is ignored."""

    numbers: tuple[int, int, int]
    pre: tuple[str, ...] = ()

    def __lt__(self, other: Version) -> bool:
        """Compare by precedence. A pre-release comes before its release. Numeric parts of a pre-release are compared as numbers, and come before text."""
        return self._key < other._key

    @property
    def _key(self) -> tuple[tuple[int, int, int], bool, tuple[tuple[bool, int, str], ...]]:
        parts = tuple((False, int(part), "") if part.isdecimal() else (True, 0, part) for part in self.pre)
        return self.numbers, not self.pre, parts

    def __str__(self) -> str:
        return ".".join(map(str, self.numbers)) + (f"-{'.'.join(self.pre)}" if self.pre else "")


def parse_version(text: str) -> Version | None:
    """Parse a version with or without `v`; a missing third number is 0. None if the text is not a version."""
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        return None
    numbers = [int(number) for number in match["numbers"].split(".")]
    pre = tuple(match["pre"].split(".")) if match["pre"] else ()
    if not all(pre):
        return None
    return Version((numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else 0), pre)


def in_range(version: Version, text: str) -> bool | None:
    """Whether a version is in a range (for example `>=1.9.0 <25.10.1 || 26.3.0`); None if the range cannot be parsed."""
    alternatives = [_matches(version, part.strip()) for part in text.split("||")]
    return None if None in alternatives else any(alternatives)


def _matches(version: Version, conditions: str) -> bool | None:
    position, result = 0, True
    if not conditions:
        return None
    while position < len(conditions):
        match = _CONDITION.match(conditions, position)
        limit = parse_version(match["version"]) if match else None
        if match is None or limit is None:
            return None
        result = result and _COMPARE[match["sign"] or "="](version, limit)
        position = match.end()
        while position < len(conditions) and conditions[position] == " ":
            position += 1
    return result
