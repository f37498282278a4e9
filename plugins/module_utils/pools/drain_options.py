# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a drain: the settings of a pool's `rollout` that concern it, and the option `drain` of modules that remove nodes (pure)."""

from __future__ import annotations

import dataclasses
import typing as t

from ..schema.rollout import NONE, ROLLOUT

if t.TYPE_CHECKING:
    from .plan import RolloutPlan


def _longest(periods: t.Sequence[int | None]) -> int | None:
    """None is each pod's own grace period, the only value that cannot be too short."""
    known = [period for period in periods if period is not None]
    return max(known) if len(known) == len(periods) else None


def _option(kind: str, most_careful: t.Callable[[t.Any], t.Any]) -> dict[str, t.Any]:
    """The type of an option in the argument specification, and how one of the values of several pools is chosen."""
    return {"type": kind, "most_careful": most_careful}


@dataclasses.dataclass(frozen=True)
class DrainOptions:
    """The options of a drain, named as in `rollout` of a pool (docs/rollout.md).

    evict: False waits until the pods end. force: also evict pods without a controller.
    grace_period: seconds for every pod; None keeps the grace period of each pod. drain_timeout: seconds for a node.
    """

    evict: bool = dataclasses.field(default=True, metadata=_option("bool", all))
    force: bool = dataclasses.field(default=False, metadata=_option("bool", all))
    grace_period: int | None = dataclasses.field(default=None, metadata=_option("int", _longest))
    drain_timeout: float = dataclasses.field(
        default=ROLLOUT.fields["drain_timeout"].default, metadata=_option("int", max)
    )

    @classmethod
    def from_rollout(cls, rollout: RolloutPlan) -> DrainOptions:
        """The options that a pool's rollout settings contain; all except `evict` have the same name there."""
        options = {
            field.name: getattr(rollout, field.name) for field in dataclasses.fields(cls) if field.name != "evict"
        }
        return cls(evict=rollout.drain != NONE, **options)

    @classmethod
    def most_careful(cls, rollouts: t.Iterable[RolloutPlan]) -> DrainOptions:
        """The options for nodes of several pools; the defaults without pools."""
        pools = [cls.from_rollout(rollout) for rollout in rollouts]
        if not pools:
            return cls()
        fields = dataclasses.fields(cls)
        return cls(
            **{
                field.name: field.metadata["most_careful"]([getattr(pool, field.name) for pool in pools])
                for field in fields
            }
        )

    @classmethod
    def argument_spec(cls) -> dict[str, dict[str, t.Any]]:
        """The options of a module."""
        return {
            field.name: {"type": field.metadata["type"], "default": field.default} for field in dataclasses.fields(cls)
        }
