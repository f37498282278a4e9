# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prepares the removal of a Helm release: checks whether this collection has installed the release, and repairs its records before helm uninstalls it."""

from __future__ import annotations

import typing as t

from ..common.time_limit import RunCommand
from ..common.wait import WaitOptions
from ..kube.client import Client
from . import release as helm
from .release import helm_release_of
from .release_records import ReleaseRecords, is_marked_installed


class ReleaseRemoval:
    """The state of one release; the release's records are read when this object is created."""

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        run_command: RunCommand,
        waiting: WaitOptions,
        pending_timeout: float,
    ) -> None:
        """Read the marker Lease and the metadata of helm's records."""
        self.name, self.namespace = name, namespace
        self._run = run_command
        self._waiting = waiting
        self._timeout = pending_timeout
        self._records = ReleaseRecords(client, name, namespace)
        # Whether the marker shows that this collection installed the release.
        self.managed = is_marked_installed(self._records.marker())
        self._latest = self._records.latest()
        self.initial_status = self.status

    @property
    def status(self) -> str:
        """The status of the newest revision; `absent` without a revision."""
        return self._latest.status if self._latest else "absent"

    @property
    def exists(self) -> bool:
        """Whether there is a release for helm to uninstall."""
        return self._latest is not None and self._latest.status != helm.UNINSTALLED

    def contains(self, item: t.Mapping[str, t.Any]) -> bool:
        """Whether an object is part of this release."""
        return helm_release_of(item) == (self.name, self.namespace)

    def await_other_helm(self) -> None:
        """Wait until no other helm process works on the release; raises WaitTimeout."""
        if self._latest is not None and self._latest.status in helm.UNFINISHED:
            self._records.await_other_helm(self._run, self._timeout, self._waiting)
            self._latest = self._records.latest()

    @property
    def is_superseded(self) -> bool:
        """Whether supersede() has already marked the newest record, or there is no record."""
        return self._latest is None or self._latest.status in (helm.SUPERSEDED, helm.UNINSTALLED)

    def supersede(self, run_id: str) -> None:
        """Mark the newest record as superseded and record the run; call this before any object of the release is deleted.

        Otherwise, if this run were killed while it was deleting objects, a record with the status `deployed` would prevent an installation from restoring
        them. With the status `uninstalling`, kubernetes.core.helm would not finish the removal, because it treats this status as done.
        """
        if self._latest is not None and not self.is_superseded:
            self._records.write_marker(run_id, "uninstall", self._latest.number, self._timeout)
            self._records.supersede(self._latest)
            self._latest = self._records.latest()
