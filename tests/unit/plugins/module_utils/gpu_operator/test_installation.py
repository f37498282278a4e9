# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose NFD and whose GPU operator a cluster has, and what follows: every state in which people have their clusters."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.detect import adopt_installed, relocate_plan
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.installation import (
    HELM_MANAGER,
    OLM_MANAGER,
    OWNER,
    UNMANAGED,
    Installation,
    InstallationFinding,
    evaluate_nfd,
    evaluate_operator,
    missing_tolerations,
    read_installation,
    same_version,
    with_reverted_fields,
)
from ansible_collections.accel.gpu.plugins.module_utils.kube.fields import ARGO_CD, FLUX
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import ComponentPlan

Object = dict[str, Any]

TRACKING = "argocd.argoproj.io/tracking-id"
INSTANCE = "app.kubernetes.io/instance"
FLUX_LABELS = {"helm.toolkit.fluxcd.io/name": "gpu", "helm.toolkit.fluxcd.io/namespace": "flux"}
IMAGE = "nvcr.io/nvidia/gpu-operator:v25.10.1"
NAMED_ELSEWHERE = {"operator": {"release": "mine", "namespace": "gpus"}}


def deployment(
    name: str = "gpu-operator",
    namespace: str = "gpu-operator",
    *,
    image: str = IMAGE,
    command: list[str] | None = None,
    labels: Object | None = None,
    helm: tuple[str, str] | None = None,
    owners: list[Object] | None = None,
    annotations: Object | None = None,
    replicas: int = 1,
) -> Object:
    marks = {"meta.helm.sh/release-name": helm[0], "meta.helm.sh/release-namespace": helm[1]} if helm else {}
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": labels or {},
        "annotations": {**marks, **(annotations or {})},
    }
    container = {"name": "main", "image": image, **({"command": command} if command else {})}
    return {
        "metadata": {**metadata, **({"ownerReferences": owners} if owners else {})},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
    }


def operator(**changes: Any) -> Installation:
    actual = read_installation("operator", deployment(**{"command": ["gpu-operator"], **changes}))
    assert actual is not None
    return actual


def policy(name: str = "cluster-policy", created: str = "1", helm: tuple[str, str] | None = None) -> Object:
    marks = {"meta.helm.sh/release-name": helm[0], "meta.helm.sh/release-namespace": helm[1]} if helm else {}
    return {"metadata": {"name": name, "creationTimestamp": created, "annotations": marks}, "spec": {}}


def wanted(cluster: Object | None = None, component: str = "operator") -> ComponentPlan:
    plan = derive({"name": "c", **(cluster or {})}, {}, [])
    return plan.operator if component == "operator" else plan.nfd


CSV = "gpu-operator-certified.v25.3.2"
IDENTITIES = [
    # deployment, manager, in words, version
    (deployment(helm=("x", "y"), command=["gpu-operator"]), HELM_MANAGER, "Helm release y/x", "v25.10.1"),
    (
        deployment(image="nvcr.io/nvidia/gpu-operator@sha256:ab", command=["gpu-operator"],
                   labels={"olm.owner": CSV, "olm.owner.kind": "ClusterServiceVersion", "app.kubernetes.io/version": "v1.1.1"}),
        OLM_MANAGER, f"OLM, ClusterServiceVersion {CSV}", "v25.3.2",
    ),
    (
        deployment(image="reg:5000/gpu-operator", owners=[{"kind": "ClusterServiceVersion", "name": CSV}]),
        OLM_MANAGER, f"ClusterServiceVersion {CSV}", "v25.3.2",
    ),
    (deployment(owners=[{"kind": "App", "name": "a"}]), OWNER, "App a", "v25.10.1"),
    # As `helm template | kubectl apply` leaves it: Helm's labels, and no release.
    (
        deployment(image="reg:5000/gpu-operator", labels={"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "gpu-operator-v24.9.2"}),
        UNMANAGED, "managed by neither Helm nor OLM", "v24.9.2",
    ),
    (deployment(image="reg:5000/gpu-operator"), UNMANAGED, "managed by neither Helm nor OLM", ""),
    # Flux upgrades by Helm, so that both have marked it; Argo CD renders a chart, and there is no release.
    (
        deployment(helm=("x", "y"), labels={"helm.toolkit.fluxcd.io/name": "gpu", "helm.toolkit.fluxcd.io/namespace": "flux-system"}),
        FLUX, "Flux HelmRelease flux-system/gpu", "v25.10.1",
    ),
    (deployment(labels={"kustomize.toolkit.fluxcd.io/name": "infra"}), FLUX, "Flux Kustomization infra", "v25.10.1"),
    (deployment(annotations={TRACKING: "gpu:apps/Deployment:gpu-operator/gpu-operator"}), ARGO_CD, "Argo CD application gpu", "v25.10.1"),
    (deployment(labels={"argocd.argoproj.io/instance": "gpu"}), ARGO_CD, "Argo CD application gpu", "v25.10.1"),
    # Copied with the annotations of the object that made this one; and the label that every chart sets.
    (deployment(annotations={TRACKING: "gpu:nvidia.com/ClusterPolicy:/cluster-policy"}), UNMANAGED, "managed by neither Helm nor OLM", "v25.10.1"),
    (deployment(labels={"app.kubernetes.io/instance": "gpu-operator"}), UNMANAGED, "managed by neither Helm nor OLM", "v25.10.1"),
]  # fmt: skip


@pytest.mark.parametrize(("actual", "manager", "words", "version"), IDENTITIES)
def test_a_deployment_shows_its_manager(actual: Object, manager: str, words: str, version: str) -> None:
    seen = read_installation("operator", actual)
    assert seen is not None
    assert (seen.manager, seen.managed_by, seen.version) == (manager, words, version)


@pytest.mark.parametrize(
    ("component", "actual", "counts"),
    [
        ("operator", deployment(command=["/usr/bin/gpu-operator"], image="x/y:1"), True),
        ("operator", deployment(command=["dashboard"]), False),
        ("operator", deployment(image="x/gpu-operator-dashboard:v1.0.0"), False),
        ("nfd", deployment(command=["nfd-master"], image="registry.k8s.io/nfd/node-feature-discovery:v0.19.0"), True),
        ("nfd", deployment(command=["postgres"], labels={"role": "master"}), False),
    ],
)
def test_only_the_program_itself_counts(component: str, actual: Object, counts: bool) -> None:
    assert (read_installation(component, actual) is not None) == counts


MANAGED = ("gpu-operator", "gpu-operator")
JUDGEMENTS: list[tuple[str, list[Installation], list[Object], Object, set[Any], str, str]] = [
    # what, deployments, policies, gpu_cluster, managed releases -> verdict, words of its problem or notes
    ("nothing", [], [], {}, set(), "managed", ""),
    ("managed", [operator(helm=MANAGED)], [policy(helm=MANAGED)], {}, {MANAGED}, "managed", ""),
    ("managed, half installed", [operator(helm=MANAGED)], [], {}, {MANAGED}, "managed", ""),
    ("managed, its Deployment deleted", [], [policy(helm=MANAGED)], {}, {MANAGED}, "managed", ""),
    ("Helm, at the default names", [operator(helm=MANAGED)], [policy(helm=MANAGED)], {}, set(), "adopted", ""),
    ("Helm, at names that are set", [operator(helm=MANAGED)], [policy()], {"operator": {"release": "gpu-operator"}}, set(), "managed", ""),
    ("Helm elsewhere", [operator(helm=("a", "b"), namespace="b")], [policy()], {}, set(), "adopted", ""),
    ("other names are set", [operator(helm=("a", "b"))], [policy()], NAMED_ELSEWHERE, set(), "adopted", "the Helm release gpus/mine that gpu_cluster.operator names"),
    ("managed, elsewhere", [operator(helm=MANAGED)], [policy()], NAMED_ELSEWHERE, {MANAGED}, "problem", "cannot be moved"),
    ("without a manager", [operator()], [policy()], {}, set(), "adopted", ""),
    ("without a policy", [operator()], [], {}, set(), "problem", "has no ClusterPolicy"),
    ("a policy alone", [], [policy("gpu-cluster-policy")], {}, set(), "problem", "kubectl delete clusterpolicy gpu-cluster-policy"),
    ("two operators", [operator(), operator(namespace="b")], [policy()], {}, set(), "problem", "which conflict"),
    ("one of two at rest", [operator(replicas=0), operator(helm=MANAGED)], [policy()], {}, {MANAGED}, "managed", ""),
    ("at rest alone", [operator(replicas=0)], [policy()], {}, set(), "adopted", ""),
    ("Flux took over a managed installation", [operator(helm=MANAGED, labels=FLUX_LABELS)], [policy(helm=MANAGED)], {}, {MANAGED}, "adopted", ""),
    ("Flux, at names that are set", [operator(helm=MANAGED, labels=FLUX_LABELS)], [policy()], {"operator": {"release": "gpu-operator"}}, set(), "adopted", "is not installed, because this installation exists"),
    ("two policies", [operator()], [policy("b", "2"), policy("a", "1")], {}, set(), "adopted", "oldest ClusterPolicy, a, and ignores b"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("actual", "policies", "cluster", "managed", "verdict", "words"),
    [case[1:] for case in JUDGEMENTS],
    ids=[case[0] for case in JUDGEMENTS],
)
def test_what_follows(
    actual: list[Installation], policies: list[Object], cluster: Object, managed: set[Any], verdict: str, words: str
) -> None:
    finding = evaluate_operator(actual, policies, wanted(cluster), managed)
    assert {"managed": finding.managed and not finding.problem, "adopted": finding.adopted, "problem": bool(finding.problem)} == {
        word: word == verdict for word in ("managed", "adopted", "problem")
    }  # fmt: skip
    assert words in " ".join([finding.problem, *finding.notes])
    assert finding.as_dict()["adopted"] == finding.adopted


SHARED = [{"name": "p", "match": {"model": "T4"}, "taints": [{"key": "t", "effect": "NoSchedule"}], "sharing": {"mode": "time-slicing", "replicas": 4}}]  # fmt: skip
CUT = [{"name": "p", "match": {"model": "A100-SXM4-80GB"}, "sharing": {"mode": "mig", "layout": {"1g.10gb": 7}}}]
POINTERS = "/spec/daemonsets/tolerations, /spec/devicePlugin/config"
REVERTED: list[tuple[Object, Object, list[Object], str]] = [
    # labels and annotations of the ClusterPolicy, the pools, content of the annotation
    ({}, {TRACKING: "gpu:nvidia.com/ClusterPolicy:/cluster-policy"}, SHARED, f"the pools set {POINTERS} there: set them in the source as well, or exclude them; automated sync with selfHeal"),
    # Argo CD's default mark, which every chart sets, and its field manager; then a tool that leaves only its field manager.
    ({INSTANCE: "gpu"}, {"managers": ["argocd-controller"]}, SHARED, f"Argo CD application gpu reconciles ClusterPolicy cluster-policy from its source, and the pools set {POINTERS}"),
    ({INSTANCE: "gpu"}, {}, SHARED, ""),
    ({}, {"managers": ["terraform-provider"]}, SHARED, "Terraform (field manager terraform-provider) manages ClusterPolicy cluster-policy and may revert"),
    # The operator's default toleration is all that this pool needs.
    ({INSTANCE: "gpu"}, {"managers": ["argocd-controller"]}, [{**SHARED[0], "taints": []}], "the pools set /spec/devicePlugin/config there"),
    ({}, {TRACKING: "gpu:nvidia.com/ClusterPolicy:/cluster-policy"}, SHARED, "spec.ignoreDifferences"),
    (FLUX_LABELS, {}, SHARED, "Flux HelmRelease flux/gpu reconciles ClusterPolicy cluster-policy"),
    (FLUX_LABELS, {}, SHARED, "spec.driftDetection.ignore"),
    (FLUX_LABELS, {}, CUT, "/spec/mig/strategy, /spec/migManager/config"),
    ({"kustomize.toolkit.fluxcd.io/name": "gpu"}, {}, SHARED, "kustomize.toolkit.fluxcd.io/ssa"),
    ({}, {}, SHARED, ""),
]  # fmt: skip


@pytest.mark.parametrize(("labels", "annotations", "pools", "words"), REVERTED)
def test_fields_that_a_repository_reverts_are_named(
    labels: Object, annotations: Object, pools: list[Object], words: str
) -> None:
    managers = [{"manager": name} for name in annotations.get("managers", ())]
    marks = {key: value for key, value in annotations.items() if key != "managers"}
    metadata = {"name": "cluster-policy", "labels": labels, "annotations": marks, "managedFields": managers}
    live = {"metadata": metadata, "spec": {}}
    finding = with_reverted_fields(
        InstallationFinding(operator(), managed=False), live, derive({"name": "c"}, {}, pools).policy
    )
    assert words in " ".join(finding.notes)
    as_declared = {**live, "spec": {"mig": {"strategy": "single"}}}
    kept = with_reverted_fields(finding, as_declared, derive({"name": "c"}, {}, CUT).policy).notes[len(finding.notes) :]
    assert "/spec/mig/strategy" not in " ".join(kept)
    assert bool(finding.notes) == bool(words)


@pytest.mark.parametrize(
    ("installed", "planned", "same"),
    [
        ("v25.10.1", "v25.10.1", True),
        ("25.10.1", "v25.10.1", True),
        ("v25.3.2", "v25.10.1", False),
        ("", "v25.10.1", True),
        ("4.18.0-1", "", True),
    ],
)
def test_an_unknown_version_is_never_replaced(installed: str, planned: str, same: bool) -> None:
    assert same_version(installed, planned) == same


def test_only_what_is_missing_is_installed() -> None:
    assert InstallationFinding(None, managed=True).installs
    for kept in (
        InstallationFinding(operator(), managed=False),
        InstallationFinding(operator(helm=MANAGED), managed=True),
        InstallationFinding(None, managed=False, problem="x"),
    ):
        assert not kept.installs


def master(helm: tuple[str, str] | None = None) -> Installation:
    actual = read_installation("nfd", deployment("nfd-master", command=["nfd-master"], helm=helm, image="nfd:v0.18.2"))
    assert actual is not None
    return actual


def test_an_nfd_of_a_foreign_operator_is_used() -> None:
    finding = evaluate_nfd([master(("nvidia", "gpus"))], wanted(component="nfd"), set())
    assert finding.adopted
    assert finding.installation is not None
    assert finding.installation.title == "NFD v0.18.2 in namespace gpu-operator (Helm release gpus/nvidia)"


def test_an_nfd_that_an_upgrade_of_the_managed_operator_removes_is_replaced_first() -> None:
    release = ("nvidia", "gpus")
    finding = evaluate_nfd([master(release)], wanted(component="nfd"), set(), replaced=release)
    assert (finding.managed, finding.installation) == (True, None)


TAINT = {"key": "team", "value": "x", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("tolerations", "lacking"),
    [([], [TAINT]), ([{"operator": "Exists"}], []), ([{"key": "team", "operator": "Exists"}], [])],
)
def test_taints_that_keep_the_workers_of_an_adopted_nfd_away(tolerations: list[Object], lacking: list[Object]) -> None:
    worker = {"spec": {"template": {"spec": {"tolerations": tolerations}}}}
    assert missing_tolerations([worker], [TAINT]) == lacking
    assert missing_tolerations([], [TAINT]) == []


POOLS = [{"name": "p", "match": {"model": "T4"}, "sharing": {"mode": "time-slicing", "replicas": 4}}]


def test_a_plan_follows_its_operator() -> None:
    plan = derive({"name": "c"}, {}, POOLS)
    existing = relocate_plan(plan, "kube-system", plan.config.name)
    places = (existing.operator, existing.config, existing.mig, existing.validation)
    assert {part.namespace for part in places} == {"kube-system"}
    assert existing.policy == plan.policy
    assert existing.pools == plan.pools
    assert relocate_plan(plan, plan.operator.namespace, plan.config.name) == plan


def test_an_adopted_operator_keeps_its_version_and_its_values() -> None:
    plan = derive({"name": "c"}, {}, POOLS)
    assert plan.operator.values
    kept = adopt_installed(plan, "v25.3.2")
    assert (kept.operator.version, kept.operator.values) == ("v25.3.2", {})
    assert adopt_installed(plan, "").operator.version == plan.operator.version


def test_validation_stays_in_its_configured_namespace() -> None:
    plan = derive({"name": "c", "validation": {"namespace": "proofs"}}, {}, POOLS)
    assert relocate_plan(plan, "kube-system", plan.config.name).validation.namespace == "proofs"


def test_in_a_foreign_configmap_only_the_collections_entries_are_managed() -> None:
    plan = derive({"name": "c"}, {}, POOLS)
    existing = relocate_plan(plan, "gpu-operator", "device-plugin-config")
    assert existing.config.name == "device-plugin-config"
    assert existing.config.data == plan.config.data
    assert "devicePlugin" in plan.policy.spec
    assert "devicePlugin" not in existing.policy.spec


def test_the_network_operators_nfd_is_used() -> None:
    """Its chart contains NFD's, as a part of its release (network-operator deployment/network-operator/Chart.yaml)."""
    release = ("network-operator", "nvidia-network-operator")
    actual = read_installation(
        "nfd",
        deployment(
            "network-operator-node-feature-discovery-master",
            release[1],
            image="registry.k8s.io/nfd/node-feature-discovery:v0.17.0",
            command=["nfd-master"],
            labels={"role": "master", "app.kubernetes.io/name": "node-feature-discovery"},
            helm=release,
        ),
    )
    assert actual is not None
    assert (actual.release, actual.version) == (release, "v0.17.0")
    finding = evaluate_nfd([actual], wanted(component="nfd"), managed=set())
    assert finding.adopted
    assert not finding.installs
    assert finding.notes == ()
