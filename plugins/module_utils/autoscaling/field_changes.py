# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sets declared fields of an object, except those that another field manager has set to another value (pure)."""

from __future__ import annotations

import copy
import json
import typing as t
from dataclasses import dataclass

from ..catalog.names import FIELD_MANAGER
from ..common.durations import duration_seconds
from ..common.nested import get_nested, set_nested
from ..kube import managed_fields
from ..schema.messages import join_words

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]
Path = tuple[str, ...]
UNKNOWN_MANAGER = "an unknown manager"


@dataclass(frozen=True)
class ForeignField:
    """A field of another manager whose value differs from the declared one."""

    path: str
    value: t.Any
    declared: t.Any
    managers: str

    def __str__(self) -> str:
        """Describe the field for messages."""
        return f"{self.path} is {_text(self.value)} (set by {self.managers}), but {_text(self.declared)} is declared"


@dataclass(frozen=True)
class FieldChanges:
    """The object with the declared fields, and the foreign fields, which are changed only if `change_foreign` is set."""

    desired: Object
    foreign: tuple[ForeignField, ...] = ()


def set_fields(live: Document, fields: t.Mapping[Path, t.Any], *, change_foreign: bool) -> FieldChanges:
    """Set the fields at the given paths of an object."""
    desired = copy.deepcopy(dict(live))
    foreign: list[ForeignField] = []
    for path, declared in fields.items():
        value = get_nested(dict(live), *path)
        if value is not None and _is_same(value, declared):
            continue
        managers = "" if value is None else other_managers(live, path)
        if managers:
            foreign.append(ForeignField(".".join(path), value, declared, managers))
        if change_foreign or not managers:
            set_nested(desired, path, copy.deepcopy(declared))
    return FieldChanges(desired, tuple(foreign))


def other_managers(live: Document, path: Path) -> str:
    """The names of other managers that own a field; empty if only this collection or the server has written it."""
    if not managed_fields.has_records(live):
        return UNKNOWN_MANAGER
    names = [name for name in managed_fields.writers(live, path) if name != FIELD_MANAGER]
    return join_words(names) if names else ""


def leaves(document: Document, prefix: Path = ()) -> dict[Path, t.Any]:
    """The values of a document by their paths; lists and empty maps count as single values."""
    values: dict[Path, t.Any] = {}
    for key, value in document.items():
        if isinstance(value, dict) and value:
            values.update(leaves(value, (*prefix, key)))
        else:
            values[(*prefix, key)] = value
    return values


def _is_same(value: t.Any, declared: t.Any) -> bool:
    """Whether two values are equal, or are equal durations in different notations."""
    if value == declared:
        return type(value) is type(declared) or not isinstance(value, bool)
    if isinstance(value, str) and isinstance(declared, str):
        seconds = duration_seconds(value)
        return seconds is not None and seconds == duration_seconds(declared)
    return False


def _text(value: t.Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
