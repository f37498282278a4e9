# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and writes Helm's records of a release, and the marker Lease, which is written before helm starts."""

from __future__ import annotations

import datetime
import socket
import typing as t
import uuid

from ..common import process
from ..common.nested import get_nested
from ..common.time_limit import RunCommand
from ..common.wait import WaitOptions
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.paths import NAMESPACES, object_path
from .cli import is_running, processes
from .release import INSTALL, UNFINISHED, ReleaseContent, Revision, decode_content, sort_revisions, supersede_patch

INSTALLED_ANNOTATION = "accel.gpu/installed"
MACHINE_ANNOTATION = "accel.gpu/machine"
REVISION_ANNOTATION = "accel.gpu/revision"

Object = dict[str, t.Any]


class ReleaseRecords:
    """Accesses the Secrets of one release. List requests return only metadata; the content of each Secret is read separately."""

    def __init__(self, client: Client, name: str, namespace: str) -> None:
        """Store the arguments; no request is sent yet."""
        self._client = client
        self.name, self.namespace = name, namespace
        self._secrets = f"{NAMESPACES}/{namespace}/secrets"

    def revisions(self) -> list[Revision]:
        """All revisions, newest first; empty if the namespace does not exist."""
        selector = f"owner=helm,name={self.name}"
        return sort_revisions(self._client.list(self._secrets, label_selector=selector, metadata_only=True))

    def latest(self) -> Revision | None:
        """The newest revision; None if there is none."""
        return next(iter(self.revisions()), None)

    def content(self, revision: Revision | None) -> ReleaseContent | None:
        """The content of a revision; None without a revision, or if its Secret is gone or not in helm's format."""
        secret = self._client.get(f"{self._secrets}/{revision.secret}") if revision else None
        return decode_content(secret) if secret else None

    def drop(self, revision: Revision) -> bool:
        """Delete a revision; False if it has changed since it was read."""
        preconditions = {"uid": revision.uid, "resourceVersion": revision.resource_version}
        try:
            self._client.delete(f"{self._secrets}/{revision.secret}", body={"preconditions": preconditions})
        except ApiError as error:
            if not error.conflict:
                raise
            return False
        return True

    def supersede(self, revision: Revision) -> bool:
        """Mark a revision as superseded, so that helm handles the release again; False if it has changed since it was read."""
        path = f"{self._secrets}/{revision.secret}"
        secret = self._client.get(path)
        if secret is None or secret["metadata"]["resourceVersion"] != revision.resource_version:
            return False
        patch = supersede_patch(secret)
        if patch is None:
            return self.drop(revision)
        try:
            self._client.patch(path, patch)
        except ApiError as error:
            if not error.conflict:
                raise
            return False
        return True

    def marker(self) -> Object | None:
        """The Lease that records this collection's last run that started helm; None if there is none."""
        return self._client.get(marker_path(self.name, self.namespace))

    def write_marker(self, run_id: str, action: str, revision: int, timeout: float) -> None:
        """Record the run, the machine and the revision that helm will write; call this before helm starts."""
        installed = action == INSTALL or is_marked_installed(self.marker())
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        path = marker_path(self.name, self.namespace)
        body: Object = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": path.rpartition("/")[2],
                "namespace": self.namespace,
                "annotations": {
                    MACHINE_ANNOTATION: machine_id(),
                    REVISION_ANNOTATION: str(revision),
                    INSTALLED_ANNOTATION: str(installed).lower(),
                },
            },
            "spec": {"holderIdentity": run_id, "acquireTime": now, "leaseDurationSeconds": max(1, int(timeout))},
        }
        self._client.apply(path, body)

    def is_abandoned(self, revision: Revision, run: RunCommand, pending_timeout: float) -> tuple[bool, str]:
        """Whether this unfinished revision is abandoned, so that no helm process works on it any longer; also returns the reason."""
        running = processes(run)
        return is_abandoned(
            revision,
            self.marker(),
            machine=machine_id(),
            helm_here=None if running is None else is_running(self.name, running),
            # The API server has set the creation time; the clock of this machine may differ.
            age=(self._client.server_time() - revision.created).total_seconds(),
            timeout=pending_timeout,
        )

    def await_other_helm(self, run: RunCommand, pending_timeout: float, waiting: WaitOptions) -> None:
        """Wait until the newest revision is finished or abandoned; raises WaitTimeout."""
        label = f"{self.namespace}/{self.name}"

        def read() -> tuple[Revision | None, bool, str]:
            latest = self.latest()
            if latest is None or latest.status not in UNFINISHED:
                return latest, True, "finished"
            return latest, *self.is_abandoned(latest, run, pending_timeout)

        def status(latest: Revision | None) -> str:
            return f"revision {latest.number} is {latest.status}" if latest else "has no revision"

        waiting.until(
            read,
            lambda state: state[1],
            describe=lambda state: (
                f"Helm release {label}: {status(state[0])}, and {state[2]}. Let that helm process finish, or wait longer "
                "(wait_timeout). If no helm process is working on the release any longer, lower pending_timeout."
            ),
            progress_text=lambda state: f"Helm release {label}: {status(state[0])}: {state[2]}",
        )


def is_abandoned(
    revision: Revision,
    marker: t.Mapping[str, t.Any] | None,
    *,
    machine: str,
    helm_here: bool | None,
    age: float,
    timeout: float,
) -> tuple[bool, str]:
    """Whether an unfinished revision of this age is abandoned, so that no helm process works on it any longer; also returns the reason.

    `helm_here` is true if a helm process on this `machine` works on the release, and None if this is unknown.

    1. If a helm process on this machine works on the release, the revision is not abandoned, regardless of its age.
    2. If, according to the marker, helm was started on this machine for this revision, and that process no longer exists, the revision is abandoned.
    3. Otherwise (another machine or another tool), the revision is abandoned if it is older than pending_timeout.
    """
    if helm_here:
        return False, "a helm process on this machine is working on it"
    annotations = get_nested(marker, "metadata", "annotations") or {}
    written = annotations.get(MACHINE_ANNOTATION), annotations.get(REVISION_ANNOTATION)
    if helm_here is False and written == (machine, str(revision.number)):
        run = get_nested(marker, "spec", "holderIdentity") or "unknown"
        return True, f"the helm process of run {run} that wrote it is no longer running"
    if age > timeout:
        return True, f"it has been unfinished for {age:.0f} s (pending_timeout {timeout:.0f} s)"
    return (
        False,
        f"it is {age:.0f} s old; a helm process on another machine may be working on it until it is {timeout:.0f} s old",
    )


def marker_path(release: str, namespace: str) -> str:
    """The path of the marker Lease of a release."""
    return object_path("coordination.k8s.io/v1", "Lease", f"accel-gpu-helm-{release}", namespace)


def is_marked_installed(marker: t.Mapping[str, t.Any] | None) -> bool:
    """Whether the marker shows that this collection first installed the release."""
    return bool(get_nested(marker, "metadata", "annotations", INSTALLED_ANNOTATION) == "true")


def machine_id() -> str:
    """An id of this machine that changes with each boot; each container counts as a separate machine, because it sees only its own processes."""
    return f"{socket.gethostname()}/{process.machine() or f'{uuid.getnode():x}'}"
