# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds and deletes the objects that this collection creates; tables list their kinds and marks for each step of the uninstallation.

If a capability creates another kind of object, add an entry to the table of the step that deletes it. With this entry, check mode also knows that the
object does not prevent the deletion of its namespace. Objects with foreign fields or entries are handled in other files: autoscaling.py,
cluster_policy.py, configmaps.py and olm.py.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.names import (
    DEVICE_PLUGIN_CONFIGMAP,
    LICENSE_TOKEN_KEY,
    MIG_CONFIGMAP,
    NEW_NODES_NAME,
    VALIDATION_CONFIGMAP,
)
from ..cluster_state.nvidia_driver import KIND as DRIVER_KIND
from ..cluster_state.nvidia_driver import is_managed
from ..kube.client import Client
from ..kube.paths import Kind, known_kind
from . import ownership_marks
from .configmaps import configmap_removal, validation_pod_removal
from .stage import Removal, deletion

Document = t.Mapping[str, t.Any]

CONFIGMAPS = (DEVICE_PLUGIN_CONFIGMAP, MIG_CONFIGMAP, VALIDATION_CONFIGMAP)
# The label of validation pods (validation/pods.py).
_VALIDATION = "accel.gpu/validation"
_RBAC = "rbac.authorization.k8s.io/v1"


@dataclass(frozen=True)
class CreatedKind:
    """The objects of one kind that this collection creates.

    is_own: whether an object has the mark of this collection; except in OF_OPERATORS, the function must use only the object's metadata.
    names: the names of the objects; empty for all names.
    listed: arguments of Client.list() that limit the listed objects. has_foreign_entries: whether an object is kept because it has entries of other tools.
    removal: returns the removal of an object; if it is None, the object that was read is deleted.
    """

    kind: Kind
    is_own: t.Callable[[Document], bool] = ownership_marks.is_marked
    names: tuple[str, ...] = ()
    listed: t.Mapping[str, t.Any] = field(default_factory=dict)
    has_foreign_entries: t.Callable[[Document], bool] | None = None
    removal: t.Callable[[Client, Document], Removal] | None = None

    def find(self, client: Client, namespace: str | None = None) -> t.Iterator[dict[str, t.Any]]:
        """The collection's objects of this kind in a namespace, or in all namespaces."""
        selectors: list[dict[str, t.Any]] = [{"field_selector": f"metadata.name={name}"} for name in self.names] or [{}]
        for selector in selectors:
            for item in client.list(self.kind.collection(namespace), **self.listed, **selector):
                if self.is_own(item):
                    yield item

    def remove(self, client: Client, item: Document, kept: t.Mapping[tuple[str, str], str]) -> Removal:
        """The removal of an object. kept: the reasons why objects are kept, by kind and name."""
        name, namespace = item["metadata"]["name"], item["metadata"].get("namespace")
        label = f"{self.kind.kind} {'/'.join(filter(None, (namespace, name)))}"
        if reason := kept.get((self.kind.kind, name)):
            return Removal(label, action="", kept=reason)
        if self.removal is not None:
            return self.removal(client, item)
        return deletion(client, self.kind.path(name, namespace), item, label)

    def is_deleted(self, kind: str, metadata: Document) -> bool:
        """Whether the object with this metadata is one of these objects, and is deleted as a whole."""
        item = {"metadata": metadata}
        return (
            kind == self.kind.kind
            and (not self.names or metadata["name"] in self.names)
            and self.is_own(item)
            and not (self.has_foreign_entries and self.has_foreign_entries(item))
        )


def _has_token(configmap: Document) -> bool:
    return ownership_marks.is_created(configmap) and LICENSE_TOKEN_KEY in (configmap.get("data") or {})


def _is_own_driver(driver: Document) -> bool:
    """Whether the collection has created the object, or has changed it after a user handed it over with the label."""
    return is_managed(driver) and ownership_marks.is_written(driver)


# The objects of the role new_nodes, starting with its CronJob.
NEW_NODES = tuple(
    CreatedKind(known_kind(*kind), ownership_marks.is_written, names=(NEW_NODES_NAME,))
    for kind in (("batch/v1", "CronJob"), ("v1", "ConfigMap"), ("v1", "ServiceAccount"))
)
# The ClusterRoleBinding is deleted last. It names the other objects' namespace, which the next run must know if this run is killed.
NEW_NODES_PERMISSIONS = tuple(
    CreatedKind(known_kind(_RBAC, kind), ownership_marks.is_written, names=(NEW_NODES_NAME,))
    for kind in ("RoleBinding", "Role", "ClusterRole", "ClusterRoleBinding")
)
# Deleted after the ClusterPolicy, so that the operator does not install another driver in between.
DRIVERS = CreatedKind(Kind("nvidia.com/v1alpha1", DRIVER_KIND, "nvidiadrivers", namespaced=False), _is_own_driver)
# Deleted once NVIDIA's pods have terminated; in all namespaces, because the operator's namespace may have changed.
AFTER_OPERANDS = (
    CreatedKind(
        known_kind("v1", "ConfigMap"),
        names=CONFIGMAPS,
        has_foreign_entries=ownership_marks.has_foreign_entries,
        removal=configmap_removal,
    ),
)
# Deleted next, in the namespaces of the operators. Secrets for pulling images have a different type, and are deleted with their namespace.
OF_OPERATORS = (
    CreatedKind(
        known_kind("v1", "Secret"),
        ownership_marks.is_created,
        listed={"field_selector": "type=Opaque", "metadata_only": True},
    ),
    CreatedKind(known_kind("v1", "ConfigMap"), _has_token),
)
# The validation pods of killed runs.
VALIDATION_PODS = (
    CreatedKind(
        known_kind("v1", "Pod"),
        lambda pod: _VALIDATION in (pod["metadata"].get("labels") or {}) and ownership_marks.is_written(pod),
        listed={"label_selector": _VALIDATION, "metadata_only": True},
        removal=validation_pod_removal,
    ),
)

# The objects that are deleted before their namespace, and that are recognized by their metadata alone.
CREATED = (*NEW_NODES, *NEW_NODES_PERMISSIONS, DRIVERS, *AFTER_OPERANDS, *VALIDATION_PODS)


def created_removals(
    client: Client,
    kinds: t.Iterable[CreatedKind],
    namespace: str | None = None,
    kept: t.Mapping[tuple[str, str], str] | None = None,
) -> t.Iterator[Removal]:
    """The removals of all objects of these kinds in a namespace, or in all namespaces; see CreatedKind.remove() for `kept`."""
    for kind in kinds:
        for item in kind.find(client, namespace):
            yield kind.remove(client, item, kept or {})
