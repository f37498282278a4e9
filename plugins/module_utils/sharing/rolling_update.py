# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The turns of many nodes: of each pool so many at a time as it says, the next as soon as one has ended."""

from __future__ import annotations

import typing as t
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from .node_change import Step, in_order
from .node_result import LEFT, Fate

# Threads that mostly wait; more would only wait for each other.
MOST = 64


@dataclass
class Queue:
    """The turns of one pool: how many of its nodes may be worked on at a time, and whether a failure ends it."""

    waiting: deque[Step]
    width: int
    pauses: bool
    running: int = 0
    lost: int = 0
    paused: bool = False

    def next(self) -> Step | None:
        """The step whose turn it is; a node that joins the pool takes nothing away from it, and waits for nobody."""
        if not self.waiting or self.paused:
            return None
        if self.waiting[0].joins or self.running + self.lost < self.width:
            return self.waiting.popleft()
        return None

    def began(self, of: Step) -> None:
        """Count one that begins."""
        self.running += not of.joins

    def ended(self, of: Step, fate: Fate) -> None:
        """Count one that has ended; a node that is left closed stays away from its pool."""
        self.running -= not of.joins
        self.lost += fate.outcome == LEFT and not of.joins
        self.paused = self.paused or bool(fate.failed and self.pauses)


@dataclass
class Turns:
    """What has come of it: the fates by node, the nodes that were not begun, and what stopped it all."""

    fates: dict[str, Fate] = field(default_factory=dict)
    not_begun: list[str] = field(default_factory=list)
    error: Exception | None = None


def queues(steps: t.Iterable[Step], sizes: t.Mapping[str, int]) -> list[Queue]:
    """One queue a pool; `sizes` are the numbers of the pools' nodes. Joining nodes come first, since they wait for nobody."""
    by_pool: dict[str, list[Step]] = {}
    for of in steps:
        by_pool.setdefault(of.queue, []).append(of)
    found = []
    for name, listed in sorted(by_pool.items()):
        ordered = sorted(in_order(listed), key=lambda of: not of.joins)
        # Nodes that are released may have different settings recorded; the most careful ones count.
        width = min(of.rollout.window(sizes.get(name, len(listed))) for of in listed)
        found.append(Queue(deque(ordered), width, any(of.rollout.pause_on_failure for of in listed)))
    return found


def take_turns(
    waiting: t.Sequence[Queue],
    take: t.Callable[[Step], Fate],
    on_done: t.Callable[[Turns], None],
) -> Turns:
    """Take every turn; an exception of one stops the beginning of others, not those under way."""
    turns = Turns()
    running: dict[Future[Fate], tuple[Queue, Step]] = {}
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
