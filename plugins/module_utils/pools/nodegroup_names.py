# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of node groups: the options of each provider's node groups, and the name of a group that replaces another group (pure).

To change an immutable field, a new group is created next to the old one, so both groups exist for a while and the new group needs a different name.
This name consists of the declared name and four hexadecimal digits derived from the immutable fields. Anyone may choose such a name, so the name
does not show who created a group: each replacement carries a mark in its labels or annotations from the moment it is created. The mark is derived from
the group's place (the cluster, or the UID of its object), the declared name and the group's own name, so it is not valid on a copy.
"""

from __future__ import annotations

import hashlib
import json
import re
import typing as t

# The options that every provider's node groups have.
NODE_COUNT, MIN_NODE_COUNT, MAX_NODE_COUNT = "node_count", "min_node_count", "max_node_count"
NODE_LABELS, NODE_TAINTS = "node_labels", "node_taints"

_DIGITS = 4
_MARK_DIGITS = 12
_SUFFIX = re.compile(r"-[0-9a-f]{4}")
_DIGEST = re.compile(rf"[0-9a-f]{{{_MARK_DIGITS}}}")


def replacement_name(name: str, immutable: t.Mapping[str, t.Any], max_length: int) -> str:
    """The name of the group with these immutable fields that replaces group `name`; at most `max_length` characters."""
    digest = hashlib.sha256(json.dumps(dict(immutable), sort_keys=True).encode()).hexdigest()[:_DIGITS]
    return f"{_stem(name, max_length)}-{digest}"


def group_mark(place: str, name: str, group: str) -> str:
    """The mark of the group called `group` that belongs to the declared node group `name`. place: the id of the cluster, or of the group's object."""
    digest = hashlib.sha256(json.dumps([place, name, group]).encode()).hexdigest()[:_MARK_DIGITS]
    return f"{name}.{digest}"


def marked_owner(mark: str | None, place: str, group: str) -> str:
    """The declared name of the node group that `group` belongs to according to its mark; empty without a valid mark."""
    name = (mark or "").rpartition(".")[0]
    return name if name and mark == group_mark(place, name, group) else ""


def claimed_owner(mark: str | None) -> str:
    """The declared name in a mark, whether the mark is valid or not; empty without a mark."""
    name, dummy, digest = (mark or "").rpartition(".")
    return name if _DIGEST.fullmatch(digest) else ""


def may_be_replacement(group: str, name: str, max_length: int = 255) -> bool:
    """Whether `group` is the name of group `name`, or a name that a group that replaces it may have. The group's mark determines whether it does."""
    stem = _stem(name, max_length)
    return group == name or (group.startswith(stem) and bool(_SUFFIX.fullmatch(group[len(stem) :])))


def _stem(name: str, max_length: int) -> str:
    return name[: max_length - _DIGITS - 1].rstrip("-")
