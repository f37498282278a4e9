# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines which parts of an object this collection owns, from annotations and the server's record of field managers (pure)."""

from __future__ import annotations

import typing as t

from ..catalog.names import FIELD_MANAGER, OWN_PREFIX
from ..cluster_state.ownership import is_created_by_collection
from ..kube.managed_fields import child, owned_by

COPIED = "another tool created it, as a copy of an object of this collection"

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]


def own_annotations(live: Document) -> dict[str, str]:
    """The collection's annotations on an object."""
    annotations = live["metadata"].get("annotations") or {}
    return {key: value for key, value in annotations.items() if key.startswith(OWN_PREFIX)}


def is_marked(live: Document) -> bool:
    """Whether any mark on the object shows that the collection has written it."""
    return bool(own_annotations(live)) or is_written(live)


def is_written(live: Document) -> bool:
    """Whether the server has recorded this collection as a field manager; a copy has the labels and annotations of the original, but not this record."""
    return any(_is_own(entry) for entry in _managers(live))


def is_created(live: Document) -> bool:
    """Whether the collection has created the object, and the object is not a copy of such an object."""
    return is_created_by_collection(live) and is_written(live)


def is_copy(live: Document) -> bool:
    """Whether another tool has created the object from one that the collection has created, for example from an export of it."""
    return is_created_by_collection(live) and not is_written(live)


def unmark_patch(live: Document) -> Object | None:
    """The merge patch that removes the collection's annotations and field manager, and changes no field; None if there are none.

    The patch applies only to the object as it was read.
    """
    if not is_marked(live):
        return None
    metadata: Object = {"resourceVersion": live["metadata"]["resourceVersion"]}
    if own_annotations(live):
        metadata["annotations"] = dict.fromkeys(own_annotations(live))
    if is_written(live):
        # The server ignores an empty list; one empty entry removes all managers.
        metadata["managedFields"] = [entry for entry in _managers(live) if not _is_own(entry)] or [{}]
    return {"metadata": metadata}


def applied_labels(live: Document) -> set[str]:
    """The labels that the collection has applied to an object."""
    return {entry[2:] for entry in child(child(owned_by(live, FIELD_MANAGER), "metadata"), "labels") if entry != "."}


def split_keys(configmap: Document) -> tuple[list[str], list[str]]:
    """The keys of a ConfigMap that only the collection has written, and the foreign keys."""
    own: set[str] = set()
    foreign: set[str] = set()
    for entry in _managers(configmap):
        keys = {name[2:] for name in child(entry.get("fieldsV1") or {}, "data") if name.startswith("f:")}
        (own if _is_own(entry) else foreign).update(keys)
    present = sorted({**(configmap.get("data") or {}), **(configmap.get("binaryData") or {})})
    return [key for key in present if key in own - foreign], [key for key in present if key not in own - foreign]


def has_foreign_entries(configmap: Document) -> bool:
    """Whether another manager has written an entry; only needs the metadata of the ConfigMap."""
    return any(not _is_own(entry) and child(entry.get("fieldsV1") or {}, "data") for entry in _managers(configmap))


def spec_managers(live: Document) -> list[str]:
    """The field managers of the object's spec other than this collection."""
    return sorted(
        {
            str(entry.get("manager"))
            for entry in _managers(live)
            if not _is_own(entry) and not entry.get("subresource") and child(entry.get("fieldsV1") or {}, "spec")
        }
    )


def _managers(live: Document) -> list[Object]:
    return live["metadata"].get("managedFields") or []


def _is_own(entry: Document) -> bool:
    return entry.get("manager") == FIELD_MANAGER
