# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of a plan or report about the node groups that make the nodes of pools (pure)."""

from __future__ import annotations

import typing as t

from .table import paragraph

Document = t.Mapping[str, t.Any]

# What a run would do, by the action that the cloud's module previews.
_PLANNED = {
    "none": "as declared",
    "create": "will be made",
    "update": "differs, and will be changed",
    "recreate": "differs in what the cloud cannot change, and will be replaced",
}


def nodegroup_lines(info: Document, kind: str, width: int) -> list[str]:
    """One paragraph for each pool with a group: which, of which flavor, how many nodes, and in a plan what becomes of it.

    `info` has under `nodegroups`, where the cloud was asked, its module's result: `nodegroups` by name, or `msg` where it did not answer.
    """
    asked: Document = info.get("nodegroups") or {}
    groups = {name: pool["group"] for name, pool in (info.get("pools") or {}).items() if pool.get("group")}
    told: list[str] = []
    for name, group in groups.items():
        parts = [f"node group {group['name']} of {group['flavor']}, {group['size']}"]
        action = ((asked.get("nodegroups") or {}).get(group["name"]) or {}).get("action")
        if kind == "plan" and action in _PLANNED:
            differing = _differing(asked.get("diff") or {}, group["name"]) if action != "create" else []
            parts.append(f"{_PLANNED[action]}{': ' if differing else ''}{', '.join(differing)}")
        told += paragraph(f"nodes of {name}", "; ".join(parts), width)
    if groups and kind == "plan" and not asked.get("nodegroups") and asked.get("msg"):
        told += paragraph("cloud", f"not reached, so nobody knows what the groups are like: {asked['msg']}", width)
    return told


def _differing(diff: Document, name: str) -> list[str]:
    """What differs, as `field before -> after`; of a map (or of taints, by key and effect) only the entries that do."""
    before, after = (_flat((diff.get(side) or {}).get(name) or {}) for side in ("before", "after"))
    return [
        f"{key} {_said(before.get(key))} -> {_said(after.get(key))}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]


def _flat(told: Document) -> dict[str, t.Any]:
    found: dict[str, t.Any] = {}
    for key, value in told.items():
        if isinstance(value, t.Mapping):
            found.update({f"{key} {inner}": entry for inner, entry in value.items()})
        elif isinstance(value, list) and all(isinstance(entry, t.Mapping) and "effect" in entry for entry in value):
            found.update(
                {f"{key} {taint.get('key')}:{taint['effect']}": taint.get("value") or "set" for taint in value}
            )
        else:
            found[key] = value
    return found


def _said(value: t.Any) -> str:
    return "none" if value is None else str(value)
