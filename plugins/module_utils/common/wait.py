# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A wait that has a limit, and a story when the limit is reached."""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass

from .errors import ServiceError
from .progress import Progress

T = t.TypeVar("T")


class WaitTimeout(Exception):
    """The time is over: which object, in which state, since when, what to do; and what was reached so far."""

    def __init__(self, story: str, partial: t.Mapping[str, t.Any] | None = None) -> None:
        """Keep the story as the message and the partial result for the failure."""
        super().__init__(story)
        self.partial = dict(partial or {})


@dataclass(frozen=True)
class WaitOptions:
    """How long to wait in seconds, how often to read, and where to report progress."""

    timeout: float
    interval: float
    progress: Progress


class Since:
    """Remembers since when things are in the state they are in."""

    def __init__(self, clock: t.Callable[[], float] = time.monotonic) -> None:
        """Know nothing yet."""
        self._clock = clock
        self._seen: dict[str, tuple[t.Any, float]] = {}

    def note(self, name: str, state: t.Any) -> float:
        """Seconds for which the thing has been in this state."""
        now = self._clock()
        known, since = self._seen.get(name, (None, now))
        if name not in self._seen or known != state:
            self._seen[name] = (state, now)
            return 0.0
        return now - since

    def forget(self, name: str) -> None:
        """The thing has left every state that is of interest; the same state later on begins anew."""
        self._seen.pop(name, None)


def wait_until(
    read: t.Callable[[], T],
    done: t.Callable[[T], bool],
    *,
    timeout: float,
    interval: float = 2.0,
    first: float | None = None,
    since: float | None = None,
    story: t.Callable[[T], str],
    partial: t.Callable[[T], t.Mapping[str, t.Any]] | None = None,
    say: t.Callable[[T], str] | None = None,
    progress: Progress | None = None,
    clock: t.Callable[[], float] = time.monotonic,
    sleep: t.Callable[[float], None] = time.sleep,
) -> T:
    """Read until it is done and hand back what was read last; raises TimeoutStory after `timeout` seconds.

    first: seconds until the second look; from then on the pause doubles until it is `interval`. since: the clock's time from which
    the timeout counts, where that is not now.
    A service that is away for a while does not end the wait; rights that are missing do.
    """
    start = clock() if since is None else since
    last: list[T] = []
    trouble: ServiceError | None = None
    pause = interval if first is None else min(first, interval)
    while True:
        try:
            state = read()
            last, trouble = [state], None
            if done(state):
                return state
            if progress is not None and say is not None:
                progress.say(say(state))
        except ServiceError as error:
            if not error.transient:
                raise
            trouble = error
        left = start + timeout - clock()
        if left <= 0:
            raise WaitTimeout(_told(timeout, last, trouble, story), partial(last[0]) if partial and last else None)
        sleep(min(pause, left))
        pause = min(2 * pause, interval)


def _told(timeout: float, last: list[T], trouble: ServiceError | None, story: t.Callable[[T], str]) -> str:
    parts = [f"Not done within {timeout:.0f} s (wait_timeout)."]
    if last:
        parts.append(story(last[0]))
    if trouble is not None:
        parts.append(f"{trouble.service} did not answer at the end: {trouble.message}")
    return " ".join(part for part in parts if part)
