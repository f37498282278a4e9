# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The second half of an uninstallation, once helm has taken the releases out: what they leave behind, kinds, namespaces.

The notes by which our releases are known go after all that depends on knowing it, so that a run that is killed goes on.
"""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field

from ..cluster_state.node import Node
from ..cluster_state.ownership import NodeEdit
from ..common.errors import InvalidOptions
from ..common.progress import Progress
from ..common.wait import wait_until
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.lease import Lease
from ..kube.objects import NOT_CHECKED
from ..kube.paths import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES, object_path
from . import ownership_marks
from .configmaps import CONFIGMAPS
from .crds import CrdDecision, Definition, decide
from .namespace_contents import ELECTIONS, ReleasedContents
from .namespaces import DELETED, GIVEN_BACK, LEFT, NamespaceDecision, decide_namespace, end_namespace
from .node_cleanup import Residue, in_short, of_nfd, of_operator, staying, without
from .node_patches import patch_nodes, preview_nodes, read_nodes
from .operands import OperandWait, await_no_pods
from .result import UninstallResult

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class UninstalledRelease:
    """A release as it is known now: whether we installed it, whether helm still has it, and which kinds came with it."""

    name: str
    namespace: str
    ours: bool
    there: bool
    note: str
    selector: str
    kinds: tuple[Definition, ...]
    has: t.Callable[[Document], bool]


@dataclass(frozen=True)
class AfterHelmSettings:
    """Both releases, and how NFD marks its annotations."""

    operator: UninstalledRelease
    nfd: UninstalledRelease
    nfd_instance: str
    check: bool
    progress: Progress
    # None: do not wait.
    waiting: OperandWait | None

    @property
    def releases(self) -> tuple[UninstalledRelease, UninstalledRelease]:
        """Both."""
        return self.operator, self.nfd


@dataclass
class ResidueFound:
    """One reading: `policies` are those of nobody's release of ours, `leases` paths of notes and elections."""

    nodes: list[Node]
    verdicts: list[CrdDecision] = field(default_factory=list)
    leases: list[str] = field(default_factory=list)
    namespaces: list[tuple[Object, NamespaceDecision]] = field(default_factory=list)
    policies: bool = False


class AfterHelm:
    """One cluster; the account says what was done so far."""

    def __init__(self, client: Client, settings: AfterHelmSettings) -> None:
        """Send nothing yet."""
        self._client = client
        self._settings = settings
        self.account = UninstallResult()

    def read(self) -> ResidueFound:
        """Everything that may be left; raises InvalidOptions while helm still has a release of ours."""
        waiting = [f"{item.namespace}/{item.name}" for item in self._settings.releases if item.ours and item.there]
        if waiting and not self._settings.check:
            raise InvalidOptions([f"Helm still has the release {name}: uninstall it first." for name in waiting])
        found = ResidueFound(nodes=read_nodes(self._client))
        for release in self._settings.releases:
            for definition in release.kinds if release.ours else ():
                verdict = self._judge(definition, release, found)
                if verdict is not None:
                    found.verdicts.append(verdict)
        found.leases = list(self._leases())
        for name in dict.fromkeys(release.namespace for release in self._settings.releases):
            live = self._client.get(f"{NAMESPACES}/{name}")
            if live is not None:
                found.namespaces.append((live, self._fate(live)))
        return found

    def changed(self, found: ResidueFound) -> bool:
        """Whether there is anything to take away."""
        return bool(
            found.leases
            or any(not verdict.reason for verdict in found.verdicts)
            or any(fate.end != LEFT for dummy, fate in found.namespaces)
            or any(self._compared(found)(node) for node in found.nodes)
        )

    def preview(self, found: ResidueFound) -> None:
        """Note what a run would do, as far as it can be known before helm has worked."""
        try:
            preview_nodes(self._client, found.nodes, self._compared(found), self.account)
        except ApiError as error:
            if not error.forbidden:
                raise
            self.account.unchecked = NOT_CHECKED
        for verdict in found.verdicts:
            self._note_kind(verdict)
        for path in found.leases:
            self._note_lease(path)
        for live, fate in found.namespaces:
            self._note_namespace(live, fate)
        self._note_staying(found)

    def clear(self, found: ResidueFound, lease: Lease) -> None:
        """All of it; raises TimeoutStory when something does not go."""
        if self._settings.waiting is not None:
            for release in self._settings.releases:
                if release.ours:
                    await_no_pods(self._client, release.namespace, release.selector, self._settings.waiting)
            # They may have written on nodes until their end.
            found.nodes = read_nodes(self._client)
        self._clear_nodes(found, lease)
        for verdict in found.verdicts:
            lease.check()
            self._clear_kind(verdict)
            self._note_kind(verdict)
        for path in found.leases:
            lease.check()
            self._client.delete(path)
            self._note_lease(path)
        for live, fate in found.namespaces:
            lease.check()
            self._note_namespace(live, fate)
            end_namespace(self._client, live, fate, self._settings.waiting)
        self._note_staying(found)

    def _clear_nodes(self, found: ResidueFound, lease: Lease) -> None:
        for node in found.nodes:
            # Its annotation goes with the patch of the node, so this one comes first.
            resources = self._leavings(node, found).resources
            if resources:
                lease.check()
                body = {"status": {"capacity": dict.fromkeys(resources), "allocatable": dict.fromkeys(resources)}}
                self._client.patch(f"{NODES}/{node.name}/status", body)
        compare = self._compared(found)
        patch_nodes(self._client, found.nodes, compare, lease, self._settings.progress, self.account)

    def _compared(self, found: ResidueFound) -> t.Callable[[Node], NodeEdit | None]:
        def compare(node: Node) -> NodeEdit | None:
            edit = without(node, self._leavings(node, found))
            return in_short(edit) if edit else None

        return compare

    def _leavings(self, node: Node, found: ResidueFound) -> Residue:
        leaving = Residue()
        if self._settings.operator.ours and not found.policies:
            leaving |= of_operator(node)
        if self._settings.nfd.ours:
            leaving |= of_nfd(node, self._settings.nfd_instance)
        return leaving

    def _judge(self, definition: Definition, release: UninstalledRelease, found: ResidueFound) -> CrdDecision | None:
        live = self._client.get(f"{CUSTOM_RESOURCE_DEFINITIONS}/{definition.name}")
        if live is None:
            return None
        objects = self._client.list_known(definition.objects, metadata_only=True)
        if definition.kind == "ClusterPolicy":
            found.policies = any(not release.has(entry) for entry in objects)
        if not ownership_marks.is_marked(live):
            return CrdDecision(definition, "this collection did not bring it")
        return decide(definition, live, objects, release.has)

    def _clear_kind(self, verdict: CrdDecision) -> None:
        definition = verdict.definition
        path = f"{CUSTOM_RESOURCE_DEFINITIONS}/{definition.name}"
        if verdict.reason:
            # The kind stays for others; what our agents have left of it does not.
            for entry in verdict.mine:
                metadata = entry["metadata"]
                within = f"/namespaces/{metadata['namespace']}" if metadata.get("namespace") else ""
                self._client.delete(f"/apis/{definition.api_version}{within}/{definition.plural}/{metadata['name']}")
            return
        self._client.delete(path)
        if self._settings.waiting is not None:
            wait_until(
                functools.partial(self._client.get, path),
                lambda live: live is None,
                timeout=self._settings.waiting.timeout,
                interval=min(self._settings.waiting.interval, 0.5),
                describe=lambda live: (
                    f"CustomResourceDefinition {definition.name} is not gone: a finalizer keeps one of its objects."
                ),
                progress=self._settings.waiting.progress,
            )

    def _leases(self) -> t.Iterator[str]:
        """Our notes, and what the operators' pods agreed by."""
        for release in self._settings.releases:
            elections = sorted(ELECTIONS) if release.ours else []
            paths = [object_path("coordination.k8s.io/v1", "Lease", name, release.namespace) for name in elections]
            for path in (*paths, release.note):
                if self._client.get(path) is not None:
                    yield path

    def _fate(self, live: Document) -> NamespaceDecision:
        name = live["metadata"]["name"]
        here = [release for release in self._settings.releases if release.namespace == name]
        other = next((release.name for release in here if release.there and not release.ours), "")
        leaving = ReleasedContents(
            releases=frozenset((release.name, release.namespace) for release in here if release.ours),
            configmaps=frozenset(CONFIGMAPS),
            leases=frozenset(release.note.rpartition("/")[2] for release in here),
        )
        return decide_namespace(self._client, live, leaving, other)

    def _note_kind(self, verdict: CrdDecision) -> None:
        label = f"CustomResourceDefinition {verdict.definition.name}"
        if verdict.reason:
            self.account.keeps(label, verdict.reason)
        else:
            self.account.took(label)

    def _note_lease(self, path: str) -> None:
        parts = path.split("/")
        self.account.took(f"Lease {parts[-3]}/{parts[-1]}")

    def _note_namespace(self, live: Document, fate: NamespaceDecision) -> None:
        label = f"Namespace {live['metadata']['name']}"
        if fate.end == DELETED:
            self.account.took(label)
            return
        if fate.end == GIVEN_BACK:
            labels = live["metadata"].get("labels") or {}
            ours = {key: labels.get(key) for key in sorted(ownership_marks.applied_labels(live))}
            self.account.took(label, {"labels": ours}, {}, "our label taken off")
        if fate.why:
            self.account.keeps(label, fate.why)

    def _note_staying(self, found: ResidueFound) -> None:
        for node in found.nodes:
            for what in staying(node, operator=self._settings.operator.ours and not found.policies):
                self.account.stays_on(node.name, what)
