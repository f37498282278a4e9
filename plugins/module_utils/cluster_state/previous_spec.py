# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stood in somebody else's ClusterPolicy where ours stands now: noted in its annotation, and put back by it (pure)."""

from __future__ import annotations

import json
import typing as t

from ..catalog.names import FORMER_ANNOTATION

Document = t.Mapping[str, t.Any]
Spec = dict[str, t.Any]


def record_previous(policy: Document) -> Spec:
    """The noted part of the spec; empty where nothing, or nothing readable, is noted."""
    try:
        former = json.loads((policy["metadata"].get("annotations") or {}).get(FORMER_ANNOTATION) or "{}")
    except ValueError:
        return {}
    return former if isinstance(former, dict) else {}


def restore_previous(rest: Spec, former: Spec) -> Spec:
    """The spec without ours, with what was there before ours wherever nobody has put anything since."""
    result = dict(rest)
    for key, value in former.items():
        below = result.get(key)
        if isinstance(value, dict) and isinstance(below or {}, dict):
            result[key] = restore_previous(below or {}, value)
        elif key not in result:
            result[key] = value
    return result
