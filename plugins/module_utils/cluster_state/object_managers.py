# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tool that reconciles an object from its own source, by the marks on the object (pure).

Argo CD marks an object with the annotation argocd.argoproj.io/tracking-id, `<application>:<group>/<kind>:<namespace>/<name>`, or by
a label: its documentation proposes argocd.argoproj.io/instance besides app.kubernetes.io/instance, which every Helm chart sets
(https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/). Flux marks objects of a
HelmRelease or a Kustomization with two labels of that kind's API group (fluxcd/helm-controller internal/postrender/origin_labels.go,
fluxcd/pkg ssa/manager.go SetOwnerLabels).

External Secrets sets its label and annotations on each Secret that it writes, and is its owner unless it only adds keys to it
(external-secrets apis/externalsecrets/v1/externalsecret_types.go). Sealed Secrets is the owner, or has its annotation on Secrets that it takes over
(bitnami-labs/sealed-secrets README, "Managing existing secrets").
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

Document = t.Mapping[str, t.Any]

ARGO_CD, FLUX = "argocd", "flux"
TOOLS = (ARGO_CD, FLUX)

_TRACKING_ID, _INSTANCE = "argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance"
_FLUX_GROUPS = (("helm.toolkit.fluxcd.io", "HelmRelease"), ("kustomize.toolkit.fluxcd.io", "Kustomization"))
# The prefixes of the labels and annotations of other tools.
_PREFIXES = {
    "reconcile.external-secrets.io/": "External Secrets",
    "external-secrets.io/": "External Secrets",
    "sealedsecrets.bitnami.com/": "Sealed Secrets",
}


@dataclass(frozen=True)
class GitOpsOwner:
    """The GitOps resource that reconciles an object: `tool` is one of TOOLS, `kind` is application, HelmRelease or Kustomization."""

    tool: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{'Argo CD' if self.tool == ARGO_CD else 'Flux'} {self.kind} {self.name}"


def manager_of(item: Document, kind: str) -> str:
    """The tool or the object that reconciles an object of this kind, for messages; empty without one."""
    if owner := gitops_owner(item, kind):
        return str(owner)
    metadata = item["metadata"]
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            return f"{reference['kind']} {reference['name']}"
    marks = [*(metadata.get("labels") or ()), *(metadata.get("annotations") or ())]
    return next((tool for prefix, tool in _PREFIXES.items() if any(mark.startswith(prefix) for mark in marks)), "")


def gitops_owner(item: t.Mapping[str, t.Any], kind: str) -> GitOpsOwner | None:
    """The owner of an object of this kind; None if it has no such mark, or only a mark copied from another object."""
    metadata = item["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    for group, owner in _FLUX_GROUPS:
        name, namespace = labels.get(f"{group}/name"), labels.get(f"{group}/namespace")
        if name:
            return GitOpsOwner(FLUX, owner, f"{namespace}/{name}" if namespace else name)
    application, dummy, tracked = str(annotations.get(_TRACKING_ID) or "").partition(":")
    if application and _refers_to(tracked, kind, metadata["name"]):
        return GitOpsOwner(ARGO_CD, "application", application)
    instance = labels.get(_INSTANCE) or annotations.get(_INSTANCE)
    return GitOpsOwner(ARGO_CD, "application", instance) if instance else None


def _refers_to(tracked: str, kind: str, name: str) -> bool:
    """Whether `<group>/<kind>:<namespace>/<name>` is this object."""
    group_kind, dummy, path = tracked.partition(":")
    return group_kind.rpartition("/")[2] == kind and path.rpartition("/")[2] == name
