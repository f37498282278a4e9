# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares a desired object with the live one and the fields that we own in it (pure)."""

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
    """The effect of applying `patch_body`; before and after are for users, without fields that the server maintains."""

    changed: bool
    before: Object
    after: Object
    patch_body: Object


@dataclass(frozen=True)
class _FieldContext:
    """The field at which two values are compared."""

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
    """Changed unless live contains all of wanted, and wanted contains all that the manager has applied."""
    body = normalized(wanted)
    if live is None:
        return Difference(True, {}, shown(body), body)
    context = _FieldContext(is_built_in(str(body.get("apiVersion", ""))), managed_fields.known_shape(live))
    owned = managed_fields.owned_by(live, manager)
    changed = not _contains(live, body, context) or next(managed_fields.dropped(live, owned, body), None) is not None
    remaining = (
        managed_fields.without(live, owned, body, managed_fields.owned_by_others(live, manager)) if changed else live
    )
    after = shown(_merged(remaining, body, context)) if changed else shown(live)
    return Difference(changed, shown(live), after, body)


def normalized(wanted: Object) -> Object:
    """The body to send: without status and fields that only the server writes; the text of a Secret is encoded."""
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
    """An object for a diff: without status, fields that only the server writes, and values of Secrets."""
    view = _bare(found)
    if view.get("kind") == "Secret":
        for name in ("data", "stringData"):
            if view.get(name):
                view[name] = dict.fromkeys(view[name], _MASK)
    return view


def same_object(one: Object | None, other: Object | None) -> bool:
    """Whether two versions of an object differ only in fields that the server maintains."""
    return _bare(one) == _bare(other)


def _bare(found: Object | None) -> Object:
    if not found:
        return {}
    return {
        **{key: value for key, value in found.items() if key != "status"},
        "metadata": {key: value for key, value in (found.get("metadata") or {}).items() if key not in _VOLATILE},
    }


def _contains(live: t.Any, wanted: t.Any, context: _FieldContext) -> bool:
    """Whether live contains wanted; other fields of live are foreign, or defaults of the server."""
    if wanted is None:
        return live is None
    if isinstance(wanted, dict):
        return isinstance(live, dict) and _map_contains(live, wanted, context)
    if isinstance(wanted, list):
        return isinstance(live, list) and _list_contains(live, wanted, context)
    return same_scalar(live, wanted, quantities=context.quantities, text=context.text)


def _map_contains(live: Object, wanted: Object, context: _FieldContext) -> bool:
    for key, value in wanted.items():
        if key in live:
            if not _contains(live[key], value, context.below(key)):
                return False
        elif not _may_be_omitted(key, value, context):
            return False
    # The fields of an atom have one owner: further ones that are not defaults have to be removed.
    return not context.atomic or all(key in wanted or is_default(key, live[key]) for key in live)


def _may_be_omitted(key: str, value: t.Any, context: _FieldContext) -> bool:
    if value is None:
        return True
    if value == {} or value == []:
        return key in ("annotations", "labels", "finalizers", "ownerReferences")
    return context.built_in and not context.text and value in (False, 0, "")


def _list_contains(live: list[t.Any], wanted: list[t.Any], context: _FieldContext) -> bool:
    names = managed_fields.list_keys(context.tree)
    if names:
        return all(_element_contains(live, value, names, context) for value in wanted)
    if managed_fields.is_set(context.tree):
        return all(value in live for value in wanted)
    inside = context.at({}, atomic=True)
    return len(live) == len(wanted) and all(map(lambda one, other: _contains(one, other, inside), live, wanted))


def _element_contains(live: list[t.Any], value: t.Any, names: tuple[str, ...], context: _FieldContext) -> bool:
    if not isinstance(value, dict):
        return False
    wanted_keys = {name: value[name] for name in names if name in value}
    for candidate in live:
        if isinstance(candidate, dict) and all(candidate.get(name) == key for name, key in wanted_keys.items()):
            tree = managed_fields.element(context.tree, {name: candidate.get(name) for name in names})
            if _contains(candidate, value, context.at(tree)):
                return True
    return False


def _merged(live: t.Any, wanted: t.Any, context: _FieldContext) -> t.Any:
    """Live with wanted merged into it, as the server does; the spelling of live is kept where both are equal."""
    if isinstance(live, dict) and isinstance(wanted, dict):
        merged = dict(live)
        for key, value in wanted.items():
            if value is None:
                merged.pop(key, None)
            elif key in live:
                merged[key] = _merged(live[key], value, context.below(key))
            elif not _may_be_omitted(key, value, context):
                merged[key] = value
        return merged
    if isinstance(live, list) and isinstance(wanted, list):
        return _merged_list(live, wanted, context)
    return live if not isinstance(wanted, (dict, list)) and _contains(live, wanted, context) else wanted


def _merged_list(live: list[t.Any], wanted: list[t.Any], context: _FieldContext) -> list[t.Any]:
    names = managed_fields.list_keys(context.tree)
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
                merged[index] = _merged(merged[index], value, context)
        return merged
    if managed_fields.is_set(context.tree):
        return [*live, *(value for value in wanted if value not in live)]
    return live if _list_contains(live, wanted, context) else wanted
