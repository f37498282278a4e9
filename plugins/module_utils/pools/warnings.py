# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Warnings about valid variables: unknown releases and models, and known issues (pure)."""

from __future__ import annotations

import typing as t

from ..catalog import mig as geometries
from ..catalog import models, names, releases
from ..catalog.distributions import (
    BY_NAME,
    DEFAULT_SOCKET,
    DROP_IN,
    HOST_USERS,
    MODEL_CONDITION,
    SOCKET,
    KnownIssue,
    issues_of,
)
from ..catalog.openshift import AUTOMATIC, AUTOSCALER_RULES
from ..core.messages import join_words
from ..core.values import get_nested
from ..schema.driver import VGPU_TYPE, driver_of_values, module_type_problem
from ..schema.providers import PROVIDERS

if t.TYPE_CHECKING:
    from ..catalog.openshift import AutoscalerRules
    from .plan import CloudPlan, Plan, PoolPlan


def plan_warnings(
    plan: Plan,
    conditions: t.Collection[str] = (),
    *,
    version_known: bool = True,
    autoscaler: AutoscalerRules | None = None,
    openshift_version: str = "",
) -> list[str]:
    """The warnings, one sentence each; empty for a plan without pools, because nothing is installed in that case.

    `conditions` contains the known conditions of the cluster (see catalog/distributions.py): a known issue is reported if the cluster meets all its conditions.
    Without `version_known`, the cluster may have a different operator release than the plan, so nothing about the release is reported.
    `autoscaler` contains the rules of the cluster's OpenShift release, if it is known. `openshift_version` is the version of OpenShift, or empty.
    """
    if not plan.pools:
        return []
    known = releases.operator_release(plan.operator.version)
    all_conditions = {*conditions, *_planned_conditions(plan)}
    issues = [
        f"GPU operator {known.release.version}: {issue.text}"
        for issue in issues_of(known.release.version)
        if version_known and issue.conditions <= all_conditions and issue.affects_openshift(openshift_version)
    ]
    return [
        *([known.warning] if version_known and known.warning else []),
        *issues,
        *_declared_issues(plan, all_conditions, version_known=version_known),
        *_automatic_approval(plan),
        *_toolkit_conflicts(plan),
        *_fabric_manager(plan),
        *_kernel_modules(plan),
        *(text for pool in plan.pools for text in _pool_warnings(pool)),
        *(text for pool in plan.pools for text in _uncounted(pool, plan.cluster.cloud, autoscaler)),
    ]


def needs_pods(plan: Plan) -> bool:
    """Whether an issue of the plan's release, or a declared one, depends on a condition that only pods show."""
    issues = issues_of(releases.operator_release(plan.operator.version).release.version)
    return any(HOST_USERS in issue.conditions for issue in issues) or any(
        HOST_USERS in declared["conditions"] for declared in plan.cluster.known_issues
    )


def _planned_conditions(plan: Plan) -> t.Iterator[str]:
    """The conditions that follow from the variables."""
    for pool in plan.pools:
        yield pool.mode
        if pool.model:
            yield f"{MODEL_CONDITION}{pool.model.partition('-')[0]}"
        if get_nested(pool.driver, "type") == VGPU_TYPE:
            yield "vgpu"
    values = plan.operator.values
    for condition, keys in (("rdma", ("driver", "rdma", "enabled")), ("gds", ("gds", "enabled"))):
        if get_nested(values, *keys) is True:
            yield condition
    if plan.cluster.distribution:
        yield from BY_NAME[plan.cluster.distribution].conditions


def _declared_issues(plan: Plan, conditions: t.Collection[str], *, version_known: bool) -> t.Iterator[str]:
    """The issues in gpu_cluster.known_issues that apply; an issue without releases applies to every release."""
    version = f"v{plan.operator.version.removeprefix('v')}"
    for declared in plan.cluster.known_issues:
        releases_of_it = tuple(f"v{release.removeprefix('v')}" for release in declared["releases"])
        issue = KnownIssue(releases_of_it, frozenset(declared["conditions"]), declared["text"])
        if issue.conditions <= set(conditions) and (not releases_of_it or (version_known and issue.affects(version))):
            yield f"Known issue (gpu_cluster.known_issues): {issue.text}"


def _automatic_approval(plan: Plan) -> t.Iterator[str]:
    """Warnings about automatic approval: OLM installs the version that the channel offers, regardless of the declared version."""
    for component, release, effect in (
        ("operator", plan.operator, "the GPU operator, and with it the driver on every node"),
        ("nfd", plan.nfd, "NFD"),
    ):
        if release.olm is not None and release.olm["approval"] == AUTOMATIC:
            yield (
                f"gpu_cluster.{component}.olm.approval is Automatic: OLM upgrades {effect}, even between runs, as soon as the channel offers a newer version, "
                "and does not keep the declared version. Set it to Manual so that only a run upgrades it."
            )


def _toolkit_conflicts(plan: Plan) -> t.Iterator[str]:
    """Warnings about variables of the container toolkit that the user has set and that do not fit the declared distribution."""
    if plan.cluster.distribution is None:
        return
    distribution = BY_NAME[plan.cluster.distribution]
    needed = {SOCKET: DEFAULT_SOCKET, **distribution.toolkit_variables(plan.operator.version)}
    for entry in get_nested(plan.operator.values, "toolkit", "env") or ():
        name, value = entry["name"], entry.get("value") or ""
        if name in (SOCKET, DROP_IN) and name in needed and value != needed[name]:
            yield (
                f"toolkit.env of gpu_cluster.operator.values sets {name}={value}, which takes precedence; {distribution.title} has its containerd at "
                f"{needed[name]}. Remove the variable unless this cluster differs."
            )


def _fabric_manager(plan: Plan) -> t.Iterator[str]:
    """A warning about Fabric Manager: NVIDIA's driver images contain it, but if the driver is preinstalled, the user must install it."""
    if get_nested(plan.operator.values, "driver", "enabled") is not False:
        return
    switched = [
        pool.name for pool in plan.pools if pool.model and (model := models.find(pool.model)) and model.nvswitch
    ]
    if switched:
        yield (
            f"{join_words(switched)}: NVSwitches connect the GPUs of HGX and DGX boards, and the driver is preinstalled (driver.enabled: false): on "
            "nodes with NVSwitches, the version of nvidia-fabricmanager must exactly match that of the driver, or CUDA fails with error 802 "
            "(system not yet initialized)."
        )


def _kernel_modules(plan: Plan) -> t.Iterator[str]:
    """Warnings about kernel modules of the operator's driver that do not support a pool's GPUs; in a pool's own `driver`, this is an error."""
    if get_nested(plan.operator.values, "driver", "enabled") is False:
        return
    for pool in plan.pools:
        model = models.find(pool.model) if pool.model else None
        if pool.driver is None and (problem := module_type_problem(driver_of_values(plan.operator.values), model)):
            yield (
                f"Pool {pool.name}: gpu_cluster.operator.driver.kernel_module_type: {problem}, or declare `driver` in the pool. Nodes with a "
                "preinstalled driver are not affected."
            )


def _pool_warnings(pool: PoolPlan) -> t.Iterator[str]:
    if pool.match.product and pool.model is None:
        yield (
            f"Pool {pool.name}: the catalog has no model {pool.match.product}; its memory and its MIG profiles are known only once its nodes exist, and "
            "only the MIG manager checks a layout."
        )
    if pool.reason_without_containers:
        yield (
            f"Pool {pool.name}: {pool.reason_without_containers}; its nodes expose no GPU to containers, so its sharing has no effect, and runs "
            "neither wait for them nor validate them."
        )
    elif pool.sharing.definition.partitions_gpus and pool.labels.get(names.MIG_MANAGER_DEPLOY_LABEL) == "false":
        yield f"Pool {pool.name}: label {names.MIG_MANAGER_DEPLOY_LABEL}=false keeps the MIG manager off its nodes, so their GPUs are not partitioned."
    geometry = geometries.geometry(pool.model) if pool.model and pool.sharing.definition.partitions_gpus else None
    if geometry and geometry.note:
        status = "may differ from those of its layout" if geometry.verified else "are not verified"
        yield f"Pool {pool.name}: the MIG profiles of a {pool.model} {status}. {geometry.note}"


def _uncounted(pool: PoolPlan, cloud: CloudPlan | None, rules: AutoscalerRules | None) -> t.Iterator[str]:
    """Warnings about resources for which the cluster autoscaler adds no node, because it does not expect them on a new node."""
    if not (pool.nodegroup and pool.nodegroup.autoscaled):
        return
    uncounted = [resource for resource in pool.resources if resource != names.GPU_RESOURCE]
    remedy = "Share without rename, use the MIG strategy single, or set autoscale.min to the number of nodes that is always needed."
    on_openshift = cloud is not None and PROVIDERS[cloud.provider].scaled_by_openshift
    since = ".".join(map(str, min(each.since for each in AUTOSCALER_RULES if each.counts_gpu_type)))
    if rules is not None and rules.counts_gpu_type:
        # Only one resource of a MachineSet is counted; if it has several, the others are not.
        counted = names.GPU_RESOURCE if names.GPU_RESOURCE in pool.resources else pool.resource
        if others := [resource for resource in pool.resources if resource != counted]:
            yield (
                f"Pool {pool.name}: the cluster autoscaler only counts one resource of a MachineSet, {counted}, so it may not add a node for pods that request "
                f"{join_words(others)}. Create a separate pool for these GPUs, or set autoscale.min to the number of nodes that is always needed."
            )
    elif uncounted:
        release = f" before OpenShift {since}" if on_openshift else ""
        later = (
            f" In {since} and later, it counts the resource that the pool offers."
            if on_openshift and rules is None
            else ""
        )
        yield (
            f"Pool {pool.name}: the cluster autoscaler{release} only counts {names.GPU_RESOURCE}, so it may not add a node for pods that request "
            f"{join_words(uncounted)}, and treats nodes that advertise it as unused.{later} {remedy}"
        )
