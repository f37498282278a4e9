# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the catalog cannot vouch for in sound documents: unknown releases and models, what is known to break (pure)."""

from __future__ import annotations

import typing as t

from ..catalog import mig as geometries
from ..catalog import names, releases
from ..catalog.known_issues import ONLY_WITH
from ..catalog.names import DEPLOY_PREFIX
from ..nvidia_config.device_plugin import MIG
from ..schema.messages import join_words

if t.TYPE_CHECKING:
    from .plan import Plan, PoolPlan


_MIG_MANAGER_LABEL = f"{DEPLOY_PREFIX}mig-manager"


def warnings(plan: Plan, traits: t.Collection[str] = ()) -> list[str]:
    """One sentence each; empty for a plan without pools, since nothing is installed then.

    `traits` are what is known of the cluster (of those that known_bad.ONLY_WITH names): a combination that is known to break
    is told when all that it needs is known to be there.
    """
    if not plan.pools:
        return []
    known = releases.operator_release(plan.operator.version)
    there = {*traits, *_of_documents(plan)}
    told = [known.doubt] if known.doubt else []
    told += [
        f"GPU operator {known.release.version}: {text}"
        for text in known.release.known_bad
        if ONLY_WITH[text] and ONLY_WITH[text] <= there
    ]
    return [*told, *(text for pool in plan.pools for text in _of_pool(pool))]


def _of_documents(plan: Plan) -> set[str]:
    models = {pool.model or "" for pool in plan.pools}
    return {
        *(f"model {model.partition('-')[0]}" for model in models if model),
        *(["mig"] if any(pool.mode == MIG for pool in plan.pools) else []),
    }


def _of_pool(pool: PoolPlan) -> t.Iterator[str]:
    if pool.match.product and pool.model is None:
        yield (
            f"pool {pool.name}: the catalog has no model {pool.match.product}; its memory and what it can be cut into are "
            "known once its nodes are there, and a layout is judged by the MIG manager alone"
        )
    if pool.without_containers:
        yield (
            f"pool {pool.name}: {pool.without_containers}; its nodes offer no GPU to containers, so its sharing has no effect, and they are "
            "neither waited for nor validated"
        )
    elif pool.mode == MIG and pool.labels.get(_MIG_MANAGER_LABEL) == "false":
        yield f"pool {pool.name}: label {_MIG_MANAGER_LABEL}=false keeps the MIG manager away, so that its GPUs are not cut"
    uncounted = [resource for resource in pool.resources if resource != names.GPU_RESOURCE]
    if pool.group and pool.group.autoscaled and uncounted:
        yield (
            f"pool {pool.name}: the cluster autoscaler counts {names.GPU_RESOURCE} alone: it may add no node for pods that request "
            f"{join_words(uncounted)}, and takes nodes that offer it for unused. Share without rename or cut with strategy single, or set "
            "autoscale.min to what is always needed"
        )
    geometry = geometries.geometry(pool.model) if pool.model and pool.mode == MIG else None
    if geometry and geometry.note:
        sure = "may differ from its layout" if geometry.verified else "is not verified for its layout"
        yield f"pool {pool.name}: what a {pool.model} can be cut into {sure}. {geometry.note}"
