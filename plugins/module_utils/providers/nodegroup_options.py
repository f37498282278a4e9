# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of the providers' modules for node groups: one group, or a list of many (pure)."""

from __future__ import annotations

import typing as t

from ..catalog.taints import TAINT_EFFECTS
from ..nodegroups.spec import MAX_NODE_COUNT, MIN_NODE_COUNT, NODE_COUNT, NODE_LABELS, NODE_TAINTS

ArgumentSpec = dict[str, dict[str, t.Any]]

_STATES = ["present", "absent"]
_TAINT: ArgumentSpec = {
    "key": {"type": "str", "required": True, "no_log": False},
    "value": {"type": "str"},
    "effect": {"type": "str", "choices": list(TAINT_EFFECTS), "required": True},
    "state": {"type": "str", "choices": _STATES, "default": "present"},
}
# The options of a group that every provider has.
GROUP_OPTIONS: ArgumentSpec = {
    NODE_COUNT: {"type": "int"},
    MIN_NODE_COUNT: {"type": "int"},
    MAX_NODE_COUNT: {"type": "int"},
    "flavor": {"type": "str"},
    NODE_LABELS: {"type": "dict"},
    NODE_TAINTS: {"type": "list", "elements": "dict", "options": _TAINT},
}
# The same, of which a value beside `nodegroups` holds for each group that sets none.
SHARED_OPTIONS: ArgumentSpec = {
    "state": {"type": "str", "choices": _STATES, "default": "present"},
    "recreate": {"type": "bool", "default": False},
}


class NodeGroupOptions:
    """The options of a provider's module for node groups."""

    def __init__(self, group: ArgumentSpec, shared: ArgumentSpec) -> None:
        """group, shared: the provider's own GROUP_OPTIONS and SHARED_OPTIONS."""
        self._group, self._shared = group, shared

    @property
    def argument_spec(self) -> ArgumentSpec:
        """The module's options without those of connection, wait and drain."""
        shared_of_one = {
            name: {key: value for key, value in option.items() if key != "default"}
            for name, option in self._shared.items()
        }
        return {
            "cluster": {"type": "str", "required": True},
            "name": {"type": "str"},
            **self._group,
            **self._shared,
            "nodegroups": {
                "type": "list",
                "elements": "dict",
                "options": {"name": {"type": "str", "required": True}, **self._group, **shared_of_one},
            },
            "parallel": {"type": "int", "default": 32},
        }

    @property
    def constraints(self) -> dict[str, t.Any]:
        """Which options exclude each other, as arguments of AnsibleModule."""
        return {
            "mutually_exclusive": [("nodegroups", option) for option in ("name", *self._group)],
            "required_one_of": [("name", "nodegroups")],
        }

    def declared_groups(self, params: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
        """The options of each declared group."""
        if params["nodegroups"] is None:
            return [{name: params[name] for name in ("name", *self._group, *self._shared)}]
        return [
            {**group, **{name: params[name] if group[name] is None else group[name] for name in self._shared}}
            for group in params["nodegroups"]
        ]
