# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognizes the manager of an installation from the Deployment of NFD or of the GPU operator, and decides how a run handles that installation (pure).

The manager is recognized by marks on the Deployment: marks of GitOps tools (see object_managers.py), Helm's annotations, OLM's labels, or an owner.
An installation that this collection did not create, and that gpu_cluster does not name, is adopted: it is used as is and never upgraded.
The same applies to every installation that a GitOps tool manages, even if gpu_cluster names it.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, replace

from ..catalog.names import NFD_PREFIX
from ..catalog.olm import CSV_KIND, HELM, NFD_CR, OLM, OWNER_KIND_LABEL, OWNER_LABEL
from ..catalog.taints import untolerated_taints
from ..cluster_state.cluster_policy import active_policy
from ..helm.release import ReleaseId, helm_release_of
from ..kube.object_managers import GITOPS_TOOLS, gitops_owner
from ..pools.plan import ComponentPlan, PolicyPlan
from .cluster_policy import needs_own_strategies

Document = t.Mapping[str, t.Any]

# The possible managers of a Deployment, other than GitOps tools.
HELM_MANAGER, OLM_MANAGER, OWNER, UNMANAGED = "helm", "olm", "owner", "unmanaged"

_VERSION = re.compile(r"v?\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.-]+)?")
_PROGRAMS = {"operator": "gpu-operator", "nfd": "nfd-master"}
TITLES = {"operator": "GPU operator", "nfd": "NFD"}


@dataclass(frozen=True)
class Installation:
    """One Deployment of NFD's master or of the GPU operator. `release` is (name, namespace) if Helm manages it.

    `manager` is a key of GITOPS_TOOLS, helm, olm, owner or unmanaged; `managed_by` describes it in messages; `version` is empty if unknown.
    """

    component: str
    deployment: str
    namespace: str
    manager: str
    managed_by: str
    version: str
    release: ReleaseId | None = None
    running: bool = True
    # Whether a NodeFeatureDiscovery object of OpenShift configures the installation. A run adds the pools' tolerations to that object.
    has_discovery_object: bool = False

    @property
    def title(self) -> str:
        """The component, its version, its namespace and its manager."""
        version = f" {self.version}" if self.version else ""
        return f"{TITLES[self.component]}{version} in namespace {self.namespace} ({self.managed_by})"


@dataclass(frozen=True)
class InstallationFinding:
    """The decision for a component: its role installs or upgrades it (`managed`), adopts it, or fails with the problem."""

    installation: Installation | None
    managed: bool
    problem: str = ""
    notes: tuple[str, ...] = ()
    # The release that a run installs or upgrades to; None if it is the release of the plan with which the finding was made.
    planned: ComponentPlan | None = None

    @property
    def adopted(self) -> bool:
        """Whether a foreign installation is used unchanged."""
        return self.installation is not None and not self.managed and not self.problem

    @property
    def installer(self) -> str:
        """The installer with which a run installs or upgrades the component."""
        return self.planned.installer if self.planned else HELM

    @property
    def configures_discovery(self) -> bool:
        """Whether a run configures the NodeFeatureDiscovery object; only meaningful in the finding for NFD."""
        if self.managed:
            return self.installer == OLM
        return self.adopted and self.installation is not None and self.installation.has_discovery_object

    @property
    def installs(self) -> bool:
        """Whether the component is missing and will be installed."""
        return self.installation is None and self.managed and not self.problem

    def as_dict(self) -> dict[str, t.Any]:
        """The finding, formatted for a module's result."""
        installation = self.installation
        result: dict[str, t.Any] = {
            "found": installation is not None,
            "managed": self.managed,
            "adopted": self.adopted,
            "problem": self.problem,
            "notes": list(self.notes),
            "installer": self.installer if self.managed else "",
        }
        if self.managed and self.planned is not None and self.planned.olm is not None:
            # The options of the module olm_subscription; None means that an option is not set.
            result["subscription"] = {
                "namespace": self.planned.namespace,
                "namespace_labels": dict(self.planned.namespace_labels),
                "version": self.planned.version,
                **{option: value for option, value in self.planned.olm.items() if option != "resource"},
            }
        if installation is None or installation.component == "nfd":
            result["discovery_object"] = self.configures_discovery
        if installation is not None:
            result["what"] = installation.title
            for key in ("deployment", "namespace", "manager", "managed_by", "version"):
                result[key] = getattr(installation, key)
        return result


def read_installation(component: str, deployment: Document) -> Installation | None:
    """The installation that a Deployment is part of; None if it runs another program. `component` is operator or nfd."""
    containers = deployment["spec"]["template"]["spec"].get("containers") or []
    container = next((item for item in containers if _runs(item, _PROGRAMS[component])), None)
    if container is None:
        return None
    metadata = deployment["metadata"]
    manager, managed_by, release = _manager(deployment)
    return Installation(
        component=component,
        deployment=metadata["name"],
        namespace=metadata["namespace"],
        manager=manager,
        managed_by=managed_by,
        version=_version(metadata, container),
        release=release,
        running=deployment["spec"].get("replicas", 1) != 0,
        has_discovery_object=any(
            (owner.get("apiVersion"), owner["kind"]) == NFD_CR for owner in metadata.get("ownerReferences") or ()
        ),
    )


def evaluate_nfd(
    installations: t.Sequence[Installation],
    planned: ComponentPlan,
    managed: t.Container[ReleaseId],
    replaced: ReleaseId | None = None,
) -> InstallationFinding:
    """The finding for NFD. `managed` contains the Helm releases that this collection has installed.

    `replaced` is a release of the operator that will be upgraded with the collection's values, which disable the NFD that is part of the release.
    """
    return evaluate_helm([item for item in installations if not replaced or item.release != replaced], planned, managed)


def evaluate_operator(
    installations: t.Sequence[Installation],
    policies: t.Sequence[Document],
    planned: ComponentPlan,
    managed: t.Container[ReleaseId],
) -> InstallationFinding:
    """The finding for the GPU operator, including problems and notes about its ClusterPolicies."""
    return with_policies(evaluate_helm(installations, planned, managed), policies, planned)


def with_policies(
    finding: InstallationFinding, policies: t.Sequence[Document], planned: ComponentPlan
) -> InstallationFinding:
    """Add to the finding the problem or the notes that result from the ClusterPolicies.

    OLM does not create a ClusterPolicy: a run creates a missing one from the operator's example, and a policy without an operator is not a problem.
    """
    if finding.problem or (finding.installation is None and planned.installer != HELM):
        return finding
    if finding.installation is None:
        orphans = [item for item in policies if helm_release_of(item) != (planned.name, planned.namespace)]
        return replace(finding, problem=_orphans_problem(orphans)) if orphans else finding
    if finding.managed:
        return finding
    if not policies and finding.installation.manager != OLM_MANAGER:
        problem = f"{finding.installation.title} has no ClusterPolicy. Create one, and run the playbook again."
        return replace(finding, problem=problem, notes=())
    return replace(finding, notes=(*finding.notes, *_ignored_policies(policies)))


def with_reverted_fields(
    finding: InstallationFinding, policy: Document | None, planned: PolicyPlan
) -> InstallationFinding:
    """Add a note if a GitOps tool reconciles the ClusterPolicy, because it would revert the fields that the pools set."""
    owner = gitops_owner(policy, "ClusterPolicy") if policy is not None else None
    if policy is None or owner is None or finding.problem:
        return finding
    fields = {f"/spec/{part}/{name}" for part, value in planned.spec.items() for name in value}
    fields |= {"/spec/daemonsets/tolerations"} if planned.tolerations else set()
    fields |= {"/spec/mig/strategy"} if needs_own_strategies(policy, planned) else set()
    if not fields:
        return finding
    note = (
        f"{owner} reconciles ClusterPolicy {policy['metadata']['name']} from its source, and the pools set {', '.join(sorted(fields))} "
        f"there; {owner.exclusions}"
    )
    return replace(finding, notes=(*finding.notes, note))


def same_version(installed: str, planned: str) -> bool:
    """Whether two versions are equal, with or without a leading v; an unknown or unset version equals every version."""
    return not installed or not planned or installed.removeprefix("v") == planned.removeprefix("v")


def missing_tolerations(workers: t.Iterable[Document], taints: t.Iterable[Document]) -> list[Document]:
    """The taints of the pools that the workers of an adopted NFD do not tolerate."""
    specs = [item["spec"]["template"]["spec"] for item in workers]
    if not specs:
        return []
    return untolerated_taints([item for spec in specs for item in spec.get("tolerations") or []], taints)


def unlabeled_nodes(nodes: t.Iterable[Document], taints: t.Iterable[Document]) -> list[str]:
    """The nodes with one of these taints that NFD has not labeled."""
    blocking = {(taint["key"], taint["effect"]) for taint in taints}
    return [
        node["metadata"]["name"]
        for node in nodes
        if any((taint["key"], taint["effect"]) in blocking for taint in node["spec"].get("taints") or ())
        and not any(label.startswith(NFD_PREFIX) for label in node["metadata"].get("labels") or ())
    ]


def evaluate_helm(
    installations: t.Sequence[Installation], planned: ComponentPlan, managed: t.Container[ReleaseId]
) -> InstallationFinding:
    """The finding for a component that Helm installs; `managed` contains the Helm releases that this collection has installed."""
    # An installation that is scaled to zero does not interfere with a running one.
    relevant = [item for item in installations if item.running] or list(installations)
    if not relevant:
        return InstallationFinding(None, managed=True)
    first = relevant[0]
    title = TITLES[first.component]
    if len(relevant) > 1:
        titles = "; ".join(item.title for item in relevant)
        problem = f"The cluster has {len(relevant)} installations of {title}, which conflict: {titles}. Uninstall all but one."
        return InstallationFinding(first, managed=False, problem=problem)
    # A GitOps tool would revert an upgrade by Helm.
    if first.manager not in GITOPS_TOOLS and (planned.named or first.release in managed):
        if first.release == (planned.name, planned.namespace):
            return InstallationFinding(first, managed=True)
        if first.release in managed:
            name, namespace = t.cast("ReleaseId", first.release)
            problem = (
                f"This collection has installed {title} as Helm release {namespace}/{name}, but gpu_cluster names "
                f"{planned.namespace}/{planned.name}. A Helm release cannot be moved: restore the old names, or run accel.gpu.uninstall "
                "with the old names first."
            )
            return InstallationFinding(first, managed=False, problem=problem)
    notes = (
        f"the Helm release {planned.namespace}/{planned.name} that gpu_cluster.{first.component} names is not installed, because this installation exists",
    )
    return InstallationFinding(first, managed=False, notes=notes if planned.named else ())


def _ignored_policies(policies: t.Sequence[Document]) -> t.Iterator[str]:
    if len(policies) > 1:
        active = t.cast("Document", active_policy(policies))["metadata"]["name"]
        others = sorted(item["metadata"]["name"] for item in policies if item["metadata"]["name"] != active)
        yield f"it follows the oldest ClusterPolicy, {active}, and ignores {', '.join(others)}: delete those that are not needed"


def _orphans_problem(policies: t.Sequence[Document]) -> str:
    names = sorted(item["metadata"]["name"] for item in policies)
    return (
        f"ClusterPolicy {', '.join(names)} exists without a GPU operator. Restore that operator, or delete its objects "
        f"(kubectl delete clusterpolicy {' '.join(names)}), and run the playbook again."
    )


def _runs(container: Document, program: str) -> bool:
    """Whether a container runs the program, according to its command or, if it has none, to its image name."""
    command = [*(container.get("command") or []), *(container.get("args") or [])]
    if command and str(command[0]).rpartition("/")[2] == program:
        return True
    return not container.get("command") and _image(container).partition(":")[0] == program


def _image(container: Document) -> str:
    """The last part of the image's path, with its tag."""
    return str(container.get("image") or "").partition("@")[0].rpartition("/")[2]


def _manager(deployment: Document) -> tuple[str, str, ReleaseId | None]:
    metadata = deployment["metadata"]
    labels = metadata.get("labels") or {}
    release = helm_release_of(deployment)
    owner = gitops_owner(deployment, "Deployment")
    if owner is not None:
        return owner.tool.name, str(owner), release
    if release is not None:
        return HELM_MANAGER, f"Helm release {release[1]}/{release[0]}", release
    if labels.get(OWNER_KIND_LABEL) == CSV_KIND and labels.get(OWNER_LABEL):
        return OLM_MANAGER, f"OLM, {CSV_KIND} {labels[OWNER_LABEL]}", None
    for reference in metadata.get("ownerReferences") or []:
        kind = OLM_MANAGER if reference["kind"] == CSV_KIND else OWNER
        return kind, f"{reference['kind']} {reference['name']}", None
    return UNMANAGED, "managed by neither Helm nor OLM", None


def _version(metadata: Document, container: Document) -> str:
    """The version from the image's tag, otherwise from the name of OLM's owner, the version label or the chart label; empty if unknown."""
    labels = metadata.get("labels") or {}
    texts = [
        _image(container).partition(":")[2],
        labels.get(OWNER_LABEL),
        *(owner["name"] for owner in metadata.get("ownerReferences") or []),
        labels.get("app.kubernetes.io/version"),
        labels.get("helm.sh/chart"),
    ]
    return next((match[0] for text in texts if (match := _VERSION.search(str(text or "")))), "")
