# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks whether an installed ClusterServiceVersion will remain in the phase Succeeded (pure).

OLM sets the phase Succeeded before it has applied the Subscription's spec.config, because it finds the Subscription by status.installedCSV, which is set
later. The Deployment's hash then changes, and the phase returns to Installing (operator-lifecycle-manager pkg/controller/operators/olm/overrides).
"""

from __future__ import annotations

from ..common.nested import get_nested
from ..kube.metadata import is_deleting, name_of
from .observed import (
    COMPLETE,
    FAILED,
    INSTALLING,
    SUCCEEDED,
    Document,
    Observed,
    csv_phase,
    installed_csv,
    plan_csvs,
    plan_phase,
)

_FINISHED_STEPS = frozenset({"Created", "Present"})
# The failure reason of a ClusterServiceVersion whose Deployment is not ready after 5 minutes. The failure is brief, because OLM retries the installation.
INSTALL_CHECK_FAILED = "InstallCheckFailed"


def unstable_reason(observed: Observed, csv: Document, subscription: Document, former: Document | None = None) -> str:
    """The reason why a ClusterServiceVersion is not stable yet; empty if it is stable. `former` is the Subscription's spec.config before this run."""
    name = name_of(csv)
    phase, reason, message = csv_phase(csv)
    if is_deleting(csv):
        return f"ClusterServiceVersion {name} is being deleted"
    if phase != SUCCEEDED:
        detail = f" ({message or reason})" if message or reason else ""
        return f"ClusterServiceVersion {name} is {phase or 'new'}{detail}"
    if installed_csv(subscription) != name:
        return f"ClusterServiceVersion {name} is Succeeded, but the Subscription does not name it as installed yet"
    plan = observed.plan_of(subscription)
    if plan is not None and name in plan_csvs(plan) and not is_executed(plan):
        return f"InstallPlan {name_of(plan)} is {plan_phase(plan)}{_plan_message(plan)}"
    config = get_nested(subscription, "spec", "config") or {}
    for entry in get_nested(csv, "spec", "install", "spec", "deployments") or ():
        reason = _deployment_reason(observed.deployment(entry["name"]), entry, config, former or {})
        if reason:
            return reason
    return ""


def unready_deployments(observed: Observed, csv: Document) -> tuple[str, ...]:
    """The Deployments of a ClusterServiceVersion that are not ready; empty in phases in which OLM does not wait for them."""
    phase, reason, dummy = csv_phase(csv)
    if phase not in (INSTALLING, SUCCEEDED) and (phase, reason) != (FAILED, INSTALL_CHECK_FAILED):
        return ()
    names = [entry["name"] for entry in get_nested(csv, "spec", "install", "spec", "deployments") or ()]
    return tuple(name for name in names if (live := observed.deployment(name)) is not None and not is_rolled_out(live))


def is_executed(plan: Document) -> bool:
    """Whether all steps of an InstallPlan are done; OLM sets the phase Complete a few seconds later."""
    steps = get_nested(plan, "status", "plan") or ()
    return plan_phase(plan) == COMPLETE or (
        bool(steps) and all(step.get("status") in _FINISHED_STEPS for step in steps)
    )


def _plan_message(plan: Document) -> str:
    message = get_nested(plan, "status", "message")
    return f": {message}" if message else ""


def _deployment_reason(live: Document | None, entry: Document, config: Document, former: Document) -> str:
    name = entry["name"]
    if live is None:
        return f"Deployment {name} does not exist"
    if not is_rolled_out(live):
        status = live.get("status") or {}
        return f"Deployment {name}: {status.get('availableReplicas') or 0} of {get_nested(live, 'spec', 'replicas')} pods are ready"
    pod = get_nested(live, "spec", "template", "spec") or {}
    missing = missing_config(pod, get_nested(entry, "spec", "template", "spec") or {}, config, former)
    return f"Deployment {name} does not have the Subscription's {missing} yet" if missing else ""


def is_rolled_out(live: Document) -> bool:
    """Whether all pods of a Deployment run its current template."""
    status, desired = live.get("status") or {}, int(get_nested(live, "spec", "replicas") or 0)
    observed = int(status.get("observedGeneration") or 0)
    return observed >= int(live["metadata"].get("generation") or 0) and all(
        int(status.get(key) or 0) == desired for key in ("replicas", "updatedReplicas", "availableReplicas")
    )


def missing_config(pod: Document, declared: Document, config: Document, former: Document) -> str:
    """The first part of spec.config that a pod template lacks, or still contains even though it was removed from spec.config; empty if there is none.

    declared: the pod template of the ClusterServiceVersion. former: spec.config before this run.
    """
    live = pod.get("tolerations") or []
    kept = [*(declared.get("tolerations") or ()), *(config.get("tolerations") or ())]
    if any(item not in live for item in kept):
        return "tolerations"
    if any(item in live and item not in kept for item in former.get("tolerations") or ()):
        return "tolerations without the removed ones"
    # A nodeSelector of the Subscription replaces the one of the ClusterServiceVersion.
    selector = config.get("nodeSelector")
    desired = (declared.get("nodeSelector") or {}) if selector is None else selector
    node_selector = pod.get("nodeSelector") or {}
    if any(node_selector.get(key) != value for key, value in desired.items()):
        return "nodeSelector"
    if any(
        node_selector.get(key) == value and key not in desired
        for key, value in (former.get("nodeSelector") or {}).items()
    ):
        return "nodeSelector without the removed labels"
    return _missing_environment(pod, config)


def _missing_environment(pod: Document, config: Document) -> str:
    for container in pod.get("containers") or ():
        live = {item["name"]: item for item in container.get("env") or ()}
        for item in config.get("env") or ():
            if not _same_variable(live.get(item.get("name")), item):
                return f"env {item.get('name')}"
    return ""


def _same_variable(live: Document | None, declared: Document) -> bool:
    if live is None:
        return False
    if "valueFrom" in declared:
        # The API server adds defaults to a reference.
        return "valueFrom" in live
    return str(live.get("value") or "") == str(declared.get("value") or "")
