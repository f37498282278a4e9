# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress of a test run: one line per file, the tests that take long, and the remaining time."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter

from .clock import about, spent

DURATIONS = "accel.gpu/durations"
EXPECTED = "accel.gpu/expected"
HEARTBEAT = 20.0
# The name of the first process of pytest-xdist.
FIRST = "gw0"


def expected_seconds(item: pytest.Item, measured: dict[str, float]) -> float:
    """The duration of the last run, or of the mark `usual`, or the usual one of its kind."""
    if item.nodeid in measured:
        return measured[item.nodeid]
    usual = item.get_closest_marker("usual")
    if usual:
        return float(usual.args[0])
    return 3.0 if item.get_closest_marker("lab") else 0.05


class Reporter:
    """A pytest plugin that replaces the dots; one for all test processes."""

    def __init__(self, config: pytest.Config, terminal: TerminalReporter) -> None:
        terminal.showfspath = False
        self._terminal = terminal
        self._cache = config.cache
        self._side_by_side = config.getoption("numprocesses", None) or 1
        self._measured: dict[str, float] = cached(config, DURATIONS)
        self._expected: dict[str, float] = {}
        self._files: dict[str, int] = {}
        self._remaining_in_file: Counter[str] = Counter()
        self._outcomes: dict[str, Counter[str]] = defaultdict(Counter)
        self._file_started: dict[str, float] = {}
        self._running: dict[str, float] = {}
        # A copy of the output, since the thread prints while a test's output is captured; nothing is captured yet here.
        self._aside = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        self._over = threading.Event()
        self._heart = threading.Thread(target=self._beat, daemon=True)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items and not session.config.option.collectonly:
            self._begin({item.nodeid: expected_seconds(item, self._measured) for item in session.items})

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Iterable[str]) -> None:
        if node.gateway.id == FIRST:
            expected = cached(node.config, EXPECTED)
            self._begin({nodeid: expected.get(nodeid, 0.0) for nodeid in ids})

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        now = time.monotonic()
        self._running[nodeid] = now
        self._file_started.setdefault(_file(nodeid), now)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        before = self._measured.get(report.nodeid, 0.0) if report.when != "setup" else 0.0
        self._measured[report.nodeid] = round(before + report.duration, 3)
        outcomes = self._outcomes[_file(report.nodeid)]
        if report.failed:
            outcomes["failed"] += 1
            self._terminal.write_line(f"        {report.nodeid} failed ({report.when}){_why(report)}", red=True)
        elif report.skipped or report.when == "call":
            outcomes[report.outcome] += 1

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)
        self._expected.pop(nodeid, None)
        name = _file(nodeid)
        self._remaining_in_file[name] -= 1
        if self._remaining_in_file[name] == 0:
            took = time.monotonic() - self._file_started[name]
            result = ", ".join(f"{count} {outcome}" for outcome, count in self._outcomes[name].items())
            remaining = f"about {about(self._left())} left" if self._expected else ""
            place = f"{self._files[name]:3}/{len(self._files)}"
            self._terminal.write_line(f"{place}  {spent(took):>8}  {remaining:<17}  {name}: {result}")

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, tuple[str, str, str], tuple[str, str, str]]:
        category, dummy, word = yield
        return category, "", word

    def pytest_sessionfinish(self) -> None:
        self._over.set()
        if self._cache:
            self._cache.set(DURATIONS, self._measured)

    def _begin(self, expected: dict[str, float]) -> None:
        self._expected = expected
        self._remaining_in_file = Counter(_file(nodeid) for nodeid in expected)
        self._files = {name: number for number, name in enumerate(self._remaining_in_file, 1)}
        self._terminal.write_line(
            f"tests: {len(expected)}, files: {len(self._files)}, about {about(self._left())} in all"
        )
        self._heart.start()

    def _left(self) -> float:
        now = time.monotonic()
        gone = sum(min(now - since, self._expected.get(nodeid, 0.0)) for nodeid, since in [*self._running.items()])
        return (sum([*self._expected.values()]) - gone) / self._side_by_side

    def _beat(self) -> None:
        while not self._over.wait(HEARTBEAT):
            now = time.monotonic()
            for nodeid, since in [*self._running.items()]:
                if now - since >= HEARTBEAT:
                    line = f"        {nodeid}: for {spent(now - since)}, about {about(self._left())} left"
                    print(line, file=self._aside, flush=True)


class DurationSender:
    """The plugin of the first test process: it knows the tests, and sends their usual durations."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        measured = cached(self._config, DURATIONS)
        expected = {item.nodeid: expected_seconds(item, measured) for item in session.items}
        if self._config.cache:
            self._config.cache.set(EXPECTED, expected)


def _why(report: pytest.TestReport) -> str:
    """The first line of the failure; pytest prints all of it at the end."""
    crash = getattr(report.longrepr, "reprcrash", None)
    line = str(crash.message if crash else report.longrepr or "").strip().partition("\n")[0]
    return f": {line}" if line else ""


def cached(config: pytest.Config, key: str) -> dict[str, float]:
    """Seconds by test, from an earlier process of this run or from an earlier run."""
    actual: dict[str, float] = config.cache.get(key, {}) if config.cache else {}
    return actual


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def install(config: pytest.Config) -> None:
    """Register the reporter, unless pytest's own verbose or quiet output is requested."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    worker = getattr(config, "workerinput", {}).get("workerid")
    if worker == FIRST:
        config.pluginmanager.register(DurationSender(config), "accel-gpu-durations")
    elif config.option.verbose == 0 and worker is None and isinstance(terminal, TerminalReporter):
        config.pluginmanager.register(Reporter(config, terminal), "accel-gpu-reporter")
