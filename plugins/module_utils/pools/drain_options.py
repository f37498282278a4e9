# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a drain: settings in a pool's `rollout`, and the option `drain` of the modules that remove nodes (pure)."""

from __future__ import annotations

import dataclasses
import typing as t

from ..schema.rollout import ROLLOUT


def _longest(periods: t.Sequence[int | None]) -> int | None:
    """The longest period. If any is None (each pod's own grace period), the result is None, because only each pod's own period cannot be too short."""
    known = [period for period in periods if period is not None]
    return max(known) if len(known) == len(periods) else None


def _option(kind: str, most_careful: t.Callable[[t.Any], t.Any]) -> dict[str, t.Any]:
    """The metadata of a field: the type of the option in argument specs, and the function that selects one of the values of several pools."""
    return {"type": kind, "most_careful": most_careful}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DrainSettings:
    """The settings of a drain that have the same names in a pool's `rollout` and in the option `drain` of modules (docs/rollout.md).

    force: also evict pods without a controller. grace_period: seconds for every pod; None keeps the grace period of each pod.
    drain_timeout: seconds for a node.
    """

    force: bool = dataclasses.field(default=False, metadata=_option("bool", all))
    grace_period: int | None = dataclasses.field(default=None, metadata=_option("int", _longest))
    drain_timeout: float = dataclasses.field(
        default=ROLLOUT.fields["drain_timeout"].default, metadata=_option("int", max)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DrainOptions(DrainSettings):
    """The options of a drain. evict: if False, a drain waits until the pods terminate (`drain: none` in `rollout`)."""

    evict: bool = dataclasses.field(default=True, metadata=_option("bool", all))

    @classmethod
    def most_careful(cls, pools: t.Sequence[DrainOptions]) -> DrainOptions:
        """The most careful combination of the options of several pools, for nodes of all of them; the defaults if there are no pools."""
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
        """The suboptions of the module option `drain`."""
        return {
            field.name: {"type": field.metadata["type"], "default": field.default} for field in dataclasses.fields(cls)
        }
