# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the seconds that a playbook spends in each of the collection's modules to the file BENCH_MODULE_TIMES, as JSON."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

_COLLECTION = "accel.gpu."
DOCUMENTATION = """
name: module_times
type: aggregate
short_description: Seconds in each module of accel.gpu
description: From the start of each task to its result, summed over the tasks and hosts.
"""


class CallbackModule(CallbackBase):
    """Measures the tasks that run a module of the collection."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "module_times"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        """No task has started."""
        super().__init__()
        self._started: dict[tuple[str, str], float] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        """A task starts on a host."""
        self._started[host.get_name(), task._uuid] = time.monotonic()

    def v2_runner_on_ok(self, result: Any) -> None:
        """A task has ended."""
        task = result._task
        begin = self._started.pop((result._host.get_name(), task._uuid), None)
        if begin is not None and task.resolved_action.startswith(_COLLECTION):
            self._seconds[task.resolved_action] += time.monotonic() - begin

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """The playbook has ended."""
        Path(os.environ["BENCH_MODULE_TIMES"]).write_text(json.dumps(self._seconds), encoding="utf-8")
