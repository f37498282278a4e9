# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tool reconciles an object."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.object_managers import (
    GITOPS_TOOLS,
    gitops_owner,
    manager_of,
)


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
