# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tool reconciles an object."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.fields import (
    GITOPS_TOOLS,
    gitops_owner,
    manager_of,
    reverts_changes,
)

BY_ARGO = [{"manager": "argocd-controller", "operation": "Apply"}]


@pytest.mark.parametrize(
    ("metadata", "manager"),
    [
        ({}, ""),
        ({"labels": {"app": "a"}, "annotations": {"accel.gpu/created": "true"}}, ""),
        ({"ownerReferences": [{"kind": "Team", "name": "a"}]}, ""),
        ({"ownerReferences": [{"kind": "ExternalSecret", "name": "a", "controller": True}]}, "ExternalSecret a"),
        ({"ownerReferences": [{"kind": "SealedSecret", "name": "a", "controller": True}]}, "SealedSecret a"),
        ({"labels": {"reconcile.external-secrets.io/managed": "true"}}, "External Secrets"),
        ({"annotations": {"reconcile.external-secrets.io/data-hash": "x"}}, "External Secrets"),
        ({"annotations": {"external-secrets.io/created-by": "x"}}, "External Secrets"),
        ({"annotations": {"sealedsecrets.bitnami.com/managed": "true"}}, "Sealed Secrets"),
        ({"labels": {"argocd.argoproj.io/instance": "a"}}, "Argo CD application a"),
        ({"annotations": {"argocd.argoproj.io/tracking-id": "a:/Secret:b/name"}}, "Argo CD application a"),
        ({"annotations": {"argocd.argoproj.io/tracking-id": "a:/Secret:b/another"}}, ""),
        # The default mark of Argo CD is a label that every Helm chart sets, so it counts only if Argo CD has written the object.
        ({"labels": {"app.kubernetes.io/instance": "a"}}, ""),
        ({"labels": {"app.kubernetes.io/instance": "a"}, "managedFields": BY_ARGO}, "Argo CD application a"),
        (
            {"labels": {"app.kubernetes.io/instance": "a"}, "managedFields": [{**BY_ARGO[0], "subresource": "status"}]},
            "",
        ),
        (
            {
                "labels": {"app.kubernetes.io/instance": "a"},
                "annotations": {"argocd.argoproj.io/tracking-id": "b:/Secret:b/another"},
                "managedFields": BY_ARGO,
            },
            "",
        ),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "a"}}, "Flux Kustomization a"),
        (
            {"labels": {"helm.toolkit.fluxcd.io/name": "a", "helm.toolkit.fluxcd.io/namespace": "b"}},
            "Flux HelmRelease b/a",
        ),
    ],
)
def test_the_manager_of_an_object(metadata: dict[str, Any], manager: str) -> None:
    assert manager_of({"metadata": {"name": "name", **metadata}}, "Secret") == manager


@pytest.mark.parametrize(
    ("label", "manager", "text"),
    [
        ("argocd.argoproj.io/instance", "argocd", "selfHeal"),
        ("kustomize.toolkit.fluxcd.io/name", "flux", "server-side apply"),
        ("helm.toolkit.fluxcd.io/name", "flux", "drift detection"),
    ],
)
def test_every_kind_of_resource_has_instructions(label: str, manager: str, text: str) -> None:
    owner = gitops_owner({"metadata": {"name": "name", "labels": {label: "a"}}}, "ClusterPolicy")
    assert owner is not None
    assert (owner.tool.name, owner.tool) == (manager, GITOPS_TOOLS[manager])
    assert text in owner.exclusions


ARGO = {"argocd.argoproj.io/tracking-id": "gpu:/ConfigMap:b/name"}


@pytest.mark.parametrize(
    ("kind", "metadata", "words"),
    [
        ("ConfigMap", {}, []),
        ("ConfigMap", {"labels": {"app.kubernetes.io/instance": "a", "app.kubernetes.io/managed-by": "Helm"}}, []),
        ("ConfigMap", {"managedFields": [{"manager": "kubectl-edit"}, {"manager": "accel.gpu"}]}, []),
        ("ConfigMap", {"managedFields": [{"manager": "argocd-controller", "subresource": "status"}]}, []),
        ("ConfigMap", {"annotations": {"configmanagement.gke.io/managed": "disabled"}}, []),
        ("ConfigMap", {"annotations": {"meta.helm.sh/release-name": "base", "meta.helm.sh/release-namespace": "ns"}}, ["Helm release ns/base contains ConfigMap b/name"]),
        ("Secret", {"annotations": {"meta.helm.sh/release-name": "base"}, "labels": {"helm.toolkit.fluxcd.io/name": "a"}}, ["Flux HelmRelease a"]),
        # The release of the operator is examined where the installation is.
        ("ClusterPolicy", {"annotations": {"meta.helm.sh/release-name": "gpu-operator"}}, []),
        ("Machine", {"ownerReferences": [{"kind": "MachineSet", "name": "a", "controller": True}]}, []),
        ("ConfigMap", {"annotations": ARGO}, ["Argo CD application gpu reconciles ConfigMap b/name", "kind ConfigMap)"]),
        ("ConfigMap", {"labels": {"kustomize.toolkit.fluxcd.io/name": "a"}}, ["Flux Kustomization a", "annotate the ConfigMap"]),
        ("ConfigMap", {"managedFields": [{"manager": "argocd-controller"}]}, ["Argo CD (field manager argocd-controller)"]),
        ("ConfigMap", {"managedFields": [{"manager": "kustomize-controller"}]}, ["Flux (field manager"]),
        ("ConfigMap", {"labels": {"objectset.rio.cattle.io/hash": "x"}}, ["Rancher Fleet"]),
        ("ConfigMap", {"annotations": {"configmanagement.gke.io/managed": "enabled"}}, ["Config Sync manages"]),
        ("MachineSet", {"labels": {"hive.openshift.io/managed": "true"}}, ["Hive (its MachinePool) manages MachineSet b/name"]),
        ("CatalogSource", {"annotations": {"operatorframework.io/managed-by": "marketplace-operator"}}, ["OperatorHub"]),
        ("ConfigMap", {"labels": {"olm.owner": "x.v1", "olm.owner.kind": "ClusterServiceVersion"}}, ["OLM (ClusterServiceVersion x.v1)"]),
        ("Secret", {"ownerReferences": [{"kind": "ExternalSecret", "name": "a", "controller": True}]}, ["ExternalSecret a manages"]),
        ("Namespace", {"ownerReferences": [{"kind": "AppliedManifestWork", "name": "a"}]}, ["Open Cluster Management"]),
        ("ConfigMap", {"managedFields": [{"manager": "config-policy-controller"}]}, ["a policy of Open Cluster Management"]),
    ],
)  # fmt: skip
def test_who_reverts_changes_to_an_object(kind: str, metadata: dict[str, Any], words: list[str]) -> None:
    item = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "name", "namespace": "b", **metadata}}
    actual = reverts_changes(item)
    assert bool(actual) is bool(words)
    assert [word for word in words if word not in actual] == []


def test_an_answer_without_an_object_has_no_owner() -> None:
    assert reverts_changes({}) == ""
    assert reverts_changes({"kind": "Table", "metadata": {}}) == ""
