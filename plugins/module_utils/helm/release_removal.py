# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Helm release on its way out: whether it is ours to take, and what has to be mended before helm can."""

from __future__ import annotations

import datetime
import typing as t

from ..common.wait import wait_until
from ..kube.client import Client
from ..kube.helm_marks import marks_of
from . import release as helm
from .cli import is_running, processes
from .preparation import WaitOptions
from .release import Revision
from .release_records import ReleaseRecords, machine, was_installed


class ReleaseRemoval:
    """One release; reads its records when it is made."""

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        run_command: t.Callable[..., tuple[int, str, str]],
        waiting: WaitOptions,
        pending_timeout: float,
    ) -> None:
        """Two small reads: the note that we left, and the metadata of helm's records."""
        self.name, self.namespace = name, namespace
        self._run = run_command
        self._waiting = waiting
        self._timeout = pending_timeout
        self._records = ReleaseRecords(client, name, namespace)
        self._note = self._records.note()
        self._latest = self._newest()
        # The status in which it was found.
        self.found = self.status

    @property
    def ours(self) -> bool:
        """Whether this collection's note says that it installed the release."""
        return was_installed(self._note)

    @property
    def noted(self) -> bool:
        """Whether there is a note of ours at all."""
        return self._note is not None

    @property
    def status(self) -> str:
        """Helm's status of its newest revision; `absent` without one."""
        return self._latest.status if self._latest else "absent"

    @property
    def there(self) -> bool:
        """Whether helm has something to uninstall."""
        return self._latest is not None and self._latest.status != helm.UNINSTALLED

    def told(self) -> dict[str, t.Any]:
        """As the module tells it."""
        return {
            "name": self.name,
            "namespace": self.namespace,
            "status": self.found,
            "ours": self.ours,
            "uninstall": self.ours and self.there,
        }

    def has(self, found: t.Mapping[str, t.Any]) -> bool:
        """Whether an object is part of this release."""
        return marks_of(found) == (self.name, self.namespace)

    def settle(self) -> None:
        """Wait for a helm that is at work on the release; raises TimeoutStory while it is."""
        if self._latest is None or self._latest.status not in helm.UNFINISHED:
            return
        label = f"{self.namespace}/{self.name}"

        def look() -> tuple[bool, str]:
            self._latest = self._newest()
            if self._latest is None or self._latest.status not in helm.UNFINISHED:
                return True, ""
            return self._judge(self._latest)

        wait_until(
            look,
            lambda state: state[0],
            timeout=self._waiting.timeout,
            interval=self._waiting.interval,
            story=lambda state: (
                f"Helm release {label} is {self.status}, and {state[1]}. Let that helm end, or wait longer (wait_timeout); "
                "if no helm works on it any more, lower pending_timeout."
            ),
            say=lambda state: f"release {label} is {self.status}: {state[1]}",
            progress=self._waiting.progress,
        )

    @property
    def open(self) -> bool:
        """Whether the newest record is as reopen() leaves it, or there is none."""
        return self._latest is None or self._latest.status in (helm.SUPERSEDED, helm.UNINSTALLED)

    def reopen(self, run_id: str) -> None:
        """Mark the newest record as superseded before anything of the release is taken away, and note who does so.

        A record that says deployed would keep an installation from putting it back, should this run be killed in between, and
        one that says uninstalling would keep kubernetes.core.helm from finishing (it takes that for done).
        """
        if self._latest is not None and not self.open:
            self._records.announce(run_id, "uninstall", self._latest.number, self._timeout)
            self._records.supersede(self._latest)
            self._latest = self._newest()

    def _newest(self) -> Revision | None:
        return next(iter(self._records.revisions()), None)

    def _judge(self, revision: Revision) -> tuple[bool, str]:
        running = processes(self._run)
        watch = helm.PendingWatch(
            here=machine(),
            helm_here=None if running is None else is_running(self.name, running),
            note=self._note,
            now=datetime.datetime.now(datetime.UTC),
            timeout=self._timeout,
        )
        return helm.abandoned(revision, watch)
