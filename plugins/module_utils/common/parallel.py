# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes parallel calls with a limit on their number, and calls with a time limit. A fatal error stops new calls, but every started call is reported."""

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
    """The result of one call; a call that was never made has neither value nor error."""

    name: str
    value: T | None = None
    error: Exception | None = None
    made: bool = True

    @property
    def ok(self) -> bool:
        """Whether the call was made and raised no error."""
        return self.made and self.error is None


def is_fatal(error: Exception) -> bool:
    """Whether every later call would fail in the same way (missing permissions, no connection, a bug)."""
    return not isinstance(error, ServiceError) or error.fails_every_request


def run_bounded(
    calls: t.Iterable[tuple[str, t.Callable[[], T]]],
    limit: int = DEFAULT_LIMIT,
    on_done: t.Callable[[Outcome[T], int], None] | None = None,
    *,
    fatal: t.Callable[[Exception], bool] = is_fatal,
    stop: threading.Event | None = None,
) -> list[Outcome[T]]:
    """Make named calls, at most `limit` at a time; returns an outcome for each call, in their order.

    `on_done` gets each outcome, and the number of calls that have finished. After a fatal error, or once `stop` is set, for example because a lease was
    lost, running calls finish and no more calls start.
    """
    waiting = deque(enumerate(calls))
    outcomes: dict[int, Outcome[T]] = {}
    running: dict[Future[T], tuple[int, str]] = {}
    # concurrent.futures.wait() is not used, because its cost for each finished call grows with the number of running
    # calls.
    finished: queue.SimpleQueue[Future[T]] = queue.SimpleQueue()
    halted = False
    with ThreadPoolExecutor(max_workers=max(1, limit)) as pool:
        while True:
            halted = halted or (stop is not None and stop.is_set())
            while waiting and not halted and len(running) < limit:
                index, (name, call) = waiting.popleft()
                future = pool.submit(call)
                running[future] = (index, name)
                future.add_done_callback(finished.put)
            if not running:
                break
            # While the limit is reached, no call can start, so `stop` is not checked before a call has finished.
            future = finished.get()
            index, name = running.pop(future)
            outcome = _outcome(name, future)
            outcomes[index] = outcome
            halted = halted or (outcome.error is not None and fatal(outcome.error))
            if on_done is not None:
                on_done(outcome, len(outcomes))
    outcomes.update({index: Outcome(name, made=False) for index, (name, dummy_call) in waiting})
    return [outcomes[index] for index in sorted(outcomes)]


def call_all(
    calls: t.Iterable[tuple[str, t.Callable[[], T]]], limit: int = DEFAULT_LIMIT, *, stop: threading.Event | None = None
) -> list[T]:
    """Make named calls like run_bounded(), and return their values in the same order; after any error, no more calls start and the error is raised.

    Once `stop` is set, only the values of the calls that were made are returned.
    """
    outcomes = run_bounded(calls, limit, fatal=lambda dummy: True, stop=stop)
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return [t.cast("T", outcome.value) for outcome in outcomes if outcome.made]


def call_within(call: t.Callable[[], T], seconds: float) -> T:
    """The result of a call; raises TimeoutError after this time. The call then continues in a thread that does not keep the process from ending."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future.result(seconds)


def _outcome(name: str, future: Future[T]) -> Outcome[T]:
    error = future.exception()
    if isinstance(error, Exception):
        return Outcome(name, error=error)
    if error is not None:
        raise error
    return Outcome(name, value=future.result())
