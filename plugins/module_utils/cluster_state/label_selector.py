# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluates selectors locally, in the notations of kubectl and of objects, so that one list request is sufficient for any number of selectors (pure)."""

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
    """One condition; if `members` is None, it concerns only whether the key exists."""

    key: str
    negative: bool
    members: tuple[str, ...] | None = None

    def is_met(self, labels: t.Mapping[str, str]) -> bool:
        """Whether the labels meet the condition; as in the API server, a missing key meets a negative condition."""
        if self.members is None:
            return (self.key in labels) is not self.negative
        return (labels.get(self.key) in self.members) is not self.negative


def selects(selector: t.Mapping[str, t.Any], labels: t.Mapping[str, str]) -> bool:
    """Whether a selector in the notation of objects (matchLabels, matchExpressions) selects these labels. An empty selector selects nothing here."""
    equal, rules = selector.get("matchLabels") or {}, selector.get("matchExpressions") or ()
    return (
        bool(equal or rules)
        and all(labels.get(key) == value for key, value in equal.items())
        and all(rule_matches(rule, labels) for rule in rules)
    )


def term_matches(term: t.Mapping[str, t.Any], labels: t.Mapping[str, str], name: str) -> bool:
    """Whether a term of a required node affinity matches a node with these labels and this name. An empty term matches no node."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    return bool(expressions or fields) and (
        all(rule_matches(rule, labels) for rule in expressions)
        and all(rule_matches(rule, {"metadata.name": name}) for rule in fields)
    )


def rule_matches(rule: t.Mapping[str, t.Any], labels: t.Mapping[str, str]) -> bool:
    """Whether labels meet one of matchExpressions; as in the API server, a missing key meets a negative rule."""
    value, operands = labels.get(str(rule.get("key"))), rule.get("values") or []
    operator = rule.get("operator")
    if operator in ("Exists", "DoesNotExist"):
        return bool((value is not None) == (operator == "Exists"))
    if operator == "NotIn":
        return value not in operands
    if operator == "In" or value is None:
        return value is not None and value in operands
    try:
        return int(value) > int(operands[0]) if operator == "Gt" else int(value) < int(operands[0])
    except (ValueError, IndexError):
        return False


def parse_selector(text: str) -> list[Requirement]:
    """The conditions of a selector, all of which a node must meet; raises ValueError with the position of the first error."""
    requirements: list[Requirement] = []
    position = 0
    while position < len(text.rstrip()):
        match = _REQUIREMENT.match(text, position)
        if match is None:
            raise ValueError(
                f"is not a label selector: there is an error at {text[position:].strip()!r}; use the syntax of kubectl"
            )
        requirements.append(_requirement(match))
        position = match.end()
    return requirements


def _requirement(match: re.Match[str]) -> Requirement:
    if match["absent"]:
        return Requirement(match["absent"], negative=True)
    if match["equal"]:
        return Requirement(match["key"], match["equal"] == "!=", (match["value"],))
    if match["set"]:
        members = tuple(member.strip() for member in match["members"].split(","))
        return Requirement(match["key"], match["set"] == "notin", members)
    return Requirement(match["key"], negative=False)
