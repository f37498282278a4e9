# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long lists are told in a sentence; pure."""

from __future__ import annotations

import typing as t

_NAMED = 3


def some_nodes(names: t.Collection[str]) -> str:
    """The first few of these nodes by name, and how many there are."""
    found = sorted(names)
    word = "node" if len(found) == 1 else f"{len(found)} nodes,"
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"{word} {', '.join(found[:_NAMED])}{more}"
