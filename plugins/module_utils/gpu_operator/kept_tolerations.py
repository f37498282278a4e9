# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps obsolete tolerations in the ClusterPolicy until no GPU node has the taints that they tolerate (pure).

gpu_sharing removes the taint of a pool only after cluster_policy has run; if gpu_sharing fails, the taint remains. Without the toleration, a
tainted node loses its operands, and the operator upgrades no driver in the cluster: it reports "driver DaemonSet should not have Unscheduled pods".
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..catalog.taints import needed_tolerations, toleration_identity
from ..cluster_state.cluster_policy import policy_tolerations, recorded_tolerations
from ..common.nested import get_nested
from .cluster_policy import DesiredPolicy
from .readiness import is_gpu_node

if t.TYPE_CHECKING:
    from ..pools.plan import Plan

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]


def obsolete_tolerations(policy: Document, plan: Plan) -> list[Object]:
    """The collection's entries in the policy that no pool needs."""
    needed = {toleration_identity(item) for item in DesiredPolicy.derive(plan, policy).tolerations}
    present = {toleration_identity(item) for item in policy_tolerations(policy)}
    return [item for item in recorded_tolerations(policy) or () if toleration_identity(item) in present - needed]


def keep_needed_tolerations(policy: Document, plan: Plan, nodes: t.Iterable[Document]) -> Plan:
    """The plan, extended with the obsolete tolerations that the taints of GPU nodes still require."""
    obsolete = obsolete_tolerations(policy, plan)
    identities = {toleration_identity(item) for item in obsolete}
    others = [item for item in policy_tolerations(policy) if toleration_identity(item) not in identities]
    taints = [taint for node in nodes if is_gpu_node(node) for taint in get_nested(node, "spec", "taints") or ()]
    kept = needed_tolerations(obsolete, [*others, *plan.policy.tolerations], taints)
    return replace(plan, policy=replace(plan.policy, kept_tolerations=tuple(kept)))
