# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The turns of many nodes: of each pool so many at a time as it says, the next as soon as one has ended."""

from __future__ import annotations

import typing as t
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from .node_change import NodeChange, in_rollout_order
from .node_result import LEFT, NodeResult

# Threads that mostly wait; more would only wait for each other.
MOST = 64


@dataclass
class PoolQueue:
    """The turns of one pool: how many of its nodes may be worked on at a time, and whether a failure ends it."""

    waiting: deque[NodeChange]
    width: int
    pauses: bool
    running: int = 0
    lost: int = 0
    paused: bool = False

    def next(self) -> NodeChange | None:
        """The step whose turn it is; a node that joins the pool takes nothing away from it, and waits for nobody."""
        if not self.waiting or self.paused:
            return None
        if self.waiting[0].joins or self.running + self.lost < self.width:
            return self.waiting.popleft()
        return None

    def began(self, of: NodeChange) -> None:
        """Count one that begins."""
        self.running += not of.joins

    def ended(self, of: NodeChange, fate: NodeResult) -> None:
        """Count one that has ended; a node that is left closed stays away from its pool."""
        self.running -= not of.joins
        self.lost += fate.outcome == LEFT and not of.joins
        self.paused = self.paused or bool(fate.failed and self.pauses)


@dataclass
class RollingResult:
    """What has come of it: the fates by node, the nodes that were not begun, and what stopped it all."""

    fates: dict[str, NodeResult] = field(default_factory=dict)
    not_begun: list[str] = field(default_factory=list)
    error: Exception | None = None


def pool_queues(steps: t.Iterable[NodeChange], sizes: t.Mapping[str, int]) -> list[PoolQueue]:
    """One queue a pool; `sizes` are the numbers of the pools' nodes. Joining nodes come first, since they wait for nobody."""
    by_pool: dict[str, list[NodeChange]] = {}
    for of in steps:
        by_pool.setdefault(of.queue, []).append(of)
    found = []
    for name, listed in sorted(by_pool.items()):
        ordered = sorted(in_rollout_order(listed), key=lambda of: not of.joins)
        # Nodes that are released may have different settings recorded; the most careful ones count.
        width = min(of.rollout.window(sizes.get(name, len(listed))) for of in listed)
        found.append(PoolQueue(deque(ordered), width, any(of.rollout.pause_on_failure for of in listed)))
    return found


def run_rolling_update(
    waiting: t.Sequence[PoolQueue],
    take: t.Callable[[NodeChange], NodeResult],
    on_done: t.Callable[[RollingResult], None],
) -> RollingResult:
    """Take every turn; an exception of one stops the beginning of others, not those under way."""
    turns = RollingResult()
    running: dict[Future[NodeResult], tuple[PoolQueue, NodeChange]] = {}
    with ThreadPoolExecutor(max_workers=MOST) as threads:
        while True:
            for queue in waiting:
                while turns.error is None and len(running) < MOST and (of := queue.next()) is not None:
                    queue.began(of)
                    running[threads.submit(take, of)] = queue, of
            if not running:
                break
            done, dummy = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                queue, of = running.pop(future)
                error = future.exception()
                if isinstance(error, Exception):
                    turns.error = turns.error or error
                    continue
                fate = future.result()
                turns.fates[of.node] = fate
                queue.ended(of, fate)
            on_done(turns)
    turns.not_begun = sorted(of.node for queue in waiting for of in queue.waiting)
    return turns
