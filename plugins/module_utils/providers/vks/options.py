# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that say what a node group is to be; data."""

from __future__ import annotations

import typing as t

_EFFECTS = ["NoSchedule", "PreferNoSchedule", "NoExecute"]

GROUP: dict[str, dict[str, t.Any]] = {
    "name": {"type": "str"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "num_nodes": {"type": "int"},
    "min_size": {"type": "int"},
    "max_size": {"type": "int"},
    "flavor": {"type": "str"},
    "os": {"type": "str"},
    "disk_size": {"type": "int"},
    "disk_type": {"type": "str"},
    "ssh_key": {"type": "str", "no_log": False},
    "subnet": {"type": "str"},
    "secondary_subnets": {"type": "list", "elements": "str"},
    "security_groups": {"type": "list", "elements": "str"},
    "private_nodes": {"type": "bool"},
    "encrypted_volume": {"type": "bool"},
    "labels": {"type": "dict"},
    "taints": {
        "type": "list",
        "elements": "dict",
        "options": {
            "key": {"type": "str", "required": True, "no_log": False},
            "value": {"type": "str"},
            "effect": {"type": "str", "choices": _EFFECTS, "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
    },
    "tags": {"type": "dict"},
    "upgrade_strategy": {
        "type": "dict",
        "options": {"max_surge": {"type": "int"}, "max_unavailable": {"type": "int"}},
    },
    "kubernetes_version": {"type": "str"},
    "recreate": {"type": "bool", "default": False},
}
# The same as entries of a list.
GROUPS: dict[str, t.Any] = {
    "type": "list",
    "elements": "dict",
    "options": {**GROUP, "name": {"type": "str", "required": True}},
}


def groups_of(params: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """The options of each group: those of the list, or the one that the module's own options are of."""
    if params.get("nodegroups") is not None:
        return list(params["nodegroups"])
    return [{option: params[option] for option in GROUP}]
