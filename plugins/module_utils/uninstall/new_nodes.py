# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes the CronJob of the role new_nodes and everything that belongs to it.

The cluster-wide binding is deleted last, because it names the namespace of the other objects, which a run after a killed one needs.
"""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from ..catalog.names import NEW_NODES_NAME
from ..kube.paths import collection_path, object_path
from . import ownership_marks
from .namespaces import DepartingObjects, namespace_removal
from .stage import Removal, Stage

Object = dict[str, t.Any]
# The API version and the kind.
KindName = tuple[str, str]

_RBAC = "rbac.authorization.k8s.io/v1"
_NAMESPACED = (("batch/v1", "CronJob"), ("v1", "ConfigMap"), ("v1", "ServiceAccount"))
_PERMISSIONS = ((_RBAC, "RoleBinding"), (_RBAC, "Role"), (_RBAC, "ClusterRole"), (_RBAC, "ClusterRoleBinding"))
# The kinds and names of all deleted objects.
NEW_NODES_OBJECTS = frozenset((kind, NEW_NODES_NAME) for dummy, kind in (*_NAMESPACED, *_PERMISSIONS))
_DEPARTING = DepartingObjects(objects=frozenset((kind, NEW_NODES_NAME) for dummy, kind in _NAMESPACED))


@dataclass(kw_only=True)
class NewNodes(Stage):
    """Removes the CronJob first, then its namespace, and the permissions last."""

    def read(self) -> None:
        """Find all objects with the CronJob's name that the collection has written, in any namespace."""
        objects = list(self._own_objects(_NAMESPACED))
        permissions = list(self._own_objects(_PERMISSIONS))
        names = [item["metadata"]["namespace"] for dummy, item in objects]
        for (dummy, kind), item in permissions:
            if kind == "ClusterRoleBinding":
                names += [subject.get("namespace") for subject in item.get("subjects") or ()]
        namespaces = [namespace_removal(self.client, name, _DEPARTING) for name in dict.fromkeys(names) if name]
        self.removals = [
            *(self._removal(kind, item) for kind, item in objects),
            *filter(None, namespaces),
            *(self._removal(kind, item) for kind, item in permissions),
        ]

    def _own_objects(self, kinds: t.Iterable[KindName]) -> t.Iterator[tuple[KindName, Object]]:
        for kind in kinds:
            for item in self.client.list(collection_path(*kind), field_selector=f"metadata.name={NEW_NODES_NAME}"):
                if ownership_marks.is_marked(item):
                    yield kind, item

    def _removal(self, kind: KindName, item: Object) -> Removal:
        metadata = item["metadata"]
        path = object_path(*kind, metadata["name"], metadata.get("namespace"))
        delete = functools.partial(self.client.delete, path, body={"preconditions": {"uid": metadata["uid"]}})
        name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
        return Removal(f"{kind[1]} {name}", send=delete, check=functools.partial(delete, dry_run=True))
