# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adds NFD and the operator to a report: their installations and the tolerations for the pools' taints that a run adds or removes."""

from __future__ import annotations

import typing as t

from ..catalog.olm import NFD_CR, WORKER_TOLERATIONS
from ..catalog.taints import format_toleration
from ..cluster_state.cluster_policy import policy_tolerations, recorded_tolerations
from ..cluster_state.ownership import is_created_by_collection
from ..cluster_state.report_data import declared_releases
from ..common.nested import get_nested
from ..kube.object_managers import reverts_changes
from ..kube.paths import NODE_FEATURE_DISCOVERY
from .cluster_policy import DesiredPolicy, merge_tolerations
from .discovery_object import choose_object, desired_tolerations
from .olm_changes import read_olm_changes
from .toolkit_settings import ToolkitSettings, operator_result

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from .detect import Detection
    from .installation import InstallationFinding

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

# The operator copies the policy's list into the template of each of its DaemonSets (gpu-operator controllers/object_controls.go).
_OPERANDS = (
    "every operand of the GPU operator, including the driver and the exporter, restarts on all nodes where it runs"
)
_WORKERS = "NFD's workers restart on all nodes"


def add_installation(
    client: Client, detection: Detection, operator: InstallationFinding, settings: ToolkitSettings, info: Object
) -> None:
    """Add the installations, declared releases and changes of tolerations; `operator` is the operator's finding, with notes about nodes."""
    declared = detection.declared
    info["installed"] = {name: finding.as_dict() for name, finding in detection.findings.items()}
    info["installed"]["operator"] = operator_result(operator, settings, declared)
    for name, finding in detection.findings.items():
        info["installed"][name]["changes"] = read_olm_changes(client, finding)
    info["releases"] = declared_releases(declared)
    info["tolerations"] = toleration_changes(client, detection)
    if settings.env:
        info["releases"]["operator"].update(distribution=settings.distribution, toolkit_env=settings.env)


def toleration_changes(client: Client, detection: Detection) -> list[Object]:
    """The changes of tolerations in the ClusterPolicy and in the NodeFeatureDiscovery object, which is read only if a run configures it."""
    plan, policy, changes = detection.plan, detection.policy, []
    if policy is not None and plan.pools:
        desired = DesiredPolicy.derive(plan, policy).tolerations
        recorded = recorded_tolerations(policy)
        # Before the first run of cluster_policy, the entries were set by Helm or when the policy was created.
        owned = (desired if is_created_by_collection(policy) else ()) if recorded is None else recorded
        title = f"ClusterPolicy {policy['metadata']['name']}"
        changes.append(_change(title, policy_tolerations(policy), owned, desired, _OPERANDS))
    if plan.pools and detection.findings["nfd"].configures_discovery:
        item = choose_object(client.list_known(NODE_FEATURE_DISCOVERY.collection()), plan.nfd.namespace)
        if item is not None:
            current = list(get_nested(item, *WORKER_TOLERATIONS) or ())
            title = f"NodeFeatureDiscovery {item['metadata']['namespace']}/{item['metadata']['name']}"
            owned = recorded_tolerations(item) or ()
            version, kind = NFD_CR
            reverted = reverts_changes({**item, "apiVersion": version, "kind": kind})
            effects = f"{_WORKERS}; {reverted.rstrip('.')}" if reverted else _WORKERS
            changes.append(_change(title, current, owned, desired_tolerations(plan), effects))
    return [change for change in changes if change["adds"] or change["removes"]]


def _change(
    title: str, current: list[Object], owned: t.Sequence[Object], desired: t.Sequence[Object], restarts: str
) -> Object:
    merged, dummy = merge_tolerations(current, owned, desired)
    return {
        "object": title,
        "adds": [format_toleration(item) for item in merged if item not in current],
        "removes": [format_toleration(item) for item in current if item not in merged],
        "restarts": restarts,
    }
