# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Secrets with licensing tokens: they are deleted, except those that a kept ClusterPolicy or NVIDIADriver object names."""

from __future__ import annotations

import functools
import typing as t

from ..cluster_state.ownership import is_created_by_collection
from ..common.nested import get_nested
from ..kube.client import Client
from ..kube.paths import collection_path, object_path
from .stage import Removal

Document = t.Mapping[str, t.Any]

# Path of the name in the spec of both kinds.
_POLICY_NAME = ("spec", "driver", "licensingConfig", "secretName")
_DRIVER_NAME = ("spec", "licensingConfig", "secretName")


def license_removals(
    client: Client, namespaces: t.Iterable[str], kept_policies: t.Iterable[Document], kept_drivers: t.Iterable[Document]
) -> t.Iterator[Removal]:
    """The Secrets in the namespaces of operators that this collection has created.

    Without a Secret that it names, a kept operator starts no driver pod, and without its name, it restarts the driver: neither is changed.
    """
    users = {
        str(get_nested(item, *_POLICY_NAME)): f"ClusterPolicy {item['metadata']['name']}" for item in kept_policies
    }
    users |= {str(get_nested(item, *_DRIVER_NAME)): f"NVIDIADriver {item['metadata']['name']}" for item in kept_drivers}
    for namespace in dict.fromkeys(namespaces):
        # Secrets for pulling images have another type.
        path = collection_path("v1", "Secret", namespace)
        for secret in client.list(path, field_selector="type=Opaque", metadata_only=True):
            if is_created_by_collection(secret):
                yield _removal(client, secret, users.get(secret["metadata"]["name"], ""))


def _removal(client: Client, secret: Document, user: str) -> Removal:
    metadata = secret["metadata"]
    label = f"Secret {metadata['namespace']}/{metadata['name']}"
    if user:
        reason = (
            f"{user}, which this collection did not create, names it in licensingConfig, and starts no driver without it. To remove it, remove the name "
            "(this restarts the driver on every node), and run again"
        )
        return Removal(label, action="", kept=reason)
    path = object_path("v1", "Secret", metadata["name"], metadata["namespace"])
    delete = functools.partial(client.delete, path, body={"preconditions": {"uid": metadata["uid"]}})
    return Removal(label, send=delete, check=functools.partial(delete, dry_run=True))
