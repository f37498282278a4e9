# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small model of server-side apply for property tests: maps are granular, lists are atomic, conflicts are resolved by force."""

from __future__ import annotations

import copy
import typing as t

Object = dict[str, t.Any]
_KEYS_OF_IDENTITY = ("apiVersion", "kind")


def apply(live: Object | None, desired: Object, manager: str) -> Object:
    """The object after `manager` has applied `desired`, with its managedFields."""
    result = copy.deepcopy(live) if live is not None else {"metadata": {"name": desired["metadata"]["name"]}}
    entries = {entry["manager"]: entry["fieldsV1"] for entry in result.get("metadata", {}).pop("managedFields", [])}
    before = entries.pop(manager, {})
    now = _tree(desired)
    for key in _KEYS_OF_IDENTITY:
        now.pop(f"f:{key}", None)
    now.get("f:metadata", {}).pop("f:name", None)
    _remove(result, before, now, list(entries.values()))
    _write(result, desired)
    for other in entries.values():
        _lose(other, desired, result)
    entries[manager] = now
    result["metadata"]["managedFields"] = [
        {"manager": name, "operation": "Apply", "fieldsV1": tree} for name, tree in entries.items()
    ]
    return result


def content(actual: Object) -> Object:
    """The object without managedFields and empty maps."""
    bare = copy.deepcopy(actual)
    bare.get("metadata", {}).pop("managedFields", None)
    return t.cast(Object, _pruned(bare))


def _pruned(value: t.Any) -> t.Any:
    if not isinstance(value, dict):
        return value
    kept = {key: _pruned(item) for key, item in value.items()}
    return {key: item for key, item in kept.items() if item != {}}


def _tree(value: t.Any) -> Object:
    if not isinstance(value, dict):
        return {}
    return {f"f:{key}": _tree(item) for key, item in value.items()}


def _remove(live: Object, before: Object, now: Object, others: list[Object]) -> None:
    for entry, below in before.items():
        key = entry[2:]
        if key not in live:
            continue
        foreign = [other[entry] for other in others if entry in other]
        if below and isinstance(live[key], dict):
            _remove(live[key], below, now.get(entry, {}), foreign)
            if not live[key] and not foreign:
                del live[key]
        elif entry not in now and not foreign:
            del live[key]


def _write(live: Object, desired: Object) -> None:
    for key, value in desired.items():
        if isinstance(value, dict) and isinstance(live.get(key), dict):
            _write(live[key], value)
        else:
            live[key] = copy.deepcopy(value)


def _lose(tree: Object, desired: Object, live: Object) -> None:
    """Force: a manager that had set another value at the path of a leaf no longer owns it."""
    for key, value in desired.items():
        entry = f"f:{key}"
        if entry not in tree:
            continue
        if isinstance(value, dict) and value and tree[entry]:
            _lose(tree[entry], value, live[key])
            if not tree[entry]:
                del tree[entry]
        elif not isinstance(value, dict):
            del tree[entry]
