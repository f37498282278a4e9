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
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

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


class Resource(t.NamedTuple):
    """A resource of a GitOps tool: its kind, in the form used in messages, and its name."""

    kind: str
    name: str


@dataclass(frozen=True)
class GitOpsTool:
    """A GitOps tool. To add a tool, add an entry to GITOPS_TOOLS.

    name: the value of `manager` in results that describe an installation. resource_of: finds the resource that reconciles an object of the given kind, by
    the object's marks. exclusions: for each kind of resource, how a user keeps that resource from reverting fields of a ClusterPolicy.
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
        return self.tool.exclusions[self.resource.kind]


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
                    "HelmRelease (target.kind: ClusterPolicy)"
                ),
                _KUSTOMIZATION: (
                    "server-side apply reverts those that the source sets: remove them from the source, or annotate the ClusterPolicy there with "
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
                    "(group nvidia.com, kind ClusterPolicy) and set the sync option RespectIgnoreDifferences=true"
                ),
            },
        ),
    )
}
