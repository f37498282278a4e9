# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of a cluster from the status of its node groups, and the operations that the driver rejects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import flavors
from ..layout import Lab
from .faults import NO_QUOTA, demo_project, quota
from .layout import CLOUD
from .middleware import settings_of
from .seed import flavor_id


def aggregate(before: str, groups: Sequence[Any]) -> tuple[str, str | None]:
    """Return a cluster's status and reason, like HeatPoller.aggregate_nodegroup_statuses of Magnum before 23."""
    default = next(group for group in groups if group.is_default and group.role == "worker")
    action = "DELETE" if default.status.startswith("DELETE") else "UPDATE"
    extra = any(not group.is_default for group in groups)
    status = before
    for state in ("_IN_PROGRESS", "_FAILED", "_COMPLETE"):
        alike = [group for group in groups if group.status.endswith(state)]
        if alike:
            status = action + state if extra else next((one.status for one in alike if one.is_default), before)
            break
    if status == "CREATE_COMPLETE" and before not in ("CREATE_COMPLETE", "CREATE_IN_PROGRESS"):
        status = "UPDATE_COMPLETE"
    failed = [group.name for group in groups if group.status.endswith("_FAILED")]
    return status, ", ".join(f"{name} failed" for name in failed) if status.endswith("_FAILED") else None


def refusal(lab: Lab, context: Any, cluster: Any, group: Any, action: str) -> str | None:
    """Return the error message if the machines cannot be created, worded like the real component's, or None."""
    if action == "DELETE":
        return None
    never_zero = settings_of(lab).setting(f"{CLOUD}.scale-to-zero") == "impossible"
    if never_zero and _is_scaled(cluster, group) and group.min_node_count < 1:
        # The message of Cluster API's provider for OpenStack, through magnum-capi-helm.
        return f"min_node_count for {group.name} must be at least 1 when autoscaling is enabled"
    fault = settings_of(lab).fault(f"{CLOUD}.{NO_QUOTA}")
    if fault is None or cluster.project_id != demo_project(lab):
        return None
    resource, limit = quota(fault.value)
    if resource == "clusters":
        return None
    per_node = 1 if resource == "instances" else _cores(group.flavor_id)
    requested = group.node_count * per_node
    others = sum(
        one.node_count * (1 if resource == "instances" else _cores(one.flavor_id))
        for one in cluster.nodegroups
        if one.uuid != group.uuid
    )
    if others + requested <= limit:
        return None
    # Nova's message, which Heat forwards.
    return f"Quota exceeded for {resource}: Requested {requested}, but already used {others} of {limit} {resource} (HTTP 403)"


def _is_scaled(cluster: Any, group: Any) -> bool:
    labels = {**(cluster.labels or {}), **(group.labels or {})}
    return (
        str(labels.get("auto_scaling_enabled", "")).lower() == "true" and group.min_node_count != group.max_node_count
    )


def _cores(flavor: str) -> int:
    for name, known in flavors.load().items():
        if flavor in (name, flavor_id(name)):
            return known.machine.cpus
    return 0
