# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The very last thing of ours on a cluster: the Lease by which runs know of each other."""

from __future__ import annotations

from ..catalog.names import LEASE_NAME, LEASE_NAMESPACE
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.paths import object_path
from .result import UninstallResult


def lease_path(name: str, namespace: str) -> str:
    """Where it is."""
    return object_path("coordination.k8s.io/v1", "Lease", name, namespace)


# The Lease that keeps the cluster's name, wherever the one is by which the runs exclude each other.
RECORD_PATH = lease_path(LEASE_NAME, LEASE_NAMESPACE)


def note_lease(path: str, account: UninstallResult) -> None:
    """That it goes."""
    parts = path.split("/")
    account.took(f"Lease {parts[-3]}/{parts[-1]}")


def drop_lease(client: Client, path: str, account: UninstallResult) -> None:
    """Delete it once it was given back; another run that has taken it meanwhile keeps it."""
    live = client.get(path)
    if live is None:
        return
    metadata, holder = live["metadata"], (live.get("spec") or {}).get("holderIdentity")
    parts = path.split("/")
    label = f"Lease {parts[-3]}/{parts[-1]}"
    if not holder:
        preconditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        try:
            client.delete(path, body={"preconditions": preconditions})
        except ApiError as error:
            if not error.conflict:
                raise
        else:
            account.took(label)
            return
    account.keeps(label, f"another run, {holder or 'a new one'}, has taken it")
