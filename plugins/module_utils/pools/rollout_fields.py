# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of `rollout`: how a change of sharing reaches the nodes of a pool."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from . import rules
from .schema import Boolean, Choice, Field, Integer, ListOf, Rule, Section, Text, leftover
from .words import is_whole, kind

NONE, GPU_PODS, ALL = "none", "gpu-pods", "all"
DRAINS = (NONE, GPU_PODS, ALL)
IDLE_FIRST, BY_NAME = "idle-first", "name"
ROLLBACK, LEAVE = "rollback", "leave"

_DAY = 24 * 3600
_PER_CENT = re.compile(r"([1-9]\d?|100)%")


@dataclasses.dataclass(frozen=True)
class Amount(Field):
    """A number of nodes, or per cent of a pool's."""

    def mistyped(self, value: t.Any) -> str | None:
        if is_whole(value):
            return None if value >= 1 else "is not allowed: at least one node is changed at a time; give 1 or more"
        if not isinstance(value, str):
            return f'is {kind(value)}, not a number of nodes; give a whole number, or per cent such as "25%"'
        if _PER_CENT.fullmatch(value):
            return None
        return leftover(value) or 'is not a number of nodes; give a whole number without quotes, or "1%" to "100%"'


def _seconds(low: int) -> tuple[Rule]:
    return (rules.between(low, _DAY, f"give {low} seconds or more", "no wait is longer than a day (86400 seconds)"),)


def _names_the_node(value: list[t.Any]) -> str | None:
    if any("{node}" in word for word in value if isinstance(word, str)):
        return None
    return "does not say which node; write {node} where its name belongs, such as [ssh, core@{node}, sudo, reboot]"


ROLLOUT = Section(
    fields={
        "max_unavailable": Amount(default=1),
        "drain": Choice(known=DRAINS, default=GPU_PODS),
        "force": Boolean(default=False),
        "grace_period": Integer(_seconds(0)),
        "drain_timeout": Integer(_seconds(1), default=600),
        "order": Choice(known=(IDLE_FIRST, BY_NAME), default=IDLE_FIRST),
        "limit": Amount(),
        "pause_on_failure": Boolean(default=True),
        "on_failure": Choice(known=(ROLLBACK, LEAVE), default=ROLLBACK),
        "reboot": Section(
            fields={
                "command": ListOf(
                    (_names_the_node,), required=True, missing="name the program that reboots {node}", item=Text()
                ),
                "timeout": Integer(_seconds(1), default=900),
            }
        ),
    }
)
