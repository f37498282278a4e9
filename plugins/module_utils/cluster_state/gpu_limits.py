# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and merges the collection's entries in resourceLimits.gpus of the ClusterAutoscaler (pure).

The list is atomic in the CRD, so the entries are merged by their type. An annotation records the maxima that the collection has written, and the
foreign entries that the collection has replaced. If another manager changes an entry after that, the entry belongs to that manager.
"""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass

from ..catalog.names import GPU_LIMITS_ANNOTATION
from ..common.nested import get_nested, parse_json
from .record_annotation import set_record

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]
# By GPU type: `max` is the maximum that was written; `former` is the foreign entry that was replaced, if any.
Record = dict[str, Object]

PATH = ("spec", "resourceLimits", "gpus")


@dataclass(frozen=True)
class LimitChanges:
    """The list and the record after a merge, and the foreign entries whose maximum differs: type, foreign maximum, desired maximum."""

    entries: list[Object]
    record: Record
    foreign: tuple[tuple[str, int, int], ...] = ()


def entries_of(live: Document) -> list[Object]:
    """The GPU limits of a ClusterAutoscaler."""
    return [dict(entry) for entry in get_nested(dict(live), *PATH) or ()]


def record_of(live: Document) -> Record:
    """The recorded entries, without malformed ones."""
    text = get_nested(dict(live), "metadata", "annotations", GPU_LIMITS_ANNOTATION)
    record = parse_json(text, dict) or {}
    return {
        str(kind): dict(entry)
        for kind, entry in record.items()
        if isinstance(entry, dict) and isinstance(entry.get("max"), int) and isinstance(entry.get("former", {}), dict)
    }


def merge_limits(
    entries: t.Sequence[Document],
    record: Record,
    limits: t.Mapping[str, int],
    used: t.Collection[str],
    *,
    change_foreign: bool = False,
) -> LimitChanges:
    """Set the maxima in `limits`, by GPU type, and remove the recorded entries of all other types that are not in `used`.

    `used` contains the GPU types of the existing MachineSets. A foreign entry with a different maximum is changed only if `change_foreign` is set.
    """
    merged = [dict(entry) for entry in entries]
    kept: Record = copy.deepcopy(record)
    foreign: list[tuple[str, int, int]] = []
    for kind, high in sorted(limits.items()):
        entry = next((item for item in merged if item.get("type") == kind), None)
        if entry is None:
            merged.append({"type": kind, "min": 0, "max": high})
            kept[kind] = {"max": high}
            continue
        if entry.get("max") == high:
            continue
        own = kind in record and record[kind]["max"] == entry.get("max")
        if not own and not change_foreign:
            foreign.append((kind, int(entry.get("max") or 0), high))
            continue
        former = record[kind].get("former") if own else dict(entry)
        entry.update(max=high, min=min(int(entry.get("min") or 0), high))
        kept[kind] = {"max": high, **({"former": former} if former else {})}
    unneeded = [kind for kind in record if kind not in limits and kind not in used]
    rest = without_limits(merged, kept, unneeded)
    return LimitChanges(rest.entries, rest.record, tuple(foreign))


def without_limits(entries: t.Sequence[Document], record: Record, kinds: t.Collection[str]) -> LimitChanges:
    """The list without the collection's entries of these types; the foreign entries that the collection had replaced are restored."""
    merged: list[Object] = []
    for entry in entries:
        kind = str(entry.get("type"))
        known = record.get(kind) if kind in kinds else None
        if known is None or known["max"] != entry.get("max"):
            merged.append(dict(entry))
        elif known.get("former"):
            merged.append(dict(known["former"]))
    return LimitChanges(merged, {kind: entry for kind, entry in record.items() if kind not in kinds})


def with_limits(live: Document, changes: LimitChanges) -> Object:
    """The ClusterAutoscaler with this list and record; other fields are not changed."""
    desired = copy.deepcopy(dict(live))
    if changes.entries != entries_of(live):
        limits = desired.setdefault("spec", {}).setdefault("resourceLimits", {})
        limits["gpus"] = changes.entries
        if not changes.entries:
            del limits["gpus"]
    set_record(desired, GPU_LIMITS_ANNOTATION, changes.record)
    return desired
