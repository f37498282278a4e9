# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reboots a node by the user's own program, and verifies that by the node's boot ID."""

from __future__ import annotations

import threading
import typing as t

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..pools.plan import RebootPlan

# Runs a program and waits for its end: (exit status, stdout, stderr).
Run = t.Callable[[t.Sequence[str]], tuple[int, str, str]]
Wait = t.Callable[[t.Callable[["Node | None"], t.Any], float], t.Any]


class RebootFailed(Exception):
    """The program failed, or the node is not ready again; the message says which, and what to do."""


class Rebooter:
    """Runs one program at a time, while nodes boot in parallel."""

    def __init__(self, run: Run) -> None:
        """Keep the function that runs programs."""
        self._run = run
        self._lock = threading.Lock()

    def reboot(self, name: str, reboot: RebootPlan, wait: Wait) -> None:
        """Run the program and wait until the node is ready with another boot ID; raises RebootFailed."""
        before = wait(lambda node: node and (node.boot_id or "-"), 0)
        command = [word.replace("{node}", name) for word in reboot.command]
        with self._lock:
            status, dummy, stderr = self._run(command)
        if status:
            output = stderr.strip()[-300:] or "nothing"
            raise RebootFailed(
                f"{command[0]} (rollout.reboot.command) failed for {name} with exit status {status} and wrote to stderr: {output}"
            )

        def is_rebooted(node: Node | None) -> bool | None:
            return True if node is not None and node.ready and node.boot_id != before else None

        if not wait(is_rebooted, reboot.timeout):
            raise RebootFailed(
                f"{name} was not ready with another boot ID within {reboot.timeout} s after {command[0]} (rollout.reboot.timeout): "
                "check its console"
            )
