# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of an object by owner, as the API server notes them in managedFields (structured-merge-diff, FieldsV1)."""

from __future__ import annotations

import json
import typing as t

Tree = dict[str, t.Any]
Path = tuple[str, ...]

_SELF = "."


def owned_by(live: t.Mapping[str, t.Any], manager: str) -> Tree:
    """What a manager has applied; what it has written in another way takes nothing away by a later apply."""
    merged: Tree = {}
    for entry in _entries(live):
        if entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource"):
            _merge(merged, entry.get("fieldsV1") or {})
    return merged


def owned_by_others(live: t.Mapping[str, t.Any], manager: str) -> Tree:
    """What anybody else has written, or the manager itself in another way than by applying."""
    merged: Tree = {}
    for entry in _entries(live):
        if not (entry.get("manager") == manager and entry.get("operation") == "Apply"):
            _merge(merged, entry.get("fieldsV1") or {})
    return merged


def known_shape(live: t.Mapping[str, t.Any]) -> Tree:
    """The fields of all managers together, which also say which lists are maps, sets or atoms."""
    merged: Tree = {}
    for entry in _entries(live):
        _merge(merged, entry.get("fieldsV1") or {})
    return merged


def child(tree: Tree, key: str) -> Tree:
    """The tree below a map's key; empty when nobody wrote there."""
    return t.cast("Tree", tree.get(f"f:{key}") or {})


def list_keys(tree: Tree) -> tuple[str, ...]:
    """The key fields of an associative list (`name`, or `containerPort` and `protocol`); empty for other lists."""
    for entry in tree:
        if entry.startswith("k:"):
            return tuple(json.loads(entry[2:]))
    return ()


def is_set(tree: Tree) -> bool:
    """True for a list whose elements are owned one by one by their value."""
    return any(entry.startswith("v:") for entry in tree)


def element(tree: Tree, keys: t.Mapping[str, t.Any]) -> Tree:
    """The tree of the element of an associative list that has these key fields."""
    for entry, below in tree.items():
        if entry.startswith("k:") and json.loads(entry[2:]) == dict(keys):
            return t.cast("Tree", below)
    return {}


def without(live: t.Any, tree: Tree, wanted: t.Any, others: Tree) -> t.Any:
    """A copy of live from which everything is gone that the tree's owner alone has and no longer wants."""
    if isinstance(live, dict) and not _is_leaf(tree):
        return _map_without(live, tree, wanted if isinstance(wanted, dict) else {}, others)
    if isinstance(live, list) and not _is_leaf(tree):
        return _list_without(live, tree, wanted if isinstance(wanted, list) else [], others)
    return live


def dropped(live: t.Any, tree: Tree, wanted: t.Any, path: Path = ()) -> t.Iterator[Path]:
    """Paths of live fields that the tree's owner has and no longer wants."""
    for entry, below in tree.items():
        if entry == _SELF:
            continue
        found, here = _lookup(live, entry)
        if not found:
            continue
        asked, there = _lookup(wanted, entry)
        if not asked:
            yield (*path, entry)
        elif not _is_leaf(below):
            yield from dropped(here, below, there, (*path, entry))


def matches(candidate: t.Any, keys: t.Mapping[str, t.Any]) -> bool:
    """True when an element of an associative list has these key fields; one it leaves out has the server's default."""
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
            # What others put below stays; what is empty now was only ours.
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
        asked, there = _lookup(wanted, entry)
        if asked or entry in others:
            kept.append(without(value, tree[entry], there, others.get(entry) or {}))
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


def _entries(live: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    return (live.get("metadata") or {}).get("managedFields") or []


def _merge(into: Tree, other: t.Mapping[str, t.Any]) -> None:
    for key, below in other.items():
        _merge(into.setdefault(key, {}), below)
