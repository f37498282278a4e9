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
)
from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.installation_conflicts import (
    may_have_gpu_clusters,
    with_driver_source,
    with_gpu_clusters,
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
