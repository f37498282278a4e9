# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reboot of a node by the user's own program, proven by the node's boot id."""

from __future__ import annotations

import threading
import typing as t

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..pools.plan import RebootPlan

# Runs a program and waits for its end: (exit status, what it wrote, what it wrote to stderr).
Run = t.Callable[[t.Sequence[str]], tuple[int, str, str]]
Wait = t.Callable[[t.Callable[["Node | None"], t.Any], float], t.Any]


class RebootFailed(Exception):
    """The program failed, or the node did not come back; says which, and what to do."""


class Rebooter:
    """Reboots one node after the other as far as the programs are concerned; their boots go on side by side."""

    def __init__(self, run: Run) -> None:
        """Run nothing yet."""
        self._run = run
        self._one = threading.Lock()

    def reboot(self, name: str, how: RebootPlan, wait: Wait) -> None:
        """Run the program and wait until the node is back with another boot id; raises NoReboot."""
        before = wait(lambda node: node and (node.boot_id or "-"), 0)
        words = [word.replace("{node}", name) for word in how.command]
        with self._one:
            status, dummy, errors = self._run(words)
        if status:
            said = errors.strip()[-300:] or "nothing"
            raise RebootFailed(f"{words[0]} (rollout.reboot.command) ended with {status} for {name}, and said: {said}")

        def rebooted(node: Node | None) -> bool | None:
            return True if node is not None and node.ready and node.boot_id != before else None

        if not wait(rebooted, how.timeout):
            raise RebootFailed(
                f"{name} was not back with another boot id {how.timeout} s after {words[0]} had ended (rollout.reboot.timeout): "
                "look at its console"
            )
