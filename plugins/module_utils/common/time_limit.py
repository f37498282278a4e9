# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A time limit for programs that AnsibleModule.run_command starts."""

from __future__ import annotations

import signal
import threading
import time
import typing as t

from .process import descendants, signal_processes

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
