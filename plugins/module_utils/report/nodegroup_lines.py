# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node groups of pools in a plan or report (pure)."""

from __future__ import annotations

import typing as t

from .table import paragraph

Document = t.Mapping[str, t.Any]

# The plan's text by the action that the provider's module previews.
_ACTIONS = {
    "none": "as declared",
    "create": "will be created",
    "update": "will be updated",
    "recreate": "differs in immutable fields, and will be replaced",
}


def nodegroup_lines(info: Document, kind: str, width: int) -> list[str]:
    """One paragraph for each pool with a node group: its name, flavor and size, and in a plan its changes.

    `info["nodegroups"]` is the result of the provider's module, if it was called: `nodegroups` by name, or `msg` if it failed.
    """
    preview: Document = info.get("nodegroups") or {}
    groups = {name: pool["nodegroup"] for name, pool in (info.get("pools") or {}).items() if pool.get("nodegroup")}
    lines: list[str] = []
    for name, group in groups.items():
        parts = [f"node group {group['name']} of {group['flavor']}, {group['size']}"]
        action = ((preview.get("nodegroups") or {}).get(group["name"]) or {}).get("action")
        if kind == "plan" and action in _ACTIONS:
            changes = _changes(preview.get("diff") or {}, group["name"]) if action != "create" else []
            parts.append(f"{_ACTIONS[action]}{': ' if changes else ''}{', '.join(changes)}")
        lines += paragraph(f"nodes of {name}", "; ".join(parts), width)
    if groups and kind == "plan" and not preview.get("nodegroups") and preview.get("msg"):
        lines += paragraph("cloud", f"not reached, so the state of the node groups is unknown: {preview['msg']}", width)
    return lines


def _changes(diff: Document, name: str) -> list[str]:
    """The differences as `field before -> after`; for maps (and taints, by key and effect) only the entries that differ."""
    before, after = (_flatten((diff.get(side) or {}).get(name) or {}) for side in ("before", "after"))
    return [
        f"{key} {_text(before.get(key))} -> {_text(after.get(key))}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]


def _flatten(fields: Document) -> dict[str, t.Any]:
    flat: dict[str, t.Any] = {}
    for key, value in fields.items():
        if isinstance(value, t.Mapping):
            flat.update({f"{key} {inner}": entry for inner, entry in value.items()})
        elif isinstance(value, list) and all(isinstance(entry, t.Mapping) and "effect" in entry for entry in value):
            flat.update({f"{key} {taint.get('key')}:{taint['effect']}": taint.get("value") or "set" for taint in value})
        else:
            flat[key] = value
    return flat


def _text(value: t.Any) -> str:
    return "none" if value is None else str(value)
