# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes annotations that record, as JSON, which values the collection has set in another owner's object (pure)."""

from __future__ import annotations

import json
import typing as t


def set_record(desired: dict[str, t.Any], key: str, record: t.Mapping[str, t.Any]) -> None:
    """Write a record as JSON into an annotation of the object; an empty record removes the annotation."""
    annotations = dict(desired["metadata"].get("annotations") or {})
    annotations.pop(key, None)
    if record:
        annotations[key] = json.dumps(record, sort_keys=True, separators=(",", ":"))
    if annotations:
        desired["metadata"]["annotations"] = annotations
    else:
        desired["metadata"].pop("annotations", None)
