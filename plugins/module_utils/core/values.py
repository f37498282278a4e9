# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and changes nested documents, and converts durations."""

from __future__ import annotations

import datetime
import json
import re
import typing as t

# A document of an API, a file or the user: one to change, and one to read.
Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

# Parses JSON, and reads and writes values in nested dictionaries.

T = t.TypeVar("T")


def parse_json(text: str | None, kind: type[T]) -> T | None:
    """The value of a JSON string; None if the string is missing, invalid or nested too deeply, or if the value has a different type."""
    try:
        value = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, kind) else None


def format_time(moment: datetime.datetime | None) -> str | None:
    """A time in UTC, for results and messages; None if there is none."""
    return None if moment is None else moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def get_nested(document: t.Any, *keys: str) -> t.Any:
    """The value below these keys; None if a key is missing or a parent value is not a dictionary."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def set_nested(document: dict[str, t.Any], keys: t.Sequence[str], value: t.Any) -> None:
    """Set the value below these keys; missing dictionaries are created."""
    for key in keys[:-1]:
        document = document.setdefault(key, {})
    document[keys[-1]] = value


def part_of(document: t.Any, shape: t.Any) -> t.Any:
    """The part of the document that has the keys of `shape`; values that are not dictionaries are kept as they are."""
    if not isinstance(document, dict) or not isinstance(shape, dict):
        return document
    return {key: part_of(document[key], below) for key, below in shape.items() if key in document}


def merge_patch(before: t.Any, after: t.Any) -> t.Any:
    """The RFC 7386 patch that turns `before` into `after`."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return after
    patch: dict[str, t.Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        if key not in before or before[key] != value:
            patch[key] = merge_patch(before.get(key), value)
    return patch


def apply_merge_patch(document: t.Any, patch: t.Any) -> t.Any:
    """The document after an RFC 7386 patch has been applied to it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value)
    return result


# Parses durations in Go's notation, such as 1h30m.

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
# The pattern accepts only ASCII digits, and matches each number in only one way, so that long invalid text is rejected quickly.
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(h|ms|m|s|us|µs|ns)")


def duration_seconds(text: str) -> float | None:
    """The number of seconds in a non-negative duration (Go, time.ParseDuration); None for any other text."""
    if text == "0":
        return 0.0
    seconds, position = 0.0, 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            return None
        seconds += float(part[1]) * _UNITS[part[2]]
        position = part.end()
    return seconds if text else None
