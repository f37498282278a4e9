# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods leave a node: evicted, or awaited until they have ended by themselves, as the rules of a drain say."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..common.wait import wait_until
from ..schema import rollout as rollout_fields
from .eviction import Target, evict

if t.TYPE_CHECKING:
    from ..cluster_state.gpu_pods import PodOnNode
    from ..kube.client import Client
    from ..pools.plan import RolloutPlan
    from .eviction import LeaseCheck

# Nodes that are emptied at the same time; budgets keep the pods apart.
PARALLEL = 4
_TOLD = 5


@dataclass(frozen=True)
class DrainOptions:
    """How pods leave a node; named as in `rollout` of a pool (docs/rollout.md).

    evict: False leaves them until they have ended by themselves. force: evict also what no controller makes again.
    grace_period: seconds for every pod; None leaves each its own. drain_timeout: seconds for a node.
    """

    evict: bool = True
    force: bool = False
    grace_period: int | None = None
    drain_timeout: float = 600

    @classmethod
    def of(cls, rollout: RolloutPlan | None) -> DrainOptions:
        """Those of a pool; of no pool the usual ones."""
        if rollout is None:
            return cls()
        evicts = rollout.drain != rollout_fields.NONE
        return cls(evicts, rollout.force, rollout.grace_period, rollout.drain_timeout)


def evict_pods(
    client: Client,
    node: str,
    pods: t.Iterable[PodOnNode],
    rules: DrainOptions,
    lease: LeaseCheck,
    say: t.Callable[[str], None],
) -> None:
    """Evict these pods of a node, and return when all are gone; raises as kube.eviction.evict does."""
    evict(
        client,
        [Target(user.namespace, user.name, user.uid) for user in pods],
        node=node,
        grace_period=rules.grace_period,
        timeout=rules.drain_timeout,
        lease=lease,
        say=say,
    )


def await_termination(
    look: t.Callable[[], t.Iterable[PodOnNode]], uids: t.Collection[str], timeout: float, lease: LeaseCheck, why: str
) -> None:
    """Wait until none of these pods (by uid) is among those that `look` finds; `why` they are not evicted ends the story."""

    def left() -> list[str]:
        lease.check()
        return [user.shown for user in look() if user.uid in uids]

    wait_until(
        left,
        lambda names: not names,
        timeout=timeout,
        story=lambda names: f"{', '.join(names[:_TOLD])} {'has' if len(names) == 1 else 'have'} not ended, and {why}",
    )
