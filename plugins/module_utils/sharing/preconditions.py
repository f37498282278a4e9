# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the ClusterPolicy must provide first: tolerations of the pools' taints, and the MIG manager's ConfigMap."""

from __future__ import annotations

import typing as t

from ..catalog.taints import format_taint, untolerated_taints
from ..cluster_state.cluster_policy import active_policy, policy_tolerations
from ..kube.paths import CLUSTER_POLICIES

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.plan import Plan, Toleration


def taints_to_hold_back(
    client: Client, plan: Plan, new: t.Collection[str], expected: t.Sequence[Toleration]
) -> set[str]:
    """The new taints (as format_taint() writes them) that NVIDIA's pods would not tolerate after a restart.

    Counts the tolerations of the active ClusterPolicy and those that it is `expected` to get; without a policy there are no such pods.
    """
    taints = [taint for pool in plan.pools for taint in pool.taints if format_taint(taint) in new]
    if not taints:
        return set()
    policy = active_policy(client.list_known(CLUSTER_POLICIES))
    if policy is None:
        return set()
    return {format_taint(taint) for taint in untolerated_taints([*policy_tolerations(policy), *expected], taints)}


def mig_config_problem(client: Client, plan: Plan) -> str | None:
    """Why the MIG manager would not find the pools' layouts: it reads another ConfigMap. None: it reads the right one, or there is no policy."""
    policy = active_policy(client.list_known(CLUSTER_POLICIES))
    if policy is None:
        return None
    named = ((((policy.get("spec") or {}).get("migManager") or {}).get("config") or {}).get("name")) or "none"
    if named == plan.mig.name:
        return None
    return (
        f"ClusterPolicy {policy['metadata']['name']}: spec.migManager.config.name is {named}, but the layouts of the pools are in "
        f"{plan.mig.name}, where the MIG manager would not find them; run site, or the role gpu_operator (module cluster_policy), first"
    )
