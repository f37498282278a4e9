# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits the size of results, formats diffs, and removes the effect that foreign text could have on a terminal."""

from __future__ import annotations

import json
import typing as t

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
