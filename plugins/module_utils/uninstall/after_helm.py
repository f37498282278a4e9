# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Implements the stage after Helm has uninstalled the releases: removes their residue on nodes, CRDs, Leases and namespaces.

The markers of the collection's Helm releases are deleted after everything that depends on them, so that the next run can continue if this one is killed.
The Leases that prevent simultaneous runs and record the cluster's name are deleted last.
"""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field

from ..catalog.names import LEASE_NAME, LEASE_NAMESPACE
from ..catalog.releases import NFD_KINDS, OPERATOR_RELEASES
from ..cluster_state.node import Node
from ..cluster_state.ownership import NodeEdit
from ..kube.errors import ApiError
from ..kube.lease import Lease
from ..kube.metadata import name_of
from ..kube.paths import (
    CLUSTER_POLICIES,
    CUSTOM_RESOURCE_DEFINITIONS,
    NODES,
    NVIDIA_DRIVERS,
    Kind,
    object_path,
)
from . import ownership_marks
from .components import ComponentRemoval, Components
from .crds import crd_name, custom_kind, is_agent_feature, keep_reason
from .created_objects import CREATED, DRIVERS, OF_OPERATORS
from .licensing import named_license_objects
from .namespaces import DepartingObjects, namespace_removal
from .node_cleanup import Residue, kept_parts, nfd_residue, operator_residue, removal_edit, with_short_diff
from .operands import await_no_pods
from .stage import Removal, Stage, await_gone, read_nodes

Document = t.Mapping[str, t.Any]

_OPERATOR_KINDS = tuple(dict.fromkeys(kind for release in OPERATOR_RELEASES for kind in release.kinds))


@dataclass(kw_only=True)
class AfterHelm(Stage):
    """The stage for both components. `nfd_instance` is the prefix of NFD's annotations, and `lease_namespace` is the namespace of the Lease of runs.

    `run_leases` contains the existing Leases that are deleted at the end. `foreign_policies`: whether foreign ClusterPolicies exist.
    """

    components: Components
    nfd_instance: str
    lease_namespace: str
    run_leases: list[str] = field(default_factory=list)
    foreign_policies: bool = False

    def read(self) -> None:
        """Read the nodes and all objects that may have to be removed."""
        self.nodes = read_nodes(self.client)
        policies = (
            self.client.list_known(CLUSTER_POLICIES, metadata_only=True) if self.components.operator.own_by_olm else ()
        )
        self.foreign_policies = not all(map(ownership_marks.is_created, policies))
        crds: list[Removal | None] = []
        leases: list[str] = []
        for component, kinds in zip(self.components, (_OPERATOR_KINDS, NFD_KINDS), strict=True):
            if component.by_helm:
                crds += [self._crd_removal(custom_kind(*kind), component) for kind in kinds]
            leases += component.lease_paths
        namespaces = dict.fromkeys(component.release.namespace for component in self.components)
        self.removals = [
            *filter(None, crds),
            *(
                Removal(_lease_label(path), send=functools.partial(self.client.delete, path))
                for path in leases
                if self.client.get(path) is not None
            ),
            *filter(None, map(self._namespace_removal, namespaces)),
        ]
        self.run_leases = [path for path in self._run_lease_paths() if self.client.get(path) is not None]

    def has_changes(self) -> bool:
        """Whether anything must be removed."""
        return super().has_changes() or bool(self.run_leases)

    def planned(self) -> list[str]:
        """Also contains the Leases of runs."""
        return [*super().planned(), *map(_lease_label, self.run_leases)]

    def preview(self) -> None:
        """Report the changes of a run that are known before Helm has run."""
        if self.has_changes():
            # A run itself creates, and later deletes, the Lease that prevents simultaneous runs.
            for path in dict.fromkeys((_lease_path(LEASE_NAME, self.lease_namespace), *self.run_leases)):
                self.result.add_removed(_lease_label(path))
        super().preview()

    def remove(self, lease: Lease) -> None:
        """Remove everything; raises WaitTimeout if an object is not deleted in time."""
        if self.waiting is not None:
            for component in self.components:
                if component.by_helm:
                    release = component.release
                    await_no_pods(
                        self.client, release.namespace, f"app.kubernetes.io/instance={release.name}", self.waiting
                    )
            # The pods may have written to nodes until they terminated.
            self.nodes = read_nodes(self.client)
        for node in self.nodes:
            # The resources are removed first, because the patch of the node removes the record of them.
            resources = self._residue(node).resources
            if resources:
                lease.check()
                body = {"status": {"capacity": dict.fromkeys(resources), "allocatable": dict.fromkeys(resources)}}
                self.client.patch(f"{NODES}/{node.name}/status", body)
        super().remove(lease)

    def finish(self) -> None:
        """Delete the Leases of runs, unless another run holds them."""
        for path in self._run_lease_paths():
            live = self.client.get(path)
            if live is None:
                continue
            holder = (live.get("spec") or {}).get("holderIdentity")
            if not holder and self._delete_as_read(path, live["metadata"]):
                self.result.add_removed(_lease_label(path))
            else:
                self.result.add_kept(_lease_label(path), f"another run, {holder or 'a new one'}, has acquired it")

    def node_edit(self, node: Node) -> NodeEdit | None:
        """The patch that removes the residue of the Helm releases."""
        edit = removal_edit(node, self._residue(node))
        return with_short_diff(edit) if edit else None

    def kept_on_node(self, node: Node) -> t.Iterator[str]:
        """Descriptions of foreign labels and of the operator's cordon."""
        return kept_parts(node, operator=self._removes_operator)

    @property
    def _removes_operator(self) -> bool:
        return self.components.operator.is_removed and not self.foreign_policies

    def _residue(self, node: Node) -> Residue:
        residue = operator_residue(node) if self._removes_operator else Residue()
        return residue | nfd_residue(node, self.nfd_instance) if self.components.nfd.is_removed else residue

    def _run_lease_paths(self) -> list[str]:
        """The paths of the Lease that prevents simultaneous runs, and of the Lease that records the cluster's name."""
        return [_lease_path(LEASE_NAME, name) for name in dict.fromkeys((self.lease_namespace, LEASE_NAMESPACE))]

    def _delete_as_read(self, path: str, metadata: Document) -> bool:
        """Delete an object unless it has changed since it was read; returns whether it was deleted."""
        preconditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        try:
            self.client.delete(path, body={"preconditions": preconditions})
        except ApiError as error:
            if not error.conflict:
                raise
            return False
        return True

    def _crd_removal(self, kind: Kind, component: ComponentRemoval) -> Removal | None:
        """The removal of a CRD; None if it does not exist. If keep_reason() applies, only the objects that belong to the component are deleted."""
        path = f"{CUSTOM_RESOURCE_DEFINITIONS}/{crd_name(kind)}"
        live = self.client.get(path)
        if live is None:
            return None
        label = f"CustomResourceDefinition {crd_name(kind)}"
        own: list[Document] = []
        foreign: list[Document] = []
        for item in self.client.list_known(kind.collection(), metadata_only=True):
            (own if _is_own(kind.kind, item, component) else foreign).append(item)
        if kind.kind == "ClusterPolicy":
            self.foreign_policies = bool(foreign)
        if not ownership_marks.is_marked(live):
            return Removal(label, action="", kept="this collection did not create it")
        reason = keep_reason(kind, live, foreign)
        if reason:
            return Removal(label, action="", kept=reason, send=functools.partial(self._delete_objects, kind, own))
        return Removal(
            label,
            send=functools.partial(self.client.delete, path),
            wait=functools.partial(
                await_gone,
                self.client,
                path,
                live["metadata"]["uid"],
                label,
                lambda dummy: "a finalizer keeps one of its objects.",
            ),
        )

    def _delete_objects(self, kind: Kind, objects: t.Iterable[Document]) -> None:
        for item in objects:
            self.client.delete(kind.path(item["metadata"]["name"], item["metadata"].get("namespace")))

    def _namespace_removal(self, name: str) -> Removal | None:
        components = [component for component in self.components if component.release.namespace == name]
        reasons = (item.namespace_kept_reason for item in components)
        departing = functools.partial(self._departing, name, components)
        return namespace_removal(self.client, name, departing, next(filter(None, reasons), ""))

    def _departing(self, namespace: str, components: t.Sequence[ComponentRemoval]) -> DepartingObjects:
        leases = {("Lease", path.rpartition("/")[2]) for item in components for path in item.lease_paths}
        licensing = {
            (kind.kind.kind, name_of(item)) for kind in OF_OPERATORS for item in kind.find(self.client, namespace)
        }
        return DepartingObjects(
            releases=frozenset((item.release.name, item.release.namespace) for item in components if item.by_helm),
            # In check mode, the previous stages have not deleted the objects of licensing and of the kinds in CREATED.
            objects=frozenset(leases | licensing),
            kept=self._named_license_objects,
            created=CREATED,
            by_olm=all(item.own_by_olm for item in components),
        )

    @functools.cached_property
    def _named_license_objects(self) -> frozenset[tuple[str, str]]:
        """The kinds and names of the Secrets and ConfigMaps that the stage before Helm keeps because a kept object refers to them."""
        policies = [
            item for item in self.client.list_known(CLUSTER_POLICIES) if not self.components.operator.removes(item)
        ]
        drivers = [item for item in self.client.list_known(NVIDIA_DRIVERS) if not DRIVERS.is_own(item)]
        return frozenset(named_license_objects(policies, drivers))


def _is_own(kind: str, item: Document, component: ComponentRemoval) -> bool:
    """Whether the object is removed with the component: its Helm release contains it, an agent of NVIDIA or NFD wrote it, or the stage before Helm deletes it.

    In check mode, that stage has not deleted its objects yet. Of these objects, only drivers and policies count, because the user may have
    created objects of other kinds with the same annotation by means of kube_object.
    """
    is_deleted_before = DRIVERS.is_deleted(kind, item["metadata"]) or (
        kind == "ClusterPolicy" and ownership_marks.is_created(item)
    )
    return is_deleted_before or component.release.contains(item) or is_agent_feature(kind, item)


def _lease_path(name: str, namespace: str) -> str:
    return object_path("coordination.k8s.io/v1", "Lease", name, namespace)


def _lease_label(path: str) -> str:
    parts = path.split("/")
    return f"Lease {parts[-3]}/{parts[-1]}"
