# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must wait until the ClusterPolicy is ready for it: taints that NVIDIA's pods do not tolerate, layouts that the MIG manager cannot read."""

from __future__ import annotations

import typing as t

from ..catalog.taints import format_taint, untolerated_taints
from ..cluster_state.cluster_policy import active_policy, policy_tolerations
from ..kube.paths import CLUSTER_POLICIES

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.plan import Plan, Toleration


def held_back(client: Client, plan: Plan, new: t.Collection[str], expected: t.Sequence[Toleration]) -> set[str]:
    """Of the taints (as spelled()) that nodes are to get, those that would keep away a pod of NVIDIA's started anew.

    The ClusterPolicy that counts says so, with the tolerations that it is `expected` to have soon; without a policy
    there are no such pods.
    """
    taints = [taint for pool in plan.pools for taint in pool.taints if format_taint(taint) in new]
    if not taints:
        return set()
    policy = active_policy(client.list_known(CLUSTER_POLICIES))
    if policy is None:
        return set()
    return {format_taint(taint) for taint in untolerated_taints([*policy_tolerations(policy), *expected], taints)}


def unread_entries(client: Client, plan: Plan) -> str | None:
    """Why a node must not be told to cut its GPUs by our file: the MIG manager reads another one. None: it reads ours.

    Without a policy there is no MIG manager to read anything.
    """
    policy = active_policy(client.list_known(CLUSTER_POLICIES))
    if policy is None:
        return None
    named = ((((policy.get("spec") or {}).get("migManager") or {}).get("config") or {}).get("name")) or "none"
    if named == plan.mig.name:
        return None
    return (
        f"ClusterPolicy {policy['metadata']['name']}: spec.migManager.config.name is {named}, and the layouts of the pools are in "
        f"{plan.mig.name}, so that the MIG manager would not find them; run site, or the role gpu_operator (module cluster_policy), first"
    )
