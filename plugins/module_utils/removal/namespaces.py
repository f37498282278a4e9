# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Namespaces: everything that stands in one, and its end."""

from __future__ import annotations

import functools
import typing as t

from ..kube.bulk import run_bounded
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.paths import NAMESPACES, Kind
from ..kube.wait import wait_until
from .operands import Waiting

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

# As the namespace controller: what cannot be deleted (metrics of pods, package lists) is made up on request, and no object.
_NEEDED = {"list", "delete"}
# What follows from a Service; asking for it makes the API server warn.
_FOLLOWING = {"Endpoints", "EndpointSlice"}


class Unknown(Exception):
    """Nobody can say what is in the namespace; the message says why."""


def everything(client: Client, namespace: str) -> list[tuple[str, Document]]:
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
                raise Unknown(f"its {outcome.name} cannot be listed: {outcome.error.message}") from outcome.error
            raise outcome.error
        found += outcome.value or []
    return found


def delete_namespace(client: Client, live: Document, waiting: Waiting | None) -> None:
    """Delete the very namespace that was read, and see it gone; raises TimeoutStory with what keeps it."""
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
        story=lambda found: f"Namespace {live['metadata']['name']} is not gone: {_conditions(found or {})}",
        say=lambda dummy: f"namespace {live['metadata']['name']} is going",
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
        raise Unknown(f"the API {group_version} does not answer: {error.message}") from error
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
