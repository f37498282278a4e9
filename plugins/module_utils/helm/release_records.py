# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helm's records of a release in the cluster, and the note that we leave before helm is let loose on it."""

from __future__ import annotations

import datetime
import socket
import typing as t
import uuid

from ..common import process
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.paths import NAMESPACES, object_path
from .release import (
    INSTALL,
    MACHINE_ANNOTATION,
    REVISION_ANNOTATION,
    ReleaseContent,
    Revision,
    content,
    revisions,
    superseded,
)

INSTALLED_ANNOTATION = "accel.gpu/installed"

Object = dict[str, t.Any]


class ReleaseRecords:
    """The Secrets of one release; Secrets are listed by their metadata, and only the newest one is ever read."""

    def __init__(self, client: Client, name: str, namespace: str) -> None:
        """Nothing is asked yet."""
        self._client = client
        self._name = name
        self._namespace = namespace
        self._secrets = f"{NAMESPACES}/{namespace}/secrets"

    def revisions(self) -> list[Revision]:
        """All revisions, newest first; none in a namespace that is not there."""
        selector = f"owner=helm,name={self._name}"
        return revisions(self._client.list(self._secrets, label_selector=selector, metadata_only=True))

    def content(self, revision: Revision | None) -> ReleaseContent | None:
        """What a revision consists of."""
        secret = self._client.get(f"{self._secrets}/{revision.secret}") if revision else None
        return content(secret) if secret else None

    def drop(self, revision: Revision) -> bool:
        """Delete a revision as it was read; False when somebody has touched it since."""
        preconditions = {"uid": revision.uid, "resourceVersion": revision.resource_version}
        try:
            self._client.delete(f"{self._secrets}/{revision.secret}", body={"preconditions": preconditions})
        except ApiError as error:
            if not error.conflict:
                raise
            return False
        return True

    def supersede(self, revision: Revision) -> bool:
        """Make helm go over a revision again that looks deployed or at work and is not; False when somebody has touched it since."""
        path = f"{self._secrets}/{revision.secret}"
        secret = self._client.get(path)
        if secret is None or secret["metadata"]["resourceVersion"] != revision.resource_version:
            return False
        patch = superseded(secret)
        if patch is None:
            return self.drop(revision)
        try:
            self._client.patch(path, patch)
        except ApiError as error:
            if not error.conflict:
                raise
            return False
        return True

    def note(self) -> Object | None:
        """The Lease that says who let helm loose last; None when this collection never did."""
        return self._client.get(note_path(self._name, self._namespace))

    def announce(self, run_id: str, action: str, revision: int, timeout: float) -> None:
        """Say, before helm starts, who will write which revision from which machine."""
        before = self.note()
        installed = action == INSTALL or was_installed(before)
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        path = note_path(self._name, self._namespace)
        body: Object = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": path.rpartition("/")[2],
                "namespace": self._namespace,
                "annotations": {
                    MACHINE_ANNOTATION: machine(),
                    REVISION_ANNOTATION: str(revision),
                    INSTALLED_ANNOTATION: str(installed).lower(),
                },
            },
            "spec": {"holderIdentity": run_id, "acquireTime": now, "leaseDurationSeconds": max(1, int(timeout))},
        }
        self._client.apply(path, body)


def note_path(release: str, namespace: str) -> str:
    """Where the note about a release is."""
    return object_path("coordination.k8s.io/v1", "Lease", f"accel-gpu-helm-{release}", namespace)


def was_installed(note: t.Mapping[str, t.Any] | None) -> bool:
    """Whether the note says that the release was first installed by this collection."""
    annotations = ((note or {}).get("metadata") or {}).get("annotations") or {}
    return bool(annotations.get(INSTALLED_ANNOTATION) == "true")


def machine() -> str:
    """This machine since its boot, as far as processes can be seen from here: a container is a machine of its own."""
    return f"{socket.gethostname()}/{process.machine() or f'{uuid.getnode():x}'}"
