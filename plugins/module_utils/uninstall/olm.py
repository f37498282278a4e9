# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the Subscriptions of operators that OLM has installed, and plans the removal of their NodeFeatureDiscovery objects."""

from __future__ import annotations

import functools
import json
import typing as t

from ..catalog.names import FIELD_MANAGER, OWNED_TOLERATIONS_ANNOTATION
from ..catalog.olm import API_PATH, PACKAGES, WORKER_TOLERATIONS
from ..catalog.taints import toleration_identity
from ..cluster_state.cluster_policy import recorded_tolerations
from ..common.nested import get_nested
from ..kube.client import Client
from ..kube.conflict_retry import patch_object
from ..kube.errors import ApiError
from ..kube.paths import NODE_FEATURE_DISCOVERY
from .ownership_marks import is_created
from .stage import Removal, await_gone, deletion

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]


def find_subscriptions(client: Client, *, by_olm: bool) -> tuple[list[dict[str, str]], bool]:
    """The result of own_subscriptions() if the cluster has OLM, and whether they could not be read.

    by_olm: whether the variables select OLM for a component. Subscriptions are read even if the variables select Helm, because the variables may
    have changed since the installation. In that case, a missing permission is not an error.
    """
    if not by_olm and client.get(API_PATH) is None:
        return [], False
    try:
        return own_subscriptions(client), False
    except ApiError as error:
        if by_olm or not error.forbidden:
            raise
        return [], True


def own_subscriptions(client: Client) -> list[dict[str, str]]:
    """The Subscriptions that this collection has created, as options of olm_subscription; the GPU operator's come before NFD's.

    Raises the server's error if the user is not allowed to list them; otherwise, operators that keep running would count as removed.
    """
    subscriptions = [
        {
            "name": str(item["metadata"]["name"]),
            "namespace": str(item["metadata"]["namespace"]),
            "package": str(get_nested(item, "spec", "name") or ""),
        }
        for item in client.list_known(f"{API_PATH}/subscriptions")
        if is_created(item)
    ]
    order = [package.package for package in PACKAGES.values()]
    return sorted(subscriptions, key=lambda item: order.index(item["package"]) if item["package"] in order else 0)


def discovery_removals(client: Client) -> list[Removal]:
    """The removals of NodeFeatureDiscovery objects: those that the collection created are deleted; others only lose the collection's tolerations."""
    objects = client.list_known(NODE_FEATURE_DISCOVERY.collection())
    return [removal for item in objects if (removal := _discovery_removal(client, item))]


def without_own_tolerations(item: Document) -> Object | None:
    """The merge patch that removes the recorded tolerations from an object; None if nothing is recorded."""
    recorded = recorded_tolerations(item)
    if recorded is None:
        return None
    own = {toleration_identity(entry) for entry in recorded}
    current = get_nested(item, *WORKER_TOLERATIONS) or []
    kept = [entry for entry in current if toleration_identity(entry) not in own]
    metadata: Object = {"annotations": {OWNED_TOLERATIONS_ANNOTATION: None}}
    others = [entry for entry in item["metadata"].get("managedFields") or [] if entry.get("manager") != FIELD_MANAGER]
    patch: Object = {"metadata": {**metadata, "managedFields": others or [{}]}}
    return {**patch, "spec": {"operand": {"workerTolerations": kept}}} if kept != current else patch


def _discovery_removal(client: Client, item: Object) -> Removal | None:
    metadata = item["metadata"]
    label = f"NodeFeatureDiscovery {metadata['namespace']}/{metadata['name']}"
    path = NODE_FEATURE_DISCOVERY.path(metadata["name"], metadata["namespace"])
    if is_created(item):
        gone = functools.partial(await_gone, client, path, metadata["uid"], label, _finalizers)
        return deletion(client, path, item, label, wait=gone)
    recorded = recorded_tolerations(item)
    if recorded is None:
        return None
    return Removal(
        label,
        action="managed tolerations removed",
        kept="this collection did not create it",
        before={"tolerations": json.dumps(recorded)},
        after={},
        send=functools.partial(patch_object, client, path, item, without_own_tolerations),
    )


def _finalizers(live: Document) -> str:
    names = ", ".join(live["metadata"].get("finalizers") or ()) or "none"
    return f"its finalizers are {names}: the NFD operator removes them, so check that it runs"
