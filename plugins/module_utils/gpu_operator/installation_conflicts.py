# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the reasons why an operator cannot be used or cannot install the pools' drivers: GPUCluster objects and GitOps sources (pure).

Source: gpu-operator v26.7.0 controllers/clusterpolicy_controller.go and nodelabeling_controller.go: if both a ClusterPolicy and a GPUCluster
exist, the operator reports an error and labels no nodes.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..catalog import releases
from ..cluster_state.cluster_policy import uses_driver_objects
from ..kube.object_managers import gitops_owner
from .driver_rollout import SWITCH
from .installation import InstallationFinding

if t.TYPE_CHECKING:
    from ..pools.plan import Plan

Document = t.Mapping[str, t.Any]


def may_have_gpu_clusters(finding: InstallationFinding) -> bool:
    """Whether the installed operator may support GPUCluster objects; True if its version is unknown."""
    installation = finding.installation
    return installation is not None and releases.release_of(installation.version) >= releases.GPU_CLUSTER_SINCE


def with_gpu_clusters(
    finding: InstallationFinding, policy: Document | None, clusters: t.Sequence[Document]
) -> InstallationFinding:
    """Add a problem to the finding if GPUCluster objects exist."""
    if not clusters:
        return finding
    name = clusters[0]["metadata"]["name"]
    if policy is None:
        problem = (
            f"GPUCluster {name} provides the GPUs of this cluster through dynamic resource allocation (DRA), without a ClusterPolicy. This "
            "collection shares GPUs through the device plugin, which this cluster does not run. Use this cluster without the collection. Or, "
            f"to move it to the device plugin, run kubectl delete gpucluster {name}, create a ClusterPolicy, and run the playbook again."
        )
    else:
        problem = (
            f"GPUCluster {name} exists in addition to ClusterPolicy {policy['metadata']['name']}. The operator rejects this combination: it "
            "reports an error and labels no new node. To share GPUs through the device plugin with this collection, run kubectl delete "
            f"gpucluster {name}; its pods with resource claims lose their GPUs. To use dynamic resource allocation (DRA), run "
            "accel.gpu.uninstall."
        )
    return replace(finding, problem=problem, notes=())


def with_driver_source(finding: InstallationFinding, policy: Document | None, plan: Plan) -> InstallationFinding:
    """Add a problem to the finding if a GitOps source would disable the pools' NVIDIADriver objects again."""
    owner = gitops_owner(policy, "ClusterPolicy") if policy is not None else None
    if policy is None or owner is None or finding.problem or not plan.declares_drivers:
        return finding
    if uses_driver_objects(policy.get("spec") or {}):
        return finding
    problem = (
        f"Pools declare `driver`, which needs spec.{'.'.join(SWITCH)}: true in ClusterPolicy {policy['metadata']['name']}, but {owner} would "
        "revert this field, and the driver of every node would be replaced twice. Set the field in that source, which restarts the driver on "
        "every node, and run the playbook again; or remove `driver` from the pools."
    )
    return replace(finding, problem=problem, notes=())
