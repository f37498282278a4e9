# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares a desired object with the live object and the fields that the collection owns in it (pure)."""

from __future__ import annotations

import base64
import copy
import typing as t
from dataclasses import dataclass, replace

from ..catalog.secrets import NOT_SHOWN
from . import managed_fields
from .normalization import QUANTITY_FIELDS, TEXT_MAPS, is_built_in, is_default, same_scalar

Object = dict[str, t.Any]
_VOLATILE = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")


@dataclass(frozen=True)
class Difference:
    """The effect of applying `patch_body`; `before` and `after` are shown to users, without fields that the server maintains."""

    changed: bool
    before: Object
    after: Object
    patch_body: Object


@dataclass(frozen=True)
class _FieldContext:
    """The owners of a field whose values are compared, and the rules for the comparison."""

    built_in: bool
    # The fields below this field that any manager owns, that the applying manager owns, and that other managers own.
    shape: managed_fields.Tree
    owned: managed_fields.Tree
    others: managed_fields.Tree
    quantities: bool = False
    text: bool = False
    atomic: bool = False

    def below(self, key: str) -> _FieldContext:
        return replace(
            self,
            shape=managed_fields.child(self.shape, key),
            owned=managed_fields.child(self.owned, key),
            others=managed_fields.child(self.others, key),
            quantities=not self.text and (self.quantities or key in QUANTITY_FIELDS),
            text=self.text or key in TEXT_MAPS,
        )

    def element(self, keys: Object) -> _FieldContext:
        shape, owned, others = (managed_fields.element(tree, keys) for tree in (self.shape, self.owned, self.others))
        return replace(self, shape=shape, owned=owned, others=others)


def difference(live: Object | None, desired: Object, manager: str) -> Difference:
    """The difference, which is `changed` unless `live` contains all fields of `desired` and `desired` contains all fields that the manager has applied."""
    body = normalized(desired)
    if live is None:
        return Difference(True, {}, shown(body), body)
    context = _FieldContext(
        is_built_in(str(body.get("apiVersion", ""))),
        managed_fields.known_shape(live),
        managed_fields.owned_by(live, manager),
        managed_fields.owned_by_others(live, manager),
    )
    changed = not _contains(live, body, context) or managed_fields.has_dropped(live, context.owned, body)
    return Difference(changed, shown(live), shown(_applied(live, body, context) if changed else live), body)


def without(live: Object, owned: managed_fields.Tree, others: managed_fields.Tree) -> Object:
    """A copy of `live` without the fields that are in `owned` but not in `others`."""
    return _map_applied(live, {}, _FieldContext(built_in=False, shape=owned, owned=owned, others=others))


def normalized(desired: Object) -> Object:
    """The body to send, without the status and fields that only the server writes; the `stringData` of a Secret is encoded as `data`."""
    body = copy.deepcopy(desired)
    body.pop("status", None)
    metadata = body.setdefault("metadata", {})
    for name in _VOLATILE:
        metadata.pop(name, None)
    text = body.pop("stringData", None) if body.get("kind") == "Secret" else None
    if text:
        encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in text.items()}
        body["data"] = {**(body.get("data") or {}), **encoded}
    return body


def shown(live: Object | None) -> Object:
    """An object for a diff, without the status, fields that only the server writes, and values of Secrets."""
    view = _bare(live)
    if view.get("kind") == "Secret":
        for name in ("data", "stringData"):
            if view.get(name):
                view[name] = dict.fromkeys(view[name], NOT_SHOWN)
    return view


def same_object(one: Object | None, other: Object | None) -> bool:
    """Whether two versions of an object differ only in fields that the server maintains."""
    return _bare(one) == _bare(other)


def _bare(live: Object | None) -> Object:
    if not live:
        return {}
    return {
        **{key: value for key, value in live.items() if key != "status"},
        "metadata": {key: value for key, value in (live.get("metadata") or {}).items() if key not in _VOLATILE},
    }


def _contains(live: t.Any, desired: t.Any, context: _FieldContext) -> bool:
    """Whether `live` contains `desired`; other fields of `live` are foreign or defaults of the server."""
    if desired is None:
        return live is None
    if isinstance(desired, dict):
        return isinstance(live, dict) and _map_contains(live, desired, context)
    if isinstance(desired, list):
        return isinstance(live, list) and _list_contains(live, desired, context)
    return same_scalar(live, desired, quantities=context.quantities, text=context.text)


def _map_contains(live: Object, desired: Object, context: _FieldContext) -> bool:
    for key, value in desired.items():
        if key in live:
            if not _contains(live[key], value, context.below(key)):
                return False
        elif not _may_be_omitted(key, value, context):
            return False
    # The fields of an atomic value have one owner, so additional fields that are not defaults must be removed.
    return not context.atomic or all(key in desired or is_default(key, live[key]) for key in live)


def _may_be_omitted(key: str, value: t.Any, context: _FieldContext) -> bool:
    if value is None:
        return True
    if value == {} or value == []:
        return key in ("annotations", "labels", "finalizers", "ownerReferences")
    return context.built_in and not context.text and value in (False, 0, "")


def _list_contains(live: list[t.Any], desired: list[t.Any], context: _FieldContext) -> bool:
    names = managed_fields.list_keys(context.shape)
    if names:
        return all(_element_contains(live, value, names, context) for value in desired)
    if managed_fields.is_set(context.shape):
        return all(value in live for value in desired)
    inside = replace(context, shape={}, atomic=True)
    return len(live) == len(desired) and all(map(lambda one, other: _contains(one, other, inside), live, desired))


def _element_contains(live: list[t.Any], value: t.Any, names: tuple[str, ...], context: _FieldContext) -> bool:
    return any(_contains(live[index], value, element) for index, element in _candidates(live, value, names, context))


def _candidates(
    live: list[t.Any], value: t.Any, names: tuple[str, ...], context: _FieldContext
) -> t.Iterator[tuple[int, _FieldContext]]:
    """The indices of list elements with the key fields of the value; there may be several if the value omits a key field that has a default."""
    keys = {name: value[name] for name in names if name in value} if isinstance(value, dict) else {}
    for index, candidate in enumerate(live):
        if keys and isinstance(candidate, dict) and all(candidate.get(name) == key for name, key in keys.items()):
            yield index, context.element({name: candidate.get(name) for name in names})


def _applied(live: t.Any, desired: t.Any, context: _FieldContext) -> t.Any:
    """The live value after an apply; if both values are equal, the spelling of the live value is kept."""
    if isinstance(live, dict) and isinstance(desired, dict):
        return _map_applied(live, desired, context)
    if isinstance(live, list) and isinstance(desired, list):
        return _list_applied(live, desired, context)
    return live if not isinstance(desired, (dict, list)) and _contains(live, desired, context) else desired


def _map_applied(live: Object, desired: Object, context: _FieldContext) -> Object:
    applied: Object = {}
    for key, value in live.items():
        entry, below = f"f:{key}", context.below(key)
        if desired.get(key) is not None:
            applied[key] = _applied(value, desired[key], below)
        elif key in desired:
            # Null removes a field, regardless of its owner.
            continue
        elif entry not in context.owned:
            applied[key] = value
        else:
            is_whole = managed_fields.is_leaf(below.owned)
            rest = value if is_whole else _applied(value, type(value)(), below)
            # Foreign fields below this field are kept; a map that is now empty belonged only to the owner.
            if entry in context.others or (rest and not is_whole):
                applied[key] = rest
    added = {key: value for key, value in desired.items() if key not in live}
    return applied | {key: value for key, value in added.items() if not _may_be_omitted(key, value, context)}


def _list_applied(live: list[t.Any], desired: list[t.Any], context: _FieldContext) -> list[t.Any]:
    names = managed_fields.list_keys(context.shape)
    if not names and not managed_fields.is_set(context.shape):
        return live if _list_contains(live, desired, context) else desired
    dropped = managed_fields.dropped_elements(live, context.owned, desired, context.others)
    applied = [value for value in live if value not in dropped]
    if not names:
        return [*applied, *(value for value in desired if value not in applied)]
    assigned: set[int] = set()
    for value in desired:
        candidates = [
            candidate for candidate in _candidates(applied, value, names, context) if candidate[0] not in assigned
        ]
        if not candidates:
            assigned.add(len(applied))
            applied.append(value)
            continue
        exact = (candidate for candidate in candidates if _contains(applied[candidate[0]], value, candidate[1]))
        index, element = next(exact, candidates[0])
        assigned.add(index)
        applied[index] = _applied(applied[index], value, element)
    return applied
