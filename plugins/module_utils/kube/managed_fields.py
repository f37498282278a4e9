# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of an object by owner, as the API server records them in managedFields (structured-merge-diff, FieldsV1)."""

from __future__ import annotations

import json
import typing as t

Tree = dict[str, t.Any]
Path = tuple[str, ...]

_SELF = "."


def owned_by(live: t.Mapping[str, t.Any], manager: str) -> Tree:
    """The fields that a manager has applied; a later apply removes no field that it has written in another way."""
    return _fields(live, lambda entry: _is_applied_by(entry, manager) and not entry.get("subresource"))


def owned_by_others(live: t.Mapping[str, t.Any], manager: str) -> Tree:
    """The fields of all other managers, and those that the manager has written in another way than by applying."""
    return _fields(live, lambda entry: not _is_applied_by(entry, manager))


def known_shape(live: t.Mapping[str, t.Any]) -> Tree:
    """The fields of all managers, which also show which lists are maps, sets or atoms."""
    return _fields(live, lambda entry: True)


def child(tree: Tree, key: str) -> Tree:
    """The tree below the key of a map; empty where no field is owned."""
    return t.cast("Tree", tree.get(f"f:{key}") or {})


def list_keys(tree: Tree) -> tuple[str, ...]:
    """The key fields of an associative list (`name`, or `containerPort` and `protocol`); empty for other lists."""
    for entry in tree:
        if entry.startswith("k:"):
            return tuple(json.loads(entry[2:]))
    return ()


def is_set(tree: Tree) -> bool:
    """Whether the elements of a list are owned one by one by their value."""
    return any(entry.startswith("v:") for entry in tree)


def element(tree: Tree, keys: t.Mapping[str, t.Any]) -> Tree:
    """The tree of the element of an associative list that has these key fields."""
    for entry, below in tree.items():
        if entry.startswith("k:") and json.loads(entry[2:]) == dict(keys):
            return t.cast("Tree", below)
    return {}


def without(live: t.Any, tree: Tree, wanted: t.Any, others: Tree) -> t.Any:
    """A copy of live without the fields that only the owner of the tree has and no longer wants."""
    if isinstance(live, dict) and not _is_leaf(tree):
        return _map_without(live, tree, wanted if isinstance(wanted, dict) else {}, others)
    if isinstance(live, list) and not _is_leaf(tree):
        return _list_without(live, tree, wanted if isinstance(wanted, list) else [], others)
    return live


def dropped(live: t.Any, tree: Tree, wanted: t.Any, path: Path = ()) -> t.Iterator[Path]:
    """Paths of live fields that the owner of the tree has and no longer wants."""
    for entry, below in tree.items():
        if entry == _SELF:
            continue
        exists, live_value = _lookup(live, entry)
        if not exists:
            continue
        is_wanted, wanted_value = _lookup(wanted, entry)
        if not is_wanted:
            yield (*path, entry)
        elif not _is_leaf(below):
            yield from dropped(live_value, below, wanted_value, (*path, entry))


def matches(candidate: t.Any, keys: t.Mapping[str, t.Any]) -> bool:
    """Whether an element of an associative list has these key fields; a missing one has the default of the server."""
    return (
        isinstance(candidate, dict)
        and all(candidate[key] == value for key, value in keys.items() if key in candidate)
        and any(key in candidate for key in keys)
    )


def _map_without(live: dict[str, t.Any], tree: Tree, wanted: dict[str, t.Any], others: Tree) -> dict[str, t.Any]:
    kept: dict[str, t.Any] = {}
    for key, value in live.items():
        entry = f"f:{key}"
        below = tree.get(entry)
        if below is None:
            kept[key] = value
        elif wanted.get(key) is not None:
            kept[key] = without(value, below, wanted[key], others.get(entry) or {})
        elif _is_leaf(below):
            if entry in others:
                kept[key] = value
        else:
            rest = without(value, below, None, others.get(entry) or {})
            # Fields of others below it stay; an empty map was the owner's alone.
            if rest or entry in others:
                kept[key] = rest
    return kept


def _list_without(live: list[t.Any], tree: Tree, wanted: list[t.Any], others: Tree) -> list[t.Any]:
    kept: list[t.Any] = []
    names = list_keys(tree)
    for value in live:
        entry = _entry_of(tree, value, names)
        if entry is None:
            kept.append(value)
            continue
        is_wanted, wanted_value = _lookup(wanted, entry)
        if is_wanted or entry in others:
            kept.append(without(value, tree[entry], wanted_value, others.get(entry) or {}))
    return kept


def _entry_of(tree: Tree, value: t.Any, names: tuple[str, ...]) -> str | None:
    for entry in tree:
        if entry.startswith("k:") and names and matches(value, json.loads(entry[2:])):
            return entry
        if entry.startswith("v:") and json.loads(entry[2:]) == value:
            return entry
    return None


def _lookup(value: t.Any, entry: str) -> tuple[bool, t.Any]:
    kind, dummy, text = entry.partition(":")
    if kind == "f" and isinstance(value, dict):
        return text in value and value[text] is not None, value.get(text)
    if kind == "k" and isinstance(value, list):
        keys = json.loads(text)
        for candidate in value:
            if matches(candidate, keys):
                return True, candidate
    if kind == "v" and isinstance(value, list):
        wanted = json.loads(text)
        return wanted in value, wanted
    if kind == "i" and isinstance(value, list) and int(text) < len(value):
        return True, value[int(text)]
    return False, None


def _is_leaf(tree: Tree) -> bool:
    return not any(entry != _SELF for entry in tree)


def _is_applied_by(entry: t.Mapping[str, t.Any], manager: str) -> bool:
    return entry.get("manager") == manager and entry.get("operation") == "Apply"


def _fields(live: t.Mapping[str, t.Any], is_included: t.Callable[[t.Mapping[str, t.Any]], bool]) -> Tree:
    merged: Tree = {}
    for entry in (live.get("metadata") or {}).get("managedFields") or []:
        if is_included(entry):
            _merge(merged, entry.get("fieldsV1") or {})
    return merged


def _merge(into: Tree, other: t.Mapping[str, t.Any]) -> None:
    for key, below in other.items():
        _merge(into.setdefault(key, {}), below)
