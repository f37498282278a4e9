# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operators that cannot be used, or not with drivers of pools: GPUCluster objects and GitOps sources."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.installation import (
    HELM_MANAGER,
    Installation,
    InstallationFinding,
    may_have_gpu_clusters,
    with_driver_source,
    with_gpu_clusters,
    with_mig_strategy,
    with_operands,
)
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive

Object = dict[str, Any]

CLUSTER = {"metadata": {"name": "gpu-cluster"}}
POLICY: Object = {"metadata": {"name": "cluster-policy", "labels": {}}, "spec": {"driver": {}}}


def finding(version: str = "v26.7.0") -> InstallationFinding:
    installation = Installation("operator", "gpu-operator", "gpu-operator", HELM_MANAGER, "Helm release a/b", version)
    return InstallationFinding(installation, managed=True)


@pytest.mark.parametrize(("version", "reads"), [("v25.10.1", False), ("v26.3.3", False), ("v26.7.0", True), ("", True)])
def test_only_newer_operators_are_asked_for_gpu_clusters(version: str, reads: bool) -> None:
    assert may_have_gpu_clusters(finding(version)) is reads
    assert not may_have_gpu_clusters(InstallationFinding(None, managed=True))


def test_a_gpu_cluster_is_a_problem_with_a_remedy() -> None:
    assert with_gpu_clusters(finding(), POLICY, []).problem == ""
    beside = with_gpu_clusters(finding(), POLICY, [CLUSTER]).problem
    assert beside.startswith(
        "GPUCluster gpu-cluster exists in addition to ClusterPolicy cluster-policy. The operator rejects this combination"
    )
    assert "kubectl delete gpucluster gpu-cluster" in beside
    assert "without a ClusterPolicy" in with_gpu_clusters(finding(), None, [CLUSTER]).problem


def test_a_source_that_would_switch_back_is_refused() -> None:
    declared = derive({"name": "lab"}, {}, [{"name": "a", "driver": {"version": "580.105.08"}}])
    silent = derive({"name": "lab"}, {}, [{"name": "a"}])
    owned = {**POLICY, "metadata": {"name": "cluster-policy", "labels": {"argocd.argoproj.io/instance": "gpus"}}}
    problem = with_driver_source(finding(), owned, declared).problem
    assert "Argo CD application gpus would revert this field" in problem
    assert "spec.driver.useNvidiaDriverCRD: true" in problem
    assert not with_driver_source(finding(), owned, silent).problem
    assert not with_driver_source(finding(), POLICY, declared).problem
    switched = {**owned, "spec": {"driver": {"useNvidiaDriverCRD": True}}}
    assert not with_driver_source(finding(), switched, declared).problem


POOL = {"name": "notebooks", "match": {"model": "Tesla-T4"}, "sharing": {"mode": "time-slicing", "replicas": 4}}
OWN_RELEASE = {"meta.helm.sh/release-name": "gpu-operator", "meta.helm.sh/release-namespace": "gpu-operator"}
OTHER_RELEASE = {"meta.helm.sh/release-name": "nvidia", "meta.helm.sh/release-namespace": "nvidia"}


def policy(annotations: Object, writer: str = "", part: str = "devicePlugin", value: bool = False) -> Object:
    fields: Object = {"f:spec": {f"f:{part}": {"f:enabled": {}}}}
    managed = [{"manager": writer, "operation": "Update", "fieldsV1": fields}] if writer else []
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    metadata = {"name": "cluster-policy", "labels": labels, "annotations": annotations, "managedFields": managed}
    return {"metadata": metadata, "spec": {part: {"enabled": value}}}


def operand_problem(live: Object, *pools: Object, values: Object | None = None, managed: bool = True) -> str:
    cluster = {"name": "lab", "operator": {"values": values or {}}}
    installed = InstallationFinding(finding().installation, managed=managed)
    return with_operands(installed, live, derive(cluster, {}, list(pools))).problem


@pytest.mark.parametrize(
    ("live", "managed"),
    [
        # HAMi documents this; kubectl edit and kubectl patch leave their name.
        (policy(OWN_RELEASE, "kubectl-edit"), True),
        (policy(OTHER_RELEASE, "helm"), False),
        (policy(OWN_RELEASE, "helm"), False),
        (policy({}, "kubectl-create"), False),
        # Without a record of the writers, the value may be a manual one.
        (policy(OWN_RELEASE), True),
    ],
)
def test_a_disabled_operand_that_a_pool_needs_is_a_problem(live: Object, managed: bool) -> None:
    problem = operand_problem(live, POOL, managed=managed)
    assert "ClusterPolicy cluster-policy: spec.devicePlugin.enabled is false" in problem
    assert "but pool notebooks needs it" in problem
    assert "to true" in problem
    assert 'nvidia.com/gpu.deploy.device-plugin: "false"' in problem


def test_the_writer_and_the_place_of_the_change_are_named() -> None:
    assert "(set by kubectl-edit)" in operand_problem(policy(OWN_RELEASE, "kubectl-edit"), POOL)
    adopted = operand_problem(policy(OTHER_RELEASE, "helm"), POOL, managed=False)
    assert "Set it to true in the values of Helm release nvidia/nvidia" in adopted
    flux = policy({}, "helm-controller")
    flux["metadata"]["labels"] |= {"helm.toolkit.fluxcd.io/name": "gpu", "helm.toolkit.fluxcd.io/namespace": "flux"}
    assert "in the source of Flux HelmRelease flux/gpu" in operand_problem(flux, POOL, managed=False)


@pytest.mark.parametrize(
    ("live", "values", "pools"),
    [
        # The run removes the value from its own release, so the chart's default applies again.
        (policy(OWN_RELEASE, "helm"), {}, [POOL]),
        (policy(OWN_RELEASE), {"devicePlugin": {"enabled": True}}, [POOL]),
        (policy(OWN_RELEASE, "kubectl-edit"), {}, []),
        (policy(OTHER_RELEASE, "helm", "migManager"), {}, [POOL]),
        (policy(OTHER_RELEASE, "helm", "toolkit"), {}, [POOL]),
    ],
)
def test_an_operand_that_runs_after_the_run_or_is_not_needed_is_no_problem(
    live: Object, values: Object, pools: list[Object]
) -> None:
    assert operand_problem(live, *pools, values=values) == ""


VMS = {"enabled": True, "defaultWorkload": "vm-passthrough"}
CONTAINER = {"labels": {"nvidia.com/gpu.workload.config": "container"}}
FOR_VMS = {"labels": {"nvidia.com/gpu.workload.config": "vm-vgpu"}}


@pytest.mark.parametrize(
    ("sandbox", "values", "managed", "pool", "workload"),
    [
        (VMS, {}, False, POOL, "vm-passthrough"),
        ({**VMS, "defaultWorkload": "vm-vgpu"}, {}, True, POOL, "vm-vgpu"),
        ({}, VMS, True, POOL, "vm-passthrough"),
        ({"enabled": True}, {"defaultWorkload": "vm-vgpu"}, True, POOL, "vm-vgpu"),
        # The run does not apply the values, or they choose containers.
        ({}, VMS, False, POOL, ""),
        (VMS, {"defaultWorkload": "container"}, True, POOL, ""),
        (VMS, {"enabled": False}, True, POOL, ""),
        ({**VMS, "enabled": False}, {}, False, POOL, ""),
        ({"enabled": True, "defaultWorkload": "container"}, {}, False, POOL, ""),
        (VMS, {}, False, {**POOL, **CONTAINER}, ""),
        (VMS, {}, False, {**POOL, **FOR_VMS}, ""),
    ],
)
def test_a_default_workload_of_virtual_machines_is_noted(
    sandbox: Object, values: Object, managed: bool, pool: Object, workload: str
) -> None:
    live = {"metadata": {"name": "cluster-policy"}, "spec": {"sandboxWorkloads": sandbox}}
    installed = InstallationFinding(finding().installation, managed=managed)
    cluster = {"name": "lab", "operator": {"values": {"sandboxWorkloads": values} if values else {}}}
    noted = with_operands(installed, live, derive(cluster, {}, [pool]))
    assert noted.problem == ""
    words = (
        f"spec.sandboxWorkloads.defaultWorkload is {workload},",
        "Pool notebooks does not set",
        ": container to labels",
    )
    assert [[text in note for text in words] for note in noted.notes] == ([[True] * 3] if workload else [])


def test_several_disabled_operands_are_one_problem() -> None:
    live = policy(OTHER_RELEASE, "helm")
    live["spec"] |= {"gfd": {"enabled": False}}
    problem = operand_problem(live, POOL, managed=False)
    assert "spec.devicePlugin.enabled" in problem
    assert "spec.gfd.enabled" in problem
    assert problem.count("nvidia.com/gpu.deploy.device-plugin") == 1


MIG_POOL: Object = {
    "name": "train",
    "match": {"model": "A100-SXM4-80GB"},
    "sharing": {"mode": "mig", "layout": {"3g.40gb": 2}},
}
SINGLE_POOL: Object = {**MIG_POOL, "name": "even", "match": {"model": "H100-80GB-HBM3"}}
MIXED_POOL: Object = {**MIG_POOL, "sharing": {**MIG_POOL["sharing"], "strategy": "mixed"}}
MPS_POOL: Object = {"name": "mps", "match": {"model": "Tesla-T4"}, "sharing": {"mode": "mps", "replicas": 2}}
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.present": "true"}
A30 = {"nvidia.com/gpu.product": "NVIDIA-A30", "nvidia.com/gpu.present": "true"}
CUT_A30 = {**A30, "nvidia.com/mig.config": "all-1g.6gb"}


def strategy_problem(strategy: str | None, pools: list[Object], *nodes: Object) -> tuple[str, int]:
    """The problem, and how often the nodes were read."""
    reads: list[int] = []

    def read() -> list[Object]:
        reads.append(1)
        return list(nodes)

    live = {**POLICY, "spec": {"mig": {"strategy": strategy} if strategy else {}}}
    result = with_mig_strategy(finding(), live, derive({"name": "lab"}, {}, pools), read)
    return result.problem, len(reads)


def node(name: str, labels: Object, capacity: Object | None = None, annotations: Object | None = None) -> Object:
    metadata = {"name": name, "labels": labels, "annotations": annotations or {}}
    return {"metadata": metadata, "status": {"capacity": capacity or {}}}


@pytest.mark.parametrize("outside", [
    node("old-1", CUT_A30),
    node("old-1", A30, {"nvidia.com/mig-1g.6gb": "4"}),
    node("old-1", {**A30, "nvidia.com/gpu.product": "NVIDIA-A30-MIG-1g.6gb", "nvidia.com/gpu.count": "4"}, {"nvidia.com/gpu": "4"}),
])  # fmt: skip
@pytest.mark.parametrize(
    ("strategy", "pools"),
    [("single", [MIXED_POOL]), ("mixed", [SINGLE_POOL, MIXED_POOL]), ("mixed", [MIXED_POOL, MPS_POOL])],
)
def test_a_strategy_that_partitioned_nodes_outside_the_pools_use_is_not_removed(
    outside: Object, strategy: str, pools: list[Object]
) -> None:
    problem, dummy = strategy_problem(strategy, pools, node("new-1", A100), outside)
    assert problem.startswith(f"ClusterPolicy cluster-policy: spec.mig.strategy is {strategy}. ")
    assert "node old-1 belongs to no pool" in problem
    assert "Declare a pool with sharing.mode: mig for it" in problem
    assert (f"sharing.strategy: {strategy} for every pool" in problem) is (MPS_POOL not in pools)


@pytest.mark.parametrize("nodes", [
    [node("new-1", {**A100, "nvidia.com/mig.config": "all-3g.40gb"}), node("old-1", A30)],
    [node("old-1", {**A30, "nvidia.com/mig.config": "all-disabled"}, {"nvidia.com/mig-1g.6gb": "0"})],
    # The collection has partitioned this node for a pool that is no longer declared, and releases it.
    [node("old-1", CUT_A30, annotations={"accel.gpu/pool-labels": '["nvidia.com/mig.config"]'})],
])  # fmt: skip
def test_a_strategy_that_no_other_node_uses_is_removed(nodes: list[Object]) -> None:
    assert strategy_problem("single", [MIXED_POOL], *nodes) == ("", 1)


@pytest.mark.parametrize(
    ("strategy", "pools"),
    [("mixed", [MIXED_POOL]), (None, [MIXED_POOL]), ("none", [MIXED_POOL]), ("single", [MPS_POOL]), ("single", [])],
)
def test_the_nodes_are_read_only_if_a_strategy_is_removed(strategy: str | None, pools: list[Object]) -> None:
    assert strategy_problem(strategy, pools, node("old-1", CUT_A30)) == ("", 0)
