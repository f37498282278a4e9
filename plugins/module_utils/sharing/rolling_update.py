# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the changes of many nodes: of each pool at most `max_unavailable` at a time, the next as soon as one has ended."""

from __future__ import annotations

import typing as t
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from .node_change import NodeChange, in_rollout_order
from .run_context import QUARANTINED, NodeResult

if t.TYPE_CHECKING:
    from .result import RolloutResult

# Threads that mostly wait; more would only wait for each other.
MAX_THREADS = 64


@dataclass
class PoolQueue:
    """The changes of one pool: how many may run at a time, and whether a failure pauses the others."""

    waiting: deque[NodeChange]
    max_unavailable: int
    pause_on_failure: bool
    running: int = 0
    quarantined: int = 0
    paused: bool = False

    def next(self) -> NodeChange | None:
        """The next change that may start; new nodes do not count against max_unavailable."""
        if not self.waiting or self.paused:
            return None
        if self.waiting[0].is_new or self.running + self.quarantined < self.max_unavailable:
            change = self.waiting.popleft()
            self.running += not change.is_new
            return change
        return None

    def ended(self, change: NodeChange, result: NodeResult) -> None:
        """Count a change that has ended; a quarantined node stays unavailable."""
        self.running -= not change.is_new
        self.quarantined += result.outcome == QUARANTINED and not change.is_new
        self.paused = self.paused or bool(result.failure and self.pause_on_failure)


def pool_queues(changes: t.Iterable[NodeChange], sizes: t.Mapping[str, int]) -> list[PoolQueue]:
    """One queue per pool, with new nodes first; `sizes` are the numbers of nodes of the pools."""
    by_pool: dict[str, list[NodeChange]] = {}
    for change in changes:
        by_pool.setdefault(change.queue, []).append(change)
    queues = []
    for name, listed in sorted(by_pool.items()):
        ordered = sorted(in_rollout_order(listed), key=lambda change: not change.is_new)
        # Released nodes may have different settings recorded; the most careful ones count.
        max_unavailable = min(change.rollout.max_parallel(sizes.get(name, len(listed))) for change in listed)
        pause_on_failure = any(change.rollout.pause_on_failure for change in listed)
        queues.append(PoolQueue(deque(ordered), max_unavailable, pause_on_failure))
    return queues


def run_rolling_update(
    queues: t.Sequence[PoolQueue],
    run: t.Callable[[NodeChange], NodeResult],
    total: RolloutResult,
    on_done: t.Callable[[int], None],
) -> None:
    """Run all changes and add them to the total result; `on_done` gets the number of those that have ended.

    After a result with an error no other change starts, running ones end, and the error is raised.
    """
    running: dict[Future[NodeResult], tuple[PoolQueue, NodeChange]] = {}
    ended, error = 0, None
    with ThreadPoolExecutor(max_workers=MAX_THREADS) as threads:
        while True:
            for queue in queues:
                while error is None and len(running) < MAX_THREADS and (change := queue.next()) is not None:
                    running[threads.submit(run, change)] = queue, change
            if not running:
                break
            done, dummy = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                queue, change = running.pop(future)
                result = future.result()
                error = error or result.error
                total.add(change, result)
                queue.ended(change, result)
            ended += len(done)
            on_done(ended)
    total.not_started += sorted(change.node for queue in queues for change in queue.waiting)
    if error is not None:
        raise error
