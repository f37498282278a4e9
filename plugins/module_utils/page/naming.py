# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of nodes without what all of them have in common, which need not be read five hundred times (pure)."""

from __future__ import annotations

import typing as t

# Names up to this length are shown as they are.
LONG = 18
_CUT = "\u2026"


def domain(names: t.Sequence[str]) -> str:
    """What all names have behind their first point, with that point, if it is the same and no part of an address."""
    ends = {name.partition(".")[2] for name in names}
    (only,) = ends if len(ends) == 1 else ("",)
    return f".{only}" if len(names) > 1 and any(char.isalpha() for char in only) else ""


def stem(names: t.Sequence[str]) -> str:
    """With what all names begin, up to a hyphen, if one of them is too long for a small tile."""
    if len(names) < 2 or max(map(len, names)) <= LONG:
        return ""
    first, last = min(names), max(names)  # what these two share, all share
    alike = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    cut = first[: first.rfind("-", 0, alike) + 1]
    return cut if len(cut) > len(_CUT) + 1 else ""


def shown(name: str, begins: str, ends: str) -> str:
    """A name without its stem and its domain."""
    bare = name.removesuffix(ends)
    return f"{_CUT}{bare.removeprefix(begins)}" if begins else bare
