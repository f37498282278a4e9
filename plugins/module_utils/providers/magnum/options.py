# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options by which a node group is declared, alone or as one of many (pure)."""

from __future__ import annotations

import typing as t

from .decode import EFFECTS

ArgumentSpec = dict[str, dict[str, t.Any]]

_STATES = ["present", "absent"]
_TAINT: ArgumentSpec = {
    "key": {"type": "str", "required": True, "no_log": False},
    "value": {"type": "str"},
    "effect": {"type": "str", "choices": list(EFFECTS), "required": True},
    "state": {"type": "str", "choices": _STATES, "default": "present"},
}
GROUP: ArgumentSpec = {
    "node_count": {"type": "int"},
    "min_node_count": {"type": "int"},
    "max_node_count": {"type": "int"},
    "autoscaling": {"type": "bool"},
    "flavor": {"type": "str"},
    "image": {"type": "str"},
    "role": {"type": "str"},
    "labels": {"type": "dict"},
    "docker_volume_size": {"type": "int"},
    "node_labels": {"type": "dict"},
    "node_taints": {"type": "list", "elements": "dict", "options": _TAINT},
}
# What is said beside nodegroups counts for each of them.
COMMON: ArgumentSpec = {
    "state": {"type": "str", "choices": _STATES, "default": "present"},
    "merge_labels": {"type": "bool", "default": True},
    "recreate": {"type": "bool", "default": False},
}
_COMMON_OF_ONE: ArgumentSpec = {
    name: {key: value for key, value in option.items() if key != "default"} for name, option in COMMON.items()
}
GROUPS: ArgumentSpec = {
    **GROUP,
    **COMMON,
    "nodegroups": {
        "type": "list",
        "elements": "dict",
        "options": {"name": {"type": "str", "required": True}, **GROUP, **_COMMON_OF_ONE},
    },
}
