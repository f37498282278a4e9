# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which NFD and which GPU operator a cluster has, whose they are, and what follows from that: pure.

The evidence is the Deployment. Its own marks tell who manages it: those of Argo CD and Flux, Helm's annotations, OLM's labels, an
owner, or nothing. What is neither installed by this collection nor named by gpu_cluster is adopted: used as it is, and never upgraded;
so is what Argo CD or Flux installs, whoever has named it.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, replace

from ..catalog.names import NFD_PREFIX
from ..catalog.taints import untolerated_taints
from ..cluster_state.cluster_policy import active_policy
from ..kube.helm_marks import Release, marks_of
from ..pools.plan import PolicyPlan, ReleasePlan
from .gitops import TOOLS, gitops_owner, reverted_fields_note

Document = t.Mapping[str, t.Any]

# OLM's labels on what a ClusterServiceVersion brings (operator-lifecycle-manager pkg/lib/ownerutil).
_OLM_OWNER, _OLM_KIND = "olm.owner", "olm.owner.kind"
HELM, OLM, OWNER, NOBODY = "helm", "olm", "owner", "nobody"

_VERSION = re.compile(r"v?\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.-]+)?")
_PROGRAMS = {"operator": "gpu-operator", "nfd": "nfd-master"}
_TITLES = {"operator": "GPU operator", "nfd": "NFD"}
_CREATE_POLICY = (
    "Create its ClusterPolicy (of OLM's: the one among the alm-examples of its ClusterServiceVersion), and run again."
)


@dataclass(frozen=True)
class Installation:
    """One Deployment of NFD's master or of the GPU operator. `release` is (name, namespace) where Helm manages it.

    `manager` is argocd, flux, helm, olm, owner or nobody, and `managed_by` says the same in words; `version` is empty where nothing tells it.
    """

    component: str
    deployment: str
    namespace: str
    manager: str
    managed_by: str
    version: str
    release: Release | None = None
    running: bool = True

    @property
    def title(self) -> str:
        """What it is and where, in words."""
        version = f" {self.version}" if self.version else ""
        return f"{_TITLES[self.component]}{version} in namespace {self.namespace} ({self.managed_by})"


@dataclass(frozen=True)
class InstallationFinding:
    """What a component's role has to do: install or upgrade it (`ours`), adopt it, or fail with the problem."""

    installation: Installation | None
    ours: bool
    problem: str = ""
    notes: tuple[str, ...] = ()

    @property
    def adopted(self) -> bool:
        """Whether somebody else's is used as it is."""
        return self.installation is not None and not self.ours and not self.problem

    def as_dict(self) -> dict[str, t.Any]:
        """For a result."""
        found = self.installation
        told: dict[str, t.Any] = {"found": found is not None, "ours": self.ours, "adopted": self.adopted}
        if found is not None:
            told.update(
                what=found.title,
                deployment=found.deployment,
                namespace=found.namespace,
                manager=found.manager,
                managed_by=found.managed_by,
                version=found.version,
            )
        return {**told, "problem": self.problem, "notes": list(self.notes)}


def installation(component: str, deployment: Document) -> Installation | None:
    """What a Deployment tells of itself; None when it runs another program than the component's.

    `component` is operator or nfd.
    """
    containers = deployment["spec"]["template"]["spec"].get("containers") or []
    running = next((found for found in containers if _runs(found, _PROGRAMS[component])), None)
    if running is None:
        return None
    metadata = deployment["metadata"]
    manager, managed_by, release = _manager(deployment)
    return Installation(
        component=component,
        deployment=metadata["name"],
        namespace=metadata["namespace"],
        manager=manager,
        managed_by=managed_by,
        version=_version(metadata, running),
        release=release,
        running=deployment["spec"].get("replicas", 1) != 0,
    )


def judge_nfd(
    found: t.Sequence[Installation],
    wanted: ReleasePlan,
    ours: t.Container[Release],
    replaced: Release | None = None,
) -> InstallationFinding:
    """What follows for NFD. `ours` are the Helm releases that this collection has installed.

    `replaced` is an operator's release that is to be upgraded, and with our values has no NFD of its own any more.
    """
    return _judge([item for item in found if not replaced or item.release != replaced], wanted, ours)


def judge_operator(
    found: t.Sequence[Installation], policies: t.Sequence[Document], wanted: ReleasePlan, ours: t.Container[Release]
) -> InstallationFinding:
    """What follows for the GPU operator, which works by the oldest ClusterPolicy."""
    finding = _judge(found, wanted, ours)
    if finding.problem:
        return finding
    if finding.installation is None:
        strange = [item for item in policies if marks_of(item) != (wanted.name, wanted.namespace)]
        return InstallationFinding(None, ours=True, problem=_abandoned(strange)) if strange else finding
    if finding.ours:
        return finding
    if not policies:
        problem = (
            f"{finding.installation.title} is there, but no ClusterPolicy that tells it what to do. {_CREATE_POLICY}"
        )
        return InstallationFinding(finding.installation, ours=False, problem=problem)
    return InstallationFinding(finding.installation, ours=False, notes=(*finding.notes, *_several(policies)))


def with_reverted_fields(
    finding: InstallationFinding, policy: Document | None, planned: PolicyPlan
) -> InstallationFinding:
    """With a note where Argo CD or Flux keeps the ClusterPolicy, since it would take out again what the pools set in it."""
    owner = gitops_owner(policy, "ClusterPolicy") if policy is not None else None
    if policy is None or owner is None or finding.problem:
        return finding
    fields = {f"/spec/{part}/{name}" for part, value in planned.spec.items() for name in value}
    fields |= {"/spec/daemonsets/tolerations"} if planned.tolerations else set()
    fields |= {"/spec/mig/strategy"} if planned.mig_by_node else set()
    note = reverted_fields_note(owner, policy["metadata"]["name"], fields)
    return replace(finding, notes=(*finding.notes, note)) if note else finding


def refused_on_openshift(finding: InstallationFinding, component: str, version: str) -> InstallationFinding:
    """On OpenShift nothing is installed by Helm; what is there already stays what it was found to be."""
    if finding.installation is not None or not finding.ours or finding.problem:
        return finding
    problem = (
        f"This cluster is OpenShift{version and f' {version}'}, where {_TITLES[component]} is not installed by Helm: install the operators Node "
        "Feature Discovery and NVIDIA GPU Operator from the OperatorHub (OLM), create their NodeFeatureDiscovery and ClusterPolicy, and "
        "run again; both are then used as they are."
    )
    return InstallationFinding(None, ours=False, problem=problem)


def needed_tolerations(workers: t.Iterable[Document], taints: t.Iterable[Document]) -> list[Document]:
    """The taints of the pools that keep the workers of an adopted NFD away."""
    specs = [found["spec"]["template"]["spec"] for found in workers]
    if not specs:
        return []
    return untolerated_taints([item for spec in specs for item in spec.get("tolerations") or []], taints)


def never_labelled(nodes: t.Iterable[Document], lacking: t.Iterable[Document]) -> list[str]:
    """The nodes that have such a taint, and of which NFD had told nothing before they had it."""
    kept = {(taint["key"], taint["effect"]) for taint in lacking}
    return [
        node["metadata"]["name"]
        for node in nodes
        if any((taint["key"], taint["effect"]) in kept for taint in node["spec"].get("taints") or ())
        and not any(label.startswith(NFD_PREFIX) for label in node["metadata"].get("labels") or ())
    ]


def _judge(found: t.Sequence[Installation], wanted: ReleasePlan, ours: t.Container[Release]) -> InstallationFinding:
    # What somebody has scaled to nothing does no harm beside one that runs.
    counted = [item for item in found if item.running] or list(found)
    if not counted:
        return InstallationFinding(None, ours=True)
    if len(counted) > 1:
        listed = "; ".join(item.title for item in counted)
        title = _TITLES[counted[0].component]
        problem = (
            f"The cluster has {len(counted)} of {title}, which undo each other's work: {listed}. Uninstall all but one."
        )
        return InstallationFinding(counted[0], ours=False, problem=problem)
    (only,) = counted
    if only.manager in TOOLS:
        # An upgrade by Helm would be undone, or fight with the next one from the repository.
        return InstallationFinding(only, ours=False, notes=_unheeded(only, wanted))
    if only.release == (wanted.name, wanted.namespace) and (wanted.named or only.release in ours):
        return InstallationFinding(only, ours=True)
    if only.release in ours:
        name, namespace = t.cast("Release", only.release)
        problem = (
            f"This collection has installed {_TITLES[only.component]} as Helm release {namespace}/{name}, and gpu_cluster now says "
            f"{wanted.namespace}/{wanted.name}. A release cannot be moved: say the old names, or run accel.gpu.uninstall with them first."
        )
        return InstallationFinding(only, ours=False, problem=problem)
    return InstallationFinding(only, ours=False, notes=_unheeded(only, wanted))


def _unheeded(found: Installation, wanted: ReleasePlan) -> tuple[str, ...]:
    if not wanted.named:
        return ()
    key = found.component
    return (f"gpu_cluster.{key} names the release {wanted.namespace}/{wanted.name}, which is not installed beside it",)


def _several(policies: t.Sequence[Document]) -> t.Iterator[str]:
    if len(policies) > 1:
        followed = t.cast("Document", active_policy(policies))["metadata"]["name"]
        others = sorted(item["metadata"]["name"] for item in policies if item["metadata"]["name"] != followed)
        yield f"it follows the oldest ClusterPolicy, {followed}, and ignores {', '.join(others)}: delete what is not needed"


def _abandoned(policies: t.Sequence[Document]) -> str:
    names = ", ".join(sorted(item["metadata"]["name"] for item in policies))
    return (
        f"ClusterPolicy {names} is there, but no GPU operator that works by it. Bring that operator back, or delete what it has "
        f"left (kubectl delete clusterpolicy {names.replace(',', '')}), and run again."
    )


def _runs(container: Document, program: str) -> bool:
    """By its command, or, where that is the image's own, by the image's name."""
    command = [*(container.get("command") or []), *(container.get("args") or [])]
    if command and str(command[0]).rpartition("/")[2] == program:
        return True
    image = str(container.get("image") or "").partition("@")[0].rpartition("/")[2].partition(":")[0]
    return not container.get("command") and image == program


def _manager(deployment: Document) -> tuple[str, str, Release | None]:
    metadata = deployment["metadata"]
    labels = metadata.get("labels") or {}
    release = marks_of(deployment)
    owner = gitops_owner(deployment, "Deployment")
    if owner is not None:
        return owner.tool, str(owner), release
    if release is not None:
        return HELM, f"Helm release {release[1]}/{release[0]}", release
    if labels.get(_OLM_KIND) == "ClusterServiceVersion" and labels.get(_OLM_OWNER):
        return OLM, f"OLM, ClusterServiceVersion {labels[_OLM_OWNER]}", None
    for owner in metadata.get("ownerReferences") or []:
        kind = OLM if owner["kind"] == "ClusterServiceVersion" else OWNER
        return kind, f"{owner['kind']} {owner['name']}", None
    return NOBODY, "managed by neither Helm nor OLM", None


def _version(metadata: Document, container: Document) -> str:
    """The image's tag; else what OLM's owner, the labels or the chart say."""
    labels = metadata.get("labels") or {}
    tag = str(container.get("image") or "").partition("@")[0].rpartition("/")[2].partition(":")[2]
    owners = [owner["name"] for owner in metadata.get("ownerReferences") or []]
    for text in (
        tag,
        labels.get(_OLM_OWNER),
        *owners,
        labels.get("app.kubernetes.io/version"),
        labels.get("helm.sh/chart"),
    ):
        found = _VERSION.search(str(text or ""))
        if found:
            return found[0]
    return ""
