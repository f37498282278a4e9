# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CronJob by which a cluster lets nodes join their pools by itself (role new_nodes), and all that belongs to it.

Its binding for the whole cluster goes last: it tells in which namespace the rest is, also to the run after one that was killed.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.names import NEW_NODES_NAME
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.lease import Lease
from ..kube.objects import NOT_CHECKED
from ..kube.paths import NAMESPACES, collection_path, object_path
from . import ownership_marks
from .namespace_contents import ReleasedContents
from .namespaces import DELETED, NamespaceDecision, decide_namespace, end_namespace
from .operands import OperandWait
from .result import UninstallResult

Object = dict[str, t.Any]

_RBAC = "rbac.authorization.k8s.io/v1"
_INSIDE = (("batch/v1", "CronJob"), ("v1", "ConfigMap"), ("v1", "ServiceAccount"))
_RIGHTS = ((_RBAC, "RoleBinding"), (_RBAC, "Role"), (_RBAC, "ClusterRole"), (_RBAC, "ClusterRoleBinding"))
_LEAVING = ReleasedContents(
    releases=frozenset(),
    configmaps=frozenset(),
    leases=frozenset(),
    objects=frozenset((kind, NEW_NODES_NAME) for dummy, kind in _INSIDE),
)


@dataclass(frozen=True)
class NewNodesObjects:
    """What there is of it: objects by their kinds, in the order in which they go, and namespaces with what becomes of them."""

    inside: list[tuple[tuple[str, str], Object]]
    namespaces: list[tuple[Object, NamespaceDecision]]
    rights: list[tuple[tuple[str, str], Object]]

    @property
    def any(self) -> bool:
        """Whether there is anything to take out."""
        return bool(self.inside or self.rights)


def read(client: Client) -> NewNodesObjects:
    """All that has the CronJob's name, and that we have written, in whatever namespace it is."""
    inside, rights = ([(kind, of) for kind in kinds for of in _ours(client, kind)] for kinds in (_INSIDE, _RIGHTS))
    names = [of["metadata"]["namespace"] for dummy, of in inside]
    for kind, of in rights:
        if kind[1] == "ClusterRoleBinding":
            names += [subject.get("namespace") for subject in of.get("subjects") or ()]
    found = [client.get(f"{NAMESPACES}/{name}") for name in dict.fromkeys(names) if name]
    return NewNodesObjects(
        inside, [(live, decide_namespace(client, live, _LEAVING, "")) for live in found if live], rights
    )


def preview(client: Client, found: NewNodesObjects, account: UninstallResult) -> None:
    """Note what a run would do, judged by the server where that is allowed."""
    for kind, of in (*found.inside, *found.rights):
        try:
            _delete(client, kind, of, dry_run=True)
        except ApiError as error:
            if not error.forbidden:
                raise
            account.unchecked = NOT_CHECKED
    _note(found, account)


def clear(
    client: Client, found: NewNodesObjects, lease: Lease, waiting: OperandWait | None, account: UninstallResult
) -> None:
    """All of it: the CronJob first, and its rights before the last of them."""
    for kind, of in found.inside:
        lease.check()
        _delete(client, kind, of)
    for live, fate in found.namespaces:
        lease.check()
        end_namespace(client, live, fate, waiting)
    for kind, of in found.rights:
        lease.check()
        _delete(client, kind, of)
    _note(found, account)


def _ours(client: Client, kind: tuple[str, str]) -> list[Object]:
    listed = client.list(collection_path(*kind), field_selector=f"metadata.name={NEW_NODES_NAME}")
    return [of for of in listed if ownership_marks.is_marked(of)]


def _delete(client: Client, kind: tuple[str, str], of: Object, *, dry_run: bool = False) -> None:
    metadata = of["metadata"]
    path = object_path(*kind, metadata["name"], metadata.get("namespace"))
    client.delete(path, body={"preconditions": {"uid": metadata["uid"]}}, dry_run=dry_run)


def _note(found: NewNodesObjects, account: UninstallResult) -> None:
    for (dummy, kind), of in (*found.inside, *found.rights):
        namespace = of["metadata"].get("namespace")
        account.took(f"{kind} {f'{namespace}/' if namespace else ''}{of['metadata']['name']}")
    for live, fate in found.namespaces:
        label = f"Namespace {live['metadata']['name']}"
        if fate.end == DELETED:
            account.took(label)
        elif fate.why:
            account.keeps(label, fate.why)
