# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible-test sanity` in the background: minutes of one core, in which other tests can run on the other one."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from .programs import BUILD, REPO, environment

# What tools/sanity ends with where the machine has no Python for an ansible-core.
NO_PYTHON = 3


class SanityRuns:
    """The runs that a test session wants, by ansible-core: one after the other, with what processor time others leave."""

    def __init__(self, cores: list[str]) -> None:
        self._waiting = cores
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._begin_next()

    def ended(self, core: str) -> tuple[int, str]:
        """Waits for the end of a run; its exit status and all that it said."""
        while core not in self._running:
            for process in self._running.values():
                process.wait()
            self._begin_next()
        code = self._running[core].wait()
        self._begin_next()
        return code, _log(core).read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """Ends what nobody waits for any more."""
        self._waiting = []
        for process in self._running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()

    def _begin_next(self) -> None:
        if not self._waiting:
            return
        core = self._waiting.pop(0)
        with _log(core).open("wb") as log:
            self._running[core] = subprocess.Popen(
                ["nice", "-n", "19", str(REPO / "tools" / "sanity"), core],
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def _log(core: str) -> Path:
    return BUILD / f"sanity-{core}.log"
