# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The taints that must wait until NVIDIA's pods tolerate them."""

from __future__ import annotations

import typing as t

from ..fleet.ownership import spelled
from ..fleet.tolerance import of_policy, singleton, untolerated
from ..kube.paths import CLUSTER_POLICIES

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.plan import Plan, Toleration


def held_back(client: Client, plan: Plan, new: t.Collection[str], expected: t.Sequence[Toleration]) -> set[str]:
    """Of the taints (as spelled()) that nodes are to get, those that would keep away a pod of NVIDIA's started anew.

    The ClusterPolicy that counts says so, with the tolerations that it is `expected` to have soon; without a policy
    there are no such pods.
    """
    taints = [taint for pool in plan.pools for taint in pool.taints if spelled(taint) in new]
    if not taints:
        return set()
    policy = singleton(client.list_known(CLUSTER_POLICIES))
    if policy is None:
        return set()
    return {spelled(taint) for taint in untolerated([*of_policy(policy), *expected], taints)}
