# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the fields of an object by owner, according to the managedFields that the API server records (structured-merge-diff, FieldsV1)."""

from __future__ import annotations

import json
import typing as t

Tree = dict[str, t.Any]

_SELF = "."


def owned_by(live: t.Mapping[str, t.Any], manager: str) -> Tree:
    """The fields that a manager has applied; a later apply does not remove fields that the manager has written in another way."""
    return _fields(live, lambda entry: _is_applied_by(entry, manager) and not entry.get("subresource"))


def owned_by_others(live: t.Mapping[str, t.Any], manager: str) -> Tree:
    """The fields of all other managers and the fields that this manager has written without an apply."""
    return _fields(live, lambda entry: not _is_applied_by(entry, manager))


def known_shape(live: t.Mapping[str, t.Any]) -> Tree:
    """The fields of all managers, which also show which lists are maps, sets or atomic."""
    return _fields(live, lambda entry: True)


def writers(live: t.Mapping[str, t.Any], path: t.Iterable[str]) -> list[str]:
    """The managers that own the field at this path of keys, the most recent writer first; empty if no manager has written it.

    When a different value is written, the previous owners lose the field, so all current owners agree on its value.
    """
    entries = [entry for entry in _entries(live) if not entry.get("subresource")]
    entries.sort(key=lambda entry: str(entry.get("time") or ""), reverse=True)
    keys = tuple(path)
    return list(
        dict.fromkeys(str(entry.get("manager")) for entry in entries if _owns(entry.get("fieldsV1") or {}, keys))
    )


def as_applied(live: t.Mapping[str, t.Any], manager: str) -> list[Tree]:
    """The managedFields of an object, changed so that all fields that the manager has written count as applied.

    The server removes a field that an apply no longer contains only if the field counts as applied.
    """
    entries = _entries(live)
    own = [entry for entry in entries if entry.get("manager") == manager and not entry.get("subresource")]
    if all(_is_applied_by(entry, manager) for entry in own):
        return [dict(entry) for entry in entries]
    fields = _fields(live, own.__contains__)
    others = [dict(entry) for entry in entries if entry not in own]
    return [*others, {**own[-1], "operation": "Apply", "fieldsV1": fields}]


def has_records(live: t.Mapping[str, t.Any]) -> bool:
    """Whether an object has managedFields; users may remove them."""
    return any(entry.get("fieldsV1") for entry in _entries(live))


def _owns(tree: Tree, keys: tuple[str, ...]) -> bool:
    if not keys:
        # An entry with "." alone is a map that was written while it was empty.
        return True
    entry = f"f:{keys[0]}"
    if entry not in tree:
        return False
    below = t.cast("Tree", tree[entry])
    # A leaf is owned with everything below it.
    return not below or _owns(below, keys[1:])


def child(tree: Tree, key: str) -> Tree:
    """The tree below the key of a map; empty if no field below it is owned."""
    return t.cast("Tree", tree.get(f"f:{key}") or {})


def list_keys(tree: Tree) -> tuple[str, ...]:
    """The key fields of an associative list (`name`, or `containerPort` and `protocol`); empty for other lists."""
    for entry in tree:
        if entry.startswith("k:"):
            return tuple(json.loads(entry[2:]))
    return ()


def is_set(tree: Tree) -> bool:
    """Whether the elements of a list are owned individually, by their values."""
    return any(entry.startswith("v:") for entry in tree)


def element(tree: Tree, keys: t.Mapping[str, t.Any]) -> Tree:
    """The tree of the element of an associative list that has these key fields."""
    for entry, below in tree.items():
        if entry.startswith("k:") and json.loads(entry[2:]) == dict(keys):
            return t.cast("Tree", below)
    return {}


def is_leaf(tree: Tree) -> bool:
    """Whether a field is owned as a whole."""
    return not any(entry != _SELF for entry in tree)


def has_dropped(live: t.Any, tree: Tree, desired: t.Any) -> bool:
    """Whether `live` has fields that the owner of the tree owns but no longer wants."""
    for entry, below in tree.items():
        exists, live_value = _lookup(live, entry)
        if exists:
            is_wanted, wanted_value = _lookup(desired, entry)
            if not is_wanted or has_dropped(live_value, below, wanted_value):
                return True
    return False


def dropped_elements(live: list[t.Any], tree: Tree, desired: list[t.Any], others: Tree) -> list[t.Any]:
    """The elements of a list that only the owner of the tree owns and no longer wants."""
    entries = [entry for entry in tree if entry not in others and not _lookup(desired, entry)[0]]
    return [value for exists, value in (_lookup(live, entry) for entry in entries) if exists]


def _matches(candidate: t.Any, keys: t.Mapping[str, t.Any]) -> bool:
    """Whether an element of an associative list has these key fields; a missing field is assumed to have the server's default."""
    return (
        isinstance(candidate, dict)
        and all(candidate[key] == value for key, value in keys.items() if key in candidate)
        and any(key in candidate for key in keys)
    )


def _lookup(value: t.Any, entry: str) -> tuple[bool, t.Any]:
    kind, dummy, text = entry.partition(":")
    if kind == "f" and isinstance(value, dict):
        return text in value and value[text] is not None, value.get(text)
    if kind == "k" and isinstance(value, list):
        keys = json.loads(text)
        for candidate in value:
            if _matches(candidate, keys):
                return True, candidate
    if kind == "v" and isinstance(value, list):
        element = json.loads(text)
        return element in value, element
    if kind == "i" and isinstance(value, list) and int(text) < len(value):
        return True, value[int(text)]
    return False, None


def _is_applied_by(entry: t.Mapping[str, t.Any], manager: str) -> bool:
    return entry.get("manager") == manager and entry.get("operation") == "Apply"


def _entries(live: t.Mapping[str, t.Any]) -> list[t.Mapping[str, t.Any]]:
    return list((live.get("metadata") or {}).get("managedFields") or [])


def _fields(live: t.Mapping[str, t.Any], is_included: t.Callable[[t.Mapping[str, t.Any]], bool]) -> Tree:
    merged: Tree = {}
    for entry in _entries(live):
        if is_included(entry):
            _merge(merged, entry.get("fieldsV1") or {})
    return merged


def _merge(into: Tree, other: t.Mapping[str, t.Any]) -> None:
    for key, below in other.items():
        _merge(into.setdefault(key, {}), below)
