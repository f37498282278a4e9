# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Namespaces: everything that stands in one, what becomes of it, and its end."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from ..catalog.names import CREATED_ANNOTATION
from ..common.parallel import run_bounded
from ..common.wait import wait_until
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.paths import NAMESPACES, Kind
from ..schema.messages import abbreviate
from . import ownership_marks
from .namespace_contents import ReleasedContents, foreign_objects
from .operands import OperandWait

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

# As the namespace controller: what cannot be deleted (metrics of pods, package lists) is made up on request, and no object.
_NEEDED = {"list", "delete"}
# What follows from a Service; asking for it makes the API server warn.
_FOLLOWING = {"Endpoints", "EndpointSlice"}


# What becomes of a namespace.
DELETED, GIVEN_BACK, LEFT = "deleted", "given back", "left"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class UnknownContents(Exception):
    """Nobody can say what is in the namespace; the message says why."""


@dataclass(frozen=True)
class NamespaceDecision:
    """Deleted, given back (our label goes), or left as it is; `why` it is not deleted, where it is worth a word."""

    end: str
    why: str = ""


def decide_namespace(
    client: Client, live: Document, leaving: ReleasedContents, other_release: str
) -> NamespaceDecision:
    """One that we have made goes when nothing of others is in it; where that cannot be told it is left, for somebody who can."""
    name = live["metadata"]["name"]
    if CREATED_ANNOTATION not in ownership_marks.annotations_of(live):
        return (
            NamespaceDecision(GIVEN_BACK, "this collection did not make it")
            if ownership_marks.is_marked(live)
            else NamespaceDecision(LEFT)
        )
    if other_release:
        return NamespaceDecision(
            GIVEN_BACK, f"the release {other_release} is in it, which this collection did not install"
        )
    try:
        _require_sight(client, name)
        found = foreign_objects(namespace_objects(client, name), leaving)
    except UnknownContents as error:
        return NamespaceDecision(LEFT, str(error))
    return NamespaceDecision(GIVEN_BACK, f"it holds {abbreviate(found)}") if found else NamespaceDecision(DELETED)


def end_namespace(client: Client, live: Document, its: NamespaceDecision, waiting: OperandWait | None) -> None:
    """Do it; raises TimeoutStory when a namespace does not go."""
    if its.end == DELETED:
        _delete(client, live, waiting)
    elif its.end == GIVEN_BACK:
        name = live["metadata"]["name"]
        # Apply nothing at all: the server takes out the labels and annotations that only we have written.
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        patch = ownership_marks.unmarked(client.apply(f"{NAMESPACES}/{name}", body))
        if patch:
            client.patch(f"{NAMESPACES}/{name}", patch)


def _require_sight(client: Client, namespace: str) -> None:
    """Who may not list all that there is would be refused a hundred times, and know no more."""
    asked = {"resourceAttributes": {"namespace": namespace, "verb": "list", "group": "*", "resource": "*"}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": asked}
    if not client.create(_REVIEWS, body, dry_run=True)["status"].get("allowed"):
        raise UnknownContents(
            "you may not list everything that is in it, so nobody knows whether somebody else needs it"
        )


def namespace_objects(client: Client, namespace: str) -> list[tuple[str, Document]]:
    """Kind and metadata of every object in a namespace; raises Unknown where the user may not look."""
    calls = [
        (kind.plural, functools.partial(_list, client, kind, namespace))
        for group_version in _group_versions(client)
        for kind in _kinds(client, group_version)
    ]
    found: list[tuple[str, Document]] = []
    for outcome in run_bounded(calls, fatal=lambda dummy: True):
        if outcome.error is not None:
            if isinstance(outcome.error, ApiError) and not outcome.error.unreachable:
                raise UnknownContents(
                    f"its {outcome.name} cannot be listed: {outcome.error.message}"
                ) from outcome.error
            raise outcome.error
        found += outcome.value or []
    return found


def _delete(client: Client, live: Document, waiting: OperandWait | None) -> None:
    """The very namespace that was read; raises TimeoutStory with what keeps it."""
    path = f"{NAMESPACES}/{live['metadata']['name']}"
    if not live["metadata"].get("deletionTimestamp"):
        client.delete(path, body={"preconditions": {"uid": live["metadata"]["uid"]}})
    if waiting is None:
        return
    wait_until(
        lambda: client.get(path),
        lambda found: found is None or found["metadata"].get("uid") != live["metadata"]["uid"],
        timeout=waiting.timeout,
        interval=min(waiting.interval, 1.0),
        describe=lambda found: f"Namespace {live['metadata']['name']} is not gone: {_conditions(found or {})}",
        progress_text=lambda dummy: f"namespace {live['metadata']['name']} is going",
        progress=waiting.progress,
    )


def _group_versions(client: Client) -> list[str]:
    groups = (client.get("/apis") or {}).get("groups") or []
    return ["v1", *(group["preferredVersion"]["groupVersion"] for group in groups)]


def _kinds(client: Client, group_version: str) -> list[Kind]:
    root = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
    try:
        resources = (client.get(root) or {}).get("resources") or []
    except ApiError as error:
        if error.unreachable:
            raise
        raise UnknownContents(f"the API {group_version} does not answer: {error.message}") from error
    return [
        Kind(group_version, resource["kind"], resource["name"], True)
        for resource in resources
        if resource.get("namespaced")
        and "/" not in resource["name"]
        and set(resource.get("verbs") or []) >= _NEEDED
        and resource["kind"] not in _FOLLOWING
    ]


def _list(client: Client, kind: Kind, namespace: str) -> list[tuple[str, Document]]:
    listed = client.list(kind.collection(namespace), metadata_only=True)
    return [(kind.kind, found["metadata"]) for found in listed]


def _conditions(found: Document) -> str:
    conditions = (found.get("status") or {}).get("conditions") or []
    lines = [str(item.get("message")) for item in conditions if item.get("status") == "True" and item.get("message")]
    return "; ".join(lines) or "the namespace controller has not said why"
