# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognizes, by the marks on an object, the tool that reconciles the object from the tool's own source (pure).

Argo CD marks an object with the annotation argocd.argoproj.io/tracking-id, `<application>:<group>/<kind>:<namespace>/<name>`, or by
a label: its documentation proposes argocd.argoproj.io/instance in addition to app.kubernetes.io/instance, which every Helm chart sets
(https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/). Flux marks objects of a
HelmRelease or a Kustomization with two labels of that kind's API group (fluxcd/helm-controller internal/postrender/origin_labels.go,
fluxcd/pkg ssa/manager.go SetOwnerLabels).

External Secrets sets its label and annotations on each Secret that it writes, and owns the Secret unless it only adds keys to it
(external-secrets apis/externalsecrets/v1/externalsecret_types.go). Sealed Secrets owns the Secret, or sets its annotation on Secrets that it
takes over (bitnami-labs/sealed-secrets README, "Managing existing secrets").

Other tools: OLM labels what belongs to a ClusterServiceVersion (operator-lifecycle-manager pkg/lib/ownerutil), the marketplace operator annotates the
default CatalogSources (operator-framework/operator-marketplace pkg/operatorhub), Hive labels MachineSets of its MachinePools (openshift/hive
pkg/controller/machinepool), Config Sync and Rancher (wrangler, which Fleet uses) annotate what they apply. Open Cluster Management owns the objects of a
ManifestWork through an AppliedManifestWork. A tool without marks is recognized by its field manager. The label app.kubernetes.io/instance is not
evidence, because every Helm chart sets it; Argo CD's field manager is.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.olm import OWNER_KIND_LABEL, OWNER_LABEL

Document = t.Mapping[str, t.Any]

ARGO_CD, FLUX = "argocd", "flux"

_TRACKING_ID, _INSTANCE = "argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance"
_APPLICATION, _HELM_RELEASE, _KUSTOMIZATION = "application", "HelmRelease", "Kustomization"
_FLUX_GROUPS = (("helm.toolkit.fluxcd.io", _HELM_RELEASE), ("kustomize.toolkit.fluxcd.io", _KUSTOMIZATION))
# The prefixes of the labels and annotations of tools that only write Secrets.
_PREFIXES = {
    "reconcile.external-secrets.io/": "External Secrets",
    "external-secrets.io/": "External Secrets",
    "sealedsecrets.bitnami.com/": "Sealed Secrets",
}
# Marks of other tools: a label or an annotation, and the tool.
_MARKS = {
    "operatorframework.io/managed-by": "the marketplace operator (OperatorHub cluster)",
    "hive.openshift.io/managed": "Hive (its MachinePool)",
    "configmanagement.gke.io/managed": "Config Sync",
    "configsync.gke.io/manager": "Config Sync",
    "objectset.rio.cattle.io/hash": "Rancher Fleet or an add-on of Rancher",
    "objectset.rio.cattle.io/id": "Rancher Fleet or an add-on of Rancher",
}
# The value of a mark that means that the tool does not manage the object.
_UNMANAGED = ("disabled", "false")
# Beginnings of the names of field managers, and the tools.
_FIELD_MANAGERS = {
    "argocd-": "Argo CD",
    "kustomize-controller": "Flux",
    "helm-controller": "Flux",
    "configsync.gke.io": "Config Sync",
    "fleetagent": "Rancher Fleet",
    "config-policy-controller": "a policy of Open Cluster Management",
    "klusterlet-work": "a ManifestWork of Open Cluster Management",
    "work-agent": "a ManifestWork of Open Cluster Management",
    "terraform": "Terraform",
    "pulumi": "Pulumi",
}
_MANIFEST_WORK = "AppliedManifestWork"
# Objects that their controller creates but does not keep as they were.
_NOT_RECONCILED = ("Machine", "Node", "Pod", "Lease", "Event", "Job")


class Resource(t.NamedTuple):
    """A resource of a GitOps tool: its kind, in the form used in messages, and its name."""

    kind: str
    name: str


@dataclass(frozen=True)
class GitOpsTool:
    """A GitOps tool. To add a tool, add an entry to GITOPS_TOOLS.

    name: the value of `manager` in results that describe an installation. resource_of: finds the resource that reconciles an object of the given kind, by
    the object's marks. exclusions: for each kind of resource, how a user keeps that resource from reverting fields of an object.
    helm_managers: the field managers with which the tool applies Helm charts.
    """

    name: str
    title: str
    resource_of: t.Callable[[Document, str], Resource | None]
    exclusions: t.Mapping[str, str]
    helm_managers: tuple[str, ...] = ()


@dataclass(frozen=True)
class GitOpsOwner:
    """The resource of a GitOps tool that reconciles an object."""

    tool: GitOpsTool
    resource: Resource

    def __str__(self) -> str:
        return f"{self.tool.title} {self.resource.kind} {self.resource.name}"

    @property
    def exclusions(self) -> str:
        """How a user keeps the resource from reverting fields of a ClusterPolicy."""
        return self.exclusions_for("ClusterPolicy", "nvidia.com")

    def exclusions_for(self, kind: str, group: str) -> str:
        """How a user keeps the resource from reverting fields of an object of this kind and API group."""
        which = f"group {group}, kind {kind}" if group else f"kind {kind}"
        return self.tool.exclusions[self.resource.kind].format(kind=kind, which=which)


def manager_of(item: Document, kind: str) -> str:
    """The tool or object that reconciles an object of this kind, for messages; empty if there is none."""
    if owner := gitops_owner(item, kind):
        return str(owner)
    metadata = item["metadata"]
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            return f"{reference['kind']} {reference['name']}"
    marks = [*(metadata.get("labels") or ()), *(metadata.get("annotations") or ())]
    return next((tool for prefix, tool in _PREFIXES.items() if any(mark.startswith(prefix) for mark in marks)), "")


def reverts_changes(item: Document) -> str:
    """A sentence about the tool that will revert changes to this object, and what to do; empty if no tool is known to do so.

    The object may be the server's answer to a change, so that it contains its apiVersion and its kind.
    """
    kind, metadata = str(item.get("kind") or ""), item.get("metadata") or {}
    if not kind or not metadata.get("name") or kind in _NOT_RECONCILED:
        return ""
    title = f"{kind} {'/'.join(filter(None, (metadata.get('namespace'), metadata['name'])))}"
    if owner := gitops_owner(item, kind):
        group = str(item.get("apiVersion") or "").rpartition("/")[0]
        how = owner.exclusions_for(kind, group)
        return f"{owner} reconciles {title} from its source. Make the changes of this run there too, or exclude the fields: {how}."
    tool = manager_of(item, kind) or _other_tool(metadata)
    if not tool:
        return ""
    return f"{tool} manages {title} and may revert the changes of this run. Make the same changes where {tool} gets its settings."


def _other_tool(metadata: Document) -> str:
    """The tool without a resource of its own that manages an object, by its marks, its owners and its field managers."""
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    marks = {**annotations, **labels}
    for mark, tool in _MARKS.items():
        if mark in marks and str(marks[mark]).lower() not in _UNMANAGED:
            return tool
    if labels.get(OWNER_LABEL) and labels.get(OWNER_KIND_LABEL):
        return f"OLM ({labels[OWNER_KIND_LABEL]} {labels[OWNER_LABEL]})"
    for reference in metadata.get("ownerReferences") or ():
        if reference["kind"] == _MANIFEST_WORK:
            return f"Open Cluster Management ({reference['kind']} {reference['name']})"
    for entry in metadata.get("managedFields") or ():
        manager = str(entry.get("manager") or "")
        tool = next((tool for start, tool in _FIELD_MANAGERS.items() if manager.lower().startswith(start)), "")
        if tool and not entry.get("subresource"):
            return f"{tool} (field manager {manager})"
    return ""


def gitops_owner(item: Document, kind: str) -> GitOpsOwner | None:
    """The GitOps resource that owns an object of this kind; None if it has no mark, or only a mark copied from another object."""
    owned = (
        GitOpsOwner(tool, resource) for tool in GITOPS_TOOLS.values() if (resource := tool.resource_of(item, kind))
    )
    return next(owned, None)


def _flux_resource(item: Document, _kind: str) -> Resource | None:
    labels = item["metadata"].get("labels") or {}
    for group, owner in _FLUX_GROUPS:
        name, namespace = labels.get(f"{group}/name"), labels.get(f"{group}/namespace")
        if name:
            return Resource(owner, f"{namespace}/{name}" if namespace else name)
    return None


def _argo_cd_resource(item: Document, kind: str) -> Resource | None:
    metadata = item["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    application, dummy, tracked = str(annotations.get(_TRACKING_ID) or "").partition(":")
    if application and _refers_to(tracked, kind, metadata["name"]):
        return Resource(_APPLICATION, application)
    instance = labels.get(_INSTANCE) or annotations.get(_INSTANCE)
    return Resource(_APPLICATION, instance) if instance else None


def _refers_to(tracked: str, kind: str, name: str) -> bool:
    """Whether `tracked` (`<group>/<kind>:<namespace>/<name>`) refers to an object of this kind and name."""
    group_kind, dummy, path = tracked.partition(":")
    return group_kind.rpartition("/")[2] == kind and path.rpartition("/")[2] == name


# The instructions are from the documentation of the tools. Argo CD: user-guide/diffing and user-guide/sync-options (RespectIgnoreDifferences).
# Flux: fluxcd.io/flux/components/helm/helmreleases (Drift detection) and .../kustomize/kustomizations (server-side apply).
GITOPS_TOOLS: t.Mapping[str, GitOpsTool] = {
    tool.name: tool
    for tool in (
        GitOpsTool(
            FLUX,
            "Flux",
            _flux_resource,
            {
                _HELM_RELEASE: (
                    "drift detection (spec.driftDetection.mode: enabled) reverts them: list them as paths in spec.driftDetection.ignore of the "
                    "HelmRelease (target.kind: {kind})"
                ),
                _KUSTOMIZATION: (
                    "server-side apply reverts those that the source sets: remove them from the source, or annotate the {kind} there with "
                    "kustomize.toolkit.fluxcd.io/ssa: IfNotPresent"
                ),
            },
            helm_managers=("helm-controller",),
        ),
        GitOpsTool(
            ARGO_CD,
            "Argo CD",
            _argo_cd_resource,
            {
                _APPLICATION: (
                    "automated sync with selfHeal reverts them: list them as jsonPointers in spec.ignoreDifferences of the Application "
                    "({which}) and set the sync option RespectIgnoreDifferences=true"
                ),
            },
        ),
    )
}
