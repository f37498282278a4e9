# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress, parallel calls, time limits, and waits for a condition."""

from __future__ import annotations

import json
import os
import queue
import signal
import threading
import time
import typing as t
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from .errors import ModuleFailure, ServiceError
from .files import descendants, signal_processes

# Writes the progress of a module to a file, from which the action plugin reads it line by line.

PROGRESS_ENV = "ACCEL_GPU_PROGRESS"
RUN_ID_ENV = "ACCEL_GPU_RUN_ID"
RUN_URL_ENV = "ACCEL_GPU_RUN_URL"
INVENTORY_HOST_ENV = "ACCEL_GPU_INVENTORY_HOST"


class Progress:
    """Appends lines to a file; never fails and never blocks a module."""

    def __init__(self, path: str | None) -> None:
        """Write to the file that the action plugin has created; without a file, all lines are dropped."""
        self._path = path if path and os.path.isfile(path) else None
        self._lock = threading.Lock()

    def report(self, text: str, done: int | None = None, total: int | None = None, *, failed: int = 0) -> None:
        """Append one line, with counts if they are given. `done` does not include failures. The reader limits the number of lines that it shows."""
        if self._path is None:
            return
        line: dict[str, t.Any] = {"at": round(time.time(), 3), "text": f"{text}, {failed} failed" if failed else text}
        if total is not None:
            line.update(done=done or 0, total=total)
        try:
            # A missing file is not created again: the reader has removed it, and would not remove it a second time.
            with self._lock, open(os.open(self._path, os.O_WRONLY | os.O_APPEND), "ab") as file:
                file.write(json.dumps(line).encode() + b"\n")
        except OSError:
            # If the reader was killed, the disk is full, or the file belongs to another user, the work continues.
            self._path = None


# Makes parallel calls with a limit on their number, and calls with a time limit. A fatal error stops new calls, but every started call is reported.

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


# A time limit for programs that AnsibleModule.run_command starts.

# AnsibleModule.run_command: exit status, standard output and standard error.
RunCommand = t.Callable[..., tuple[int, str, str]]

# The number of seconds in which a program can clean up after SIGTERM; buildah removes the container of its build.
_GRACE, _PAUSE = 20.0, 0.1


def run_within(run: RunCommand, arguments: t.Sequence[str], seconds: float, **options: t.Any) -> tuple[int, str, str]:
    """Run a program and return its result; raises TimeoutError if the program was stopped after this time.

    The program gets SIGTERM and, after a grace period, SIGKILL. Processes that it leaves behind, such as a step of a build, get SIGKILL.
    """
    expired, timers = threading.Event(), list[threading.Timer]()

    def stop(process: t.Any) -> None:
        expired.set()
        below = descendants(process.pid)
        process.terminate()
        until = time.monotonic() + _GRACE
        while process.poll() is None and time.monotonic() < until:
            time.sleep(_PAUSE)
        process.kill()
        signal_processes(below, signal.SIGKILL)

    def watch(process: t.Any) -> None:
        timer = threading.Timer(seconds, stop, [process])
        timer.daemon = True
        timers.append(timer)
        timer.start()

    try:
        result = run(list(arguments), before_communicate_callback=watch, **options)
    finally:
        for timer in timers:
            timer.cancel()
            timer.join()
    if expired.is_set() and result[0]:
        raise TimeoutError
    return result


# Waits for a state, up to a time limit.


class WaitTimeout(ModuleFailure):
    """The time limit was reached; the message contains the object, its state, the duration of this state, and the remedy."""

    code = "timeout"


@dataclass(frozen=True)
class WaitOptions:
    """The timeout and the read interval in seconds, the receiver of progress reports, and the name of the option with the timeout."""

    timeout: float
    interval: float
    progress: Progress
    option: str = "wait_timeout"

    def until(
        self,
        read: t.Callable[[], T],
        done: t.Callable[[T], bool],
        *,
        describe: t.Callable[[T], str],
        partial: t.Callable[[T], t.Mapping[str, t.Any]] | None = None,
        progress_text: t.Callable[[T], str] | None = None,
        max_interval: float = float("inf"),
    ) -> T:
        """Call wait_until() with these options and an interval of at most `max_interval`."""
        return wait_until(
            read,
            done,
            timeout=self.timeout,
            interval=min(self.interval, max_interval),
            describe=describe,
            partial=partial,
            progress_text=progress_text,
            progress=self.progress,
            option=self.option,
        )


class StateTimer:
    """Measures for how long objects have been in their states."""

    def __init__(self, clock: t.Callable[[], float] = time.monotonic) -> None:
        """Start without any recorded state."""
        self._clock = clock
        self._states: dict[str, tuple[t.Any, float]] = {}

    def seconds(self, name: str, state: t.Any) -> float:
        """Record the state of an object; returns the number of seconds that it has been in this state."""
        now = self._clock()
        known, since = self._states.get(name, (None, now))
        if name not in self._states or known != state:
            self._states[name] = (state, now)
            return 0.0
        return now - since

    def forget(self, name: str) -> None:
        """Forget the state of an object; if the same state is recorded later, its duration starts at zero."""
        self._states.pop(name, None)


def wait_until(
    read: t.Callable[[], T],
    done: t.Callable[[T], bool],
    *,
    timeout: float,
    interval: float = 2.0,
    first_interval: float | None = None,
    started: float | None = None,
    describe: t.Callable[[T], str],
    partial: t.Callable[[T], t.Mapping[str, t.Any]] | None = None,
    progress_text: t.Callable[[T], str] | None = None,
    progress: Progress | None = None,
    option: str = "wait_timeout",
    clock: t.Callable[[], float] = time.monotonic,
    sleep: t.Callable[[float], None] = time.sleep,
) -> T:
    """Read until `done` accepts the state, and return that state; raises WaitTimeout after `timeout` seconds.

    first_interval: seconds before the second read; the interval then doubles up to `interval`. started: the clock's time from which the
    timeout counts; the default is the current time. describe: returns the description of the last state for the timeout's message. option: the option with
    the timeout; empty if no option sets it.
    Transient errors of a service do not end the wait; other errors do.
    """
    start = clock() if started is None else started
    last: list[T] = []
    transient: ServiceError | None = None
    pause = interval if first_interval is None else min(first_interval, interval)
    while True:
        try:
            state = read()
            last, transient = [state], None
            if done(state):
                return state
            if progress is not None and progress_text is not None:
                progress.report(progress_text(state))
        except ServiceError as error:
            if not error.transient:
                raise
            transient = error
        seconds_left = start + timeout - clock()
        if seconds_left <= 0:
            limit = f"{timeout:.0f} s ({option})" if option else f"{timeout:.0f} s"
            raise WaitTimeout(
                _timeout_message(limit, last, transient, describe),
                partial(last[0]) if partial and last else None,
            )
        sleep(min(pause, seconds_left))
        pause = min(2 * pause, interval)


def _timeout_message(limit: str, last: list[T], transient: ServiceError | None, describe: t.Callable[[T], str]) -> str:
    parts = [f"Not done within {limit}."]
    parts += [describe(state) for state in last]
    if transient is not None:
        parts.append(f"{transient.service} did not respond at the end: {transient.message}")
    return " ".join(part for part in parts if part)
