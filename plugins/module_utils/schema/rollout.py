# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of `rollout`: how a change to sharing is rolled out to the nodes of a pool."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from .messages import is_whole, type_name
from .types import (
    MAX_NODES,
    Boolean,
    Choice,
    Integer,
    ListOf,
    Section,
    Text,
    integer_between,
    unrendered_template,
)

NONE, GPU_PODS, ALL = "none", "gpu-pods", "all"
IDLE_FIRST, BY_NAME = "idle-first", "name"
ROLLBACK, LEAVE = "rollback", "leave"

_DAY = 24 * 3600
_PER_CENT = re.compile(r"([1-9][0-9]?|100)%")


@dataclasses.dataclass(frozen=True)
class NodeAmount(Integer):
    """A number of nodes, or a percentage of the pool's nodes."""

    def mistyped(self, value: t.Any) -> str | None:
        if is_whole(value):
            if value > MAX_NODES:
                return f'is not allowed: no cluster has more than {MAX_NODES} nodes; use "100%" for all nodes of a pool'
            return None if value >= 1 else "is not allowed: at least one node is changed at a time; set 1 or more"
        if not isinstance(value, str):
            return f'is {type_name(value)}, not a number of nodes; use a whole number, or a percentage such as "25%"'
        if _PER_CENT.fullmatch(value):
            return None
        return unrendered_template(value) or 'is not a number of nodes; use a whole number, or "1%" to "100%"'


def _seconds(low: int, default: int | None = None) -> Integer:
    too_low, too_high = f"set {low} seconds or more", "set at most one day (86400 seconds)"
    return integer_between(low, _DAY, too_low, too_high, default=default)


def _names_the_node(value: list[t.Any]) -> str | None:
    if any("{node}" in word for word in value if isinstance(word, str)):
        return None
    return "does not contain the node's name; use the placeholder {node}, as in [ssh, core@{node}, sudo, reboot]"


ROLLOUT = Section(
    fields={
        "max_unavailable": NodeAmount(default=1),
        "drain": Choice(known=(NONE, GPU_PODS, ALL), default=GPU_PODS, blank_is_unset=False),
        "force": Boolean(default=False),
        "grace_period": _seconds(0),
        "drain_timeout": _seconds(1, default=600),
        "order": Choice(known=(IDLE_FIRST, BY_NAME), default=IDLE_FIRST),
        "limit": NodeAmount(blank_is_unset=False),
        "pause_on_failure": Boolean(default=True),
        "on_failure": Choice(known=(ROLLBACK, LEAVE), default=ROLLBACK),
        "reboot": Section(
            fields={
                "command": ListOf(
                    (_names_the_node,),
                    required=True,
                    missing="set the command that reboots {node}",
                    item=Text(),
                    splits=False,
                ),
                "timeout": _seconds(1, default=900),
            }
        ),
    }
)
