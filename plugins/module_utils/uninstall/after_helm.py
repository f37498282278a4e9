# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage after Helm has uninstalled the Helm releases: their residue on nodes, CRDs, Leases and namespaces.

The markers of our Helm releases are deleted after everything that depends on them, so that a run after a killed one continues.
"""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field

from ..cluster_state.node import Node
from ..cluster_state.ownership import NodeEdit
from ..common.errors import InvalidOptions
from ..common.progress import Progress
from ..common.wait import WaitOptions
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.lease import Lease
from ..kube.objects import NOT_CHECKED
from ..kube.paths import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES
from . import ownership_marks
from .configmaps import CONFIGMAPS
from .crds import CrdDecision, Definition, decide_crd
from .leases import lease_label, lease_path
from .namespaces import (
    ELECTION_LEASES,
    UNCHANGED,
    DepartingObjects,
    NamespaceDecision,
    apply_decision,
    decide_namespace,
)
from .node_cleanup import Residue, kept_parts, nfd_residue, operator_residue, removal_edit, with_short_diff
from .node_patches import patch_nodes, preview_nodes, read_nodes
from .operands import await_no_pods
from .result import UninstallResult

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class UninstalledRelease:
    """A Helm release: whether we installed it (`managed`), whether it still exists, its marker Lease, and its kinds."""

    name: str
    namespace: str
    managed: bool
    exists: bool
    marker: str
    selector: str
    kinds: tuple[Definition, ...]
    contains: t.Callable[[Document], bool]


@dataclass(frozen=True)
class AfterHelmSettings:
    """Both Helm releases, and the instance name with which NFD prefixes its annotations."""

    operator: UninstalledRelease
    nfd: UninstalledRelease
    nfd_instance: str
    check: bool
    progress: Progress
    # None: do not wait.
    waiting: WaitOptions | None

    @property
    def releases(self) -> tuple[UninstalledRelease, UninstalledRelease]:
        """Both Helm releases."""
        return self.operator, self.nfd


@dataclass
class ResidueFound:
    """One reading; `leases` are paths of markers and election Leases, `foreign_policies` says whether foreign ClusterPolicies exist."""

    nodes: list[Node]
    crds: list[CrdDecision] = field(default_factory=list)
    leases: list[str] = field(default_factory=list)
    namespaces: list[tuple[Object, NamespaceDecision]] = field(default_factory=list)
    foreign_policies: bool = False


class AfterHelm:
    """One cluster; `result` has what was done so far."""

    def __init__(self, client: Client, settings: AfterHelmSettings) -> None:
        """Send no request yet."""
        self._client = client
        self._settings = settings
        self.result = UninstallResult()

    def read(self) -> ResidueFound:
        """All residue; raises InvalidOptions while a managed Helm release still exists."""
        existing = [f"{item.namespace}/{item.name}" for item in self._settings.releases if item.managed and item.exists]
        if existing and not self._settings.check:
            raise InvalidOptions([f"Helm release {name} still exists: uninstall it first." for name in existing])
        found = ResidueFound(nodes=read_nodes(self._client))
        for release in self._settings.releases:
            for definition in release.kinds if release.managed else ():
                decision = self._decide_crd(definition, release, found)
                if decision is not None:
                    found.crds.append(decision)
            elections = sorted(ELECTION_LEASES) if release.managed else []
            paths = [*(lease_path(name, release.namespace) for name in elections), release.marker]
            found.leases += [path for path in paths if self._client.get(path) is not None]
        for name in dict.fromkeys(release.namespace for release in self._settings.releases):
            live = self._client.get(f"{NAMESPACES}/{name}")
            if live is not None:
                found.namespaces.append((live, self._decide_namespace(live)))
        return found

    def has_changes(self, found: ResidueFound) -> bool:
        """Whether there is anything to remove."""
        return bool(
            found.leases
            or any(not decision.reason for decision in found.crds)
            or any(decision.action != UNCHANGED for dummy, decision in found.namespaces)
            or any(self._node_edit(found)(node) for node in found.nodes)
        )

    def preview(self, found: ResidueFound) -> None:
        """Report what a run would do, as far as it is known before Helm has run."""
        try:
            preview_nodes(self._client, found.nodes, self._node_edit(found), self.result)
        except ApiError as error:
            if not error.forbidden:
                raise
            self.result.unchecked = NOT_CHECKED
        for crd in found.crds:
            self._report_crd(crd)
        for path in found.leases:
            self.result.add_removed(lease_label(path))
        for live, decision in found.namespaces:
            decision.report(live, self.result)
        self._report_kept_on_nodes(found)

    def remove(self, found: ResidueFound, lease: Lease) -> None:
        """Remove everything; raises WaitTimeout when an object is not deleted in time."""
        if self._settings.waiting is not None:
            for release in self._settings.releases:
                if release.managed:
                    await_no_pods(self._client, release.namespace, release.selector, self._settings.waiting)
            # The pods may have written to nodes until their end.
            found.nodes = read_nodes(self._client)
        self._clean_nodes(found, lease)
        for crd in found.crds:
            lease.check()
            self._remove_crd(crd)
            self._report_crd(crd)
        for path in found.leases:
            lease.check()
            self._client.delete(path)
            self.result.add_removed(lease_label(path))
        for live, decision in found.namespaces:
            lease.check()
            decision.report(live, self.result)
            apply_decision(self._client, live, decision, self._settings.waiting)
        self._report_kept_on_nodes(found)

    def _clean_nodes(self, found: ResidueFound, lease: Lease) -> None:
        for node in found.nodes:
            # The patch of the node removes the record of its resources, so these are removed first.
            resources = self._residue(node, found).resources
            if resources:
                lease.check()
                body = {"status": {"capacity": dict.fromkeys(resources), "allocatable": dict.fromkeys(resources)}}
                self._client.patch(f"{NODES}/{node.name}/status", body)
        progress = self._settings.progress
        patch_nodes(self._client, found.nodes, self._node_edit(found), lease, progress, self.result)

    def _node_edit(self, found: ResidueFound) -> t.Callable[[Node], NodeEdit | None]:
        def compute(node: Node) -> NodeEdit | None:
            edit = removal_edit(node, self._residue(node, found))
            return with_short_diff(edit) if edit else None

        return compute

    def _residue(self, node: Node, found: ResidueFound) -> Residue:
        residue = Residue()
        if self._settings.operator.managed and not found.foreign_policies:
            residue |= operator_residue(node)
        if self._settings.nfd.managed:
            residue |= nfd_residue(node, self._settings.nfd_instance)
        return residue

    def _decide_crd(
        self, definition: Definition, release: UninstalledRelease, found: ResidueFound
    ) -> CrdDecision | None:
        live = self._client.get(f"{CUSTOM_RESOURCE_DEFINITIONS}/{definition.name}")
        if live is None:
            return None
        objects = self._client.list_known(definition.objects, metadata_only=True)
        if definition.kind == "ClusterPolicy":
            found.foreign_policies = any(not release.contains(item) for item in objects)
        if not ownership_marks.is_marked(live):
            return CrdDecision(definition, "this collection did not create it")
        return decide_crd(definition, live, objects, release.contains)

    def _remove_crd(self, crd: CrdDecision) -> None:
        definition = crd.definition
        path = f"{CUSTOM_RESOURCE_DEFINITIONS}/{definition.name}"
        if crd.reason:
            # The CRD is kept, but the objects of our agents are deleted.
            for item in crd.own_objects:
                metadata = item["metadata"]
                namespace = f"/namespaces/{metadata['namespace']}" if metadata.get("namespace") else ""
                self._client.delete(f"/apis/{definition.api_version}{namespace}/{definition.plural}/{metadata['name']}")
            return
        self._client.delete(path)
        waiting = self._settings.waiting
        if waiting is not None:
            waiting.until(
                functools.partial(self._client.get, path),
                lambda live: live is None,
                max_interval=0.5,
                describe=lambda live: (
                    f"CustomResourceDefinition {definition.name} still exists: a finalizer keeps one of its objects."
                ),
            )

    def _decide_namespace(self, live: Document) -> NamespaceDecision:
        name = live["metadata"]["name"]
        releases = [release for release in self._settings.releases if release.namespace == name]
        foreign = next((release.name for release in releases if release.exists and not release.managed), "")
        departing = DepartingObjects(
            releases=frozenset((release.name, release.namespace) for release in releases if release.managed),
            configmaps=frozenset(CONFIGMAPS),
            leases=frozenset(release.marker.rpartition("/")[2] for release in releases),
        )
        return decide_namespace(self._client, live, departing, foreign)

    def _report_crd(self, crd: CrdDecision) -> None:
        label = f"CustomResourceDefinition {crd.definition.name}"
        if crd.reason:
            self.result.add_kept(label, crd.reason)
        else:
            self.result.add_removed(label)

    def _report_kept_on_nodes(self, found: ResidueFound) -> None:
        for node in found.nodes:
            for description in kept_parts(
                node, operator=self._settings.operator.managed and not found.foreign_policies
            ):
                self.result.add_kept_on_node(node.name, description)
