# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects with licensing tokens: they are deleted, except those that a kept ClusterPolicy or NVIDIADriver object names."""

from __future__ import annotations

import functools
import typing as t

from ..catalog.names import DRIVER_LICENSE_FIELDS, LICENSE_FIELDS, LICENSE_TOKEN_KEY, LICENSING_CONFIG
from ..cluster_state.ownership import is_created_by_collection
from ..common.nested import get_nested
from ..kube.client import Client
from ..kube.paths import collection_path, object_path
from .stage import Removal

Document = t.Mapping[str, t.Any]


def license_removals(
    client: Client, namespaces: t.Iterable[str], kept_policies: t.Iterable[Document], kept_drivers: t.Iterable[Document]
) -> t.Iterator[Removal]:
    """The Secrets and ConfigMaps in the namespaces of operators that this collection has created for tokens.

    Without an object that it names, a kept operator starts no driver pod, and without its name, it restarts the driver: neither is changed.
    """
    users = {
        (kind, str(get_nested(item, "spec", *LICENSING_CONFIG, field))): f"ClusterPolicy {item['metadata']['name']}"
        for item in kept_policies
        for kind, field in LICENSE_FIELDS.items()
    }
    users |= {
        (kind, str(get_nested(item, "spec", "licensingConfig", field))): f"NVIDIADriver {item['metadata']['name']}"
        for item in kept_drivers
        for kind, field in DRIVER_LICENSE_FIELDS.items()
    }
    for namespace in dict.fromkeys(namespaces):
        # Secrets for pulling images have another type.
        secrets = client.list(
            collection_path("v1", "Secret", namespace), field_selector="type=Opaque", metadata_only=True
        )
        for secret in filter(is_created_by_collection, secrets):
            yield _removal(client, "Secret", secret, users)
        for item in filter(is_created_by_collection, client.list(collection_path("v1", "ConfigMap", namespace))):
            if LICENSE_TOKEN_KEY in (item.get("data") or {}):
                yield _removal(client, "ConfigMap", item, users)


def _removal(client: Client, kind: str, item: Document, users: t.Mapping[tuple[str, str], str]) -> Removal:
    metadata = item["metadata"]
    label = f"{kind} {metadata['namespace']}/{metadata['name']}"
    if user := users.get((kind, metadata["name"])):
        reason = (
            f"{user}, which this collection did not create, names it in licensingConfig, and starts no driver without it. To remove it, remove the name "
            "(this restarts the driver on every node), and run again"
        )
        return Removal(label, action="", kept=reason)
    path = object_path("v1", kind, metadata["name"], metadata["namespace"])
    delete = functools.partial(client.delete, path, body={"preconditions": {"uid": metadata["uid"]}})
    return Removal(label, send=delete, check=functools.partial(delete, dry_run=True))
