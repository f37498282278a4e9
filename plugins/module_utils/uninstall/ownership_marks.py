# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of an object is ours by its annotations and by the server's notes of who wrote which field (pure)."""

from __future__ import annotations

import typing as t

from ..catalog.names import FIELD_MANAGER
from ..kube.managed_fields import child, owned_by

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

PREFIX = "accel.gpu/"


def annotations_of(live: Document) -> dict[str, str]:
    """Our annotations on an object."""
    found = live["metadata"].get("annotations") or {}
    return {key: value for key, value in found.items() if key.startswith(PREFIX)}


def is_marked(live: Document) -> bool:
    """Whether anything on the object says that we have written it."""
    return bool(annotations_of(live)) or any(_ours(entry) for entry in _entries(live))


def unmarked(live: Document) -> Object | None:
    """The merge patch that takes our annotations and our name as a writer off an object, and changes none of its fields.

    None when there is neither. It counts for the very object that was read only.
    """
    if not is_marked(live):
        return None
    metadata: Object = {"resourceVersion": live["metadata"]["resourceVersion"]}
    if annotations_of(live):
        metadata["annotations"] = dict.fromkeys(annotations_of(live))
    if any(_ours(entry) for entry in _entries(live)):
        # An empty list would mean "as it is"; one empty entry means "nobody".
        metadata["managedFields"] = [entry for entry in _entries(live) if not _ours(entry)] or [{}]
    return {"metadata": metadata}


def applied_labels(live: Document) -> set[str]:
    """The labels that we have applied to an object."""
    return {entry[2:] for entry in child(child(owned_by(live, FIELD_MANAGER), "metadata"), "labels") if entry != "."}


def keys_of(configmap: Document) -> tuple[list[str], list[str]]:
    """The keys of a ConfigMap that only we have written, and the others."""
    mine: set[str] = set()
    theirs: set[str] = set()
    for entry in _entries(configmap):
        keys = {name[2:] for name in child(entry.get("fieldsV1") or {}, "data") if name.startswith("f:")}
        (mine if _ours(entry) else theirs).update(keys)
    found = sorted({**(configmap.get("data") or {}), **(configmap.get("binaryData") or {})})
    return [key for key in found if key in mine - theirs], [key for key in found if key not in mine - theirs]


def has_entries_of_others(configmap: Document) -> bool:
    """Whether somebody else has written an entry, told by the metadata alone."""
    return any(not _ours(entry) and child(entry.get("fieldsV1") or {}, "data") for entry in _entries(configmap))


def writers(live: Document) -> list[str]:
    """Who else has written the object's spec."""
    found = {
        str(entry.get("manager"))
        for entry in _entries(live)
        if not _ours(entry) and not entry.get("subresource") and child(entry.get("fieldsV1") or {}, "spec")
    }
    return sorted(found)


def _entries(live: Document) -> list[Object]:
    return live["metadata"].get("managedFields") or []


def _ours(entry: Document) -> bool:
    return entry.get("manager") == FIELD_MANAGER
