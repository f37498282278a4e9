# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Warnings about valid variables: unknown releases and models, and known issues (pure)."""

from __future__ import annotations

import typing as t

from ..catalog import mig as geometries
from ..catalog import names, releases
from ..schema.messages import join_words

if t.TYPE_CHECKING:
    from .plan import Plan, PoolPlan


_MIG_MANAGER_LABEL = f"{names.DEPLOY_PREFIX}mig-manager"


def plan_warnings(plan: Plan, traits: t.Collection[str] = ()) -> list[str]:
    """The warnings, one sentence each; empty for a plan without pools, because nothing is installed in that case.

    `traits` are the known traits of the cluster (see known_issues.py): a known issue is reported if the cluster has all its traits.
    """
    if not plan.pools:
        return []
    known = releases.operator_release(plan.operator.version)
    all_traits = {*traits, *(f"model {pool.model.partition('-')[0]}" for pool in plan.pools if pool.model)}
    if plan.mig.needed:
        all_traits.add("mig")
    issues = [
        f"GPU operator {known.release.version}: {issue.text}"
        for issue in known.release.known_issues
        if issue.traits <= all_traits
    ]
    return [
        *([known.warning] if known.warning else []),
        *issues,
        *(text for pool in plan.pools for text in _pool_warnings(pool)),
    ]


def _pool_warnings(pool: PoolPlan) -> t.Iterator[str]:
    if pool.match.product and pool.model is None:
        yield (
            f"Pool {pool.name}: the catalog has no model {pool.match.product}; its memory and its MIG profiles are known once its nodes exist, and "
            "only the MIG manager checks a layout."
        )
    if pool.without_containers:
        yield (
            f"Pool {pool.name}: {pool.without_containers}; its nodes offer no GPU to containers, so its sharing has no effect, and runs "
            "neither wait for them nor validate them."
        )
    elif pool.sharing.definition.partitions_gpus and pool.labels.get(_MIG_MANAGER_LABEL) == "false":
        yield f"Pool {pool.name}: label {_MIG_MANAGER_LABEL}=false keeps the MIG manager off its nodes, so their GPUs are not partitioned."
    uncounted = [resource for resource in pool.resources if resource != names.GPU_RESOURCE]
    if pool.nodegroup and pool.nodegroup.autoscaled and uncounted:
        yield (
            f"Pool {pool.name}: the cluster autoscaler only counts {names.GPU_RESOURCE}: it may add no node for pods that request "
            f"{join_words(uncounted)}, and treats nodes that offer it as unused. Share without rename, use the MIG strategy single, or set "
            "autoscale.min to the number of nodes that is always needed."
        )
    geometry = geometries.geometry(pool.model) if pool.model and pool.sharing.definition.partitions_gpus else None
    if geometry and geometry.note:
        status = "may differ from those of its layout" if geometry.verified else "are not verified"
        yield f"Pool {pool.name}: the MIG profiles of a {pool.model} {status}. {geometry.note}"
