# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognizes objects that Argo CD or Flux reconciles from a repository, and warns about our fields in them (pure).

Argo CD marks an object by the annotation argocd.argoproj.io/tracking-id, `<application>:<group>/<kind>:<namespace>/<name>`, or by
a label: its documentation proposes argocd.argoproj.io/instance besides app.kubernetes.io/instance, which every Helm chart sets
 (https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/). Flux marks objects of a
HelmRelease or a Kustomization with two labels of that kind's API group (fluxcd/helm-controller internal/postrender/origin_labels.go,
fluxcd/pkg ssa/manager.go SetOwnerLabels).
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

ARGO_CD, FLUX = "argocd", "flux"
TOOLS = (ARGO_CD, FLUX)

_TRACKING_ID, _INSTANCE = "argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance"
_FLUX_GROUPS = (("helm.toolkit.fluxcd.io", "HelmRelease"), ("kustomize.toolkit.fluxcd.io", "Kustomization"))

# How to exclude fields from drift correction. Argo CD: user-guide/diffing and user-guide/sync-options (RespectIgnoreDifferences).
# Flux: fluxcd.io/flux/components/helm/helmreleases (Drift detection) and .../kustomize/kustomizations (server-side apply).
_EXCLUSIONS = {
    "application": (
        "automated sync with selfHeal reverts them: list them as jsonPointers in spec.ignoreDifferences of the Application "
        "(group nvidia.com, kind ClusterPolicy) and set the sync option RespectIgnoreDifferences=true"
    ),
    "HelmRelease": (
        "drift detection (spec.driftDetection.mode: enabled) reverts them: list them as paths in spec.driftDetection.ignore of the "
        "HelmRelease (target.kind: ClusterPolicy)"
    ),
    "Kustomization": (
        "server-side apply reverts those that the source sets: remove them from the source, or annotate the ClusterPolicy there with "
        "kustomize.toolkit.fluxcd.io/ssa: IfNotPresent"
    ),
}


@dataclass(frozen=True)
class GitOpsOwner:
    """The GitOps resource that reconciles an object: `tool` is one of TOOLS, `kind` is application, HelmRelease or Kustomization."""

    tool: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{'Argo CD' if self.tool == ARGO_CD else 'Flux'} {self.kind} {self.name}"


def gitops_owner(item: t.Mapping[str, t.Any], kind: str) -> GitOpsOwner | None:
    """The owner of an object of this kind; None when it has no such mark, or a mark copied from another object."""
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


def reverted_fields_note(owner: GitOpsOwner, policy: str, fields: t.Iterable[str]) -> str | None:
    """A note for a ClusterPolicy with an owner: `fields` are the JSON pointers that the pools set; None when there are none."""
    pointers = ", ".join(sorted(fields))
    if not pointers:
        return None
    return f"{owner} reconciles ClusterPolicy {policy} from its source, and the pools set {pointers} there; {_EXCLUSIONS[owner.kind]}"


def _refers_to(tracked: str, kind: str, name: str) -> bool:
    """Whether `<group>/<kind>:<namespace>/<name>` is this object."""
    group_kind, dummy, path = tracked.partition(":")
    return group_kind.rpartition("/")[2] == kind and path.rpartition("/")[2] == name
