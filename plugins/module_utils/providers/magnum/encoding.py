# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the bodies of the requests that create and change a Magnum node group, and determines the order in which its size changes (pure)."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass

from ...catalog.names import MAGNUM_NODEGROUP_MARK
from ...pools.nodegroup_names import MAX_NODE_COUNT, MIN_NODE_COUNT, NODE_COUNT, group_mark
from .fields import FIELDS, PATCH

if t.TYPE_CHECKING:
    from .specs import MagnumSpec

PATCH_FIELDS = FIELDS.changed_by(PATCH)
# The fields that a resize or a patch changes. All other fields are immutable.
SENT_FIELDS = frozenset({NODE_COUNT, MIN_NODE_COUNT, MAX_NODE_COUNT, *PATCH_FIELDS})


def create_body(spec: MagnumSpec, name: str, count: int | None, cluster: str = "") -> dict[str, t.Any]:
    """The body of the request that creates the group under this name with `count` nodes.

    The group gets its mark as one of Magnum's labels. cluster: the cluster's id, which is a part of the mark.
    """
    settings = FIELDS.creation_body(spec.fields)
    body = {
        "name": name,
        "node_count": count,
        MIN_NODE_COUNT: spec.min_count,
        MAX_NODE_COUNT: spec.max_count,
        # Without labels of its own, a group inherits the labels of the cluster.
        "merge_labels": spec.merge_labels if "labels" in settings else True,
    }
    mark = group_mark(cluster, spec.name, name)
    settings = {**settings, "labels": {**(settings.get("labels") or {}), MAGNUM_NODEGROUP_MARK: mark}}
    return settings | {key: value for key, value in body.items() if value is not None}


def patch_body(current: Size, following: Size, fields: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """The body of the request that changes the bounds and the given fields."""
    changed: dict[str, t.Any] = {}
    if following.high != current.high:
        changed[MAX_NODE_COUNT] = following.high
    if following.low != current.low:
        changed[MIN_NODE_COUNT] = following.low
    changed |= {name: patch_value(value) for name, value in FIELDS.encode(fields).items()}
    return [{"op": "replace", "path": f"/{name}", "value": value} for name, value in changed.items()]


def patch_value(value: t.Any) -> str:
    """Convert a map or a list in a patch to a string, because Magnum accepts only strings and parses them as Python literals.

    JSON maps, lists and strings are valid Python literals, except for escapes of characters above U+FFFF. Characters are therefore not escaped.
    """
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Size:
    """The number of nodes in a group, and the bounds of this number. `high` is None if there is no upper limit."""

    count: int
    low: int
    high: int | None


def next_size(current: Size, desired: Size) -> Size:
    """The size after the next request, which changes either the bounds or the count. It equals `current` if no request remains.

    Magnum rejects a patch whose bounds exclude the current count, and a resize to a number outside the current bounds. Bounds that exclude the desired
    count are therefore widened first. Then the count is changed, and finally the bounds get their desired values.
    """
    if current.count == desired.count:
        return desired
    if current.low <= desired.count and (current.high is None or desired.count <= current.high):
        return Size(desired.count, current.low, current.high)
    high = None if current.high is None or desired.high is None else max(current.high, desired.high)
    return Size(current.count, min(current.low, desired.low), high)
