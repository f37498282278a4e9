# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Label selectors, as kubectl writes them, asked of labels that are at hand: many sets cost one list."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

_REQUIREMENT = re.compile(
    r"""\s*(?:
        !\s*(?P<absent>[^\s,()!=<>]+)
      | (?P<key>[^\s,()!=<>]+)\s*(?:
            (?P<equal>==?|!=)\s*(?P<value>[^\s,()!=<>]*)
          | \s(?P<set>in|notin)\s*\((?P<members>[^()]*)\)
        )?
    )\s*(?:,|$)""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Requirement:
    """One condition; without values it asks only whether the key is there."""

    key: str
    negative: bool
    members: tuple[str, ...] | None = None

    def met(self, labels: t.Mapping[str, str]) -> bool:
        """As the API server decides it: a missing key meets what is negative."""
        if self.members is None:
            return (self.key in labels) is not self.negative
        return (labels.get(self.key) in self.members) is not self.negative


@dataclass(frozen=True)
class Selector:
    """Conditions that must all be met; none at all are met by everything."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: t.Mapping[str, str]) -> bool:
        """True when labels meet every condition."""
        return all(requirement.met(labels) for requirement in self.requirements)


def parse(text: str) -> Selector:
    """Read a selector; raises ValueError that says where it cannot be understood."""
    requirements: list[Requirement] = []
    position = 0
    while position < len(text.rstrip()):
        found = _REQUIREMENT.match(text, position)
        if found is None:
            raise ValueError(f"is not a label selector, from {text[position:].strip()!r} on; write it as kubectl does")
        requirements.append(_requirement(found))
        position = found.end()
    return Selector(tuple(requirements))


def _requirement(found: re.Match[str]) -> Requirement:
    if found["absent"]:
        return Requirement(found["absent"], negative=True)
    if found["equal"]:
        return Requirement(found["key"], found["equal"] == "!=", (found["value"],))
    if found["set"]:
        members = tuple(member.strip() for member in found["members"].split(","))
        return Requirement(found["key"], found["set"] == "notin", members)
    return Requirement(found["key"], negative=False)
