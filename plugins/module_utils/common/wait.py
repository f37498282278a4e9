# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for a state, up to a time limit."""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass

from .errors import ModuleFailure, ServiceError
from .progress import Progress

T = t.TypeVar("T")


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
