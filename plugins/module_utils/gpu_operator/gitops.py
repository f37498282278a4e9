# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects that Argo CD or Flux keeps as a repository has them: how they are recognized, and what that means for our fields (pure).

Argo CD marks an object by the annotation argocd.argoproj.io/tracking-id, `<application>:<group>/<kind>:<namespace>/<name>`, or by
a label; the one that its documentation proposes beside app.kubernetes.io/instance, which every Helm chart sets, is
argocd.argoproj.io/instance (https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/). Flux marks what comes of a
HelmRelease or a Kustomization by two labels of that kind's API group (fluxcd/helm-controller internal/postrender/origin_labels.go,
fluxcd/pkg ssa/manager.go SetOwnerLabels).
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

ARGO_CD, FLUX = "argocd", "flux"
TOOLS = (ARGO_CD, FLUX)

_TRACKING_ID, _INSTANCE = "argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance"
_FLUX_GROUPS = (("helm.toolkit.fluxcd.io", "HelmRelease"), ("kustomize.toolkit.fluxcd.io", "Kustomization"))

# How fields are left out of what is healed. Argo CD: user-guide/diffing and user-guide/sync-options (RespectIgnoreDifferences).
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
        "server-side apply reverts those that the source has: leave them out of the source, or annotate the ClusterPolicy there with "
        "kustomize.toolkit.fluxcd.io/ssa: IfNotPresent"
    ),
}


@dataclass(frozen=True)
class GitOpsOwner:
    """What keeps an object as it is in a repository: `tool` is one of TOOLS, `kind` one of application, HelmRelease and Kustomization."""

    tool: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{'Argo CD' if self.tool == ARGO_CD else 'Flux'} {self.kind} {self.name}"


def gitops_owner(found: t.Mapping[str, t.Any], kind: str) -> GitOpsOwner | None:
    """The owner of an object of this kind; None where the object carries no such mark, or one that was copied from another object."""
    metadata = found["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    for group, owner in _FLUX_GROUPS:
        name, namespace = labels.get(f"{group}/name"), labels.get(f"{group}/namespace")
        if name:
            return GitOpsOwner(FLUX, owner, f"{namespace}/{name}" if namespace else name)
    application, dummy, tracked = str(annotations.get(_TRACKING_ID) or "").partition(":")
    if application and _names(tracked, kind, metadata["name"]):
        return GitOpsOwner(ARGO_CD, "application", application)
    instance = labels.get(_INSTANCE) or annotations.get(_INSTANCE)
    return GitOpsOwner(ARGO_CD, "application", instance) if instance else None


def reverted_fields_note(owner: GitOpsOwner, policy: str, fields: t.Iterable[str]) -> str | None:
    """What a user has to know where an owner keeps the ClusterPolicy: `fields` are JSON pointers; None where we set none."""
    listed = ", ".join(sorted(fields))
    if not listed:
        return None
    return f"{owner} keeps ClusterPolicy {policy} as its source has it, and the pools set {listed} there; {_EXCLUSIONS[owner.kind]}"


def _names(tracked: str, kind: str, name: str) -> bool:
    """Whether `<group>/<kind>:<namespace>/<name>` names this object."""
    of_kind, dummy, of_name = tracked.partition(":")
    return of_kind.rpartition("/")[2] == kind and of_name.rpartition("/")[2] == name
