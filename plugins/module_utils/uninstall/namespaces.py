# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the contents of namespaces, decides whether they can be deleted, and deletes them."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from ..common.parallel import call_all
from ..helm.release import helm_release_of
from ..kube.access_review import Permission
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.metadata import is_deleting
from ..kube.paths import NAMESPACES, Kind
from ..schema.messages import abbreviate
from . import ownership_marks
from .components import ELECTION_LEASES
from .crds import is_agent_feature
from .created_objects import CreatedKind
from .stage import Removal, await_gone

Document = t.Mapping[str, t.Any]

# Resources without these verbs (for example pod metrics and package lists) are not stored objects; the namespace controller uses the same rule.
_REQUIRED_VERBS = {"list", "delete"}
# These kinds are derived from Services, and listing them causes a warning of the API server.
_DERIVED_KINDS = {"Endpoints", "EndpointSlice"}
# Objects that Kubernetes and OpenShift create in every namespace, and objects of the operators' leader election.
_DEFAULT_OBJECTS: dict[str, t.Collection[str]] = {
    "ConfigMap": {"kube-root-ca.crt", "openshift-service-ca.crt"},
    "ServiceAccount": {"default", "builder", "deployer"},
    "RoleBinding": {"system:deployers", "system:image-builders", "system:image-pullers"},
    "Lease": ELECTION_LEASES,
}
_SERVICE_ACCOUNT = "kubernetes.io/service-account.name"
# Cluster-wide owners of the objects that NVIDIA's operator creates in its namespace.
_OPERATOR_OWNERS = {"ClusterPolicy", "NVIDIADriver", "GPUCluster"}


class UnknownContents(Exception):
    """Raised if the contents of a namespace are unknown; the message is the reason."""


@dataclass(frozen=True)
class DepartingObjects:
    """Objects that will be deleted: whole Helm releases (name, namespace), objects by kind and name, and objects of kinds that the collection creates.

    `kept`: objects by kind and name that are not deleted in any case.
    `by_olm`: whether the objects that OLM has created for an operator, and all objects that the collection has created, are also deleted. A
    foreign operator's Subscription remains.
    """

    releases: frozenset[tuple[str, str]] = frozenset()
    objects: frozenset[tuple[str, str]] = frozenset()
    kept: frozenset[tuple[str, str]] = frozenset()
    created: tuple[CreatedKind, ...] = ()
    by_olm: bool = False


def namespace_removal(
    client: Client, name: str, departing: t.Callable[[], DepartingObjects], kept_reason: str = ""
) -> Removal | None:
    """The removal of a namespace, which is deleted if the collection has created it and it contains no foreign objects. None if nothing changes.

    `departing` is called only if the user is allowed to list all objects of the namespace. `kept_reason` is an additional reason to keep the namespace.
    If the namespace is kept, only the collection's labels and annotations are removed. If its contents are unknown, it is not changed.
    """
    path = f"{NAMESPACES}/{name}"
    live = client.get(path)
    if live is None or not ownership_marks.is_marked(live):
        return None
    label = f"Namespace {name}"
    if ownership_marks.is_copy(live):
        return Removal(label, action="", kept=ownership_marks.COPIED)
    if not ownership_marks.is_created(live):
        reason = "this collection did not create it"
    elif kept_reason:
        reason = kept_reason
    else:
        try:
            _require_list_permission(client, name)
            objects = foreign_objects(namespace_objects(client, name), departing())
        except UnknownContents as error:
            return Removal(label, action="", kept=str(error))
        if not objects:
            uid = live["metadata"]["uid"]
            return Removal(
                label,
                send=functools.partial(_delete, client, path, live),
                wait=functools.partial(await_gone, client, path, uid, label, _condition_messages),
            )
        reason = f"it contains {abbreviate(objects)}"
    labels = live["metadata"].get("labels") or {}
    own = {key: labels.get(key) for key in sorted(ownership_marks.applied_labels(live))}
    unmark = functools.partial(_unmark, client, path, name)
    return Removal(label, "managed label removed", reason, {"labels": own}, {}, send=unmark)


def foreign_objects(objects: t.Sequence[tuple[str, Document]], departing: DepartingObjects) -> list[str]:
    """The objects, given as kind and metadata, that will not be deleted and whose owner is not among the objects."""
    uids = {str(metadata.get("uid")) for dummy, metadata in objects}
    return sorted(
        f"{kind} {metadata['name']}"
        for kind, metadata in objects
        if not _departs(kind, metadata, departing) and not _has_owner(metadata, uids)
    )


def _departs(kind: str, metadata: Document, departing: DepartingObjects) -> bool:
    name = str(metadata["name"])
    item = {"metadata": metadata}
    if metadata.get("deletionTimestamp") or kind == "Event" or name in _DEFAULT_OBJECTS.get(kind, ()):
        return True
    if (kind, name) in departing.kept:
        return False
    if (kind, name) in departing.objects or helm_release_of(item) in departing.releases or is_agent_feature(kind, item):
        return True
    if any(created.is_deleted(kind, metadata) for created in departing.created):
        return True
    if departing.by_olm and (ownership_marks.is_created(item) or _is_of_operator(kind, metadata)):
        return True
    if kind == "Secret":
        # A Secret for pulling images is deleted with its namespace.
        if ownership_marks.is_created(item):
            return True
        labels = metadata.get("labels") or {}
        account = (metadata.get("annotations") or {}).get(_SERVICE_ACCOUNT)
        release = (labels.get("name"), metadata.get("namespace"))
        return (labels.get("owner") == "helm" and release in departing.releases) or account in _DEFAULT_OBJECTS[
            "ServiceAccount"
        ]
    return False


def _is_of_operator(kind: str, metadata: Document) -> bool:
    """Whether OLM has created the object for an operator (operator-lifecycle-manager pkg/controller/install, pkg/controller/operators/decorators)."""
    labels = metadata.get("labels") or {}
    by_package = any(key.startswith("operators.coreos.com/") for key in labels) and kind != "Subscription"
    return labels.get("olm.managed") == "true" or by_package


def _has_owner(metadata: Document, uids: set[str]) -> bool:
    """Whether the object's owner is among the objects, or belongs to the operator."""
    owners = metadata.get("ownerReferences") or []
    return any(str(owner.get("uid")) in uids or owner.get("kind") in _OPERATOR_OWNERS for owner in owners)


def _require_list_permission(client: Client, namespace: str) -> None:
    """Raise UnknownContents if the user is not allowed to list all objects. One request replaces a hundred list requests that could be rejected."""
    if not Permission("list", "*", group="*").is_granted(client, namespace):
        raise UnknownContents(
            "you do not have permission to list all of its objects, so it is unknown whether it contains foreign ones"
        )


def namespace_objects(client: Client, namespace: str) -> list[tuple[str, Document]]:
    """The kind and the metadata of every object in a namespace; raises UnknownContents if any kind cannot be listed."""
    groups = (client.get("/apis") or {}).get("groups") or []
    versions = ["v1", *(group["preferredVersion"]["groupVersion"] for group in groups)]
    calls = [
        (kind.plural, functools.partial(_list, client, kind, namespace))
        for group_version in versions
        for kind in _kinds(client, group_version)
    ]
    return [item for objects in call_all(calls) for item in objects]


def _delete(client: Client, path: str, live: Document) -> None:
    """Delete the namespace, unless it is already being deleted or another namespace has replaced it."""
    if not is_deleting(live):
        client.delete(path, body={"preconditions": {"uid": live["metadata"]["uid"]}})


def _unmark(client: Client, path: str, name: str) -> None:
    # An empty apply makes the server remove the labels and annotations that only the collection has written.
    patch = ownership_marks.unmark_patch(
        client.apply(path, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    )
    if patch:
        client.patch(path, patch)


def _kinds(client: Client, group_version: str) -> list[Kind]:
    root = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
    try:
        resources = (client.get(root) or {}).get("resources") or []
    except ApiError as error:
        if error.unreachable:
            raise
        raise UnknownContents(f"the API {group_version} does not respond: {error.message}") from error
    return [
        Kind(group_version, resource["kind"], resource["name"], True)
        for resource in resources
        if resource.get("namespaced")
        and "/" not in resource["name"]
        and set(resource.get("verbs") or []) >= _REQUIRED_VERBS
        and resource["kind"] not in _DERIVED_KINDS
    ]


def _list(client: Client, kind: Kind, namespace: str) -> list[tuple[str, Document]]:
    try:
        return [(kind.kind, item["metadata"]) for item in client.list(kind.collection(namespace), metadata_only=True)]
    except ApiError as error:
        if error.unreachable:
            raise
        raise UnknownContents(f"its {kind.plural} cannot be listed: {error.message}") from error


def _condition_messages(live: Document) -> str:
    conditions = (live.get("status") or {}).get("conditions") or []
    lines = [str(item.get("message")) for item in conditions if item.get("status") == "True" and item.get("message")]
    return "; ".join(lines) or "the namespace controller gives no reason"
