# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of node groups: the options of each provider's node groups, and the name of a group that replaces another group (pure).

To change an immutable field, a new group is created next to the old one, so both groups exist for a while and the new group needs a different name.
This name consists of the declared name and four hexadecimal digits derived from the immutable fields, so the next run finds the group even if
this run is killed.
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
_SUFFIX = re.compile(r"-[0-9a-f]{4}")


def replacement_name(name: str, immutable: t.Mapping[str, t.Any], max_length: int) -> str:
    """The name of the group with these immutable fields that replaces group `name`; at most `max_length` characters."""
    digest = hashlib.sha256(json.dumps(dict(immutable), sort_keys=True).encode()).hexdigest()[:_DIGITS]
    return f"{_stem(name, max_length)}-{digest}"


def is_group_or_replacement(group: str, name: str, max_length: int = 255) -> bool:
    """Whether `group` is the name of group `name` or of a group that replaces it."""
    stem = _stem(name, max_length)
    return group == name or (group.startswith(stem) and bool(_SUFFIX.fullmatch(group[len(stem) :])))


def _stem(name: str, max_length: int) -> str:
    return name[: max_length - _DIGITS - 1].rstrip("-")
