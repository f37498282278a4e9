# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many calls at once, bounded; the first one that no other can survive stops the sending, not the reporting."""

from __future__ import annotations

import queue
import threading
import typing as t
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from .errors import ServiceError

T = t.TypeVar("T")
DEFAULT_LIMIT = 16


@dataclass(frozen=True)
class Outcome(t.Generic[T]):
    """What became of one call; one that was never made has neither value nor error."""

    name: str
    value: T | None = None
    error: Exception | None = None
    made: bool = True

    @property
    def ok(self) -> bool:
        """The call was made and raised nothing."""
        return self.made and self.error is None


def is_fatal(error: Exception) -> bool:
    """True for what every further call would meet too: no rights, no connection, a bug."""
    return not isinstance(error, ServiceError) or error.non_retryable


def run_bounded(
    calls: t.Iterable[tuple[str, t.Callable[[], T]]],
    limit: int = DEFAULT_LIMIT,
    on_done: t.Callable[[Outcome[T]], None] | None = None,
    *,
    fatal: t.Callable[[Exception], bool] = is_fatal,
    stop: threading.Event | None = None,
) -> list[Outcome[T]]:
    """Make named calls, at most `limit` at a time; an outcome for each, in their order.

    After a fatal error, or once `stop` is set (a lost lease), those under way end and no other begins.
    """
    waiting = deque(enumerate(calls))
    outcomes: dict[int, Outcome[T]] = {}
    running: dict[Future[T], tuple[int, str]] = {}
    # Not concurrent.futures.wait(), which costs as much for each call that ends as there are calls under way.
    ended: queue.SimpleQueue[Future[T]] = queue.SimpleQueue()
    halted = False
    with ThreadPoolExecutor(max_workers=max(1, limit)) as pool:
        while True:
            halted = halted or (stop is not None and stop.is_set())
            while waiting and not halted and len(running) < limit:
                index, (name, call) = waiting.popleft()
                future = pool.submit(call)
                running[future] = (index, name)
                future.add_done_callback(ended.put)
            if not running:
                break
            # While as many as may be are under way, none begins: `stop` needs no look before one of them has ended.
            future = ended.get()
            index, name = running.pop(future)
            outcome = _outcome(name, future)
            outcomes[index] = outcome
            halted = halted or (outcome.error is not None and fatal(outcome.error))
            if on_done is not None:
                on_done(outcome)
    outcomes.update({index: Outcome(name, made=False) for index, (name, dummy_call) in waiting})
    return [outcomes[index] for index in sorted(outcomes)]


def _outcome(name: str, future: Future[T]) -> Outcome[T]:
    error = future.exception()
    if isinstance(error, Exception):
        return Outcome(name, error=error)
    if error is not None:
        raise error
    return Outcome(name, value=future.result())
