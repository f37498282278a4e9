# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last objects to be deleted: the Leases by which runs exclude each other and which record the cluster's name."""

from __future__ import annotations

from ..catalog.names import LEASE_NAME, LEASE_NAMESPACE
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.paths import object_path
from .result import UninstallResult


def lease_path(name: str, namespace: str) -> str:
    """The path of a Lease."""
    return object_path("coordination.k8s.io/v1", "Lease", name, namespace)


# The Lease that records the cluster's name, independent of the one by which runs exclude each other.
RECORD_PATH = lease_path(LEASE_NAME, LEASE_NAMESPACE)


def lease_label(path: str) -> str:
    """A Lease as results name it."""
    parts = path.split("/")
    return f"Lease {parts[-3]}/{parts[-1]}"


def delete_lease(client: Client, path: str, result: UninstallResult) -> None:
    """Delete a released Lease; one that another run holds is kept."""
    live = client.get(path)
    if live is None:
        return
    metadata, holder = live["metadata"], (live.get("spec") or {}).get("holderIdentity")
    if not holder:
        preconditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        try:
            client.delete(path, body={"preconditions": preconditions})
        except ApiError as error:
            if not error.conflict:
                raise
        else:
            result.add_removed(lease_label(path))
            return
    result.add_kept(lease_label(path), f"another run, {holder or 'a new one'}, has taken it")
