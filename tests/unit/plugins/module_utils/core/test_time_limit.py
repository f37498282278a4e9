# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that end in time, and programs that do not, with the processes that they have started."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core import waits
from ansible_collections.accel.gpu.plugins.module_utils.core.files import descendants, start_time
from ansible_collections.accel.gpu.plugins.module_utils.core.waits import run_within
from tests.helpers.programs import run_program


def script(*lines: str) -> list[str]:
    """The command line of a shell script."""
    return ["/bin/sh", "-c", "\n".join(lines)]


def test_programs_that_end_in_time() -> None:
    before = threading.active_count()
    assert run_within(run_program, script("echo out; echo bad >&2; exit 3"), 60) == (3, "out\n", "bad\n")
    assert threading.active_count() == before


def test_a_program_gets_time_to_clean_up(tmp_path: Path) -> None:
    done = tmp_path / "done"
    with pytest.raises(TimeoutError):
        run_within(run_program, script(f"trap 'touch {done}; exit 1' TERM", "while :; do sleep 0.1; done"), 0.5)
    assert done.exists()


def test_a_program_that_ignores_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "_GRACE", 0.2)
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        run_within(run_program, script("trap '' TERM", "while :; do sleep 0.1; done"), 0.5)
    assert time.monotonic() - started < 20


def test_processes_that_a_program_leaves_behind(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(TimeoutError):
        run_within(run_program, script("/bin/sh -c 'sleep 60 & echo $! >$0; wait' " + str(pid)), 0.5)
    # The kernel closes the pipes of a killed process before the process is gone.
    until = time.monotonic() + 20
    while start_time(int(pid.read_text())) and time.monotonic() < until:
        time.sleep(0.01)
    assert start_time(int(pid.read_text())) == ""


def test_an_error_of_the_call_ends_the_timer() -> None:
    before = threading.active_count()
    with pytest.raises(FileNotFoundError):
        run_within(run_program, ["/nowhere"], 60)
    assert threading.active_count() == before


def test_a_process_without_children() -> None:
    assert descendants(os.getpid()) == {}
