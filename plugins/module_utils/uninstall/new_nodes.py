# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Implements the stage that removes the CronJob of the role new_nodes and everything that belongs to it."""

from __future__ import annotations

from dataclasses import dataclass

from .created_objects import NEW_NODES, NEW_NODES_PERMISSIONS
from .namespaces import DepartingObjects, namespace_removal
from .stage import Stage


@dataclass(kw_only=True)
class NewNodes(Stage):
    """Removes the CronJob first, then its namespace, and the permissions last."""

    def read(self) -> None:
        """Find all objects with the CronJob's name that the collection has written, in any namespace."""
        objects, permissions = (
            [(kind, item) for kind in kinds for item in kind.find(self.client)]
            for kinds in (NEW_NODES, NEW_NODES_PERMISSIONS)
        )
        names = [item["metadata"]["namespace"] for dummy, item in objects]
        for kind, item in permissions:
            if kind.kind.kind == "ClusterRoleBinding":
                names += [subject.get("namespace") for subject in item.get("subjects") or ()]
        namespaces = [namespace_removal(self.client, name, _departing) for name in dict.fromkeys(names) if name]
        self.removals = [
            *(kind.remove(self.client, item, {}) for kind, item in objects),
            *filter(None, namespaces),
            *(kind.remove(self.client, item, {}) for kind, item in permissions),
        ]


def _departing() -> DepartingObjects:
    return DepartingObjects(created=NEW_NODES)
