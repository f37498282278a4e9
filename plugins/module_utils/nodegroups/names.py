# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a group is called that has taken another one's place (pure).

A field that a cloud cannot change is changed by a new group beside the old one, so for a while there are two, and the new one cannot have
the name. It is called by the name and four digits that follow from its unchangeable fields: a run that was killed in between finds it again.
"""

from __future__ import annotations

import hashlib
import json
import re
import typing as t

_DIGITS = 4
_ENDING = re.compile(r"-[0-9a-f]{4}")


def replacement(name: str, unchangeable: t.Mapping[str, t.Any], longest: int) -> str:
    """The name of the group with these unchangeable fields that replaces the one of that name; of `longest` characters at most."""
    digest = hashlib.sha256(json.dumps(dict(unchangeable), sort_keys=True).encode()).hexdigest()[:_DIGITS]
    return f"{_stem(name, longest)}-{digest}"


def is_of(group: str, name: str, longest: int = 255) -> bool:
    """Whether a group is the one of that name, or has taken its place."""
    stem = _stem(name, longest)
    return group == name or (group.startswith(stem) and bool(_ENDING.fullmatch(group[len(stem) :])))


def _stem(name: str, longest: int) -> str:
    return name[: longest - _DIGITS - 1].rstrip("-")
