# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rollout settings of a node's pool, recorded in an annotation for the release of the node when the pool is not declared any more (pure).

The content of the annotation is not trusted: it is checked by the schema of `rollout`, and invalid content counts as not recorded.
`reboot` is never recorded, because a command from an annotation must not be run.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import typing as t

from ..catalog.names import ROLLOUT_ANNOTATION
from ..pools.plan import RolloutPlan, rollout_plan
from ..schema.rollout import ROLLOUT

if t.TYPE_CHECKING:
    from .node import Node

DEFAULT: t.Final = rollout_plan(ROLLOUT.complete({}))
_FIELDS = tuple(field.name for field in dataclasses.fields(RolloutPlan) if field.name != "reboot")


@functools.lru_cache(maxsize=256)
def rollout_annotation(rollout: RolloutPlan) -> str | None:
    """The text of the annotation: the fields that differ from the defaults; None without differences."""
    differing = {name: getattr(rollout, name) for name in _FIELDS if getattr(rollout, name) != getattr(DEFAULT, name)}
    return json.dumps(differing, sort_keys=True) if differing else None


def recorded_rollout(node: Node) -> RolloutPlan:
    """The rollout settings for the release of the node; the defaults where nothing valid is recorded."""
    return _parse(node.annotations.get(ROLLOUT_ANNOTATION) or "")


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> RolloutPlan:
    try:
        fields = json.loads(text)
    except ValueError:
        return DEFAULT
    if not isinstance(fields, dict) or not set(fields) <= set(_FIELDS) or any(ROLLOUT.problems(fields, "rollout")):
        return DEFAULT
    return rollout_plan(ROLLOUT.complete(fields))
