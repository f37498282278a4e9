# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the reasons why an operator cannot be used or cannot install the pools' drivers (pure).

The reasons are GPUCluster objects, GitOps sources, and operands that the ClusterPolicy disables although pools need them.

Source: gpu-operator v26.7.0 controllers/clusterpolicy_controller.go and nodelabeling_controller.go: if both a ClusterPolicy and a GPUCluster
exist, the operator reports an error and labels no nodes.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..catalog import releases
from ..catalog.names import FIELD_MANAGER, WORKLOAD_LABEL
from ..catalog.olm import OLM
from ..cluster_state.cluster_policy import uses_driver_objects
from ..cluster_state.ownership import is_created_by_collection
from ..helm.release import helm_release_of
from ..kube.managed_fields import writers
from ..kube.object_managers import gitops_owner
from ..schema.messages import abbreviate
from ..schema.operand_switches import (
    depend_on_default_workload,
    enabled_value,
    explain_missing,
    missing_operands,
    remedy_for_pools,
    runs,
    workload_for_virtual_machines,
)
from .driver_rollout import SWITCH
from .installation import InstallationFinding
from .manual_fields import foreign_writers

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


def with_operands(finding: InstallationFinding, policy: Document | None, plan: Plan) -> InstallationFinding:
    """Add a problem to the finding if, after a run, an operand does not run that a pool needs."""
    if policy is None or finding.problem:
        return finding
    pools = [(pool.name, pool.sharing.definition, pool.labels) for pool in plan.pools]
    missing = missing_operands(pools, lambda part: operand_runs(policy, plan, part, managed=finding.managed))
    if not missing:
        return _with_default_workload(finding, policy, plan)
    name = policy["metadata"]["name"]
    # The writer, the rule and the remedy of each field; the remedy for the pools is the same for most fields, and is given once.
    problems = [
        f"ClusterPolicy {name}: spec.{part}.enabled is false{_set_by(policy, part)}, but {explain_missing(part, pools_of)}"
        for part, pools_of in missing.items()
    ]
    remedies = dict.fromkeys(remedy_for_pools(part) for part in missing)
    fields = "it" if len(missing) == 1 else "these fields"
    problem = f"{'. '.join(problems)}. {_enable(policy, plan, finding, name, fields)}, {', '.join(remedies)}."
    return replace(finding, problem=problem, notes=())


def _with_default_workload(finding: InstallationFinding, policy: Document, plan: Plan) -> InstallationFinding:
    """Add a note to the finding if the operator prepares nodes for virtual machines unless a label chooses containers.

    It is no problem, because a label that somebody has set on a node also counts.
    """
    values = plan.operator.values if finding.managed else {}
    workload = workload_for_virtual_machines(values, policy.get("spec") or {})
    pools = depend_on_default_workload((pool.name, pool.labels) for pool in plan.pools) if workload else []
    if not pools:
        return finding
    note = (
        f"ClusterPolicy {policy['metadata']['name']}: spec.sandboxWorkloads.defaultWorkload is {workload}, so on nodes without the label {WORKLOAD_LABEL}, the "
        f"operator runs no operand for containers, and containers get no GPU. {'Pool' if len(pools) == 1 else 'Pools'} {abbreviate(pools)} "
        f"{'does' if len(pools) == 1 else 'do'} not set this label. For GPUs in containers, add {WORKLOAD_LABEL}: container to labels of the pool."
    )
    return replace(finding, notes=(*finding.notes, note))


def operand_runs(policy: Document, plan: Plan, part: str, *, managed: bool) -> bool:
    """Whether an operand runs after a run has applied the plan; `managed`: whether the run applies the operator's values.

    Helm only changes a field if its value in the manifest changes, so it keeps a field that another writer has set.
    """
    spec, path = policy.get("spec") or {}, (part, "enabled")
    declared = enabled_value(plan.operator.values, part)
    created = plan.operator.installer == OLM and is_created_by_collection(policy)
    by_helm = managed and helm_release_of(policy) == (plan.operator.name, plan.operator.namespace)
    if not (created or by_helm):
        return runs(spec, part)
    if created:
        own = FIELD_MANAGER in writers(policy, ("spec", *path))
        return runs({} if own and declared is None else spec, part) if declared is None else declared
    foreign = foreign_writers(policy, path)
    if foreign:
        return runs(spec, part)
    if declared is None:
        # The chart enables the operands by default. Without a record of the writers, the value may also be a manual one.
        return runs({} if foreign is not None else spec, part)
    return declared


def _set_by(policy: Document, part: str) -> str:
    names = foreign_writers(policy, (part, "enabled"))
    return f" (set by {', '.join(names)})" if names else ""


def _enable(policy: Document, plan: Plan, finding: InstallationFinding, name: str, fields: str) -> str:
    """How the user enables the operands."""
    owner = gitops_owner(policy, "ClusterPolicy")
    if owner is not None:
        return f"Set {fields} to true in the source of {owner}"
    release = helm_release_of(policy)
    if release is not None and not finding.managed:
        return f"Set {fields} to true in the values of Helm release {release[1]}/{release[0]}"
    return f"Set {fields} to true (kubectl edit clusterpolicy {name})"
