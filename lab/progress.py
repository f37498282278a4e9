# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress of a long build: one updated line on a terminal, otherwise a line every 20 seconds."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

_PERIOD_LIVE, _PERIOD_LINES = 1.0, 20.0


def format_duration(seconds: float) -> str:
    """Return a duration as m:ss."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"


class BuildProgress:
    """Shows the current tool, its elapsed and usual time, and the estimated remaining time."""

    def __init__(self, usual: dict[str, float]) -> None:
        """Take the tools to build, in order, with their usual duration in seconds."""
        self._usual = usual
        self._names = list(usual)
        self._live = sys.stderr.isatty()
        self._started = time.monotonic()
        self._current: str | None = None
        self._since = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> BuildProgress:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._live:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def begin(self, name: str) -> None:
        """Report the start of a tool's build."""
        self._current, self._since = name, time.monotonic()
        self._show()

    def end(self, name: str) -> None:
        """Report the end of a tool's build."""
        number = self._names.index(name) + 1
        took = time.monotonic() - self._since
        self._current = None
        self._print(f"lab: [{number}/{len(self._names)}] {name} built in {format_duration(took)}", permanent=True)

    def _line(self, name: str) -> str:
        number = self._names.index(name) + 1
        elapsed = time.monotonic() - self._since
        seconds_left = max(self._usual[name] - elapsed, 0) + sum(self._usual[later] for later in self._names[number:])
        after = f", then {', '.join(self._names[number:])}" if number < len(self._names) else ""
        return (
            f"lab: [{number}/{len(self._names)}] building {name} {format_duration(elapsed)}"
            f" (usually {format_duration(self._usual[name])}){after}; about {format_duration(seconds_left)} left"
        )

    def _tick(self) -> None:
        while not self._stop.wait(_PERIOD_LIVE if self._live else _PERIOD_LINES):
            self._show()

    def _show(self) -> None:
        name = self._current
        if name is not None:
            self._print(self._line(name), permanent=False)

    def _print(self, line: str, *, permanent: bool) -> None:
        if self._live:
            sys.stderr.write(f"\r\033[K{line}" + ("\n" if permanent else ""))
        else:
            sys.stderr.write(line + "\n")
        sys.stderr.flush()
