# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the UID and the recorded name of a cluster, which identify the cluster regardless of the kubeconfig or the address.

The name is an annotation of the Lease kube-system/accel-gpu, which every run that changes the cluster acquires. The first run records
its gpu_cluster.name in the same write, so if two runs with different names start at the same time, one of them fails.
"""

from __future__ import annotations

import threading
import typing as t

from ..catalog.names import CLUSTER_NAME_ANNOTATION, LEASE_NAME, LEASE_NAMESPACE
from .conflict_retry import retry_conflicts
from .errors import ApiError, WrongCluster
from .paths import NAMESPACES, object_path

if t.TYPE_CHECKING:
    from .client import Client

Object = dict[str, t.Any]

RECORD = f"Lease {LEASE_NAMESPACE}/{LEASE_NAME}"
_RECORD_PATH = object_path("coordination.k8s.io/v1", "Lease", LEASE_NAME, LEASE_NAMESPACE)
_UID_PATH = f"{NAMESPACES}/{LEASE_NAMESPACE}"


class ClusterIdentity:
    """Compares the identity that gpu_cluster declares (`name`, `renamed_from`, `uid`) with that of the cluster.

    If gpu_cluster has neither a name nor a UID, nothing is compared or recorded.
    """

    def __init__(self, client: Client, cluster: t.Mapping[str, t.Any] | None = None, *, records: bool = True) -> None:
        """Store the arguments; no request is sent yet. `records` is true if acquiring the lease records the name."""
        cluster = cluster or {}
        self._client = client
        self.name = str(cluster.get("name") or "")
        self.renamed_from = str(cluster.get("renamed_from") or "")
        self.uid = str(cluster.get("uid") or "")
        self._records = records and bool(self.name)
        self._lock = threading.Lock()
        self._read: tuple[Object | None] | None = None
        self.recorded = ""
        # The previous name and the name that this module has recorded; None if the module has recorded no name.
        self.change: tuple[str, str] | None = None

    def verify(self) -> None:
        """Compare the declared identity with that of the cluster, before other requests are sent; raises WrongCluster."""
        if self.name:
            lease = self._client.get(_RECORD_PATH)
            self._read = (lease,)
            self.require(_RECORD_PATH, lease)
        if self.uid:
            self._require_uid()

    def last_read(self, path: str) -> tuple[Object | None] | None:
        """The Lease at a path, if verify() has read it; only the first call returns it, and later calls return None."""
        if path != _RECORD_PATH:
            return None
        lease, self._read = self._read, None
        return lease

    def require(self, path: str, lease: Object | None) -> None:
        """Raise WrongCluster if the Lease at a path records another name."""
        if path != _RECORD_PATH or not self.name:
            return
        self.recorded = recorded_name(lease)
        if self.recorded not in ("", self.name, self.renamed_from):
            raise WrongCluster(
                f"This is a different cluster: gpu_cluster.name is {self.name!r}, but the cluster at {self._client.connection.address} is "
                f"recorded as {self.recorded!r} (annotation {CLUSTER_NAME_ANNOTATION} of {RECORD}). Use the kubeconfig, context or credential "
                f"of {self.name!r}. If the cluster {self.recorded!r} should now be called {self.name!r}, set gpu_cluster.renamed_from: "
                f"{self.recorded} for one run."
            )

    def annotations(self, path: str, lease: Object | None) -> dict[str, str]:
        """The annotations to write to the Lease at a path; foreign annotations are kept."""
        annotations = dict(((lease or {}).get("metadata") or {}).get("annotations") or {})
        if path == _RECORD_PATH and self._records and recorded_name(lease) in ("", self.renamed_from):
            annotations[CLUSTER_NAME_ANNOTATION] = self.name
        return annotations

    def record_acquired(self, path: str, release: t.Callable[[], None]) -> None:
        """After the Lease at a path was acquired, record the name if it belongs in a different Lease.

        If another run has recorded a different name in the meantime, releases the lease and raises WrongCluster.
        """
        if not self._records:
            return
        with self._lock:
            if path != _RECORD_PATH:
                try:
                    self._record()
                except Exception:
                    release()
                    raise
            if self.pending is not None:
                self.change = self.change or self.pending
                self.recorded = self.name

    @property
    def pending(self) -> tuple[str, str] | None:
        """The recorded name, and the name that the next change of the cluster will record; None if they are equal."""
        return (self.recorded, self.name) if self._records and self.recorded != self.name else None

    @property
    def renames(self) -> bool:
        """Whether the recorded name is `renamed_from`, so that recording the new name is itself a change."""
        return self.pending is not None and bool(self.recorded)

    def _record(self) -> None:
        """Write the name to its Lease, because the run's lock is a Lease in another namespace."""
        body = self._record_body()
        if body is not None:
            retry_conflicts(self._send_record, body, self._record_body)

    def _record_body(self) -> Object | None:
        """The Lease to write, with the name; None if the Lease already has the name."""
        lease = self._client.get(_RECORD_PATH)
        self.require(_RECORD_PATH, lease)
        if self.pending is None:
            return None
        metadata = {"name": LEASE_NAME, "namespace": LEASE_NAMESPACE}
        body = lease or {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}
        body["metadata"]["annotations"] = self.annotations(_RECORD_PATH, lease)
        return body

    def _send_record(self, body: Object) -> Object:
        if "resourceVersion" in body["metadata"]:
            return self._client.replace(_RECORD_PATH, body)
        return self._client.create(_RECORD_PATH.rpartition("/")[0], body)

    def _require_uid(self) -> None:
        uid = _uid_of(self._client.get(_UID_PATH))
        if uid != self.uid:
            raise WrongCluster(
                f"This is a different cluster: gpu_cluster.uid is {self.uid!r}, but the namespace {LEASE_NAMESPACE} of the cluster at "
                f"{self._client.connection.address} has the UID {uid or 'none'!r}. Use the kubeconfig, context or credential of the intended "
                "cluster; correct gpu_cluster.uid if the cluster was created again."
            )


def recorded_name(lease: t.Mapping[str, t.Any] | None) -> str:
    """The cluster's name on its Lease; empty if no name is recorded."""
    return str((((lease or {}).get("metadata") or {}).get("annotations") or {}).get(CLUSTER_NAME_ANNOTATION) or "")


def read_uid(client: Client) -> str:
    """The UID of the namespace kube-system, for a report; empty if the user is not allowed to read it."""
    return _uid_of(_get_if_allowed(client, _UID_PATH))


def identity_report(client: Client, identity: ClusterIdentity) -> dict[str, t.Any]:
    """The identity of the cluster, for a report; values that the user is not allowed to read are None."""
    recorded = identity.recorded if identity.name else read_recorded_name(client)
    return {
        "uid": read_uid(client) or None,
        "recorded_name": recorded or None,
        "name_to_record": identity.name if identity.pending else None,
        "server": client.connection.server,
        "origin": client.connection.origin,
    }


def read_recorded_name(client: Client) -> str:
    """The recorded name of a cluster whose name the run does not declare, for a report; empty if the user is not allowed to read it."""
    return recorded_name(_get_if_allowed(client, _RECORD_PATH))


def _get_if_allowed(client: Client, path: str) -> Object | None:
    try:
        return client.get(path)
    except ApiError as error:
        if not error.forbidden:
            raise
        return None


def _uid_of(namespace: Object | None) -> str:
    return str(((namespace or {}).get("metadata") or {}).get("uid") or "")
