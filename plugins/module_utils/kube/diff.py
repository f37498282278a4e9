# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare before sending: what we want against what is there and what we own of it (pure)."""

from __future__ import annotations

import base64
import copy
import typing as t
from dataclasses import dataclass

from . import managed_fields
from .normalization import is_built_in, is_default, is_quantity_field, is_text_map, same_scalar

Object = dict[str, t.Any]
_MASK = "(hidden)"
_VOLATILE = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")


@dataclass(frozen=True)
class Difference:
    """What applying `patch_body` would do; before and after are shown to users, without what changes by itself."""

    changed: bool
    before: Object
    after: Object
    patch_body: Object


@dataclass(frozen=True)
class _FieldContext:
    """Where in an object two values are compared."""

    built_in: bool
    tree: managed_fields.Tree
    quantities: bool = False
    text: bool = False
    atomic: bool = False

    def below(self, key: str) -> _FieldContext:
        return _FieldContext(
            self.built_in,
            managed_fields.child(self.tree, key),
            quantities=not self.text and (self.quantities or is_quantity_field(key)),
            text=self.text or is_text_map(key),
            atomic=self.atomic,
        )

    def at(self, tree: managed_fields.Tree, *, atomic: bool = False) -> _FieldContext:
        return _FieldContext(self.built_in, tree, self.quantities, self.text, self.atomic or atomic)


def difference(live: Object | None, wanted: Object, manager: str) -> Difference:
    """Changed unless live holds all of wanted and nothing that the manager has applied is missing from wanted."""
    body = normalized(wanted)
    if live is None:
        return Difference(True, {}, shown(body), body)
    place = _FieldContext(is_built_in(str(body.get("apiVersion", ""))), managed_fields.known_shape(live))
    owned = managed_fields.owned_by(live, manager)
    changed = not _holds(live, body, place) or next(managed_fields.dropped(live, owned, body), None) is not None
    remaining = (
        managed_fields.without(live, owned, body, managed_fields.owned_by_others(live, manager)) if changed else live
    )
    after = shown(_merged(remaining, body, place)) if changed else shown(live)
    return Difference(changed, shown(live), after, body)


def normalized(wanted: Object) -> Object:
    """What is sent: without status and what only the server writes, a Secret's text encoded."""
    body = copy.deepcopy(wanted)
    body.pop("status", None)
    metadata = body.setdefault("metadata", {})
    for name in _VOLATILE:
        metadata.pop(name, None)
    text = body.pop("stringData", None) if body.get("kind") == "Secret" else None
    if text:
        encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in text.items()}
        body["data"] = {**(body.get("data") or {}), **encoded}
    return body


def shown(found: Object | None) -> Object:
    """An object as a diff shows it: no status, nothing volatile, no secret value."""
    if not found:
        return {}
    view = {key: value for key, value in found.items() if key != "status"}
    view["metadata"] = {key: value for key, value in (found.get("metadata") or {}).items() if key not in _VOLATILE}
    if view.get("kind") == "Secret":
        for name in ("data", "stringData"):
            if view.get(name):
                view[name] = dict.fromkeys(view[name], _MASK)
    return view


def same_object(one: Object | None, other: Object | None) -> bool:
    """True when two versions of an object differ in nothing but what the server keeps for itself."""
    return _bare(one) == _bare(other)


def _bare(found: Object | None) -> Object:
    if not found:
        return {}
    return {
        **{key: value for key, value in found.items() if key != "status"},
        "metadata": {key: value for key, value in (found.get("metadata") or {}).items() if key not in _VOLATILE},
    }


def _holds(live: t.Any, wanted: t.Any, place: _FieldContext) -> bool:
    """Live contains wanted; fields that only live has are somebody else's, or a default of the server."""
    if wanted is None:
        return live is None
    if isinstance(wanted, dict):
        return isinstance(live, dict) and _map_holds(live, wanted, place)
    if isinstance(wanted, list):
        return isinstance(live, list) and _list_holds(live, wanted, place)
    return same_scalar(live, wanted, quantities=place.quantities, text=place.text)


def _map_holds(live: Object, wanted: Object, place: _FieldContext) -> bool:
    for key, value in wanted.items():
        if key in live:
            if not _holds(live[key], value, place.below(key)):
                return False
        elif not _may_be_left_out(key, value, place):
            return False
    # Nobody owns single fields of an atom: what is more there than we want, and is no default, has to go.
    return not place.atomic or all(key in wanted or is_default(key, live[key]) for key in live)


def _may_be_left_out(key: str, value: t.Any, place: _FieldContext) -> bool:
    if value is None:
        return True
    if value == {} or value == []:
        return key in ("annotations", "labels", "finalizers", "ownerReferences")
    return place.built_in and not place.text and value in (False, 0, "")


def _list_holds(live: list[t.Any], wanted: list[t.Any], place: _FieldContext) -> bool:
    names = managed_fields.list_keys(place.tree)
    if names:
        return all(_element_holds(live, value, names, place) for value in wanted)
    if managed_fields.is_set(place.tree):
        return all(value in live for value in wanted)
    inside = place.at({}, atomic=True)
    return len(live) == len(wanted) and all(map(lambda one, other: _holds(one, other, inside), live, wanted))


def _element_holds(live: list[t.Any], value: t.Any, names: tuple[str, ...], place: _FieldContext) -> bool:
    if not isinstance(value, dict):
        return False
    wanted_keys = {name: value[name] for name in names if name in value}
    for candidate in live:
        if isinstance(candidate, dict) and all(candidate.get(name) == key for name, key in wanted_keys.items()):
            tree = managed_fields.element(place.tree, {name: candidate.get(name) for name in names})
            if _holds(candidate, value, place.at(tree)):
                return True
    return False


def _merged(live: t.Any, wanted: t.Any, place: _FieldContext) -> t.Any:
    """Live with wanted written over it, as the server would; live's own spelling is kept where both mean the same."""
    if isinstance(live, dict) and isinstance(wanted, dict):
        merged = dict(live)
        for key, value in wanted.items():
            if value is None:
                merged.pop(key, None)
            elif key in live:
                merged[key] = _merged(live[key], value, place.below(key))
            elif not _may_be_left_out(key, value, place):
                merged[key] = value
        return merged
    if isinstance(live, list) and isinstance(wanted, list):
        return _merged_list(live, wanted, place)
    return live if not isinstance(wanted, (dict, list)) and _holds(live, wanted, place) else wanted


def _merged_list(live: list[t.Any], wanted: list[t.Any], place: _FieldContext) -> list[t.Any]:
    names = managed_fields.list_keys(place.tree)
    if names:
        merged = list(live)
        for value in wanted:
            keys = {name: value[name] for name in names if isinstance(value, dict) and name in value}
            index = next(
                (at for at, found in enumerate(merged) if keys and all(found.get(k) == v for k, v in keys.items())),
                None,
            )
            if index is None:
                merged.append(value)
            else:
                merged[index] = _merged(merged[index], value, place)
        return merged
    if managed_fields.is_set(place.tree):
        return [*live, *(value for value in wanted if value not in live)]
    return live if _list_holds(live, wanted, place) else wanted
