# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a test run says while it runs: a line a file, what takes long right now, and how long is left."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator

import pytest
from _pytest.terminal import TerminalReporter

from .clock import about, spent

DURATIONS = "accel.gpu/durations"
HEARTBEAT = 20.0


def expected_seconds(item: pytest.Item, measured: dict[str, float]) -> float:
    """How long the test took last time, else how long its `usual` mark says, else what its kind usually takes."""
    if item.nodeid in measured:
        return measured[item.nodeid]
    usual = item.get_closest_marker("usual")
    if usual:
        return float(usual.args[0])
    return 10.0 if item.get_closest_marker("lab") else 0.05


class Reporter:
    """A pytest plugin that takes the place of the dots."""

    def __init__(self, config: pytest.Config, terminal: TerminalReporter) -> None:
        terminal.showfspath = False
        self._terminal = terminal
        self._cache = config.cache
        self._measured: dict[str, float] = self._cache.get(DURATIONS, {}) if self._cache else {}
        self._expected: dict[str, float] = {}
        self._files: dict[str, int] = {}
        self._remaining_in_file: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._file_started = 0.0
        self._running: tuple[str, float] | None = None
        # The thread speaks while a test runs and its output is captured, so past that; nothing is captured yet here.
        self._aside = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        self._over = threading.Event()
        self._heart = threading.Thread(target=self._beat, daemon=True)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.config.option.collectonly:
            return
        for item in session.items:
            self._expected[item.nodeid] = expected_seconds(item, self._measured)
            self._remaining_in_file[_file(item.nodeid)] += 1
        self._files = {name: number for number, name in enumerate(self._remaining_in_file, 1)}
        self._terminal.write_line(
            f"tests: {len(session.items)}, files: {len(self._files)}, about {about(self._left())} in all"
        )
        self._heart.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        now = time.monotonic()
        self._running = nodeid, now
        self._file_started = self._file_started or now

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        before = self._measured.get(report.nodeid, 0.0) if report.when != "setup" else 0.0
        self._measured[report.nodeid] = round(before + report.duration, 3)
        if report.failed:
            self._outcomes["failed"] += 1
            self._terminal.write_line(f"        {report.nodeid} failed ({report.when})", red=True)
        elif report.skipped or report.when == "call":
            self._outcomes[report.outcome] += 1

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running = None
        self._expected.pop(nodeid, None)
        name = _file(nodeid)
        self._remaining_in_file[name] -= 1
        if self._remaining_in_file[name] == 0:
            took = time.monotonic() - self._file_started
            result = ", ".join(f"{count} {outcome}" for outcome, count in self._outcomes.items())
            left = f"about {about(self._left())} left" if self._expected else ""
            place = f"{self._files[name]:3}/{len(self._files)}"
            self._terminal.write_line(f"{place}  {spent(took):>8}  {left:<17}  {name}: {result}")
            self._outcomes.clear()
            self._file_started = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, tuple[str, str, str], tuple[str, str, str]]:
        category, dummy, word = yield
        return category, "", word

    def pytest_sessionfinish(self) -> None:
        self._over.set()
        if self._cache:
            self._cache.set(DURATIONS, self._measured)

    def _left(self) -> float:
        return sum(self._expected.values())

    def _beat(self) -> None:
        while not self._over.wait(HEARTBEAT):
            running = self._running
            if running is None:
                continue
            nodeid, since = running
            here = time.monotonic() - since
            if here < HEARTBEAT:
                continue
            left = self._left() - min(here, self._expected.get(nodeid, 0.0))
            print(f"        {nodeid}: for {spent(here)}, about {about(left)} left", file=self._aside, flush=True)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def install(config: pytest.Config) -> None:
    """Puts the reporter in, unless somebody asked for pytest's own verbose or quiet output."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(terminal, TerminalReporter) and config.option.verbose == 0:
        config.pluginmanager.register(Reporter(config, terminal), "accel-gpu-reporter")
