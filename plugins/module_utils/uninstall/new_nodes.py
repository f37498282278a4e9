# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes the CronJob of the role new_nodes and everything that belongs to it.

Its cluster-wide binding is deleted last: it names the namespace of the rest, also for the run after a killed one.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.names import NEW_NODES_NAME
from ..common.wait import WaitOptions
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.lease import Lease
from ..kube.objects import NOT_CHECKED
from ..kube.paths import NAMESPACES, collection_path, object_path
from . import ownership_marks
from .namespaces import DepartingObjects, NamespaceDecision, apply_decision, decide_namespace
from .result import UninstallResult

Object = dict[str, t.Any]
# API version and kind.
KindName = tuple[str, str]

_RBAC = "rbac.authorization.k8s.io/v1"
_NAMESPACED = (("batch/v1", "CronJob"), ("v1", "ConfigMap"), ("v1", "ServiceAccount"))
_PERMISSIONS = ((_RBAC, "RoleBinding"), (_RBAC, "Role"), (_RBAC, "ClusterRole"), (_RBAC, "ClusterRoleBinding"))
_DEPARTING = DepartingObjects(objects=frozenset((kind, NEW_NODES_NAME) for dummy, kind in _NAMESPACED))


@dataclass(frozen=True)
class NewNodesObjects:
    """The existing objects by kind in the order of their deletion, and the namespaces with their decisions."""

    objects: list[tuple[KindName, Object]]
    namespaces: list[tuple[Object, NamespaceDecision]]
    permissions: list[tuple[KindName, Object]]

    @property
    def any(self) -> bool:
        """Whether there is anything to delete."""
        return bool(self.objects or self.permissions)

    def report(self, result: UninstallResult) -> None:
        """Report everything as deleted."""
        for (dummy, kind), item in (*self.objects, *self.permissions):
            path = "/".join(filter(None, (item["metadata"].get("namespace"), item["metadata"]["name"])))
            result.add_removed(f"{kind} {path}")
        for live, decision in self.namespaces:
            decision.report(live, result)


def read(client: Client) -> NewNodesObjects:
    """All objects with the CronJob's name that we have written, in any namespace."""
    objects, permissions = (
        [(kind, item) for kind in kinds for item in _own_objects(client, kind)] for kinds in (_NAMESPACED, _PERMISSIONS)
    )
    names = [item["metadata"]["namespace"] for dummy, item in objects]
    for kind, item in permissions:
        if kind[1] == "ClusterRoleBinding":
            names += [subject.get("namespace") for subject in item.get("subjects") or ()]
    namespaces = [client.get(f"{NAMESPACES}/{name}") for name in dict.fromkeys(names) if name]
    decisions = [(live, decide_namespace(client, live, _DEPARTING)) for live in namespaces if live]
    return NewNodesObjects(objects, decisions, permissions)


def preview(client: Client, found: NewNodesObjects, result: UninstallResult) -> None:
    """Report what a run would do, checked by the server if that is permitted."""
    for kind, item in (*found.objects, *found.permissions):
        try:
            _delete(client, kind, item, dry_run=True)
        except ApiError as error:
            if not error.forbidden:
                raise
            result.unchecked = NOT_CHECKED
    found.report(result)


def remove(
    client: Client, found: NewNodesObjects, lease: Lease, waiting: WaitOptions | None, result: UninstallResult
) -> None:
    """Delete everything: the CronJob first, the permissions last."""
    for kind, item in found.objects:
        lease.check()
        _delete(client, kind, item)
    for live, decision in found.namespaces:
        lease.check()
        apply_decision(client, live, decision, waiting)
    for kind, item in found.permissions:
        lease.check()
        _delete(client, kind, item)
    found.report(result)


def _own_objects(client: Client, kind: KindName) -> list[Object]:
    listed = client.list(collection_path(*kind), field_selector=f"metadata.name={NEW_NODES_NAME}")
    return [item for item in listed if ownership_marks.is_marked(item)]


def _delete(client: Client, kind: KindName, item: Object, *, dry_run: bool = False) -> None:
    metadata = item["metadata"]
    path = object_path(*kind, metadata["name"], metadata.get("namespace"))
    client.delete(path, body={"preconditions": {"uid": metadata["uid"]}}, dry_run=dry_run)
