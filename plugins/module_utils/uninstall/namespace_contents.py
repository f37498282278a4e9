# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands in a namespace, and whether anything of it is somebody else's (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..helm.release import helm_release_of
from .crds import NODE_FEATURE, by_agent
from .ownership_marks import has_entries_of_others

Document = t.Mapping[str, t.Any]

# What Kubernetes and OpenShift put into every namespace.
_FURNITURE = {
    "ConfigMap": {"kube-root-ca.crt", "openshift-service-ca.crt"},
    "ServiceAccount": {"default", "builder", "deployer"},
    "RoleBinding": {"system:deployers", "system:image-builders", "system:image-pullers"},
}
_PASSING = {"Event"}
_ACCOUNT = "kubernetes.io/service-account.name"
# Cluster-wide owners of what NVIDIA's operator makes in its namespace.
_OPERATORS_OWNERS = {"ClusterPolicy", "NVIDIADriver", "GPUCluster"}
# By which NVIDIA's operator and NFD's master agree which of their pods leads (gpu-operator cmd/gpu-operator/main.go,
# node-feature-discovery pkg/nfd-master).
ELECTIONS = frozenset({"53822513.nvidia.com", "nfd-master.nfd.kubernetes.io"})


@dataclass(frozen=True)
class ReleasedContents:
    """What is on its way out anyway: whole releases of helm (name, namespace), our ConfigMaps and notes by their names."""

    releases: frozenset[tuple[str, str]]
    configmaps: frozenset[str]
    leases: frozenset[str]
    # Others, by kind and name.
    objects: frozenset[tuple[str, str]] = frozenset()


def foreign_objects(found: t.Sequence[tuple[str, Document]], leaving: ReleasedContents) -> list[str]:
    """The objects (kind, metadata) that neither are on their way out nor belong to one that is."""
    own = {str(metadata.get("uid")) for dummy, metadata in found}
    return sorted(
        f"{kind} {metadata['name']}"
        for kind, metadata in found
        if not _goes(kind, metadata, leaving) and not _is_owned(metadata, own)
    )


def _goes(kind: str, metadata: Document, leaving: ReleasedContents) -> bool:
    name = str(metadata["name"])
    labels, marks = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if (kind, name) in leaving.objects:
        return True
    if metadata.get("deletionTimestamp") or kind in _PASSING or name in _FURNITURE.get(kind, ()):
        return True
    if kind == "Lease" and name in leaving.leases | ELECTIONS:
        return True
    if kind == "ConfigMap" and name in leaving.configmaps and not has_entries_of_others({"metadata": metadata}):
        return True
    if helm_release_of({"metadata": metadata}) in leaving.releases:
        return True
    if kind == NODE_FEATURE and by_agent({"metadata": metadata}):
        return True
    if kind == "Secret":
        record = labels.get("owner") == "helm" and (labels.get("name"), metadata.get("namespace")) in leaving.releases
        return record or marks.get(_ACCOUNT) in _FURNITURE["ServiceAccount"]
    return False


def _is_owned(metadata: Document, own: set[str]) -> bool:
    """Whether its owner is judged in its place, or is the operator's."""
    owners = metadata.get("ownerReferences") or []
    return any(str(owner.get("uid")) in own or owner.get("kind") in _OPERATORS_OWNERS for owner in owners)
