# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process is identified by its start time, its machine and its PID namespace."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from ansible_collections.accel.gpu.plugins.module_utils.core.files import pid_namespace, start_time, this_machine


def test_this_process() -> None:
    assert start_time(os.getpid()).isdigit()
    assert start_time(os.getpid()) == start_time(os.getpid())
    assert this_machine().endswith(f"/{pid_namespace()}")


def test_a_zombie_and_a_process_that_has_ended_have_no_start_time() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert start_time(child.pid).isdigit()
        assert child.stdin is not None
        child.stdin.close()
        end = time.monotonic() + 30
        while start_time(child.pid):
            assert time.monotonic() < end
            time.sleep(0.05)
        # Not waited for yet, so that it is a zombie.
        os.kill(child.pid, 0)
        child.wait()
        assert start_time(child.pid) == ""
