# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The name that a cluster remembers, and its UID: what only that cluster has, whatever kubeconfig or address leads to it.

The name is an annotation of the Lease kube-system/accel-gpu, which every run that changes the cluster takes. The run that takes it first
records its gpu_cluster.name in the same write, so that of two runs with two names one is refused, also when they start at once.
"""

from __future__ import annotations

import threading
import typing as t

from ..catalog.names import CLUSTER_NAME_ANNOTATION, LEASE_NAME, LEASE_NAMESPACE
from .errors import ApiError, WrongCluster
from .lease_client import LeaseClient
from .paths import NAMESPACES, object_path

Object = dict[str, t.Any]

RECORD = f"Lease {LEASE_NAMESPACE}/{LEASE_NAME}"
_RECORD_PATH = object_path("coordination.k8s.io/v1", "Lease", LEASE_NAME, LEASE_NAMESPACE)
_UID_PATH = f"{NAMESPACES}/{LEASE_NAMESPACE}"
_TRIES = 5


class ReportedClient(LeaseClient, t.Protocol):
    """The same, with what a report says of the connection."""

    @property
    def server(self) -> str:
        """URL of the API server."""

    @property
    def origin(self) -> str:
        """Where the connection comes from, in words."""


class AnyCluster:
    """The identity of a cluster that the run does not name: nothing is required, nothing is recorded."""

    def require(self, path: str, lease: Object | None) -> None:
        """Raise WrongCluster where the Lease at a path records another name."""

    def annotations(self, path: str, lease: Object | None) -> dict[str, str]:
        """What the Lease at a path is to carry; what others have put there stays."""
        return dict(((lease or {}).get("metadata") or {}).get("annotations") or {})

    def taken(self, path: str, give_back: t.Callable[[], None]) -> None:
        """Note, after the Lease at a path was taken, that the name is recorded; record it where that Lease is not the place for it."""

    def last_read(self, path: str) -> tuple[Object | None] | None:
        """The Lease at a path where verify() has just read it, once; None otherwise."""
        return None


class ClusterIdentity(AnyCluster):
    """What gpu_cluster says of the identity (`name`, `renamed_from`, `uid`), checked against the cluster."""

    def __init__(
        self, client: LeaseClient, cluster: t.Mapping[str, t.Any], reached: str, *, records: bool = True
    ) -> None:
        """Ask nothing yet. `reached` says in words which server it is; records: whether taking the lease records the name."""
        self._client = client
        self.name = str(cluster.get("name") or "")
        self.renamed_from = str(cluster.get("renamed_from") or "")
        self.uid = str(cluster.get("uid") or "")
        self._reached = reached
        self._records = records and bool(self.name)
        self._lock = threading.Lock()
        self._read: tuple[Object | None] | None = None
        self._change: tuple[str, str] | None = None
        self.recorded = ""

    def verify(self) -> None:
        """Compare with the cluster before anything else is asked of it; raises WrongCluster."""
        if self.name:
            lease = self._client.get(_RECORD_PATH)
            self._read = (lease,)
            self.require(_RECORD_PATH, lease)
        if self.uid:
            self._require_uid()

    def last_read(self, path: str) -> tuple[Object | None] | None:
        """See AnyCluster."""
        if path != _RECORD_PATH:
            return None
        found, self._read = self._read, None
        return found

    def require(self, path: str, lease: Object | None) -> None:
        """See AnyCluster."""
        if path != _RECORD_PATH or not self.name:
            return
        self.recorded = recorded_name(lease)
        if self.recorded not in ("", self.name, self.renamed_from):
            raise WrongCluster(
                f"This is another cluster: gpu_cluster.name is {self.name!r}, but the cluster at {self._reached} is recorded as "
                f"{self.recorded!r} (annotation {CLUSTER_NAME_ANNOTATION} of {RECORD}). Use the kubeconfig, context or credential of "
                f"{self.name!r}. If the cluster {self.recorded!r} is to be called {self.name!r} from now on, set "
                f"gpu_cluster.renamed_from: {self.recorded} for one run."
            )

    def annotations(self, path: str, lease: Object | None) -> dict[str, str]:
        """See AnyCluster."""
        found = super().annotations(path, lease)
        if path == _RECORD_PATH and self._records and recorded_name(lease) in ("", self.renamed_from):
            found[CLUSTER_NAME_ANNOTATION] = self.name
        return found

    def taken(self, path: str, give_back: t.Callable[[], None]) -> None:
        """See AnyCluster; raises WrongCluster, once the lease was given back, where another run was faster to record another name."""
        if not self._records:
            return
        with self._lock:
            if path != _RECORD_PATH:
                try:
                    self._record()
                except Exception:
                    give_back()
                    raise
            self._note()

    @property
    def change(self) -> tuple[str, str] | None:
        """The name that was recorded before this module, and the one that it has recorded; None where it has recorded none."""
        return self._change

    @property
    def pending(self) -> tuple[str, str] | None:
        """The recorded name, and the one that the next change of the cluster will record; None where they are the same."""
        return (self.recorded, self.name) if self._records and self.recorded != self.name else None

    @property
    def renames(self) -> bool:
        """Whether the recorded name is the one that the cluster had before, so that recording the new one is a change of its own."""
        return self.pending is not None and bool(self.recorded)

    def _note(self) -> None:
        if self.pending is not None:
            self._change = self._change or self.pending
            self.recorded = self.name

    def _record(self) -> None:
        """Write the name where it belongs, although the runs exclude each other by a Lease of another namespace."""
        for left in reversed(range(_TRIES)):
            lease = self._client.get(_RECORD_PATH)
            self.require(_RECORD_PATH, lease)
            if self.pending is None:
                return
            metadata = {"name": LEASE_NAME, "namespace": LEASE_NAMESPACE}
            body = lease or {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}
            body["metadata"]["annotations"] = self.annotations(_RECORD_PATH, lease)
            try:
                if lease is None:
                    self._client.create(_RECORD_PATH.rpartition("/")[0], body)
                else:
                    self._client.replace(_RECORD_PATH, body)
                return
            except ApiError as error:
                if not error.conflict or not left:
                    raise

    def _require_uid(self) -> None:
        found = self._client.get(_UID_PATH)
        uid = str(((found or {}).get("metadata") or {}).get("uid") or "")
        if uid != self.uid:
            raise WrongCluster(
                f"This is another cluster: gpu_cluster.uid is {self.uid!r}, but the namespace {LEASE_NAMESPACE} of the cluster at "
                f"{self._reached} has the UID {uid or 'none'!r}. Use the kubeconfig, context or credential of the cluster that is "
                "meant; correct gpu_cluster.uid if the cluster was made again."
            )


def recorded_name(lease: t.Mapping[str, t.Any] | None) -> str:
    """The cluster's name on its Lease; empty where none is recorded."""
    return str((((lease or {}).get("metadata") or {}).get("annotations") or {}).get(CLUSTER_NAME_ANNOTATION) or "")


def read_uid(client: LeaseClient) -> str:
    """The UID of namespace kube-system, for a report; empty where it may not be read."""
    try:
        found = client.get(_UID_PATH)
    except ApiError as error:
        if not error.forbidden:
            raise
        return ""
    return str(((found or {}).get("metadata") or {}).get("uid") or "")


def identity_report(client: ReportedClient, identity: ClusterIdentity) -> dict[str, t.Any]:
    """Which cluster was reached, for people who compare it with the one that they mean; what may not be read is None."""
    recorded = identity.recorded if identity.name else read_recorded_name(client)
    return {
        "uid": read_uid(client) or None,
        "recorded_name": recorded or None,
        "name_to_record": identity.name if identity.pending else None,
        "server": client.server,
        "origin": client.origin,
    }


def read_recorded_name(client: LeaseClient) -> str:
    """The recorded name, for a report of a cluster that the run does not name; empty where it may not be read."""
    try:
        return recorded_name(client.get(_RECORD_PATH))
    except ApiError as error:
        if not error.forbidden:
            raise
        return ""
