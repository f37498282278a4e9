# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps an installation by OLM from completing, and what to do about it (pure)."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, replace

from ..core.messages import abbreviate, join_words, option_of_role
from ..core.values import Document, get_nested
from ..kube.fields import is_deleting, name_of
from .observed import (
    AT_LATEST,
    CATALOG_START,
    COMPLETE,
    FAILED,
    INSTALLING,
    LONG,
    MEDIUM,
    REQUIRES_APPROVAL,
    SHORT,
    SUCCEEDED,
    Condition,
    Observed,
    Problem,
    Version,
    catalog_state,
    conditions,
    csv_phase,
    csv_version,
    installed_csv,
    no_group,
    plan_csvs,
    plan_phase,
    several_groups,
)

# Determines whether an InstallPlan may be approved (pure).
#
# OLM puts all pending changes of a namespace into one InstallPlan, so approving this plan for one operator may also upgrade others.

_ADDITIONAL_CSVS = option_of_role("olm.additional_csvs", "additional_csvs")


@dataclass(frozen=True)
class ApprovalDecision:
    """The InstallPlan to approve or to discard, by name. Both names are empty if there is a problem, or if there is nothing to do."""

    approve: str = ""
    discard: str = ""
    problem: Problem | None = None


def awaits_approval(plan: Document | None) -> bool:
    """Whether an InstallPlan waits for approval."""
    return (
        plan is not None and plan_phase(plan) == REQUIRES_APPROVAL and get_nested(plan, "spec", "approved") is not True
    )


def decide_approval(
    plan: Document,
    *,
    package: str,
    desired: str,
    steps: t.Collection[str],
    additional: t.Collection[str],
    discarded: bool = False,
) -> ApprovalDecision:
    """Decide whether to approve or discard an InstallPlan that is waiting for approval.

    steps: the ClusterServiceVersions on the upgrade path to the desired one. additional: other ClusterServiceVersions that the user lists. OLM
    creates no other plan while this one is waiting, so a plan for a different version of the package is discarded, but only once (`discarded`).
    """
    names = plan_csvs(plan)
    own = [name for name in names if name in steps]
    others = [name for name in names if name not in steps and name not in additional]
    other_versions = [name for name in others if name.startswith(f"{package}.")]
    if other_versions:
        if not discarded:
            return ApprovalDecision(discard=name_of(plan))
        return ApprovalDecision(problem=_other_version(plan, other_versions, desired))
    if others:
        return ApprovalDecision(problem=_brings_others(plan, others, desired))
    if len(own) != 1:
        return ApprovalDecision()
    return ApprovalDecision(approve=name_of(plan))


def _subject(plan: Document) -> str:
    return f"InstallPlan {plan['metadata'].get('namespace', '')}/{name_of(plan)}"


def _brings_others(plan: Document, others: t.Sequence[str], desired: str) -> Problem:
    return Problem(
        code="install_plan_others",
        subject=_subject(plan),
        field="spec.clusterServiceVersionNames",
        value=join_words(plan_csvs(plan)),
        rule=f"Only {desired} is declared, but approving the plan would also install {join_words(others)}.",
        remedy=(
            f"If that is intended, add {join_words(others)} to {_ADDITIONAL_CSVS}, or approve the plan yourself. Otherwise, use a separate "
            "namespace for the operator."
        ),
    )


def _other_version(plan: Document, versions: t.Sequence[str], desired: str) -> Problem:
    return Problem(
        code="upgrade_path",
        subject=_subject(plan),
        field="spec.clusterServiceVersionNames",
        value=join_words(plan_csvs(plan)),
        rule=f"OLM offers {join_words(versions)}, which is not on the upgrade path to {desired}.",
        remedy="Set channel to a channel with an upgrade path to the version, or set version to the one that OLM offers.",
        minimum_seconds=MEDIUM,
    )


# Builds the problems that the statuses of OLM's objects show, with their remedies (pure).
#
# The statuses were recorded with OLM 0.46. Conditions are matched by type and reason. Their message is compared only if OLM uses one reason for several
# causes.

# Reasons for a failed ClusterServiceVersion that can only be resolved by changing OperatorGroups, with the remedies.
_GROUP_REASONS = {
    "TooManyOperatorGroups": "Delete all OperatorGroups in the namespace except one.",
    "NoOperatorGroup": "Run the playbook again, which creates an OperatorGroup.",
    "UnsupportedOperatorGroup": "In the OperatorGroup, set spec.targetNamespaces to namespaces that the operator supports.",
}
_OPERATOR_LOGS = "kubectl -n openshift-operator-lifecycle-manager logs deployment/catalog-operator"
# The reason with which BundleUnpackFailed does not concern unpacking (operator-lifecycle-manager pkg/controller/operators/catalog/operator.go).
PLAN_NOT_FOUND = "EnsureInstallPlanFailed"
# The format of OLM's reference to a catalog that it cannot read (operator-lifecycle-manager pkg/controller/registry/resolver/cache).
_NAMED_CATALOG = re.compile(r"catalogsource ([a-z0-9.-]+)/([a-z0-9.-]+)")
UNREFERENCED = "exists and is not referenced by a subscription"
# The conditions of a Subscription that are only warnings, with the remedies (operator-framework/api pkg/operators/v1alpha1/subscription_types.go; OLM
# has set these three since v0.28). The condition Deprecated is ignored, because it only repeats their messages.
_WARNINGS = {
    "PackageDeprecated": "Follow the advice in the message; the catalog may not offer newer versions of this package, or may remove it.",
    "ChannelDeprecated": "Set channel to one that contains the version and is not deprecated.",
    "BundleDeprecated": "Set version to a newer one that is not deprecated.",
}


def subscription_warnings(subscription: Document | None) -> list[str]:
    """The warnings about the conditions of a Subscription, each with OLM's message and the remedy."""
    if subscription is None:
        return []
    name = f"Subscription {subscription['metadata']['namespace']}/{name_of(subscription)}"
    by_type = conditions(subscription)
    return [
        # The message comes from the catalog, and may have several lines.
        f"{name}: condition {kind} is True ({' '.join(by_type[kind].message.split()).rstrip('.')}). {remedy}"
        for kind, remedy in _WARNINGS.items()
        if kind in by_type and by_type[kind].is_true
    ]


def namespace_terminating(namespace: str, live: Document) -> Problem:
    """The problem that the namespace is being deleted."""
    since = live["metadata"].get("deletionTimestamp")
    return Problem(
        code="namespace_terminating",
        subject=f"Namespace {namespace}",
        field="metadata.deletionTimestamp",
        value=str(since),
        rule="Nothing can be created in a namespace that is being deleted.",
        remedy=f"Wait until it is gone, and run the playbook again; kubectl get namespace {namespace} -o yaml shows what blocks its deletion.",
    )


def catalog_missing(namespace: str, name: str) -> Problem:
    """The problem that a CatalogSource does not exist."""
    return Problem(
        code="source",
        subject=f"CatalogSource {namespace}/{name}",
        field="metadata.name",
        value=name,
        rule="The CatalogSource does not exist.",
        remedy=f"Correct source or source_namespace (kubectl -n {namespace} get catalogsources), or set catalog_image to create it.",
    )


def catalog_unreachable(namespace: str, catalog: Document) -> Problem:
    """The problem that OLM is not connected to a catalog."""
    name = name_of(catalog)
    state = catalog_state(catalog) or "not connected"
    image = get_nested(catalog, "spec", "image")
    pods = f"kubectl -n {namespace} get pods -l olm.catalogSource={name}"
    address = get_nested(catalog, "spec", "address")
    return Problem(
        code="catalog_unreachable",
        subject=f"CatalogSource {namespace}/{name}",
        field="status.connectionState.lastObservedState",
        value=state,
        rule="OLM reads packages only from a catalog whose state is READY.",
        remedy=(
            f"Check that the catalog at {address} is running."
            if address
            else f"Check the catalog's pod ({pods}){f' and that its image {image} can be pulled' if image else ''}."
        ),
        minimum_seconds=CATALOG_START,
    )


def subscription_gone(namespace: str, name: str) -> Problem:
    """The problem that another tool or user has deleted the Subscription during the run."""
    return Problem(
        code="subscription_deleted",
        subject=f"Subscription {namespace}/{name}",
        field="metadata",
        value="deleted",
        rule="The Subscription was deleted during the run, but not by this module.",
        remedy="Make sure that nothing else manages it, and run the playbook again.",
        minimum_seconds=SHORT,
    )


def upgraded_by_other(namespace: str, newer: str, desired: str) -> Problem:
    """The problem that another tool or user has upgraded the operator beyond the desired version."""
    return Problem(
        code="upgraded_by_other",
        subject=f"ClusterServiceVersion {namespace}/{newer}",
        field="metadata.name",
        value=newer,
        rule=f"It is newer than {desired}. This module did not approve its InstallPlan, and OLM does not downgrade.",
        remedy="Set version to this version, and find out what approves InstallPlans in this namespace.",
    )


def plan_failed(plan: Document) -> Problem:
    """The problem that a step of the InstallPlan has failed permanently."""
    message = get_nested(plan, "status", "message")
    steps = [
        f"{get_nested(step, 'resource', 'kind')} {get_nested(step, 'resource', 'name')}"
        for step in get_nested(plan, "status", "plan") or ()
        if step.get("status") not in ("Created", "Present")
    ]
    reasons = [item.get("message") for item in get_nested(plan, "status", "conditions") or () if item.get("message")]
    return Problem(
        code="install_plan_failed",
        subject=f"InstallPlan {plan['metadata'].get('namespace', '')}/{name_of(plan)}",
        field="status.message",
        value=f"{message or (reasons[0] if reasons else 'Failed')}{f' (not done: {abbreviate(steps)})' if steps else ''}",
        rule="A step of the plan has failed, and OLM does not retry it.",
        remedy="Fix the cause, and run the playbook again. OLM then creates a new plan, and the module approves it.",
    )


def csv_failed(namespace: str, csv: Document) -> Problem:
    """The problem that the ClusterServiceVersion has failed."""
    dummy, reason, message = csv_phase(csv)
    remedy = _GROUP_REASONS.get(reason)
    return Problem(
        code="csv_failed" if remedy is None else "operator_group",
        subject=f"ClusterServiceVersion {namespace}/{name_of(csv)}",
        field="status.phase",
        value=f"Failed ({reason}: {message})",
        rule="OLM does not install a failed ClusterServiceVersion, regardless of the state of its Subscription.",
        remedy=remedy or f"See kubectl -n {namespace} describe csv {name_of(csv)}.",
        # After the OperatorGroups change, the phase remains Failed for a moment.
        minimum_seconds=MEDIUM,
    )


def csv_gone(namespace: str, name: str) -> Problem:
    """The problem that the ClusterServiceVersion is gone although its InstallPlan is complete; OLM does not install it again."""
    return Problem(
        code="csv_deleted",
        subject=f"ClusterServiceVersion {namespace}/{name}",
        field="metadata",
        value="deleted",
        rule="It was deleted after its installation, and OLM does not install it again.",
        remedy="Run the playbook again, so that OLM installs it.",
        minimum_seconds=MEDIUM,
    )


def no_upgrade(subscription: str, installed: str, desired: str, channel: str) -> Problem:
    """The problem that OLM offers no upgrade, because it considers the installed version to be the newest one."""
    return Problem(
        code="upgrade_path",
        subject=subscription,
        field="status.state",
        value=f"AtLatestKnown with {installed}",
        rule=f"Channel {channel} has no upgrade path from {installed} to {desired}.",
        remedy="Set channel to a channel with an upgrade path from the installed version to the desired one.",
        minimum_seconds=LONG,
    )


def _catalog_remedy(message: str) -> str:
    """The remedy for the CatalogSource that OLM's message names. A CatalogSource without a connection blocks all Subscriptions that can see it."""
    blocked = "It blocks all Subscriptions that can see it."
    match = _NAMED_CATALOG.search(message)
    if match is None:
        return f"Check the CatalogSource that the message names. {blocked}"
    namespace, name = match.groups()
    return (
        f"Check the pod of CatalogSource {name} (kubectl -n {namespace} get pods -l olm.catalogSource={name}), or remove the CatalogSource if "
        f"it is not needed. {blocked}"
    )


def resolution_failed(subscription: str, condition: Condition, package: str) -> Problem:
    """The problem that OLM cannot determine which version to install."""
    if UNREFERENCED in condition.message and condition.reason == "ConstraintsNotSatisfiable":
        code, rule = "csv_unreferenced", "A ClusterServiceVersion without a Subscription blocks all installations."
        remedy = "Run the playbook again, which replaces it if it belongs to this package. Otherwise, delete it or subscribe to its package."
    elif condition.reason == "ErrorPreventedResolution":
        code, rule = "catalog_unreachable", "OLM cannot read a catalog."
        remedy = _catalog_remedy(condition.message)
    else:
        code, rule = "resolution_failed", f"OLM finds nothing to install for package {package}."
        remedy = "Correct package, channel, version or source."
    return Problem(
        code=code,
        subject=subscription,
        field="condition ResolutionFailed",
        value=f"True ({condition.reason}: {condition.message})",
        rule=rule,
        remedy=remedy,
        minimum_seconds=MEDIUM,
    )


def unpack_failed(subscription: str, condition: Condition, dummy_package: str) -> Problem:
    """The problem that the bundle's image could not be unpacked, or that OLM needs an InstallPlan that was deleted."""
    if condition.reason == PLAN_NOT_FOUND:
        return Problem(
            code="resolution_failed",
            subject=subscription,
            field="condition BundleUnpackFailed",
            value=f"True ({condition.reason}: {condition.message})",
            rule="OLM needs an InstallPlan that was deleted, and does not retry until the Subscription changes.",
            remedy="Run the playbook again, which resets the Subscription's status.",
            minimum_seconds=MEDIUM,
        )
    return Problem(
        code="unpack_failed",
        subject=subscription,
        field="condition BundleUnpackFailed",
        value=f"True ({condition.reason}: {condition.message})",
        rule="OLM unpacks the bundle's image in a Job in the namespace of the CatalogSource.",
        remedy=(
            "Check the pull secret and the mirror rules (ImageDigestMirrorSet) for the image, delete the failed Job "
            "(label operatorframework.io/bundle-unpack-ref), and run the playbook again."
        ),
        minimum_seconds=MEDIUM,
    )


def unpack_timeout(subscription: str, seconds: float) -> Problem:
    """The problem that the bundle's image was not unpacked before the timeout."""
    return Problem(
        code="unpack_failed",
        subject=subscription,
        field="condition BundleUnpacking",
        value=f"True after {seconds:.0f} s (wait_timeout)",
        rule="OLM unpacks the bundle's image in a Job in the namespace of the CatalogSource.",
        remedy="Check the Job (label operatorframework.io/bundle-unpack-ref) and its pod there.",
    )


def subscription_plan_failed(subscription: str, condition: Condition, dummy_package: str) -> Problem:
    """The problem that a step of the InstallPlan has failed; OLM may still retry it."""
    return Problem(
        code="install_plan_failed",
        subject=subscription,
        field="condition InstallPlanFailed",
        value=f"True ({condition.reason}: {condition.message})",
        rule="A step of the InstallPlan has failed.",
        remedy="Fix the cause, and run the playbook again.",
        minimum_seconds=MEDIUM,
    )


def catalog_unhealthy(subscription: str, condition: Condition, dummy_package: str) -> Problem:
    """The problem that a CatalogSource is missing or broken."""
    return Problem(
        code="source",
        subject=subscription,
        field="condition CatalogSourcesUnhealthy",
        value=f"True ({condition.reason}: {condition.message})",
        rule="OLM does not install anything while a CatalogSource that the Subscription needs is unhealthy.",
        remedy=f"Correct source, or repair the CatalogSource; see {_OPERATOR_LOGS}.",
        minimum_seconds=MEDIUM,
    )


def other_package(namespace: str, subscription: Document, package: str) -> Problem:
    """The problem that the Subscription with the declared name installs a different package."""
    return Problem(
        code="subscription_name",
        subject=f"Subscription {namespace}/{name_of(subscription)}",
        field="spec.name",
        value=str(get_nested(subscription, "spec", "name")),
        rule=f"The declared package is {package}, and a Subscription of another package is neither changed nor removed.",
        remedy="Correct name or package.",
    )


def foreign_catalog(namespace: str, catalog: Document, image: str) -> Problem:
    """The problem that the CatalogSource for the declared image is foreign."""
    name = name_of(catalog)
    return Problem(
        code="source",
        subject=f"CatalogSource {namespace}/{name}",
        field="spec.image",
        value=str(get_nested(catalog, "spec", "image") or "not set"),
        rule=f"The declared catalog_image is {image}, but this collection did not create the CatalogSource and does not change it.",
        remedy="Put a different name first in source, or remove catalog_image to use this CatalogSource.",
    )


def deployment_not_ready(deployment: Document, pods: t.Sequence[str], seconds: float) -> Problem:
    """The problem that the operator's Deployment was not ready before the timeout."""
    name, namespace = name_of(deployment), deployment["metadata"].get("namespace", "")
    available = get_nested(deployment, "status", "availableReplicas") or 0
    return Problem(
        code="deployment_not_ready",
        subject=f"Deployment {namespace}/{name}",
        field="status.availableReplicas",
        value=f"{available} of {get_nested(deployment, 'spec', 'replicas')} after {seconds:.0f} s (wait_timeout)",
        rule=(
            "A ClusterServiceVersion succeeds only when its Deployments are ready. After 5 minutes, OLM briefly reports it as failed, and "
            "retries."
        ),
        remedy=f"Check its pods: {'; '.join(pods)}."
        if pods
        else f"See kubectl -n {namespace} describe deployment {name}.",
    )


def never_processed(subscription: str) -> str:
    """The advice for the case that OLM has not reacted before the timeout."""
    return f"If the status of {subscription} does not show the reason, check that OLM is running: {_OPERATOR_LOGS}."


def not_removed(namespace: str, csv: Document, seconds: float) -> Problem:
    """The problem that a ClusterServiceVersion still exists after the timeout."""
    held = ", ".join(csv["metadata"].get("finalizers") or ()) or "none"
    return Problem(
        code="not_removed",
        subject=f"ClusterServiceVersion {namespace}/{name_of(csv)}",
        field="metadata.finalizers",
        value=f"{held} after {seconds:.0f} s",
        rule="OLM removes the finalizer after it has deleted the objects of the operator.",
        remedy="Check that OLM is running: kubectl -n openshift-operator-lifecycle-manager logs deployment/olm-operator.",
    )


# Checks whether an installed ClusterServiceVersion will remain in the phase Succeeded (pure).
#
# OLM sets the phase Succeeded before it has applied the Subscription's spec.config, because it finds the Subscription by status.installedCSV, which is set
# later. The Deployment's hash then changes, and the phase returns to Installing (operator-lifecycle-manager pkg/controller/operators/olm/overrides).

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


# Determines whether an installation through OLM is complete, is waiting, needs an approval, or has a problem (pure).
#
# Neither the Subscription's state nor its installedCSV shows whether the operator runs: both are set as soon as the ClusterServiceVersion exists.
# A problem is reported only after it has lasted for its `minimum_seconds`, because OLM's conditions may be wrong for a few seconds during upgrades.


@dataclass(frozen=True)
class DesiredVersion:
    """The version that the run installs, and the upgrade path to it."""

    package: str
    subscription: str
    csv: str
    version: Version | None
    # The ClusterServiceVersions on the upgrade path from the installed one, including the desired one.
    steps: frozenset[str]
    additional: frozenset[str] = frozenset()
    automatic: bool = False
    # The Subscription's spec.config before the run.
    former_config: t.Mapping[str, t.Any] | None = None
    # Whether this run has already discarded an InstallPlan.
    discarded: bool = False
    # If the run has repaired the Subscription, the InstallPlans that had failed before; OLM must replace them.
    failed_plans: frozenset[str] = frozenset()

    def failed_before(self, plan: Document) -> bool:
        """Whether an InstallPlan had failed before the run repaired the Subscription."""
        return name_of(plan) in self.failed_plans


@dataclass(frozen=True)
class Assessment:
    """The result: the installation is done, has a problem, or has an InstallPlan to approve or discard. Otherwise, `text` describes why the run waits."""

    text: str = ""
    done: bool = False
    problem: Problem | None = None
    approve: str = ""
    discard: str = ""
    # The installed ClusterServiceVersion if `done` is true.
    csv: str = ""
    # Explanations for a timeout: OLM is unpacking the bundle, or these Deployments of the ClusterServiceVersion are not ready.
    unpacking: bool = False
    unready: tuple[str, ...] = ()


def assess(observed: Observed, desired: DesiredVersion) -> Assessment:
    """Assess the installation."""
    fundamental = _namespace_problem(observed)
    if fundamental:
        return _problem(fundamental)
    subscription = observed.subscription(desired.package, desired.subscription)
    if subscription is None or is_deleting(subscription):
        return _problem(subscription_gone(observed.namespace, desired.subscription))
    csv = _desired_csv(observed, desired, subscription)
    if csv is not None and not is_deleting(csv):
        reason = unstable_reason(observed, csv, subscription, desired.former_config)
        if not reason:
            return Assessment(done=True, csv=name_of(csv))
        return _progress(observed, desired, subscription, csv, reason)
    newer = _newer_csv(observed, desired, subscription)
    if newer is not None:
        return _problem(upgraded_by_other(observed.namespace, name_of(newer), desired.csv))
    return _before_csv(observed, desired, subscription)


def _problem(problem: Problem) -> Assessment:
    return Assessment(text=str(problem), problem=problem)


def _namespace_problem(observed: Observed) -> Problem | None:
    if is_deleting(observed.namespace_object):
        return namespace_terminating(observed.namespace, t.cast("Document", observed.namespace_object))
    if len(observed.groups) > 1:
        return several_groups(observed.namespace, observed.groups)
    return None if observed.groups else no_group(observed.namespace)


def _desired_csv(observed: Observed, desired: DesiredVersion, subscription: Document) -> Document | None:
    """The desired ClusterServiceVersion, or with automatic approval, the installed one if it is at least as new; None if there is neither."""
    if desired.automatic:
        installed = observed.csv(installed_csv(subscription))
        version = csv_version(installed)
        if version is not None and desired.version is not None and version >= desired.version:
            return installed
    return observed.csv(desired.csv)


def _newer_csv(observed: Observed, desired: DesiredVersion, subscription: Document) -> Document | None:
    installed = observed.csv(installed_csv(subscription))
    version = csv_version(installed)
    return installed if version is not None and desired.version is not None and version > desired.version else None


def _progress(
    observed: Observed, desired: DesiredVersion, subscription: Document, csv: Document, reason: str
) -> Assessment:
    """Assess an existing ClusterServiceVersion that is not stable."""
    plan = observed.plan_of(subscription)
    if plan is not None and plan_phase(plan) == FAILED:
        return _failed_plan(plan, desired)
    phase, cause, dummy = csv_phase(csv)
    if phase == FAILED and cause != INSTALL_CHECK_FAILED:
        return _problem(csv_failed(observed.namespace, csv))
    return Assessment(text=_detail(reason, csv), unready=unready_deployments(observed, csv))


def _failed_plan(plan: Document, desired: DesiredVersion) -> Assessment:
    """Assess a failed InstallPlan. It is a problem immediately, unless it had already failed before a repair; it is then a problem only if OLM does not
    replace it.
    """
    problem = plan_failed(plan)
    if not desired.failed_before(plan):
        return _problem(problem)
    text = f"InstallPlan {name_of(plan)} has failed, and OLM has not created a new one yet"
    return Assessment(text=text, problem=replace(problem, minimum_seconds=LONG))


def _detail(reason: str, csv: Document) -> str:
    """The reason, with the unmet requirements of a pending ClusterServiceVersion."""
    missing = [
        f"{item.get('kind')} {item.get('name')} ({item.get('status')})"
        for item in get_nested(csv, "status", "requirementStatus") or ()
        if item.get("status") not in ("Present", "Satisfied")
    ]
    phase = csv_phase(csv)[0]
    return f"{reason}; missing: {abbreviate(missing)}" if missing and phase == "Pending" else reason


def _before_csv(observed: Observed, desired: DesiredVersion, subscription: Document) -> Assessment:
    """Assess the installation while the desired ClusterServiceVersion does not exist yet."""
    plan = observed.plan_of(subscription)
    phase = plan_phase(plan)
    if plan is not None and phase == FAILED:
        return _failed_plan(plan, desired)
    if plan is not None and awaits_approval(plan) and not desired.automatic:
        decision = decide_approval(
            plan,
            package=desired.package,
            desired=desired.csv,
            steps=desired.steps,
            additional=desired.additional,
            discarded=desired.discarded,
        )
        if decision.problem:
            return _problem(decision.problem)
        return Assessment(
            text=f"InstallPlan {name_of(plan)} is waiting for approval",
            approve=decision.approve,
            discard=decision.discard,
        )
    if plan is not None and phase not in ("Complete", ""):
        message = get_nested(plan, "status", "message")
        return Assessment(text=f"InstallPlan {name_of(plan)} is {phase}{f': {message}' if message else ''}")
    current = observed.csv(str(get_nested(subscription, "status", "currentCSV") or ""))
    if current is not None:
        # A step on the upgrade path to the desired version.
        reason = unstable_reason(observed, current, subscription)
        if reason:
            return _progress(observed, desired, subscription, current, reason)
    problem = subscription_problem(observed, desired, subscription)
    if problem:
        return _problem(problem)
    return _without_plan(observed, desired, subscription)


def subscription_problem(observed: Observed, desired: DesiredVersion, subscription: Document) -> Problem | None:
    """The problem that the Subscription's status shows, for example in its conditions; None if there is none."""
    by_type = conditions(subscription)
    name = f"Subscription {observed.namespace}/{name_of(subscription)}"
    for kind, make in (
        ("ResolutionFailed", resolution_failed),
        ("BundleUnpackFailed", unpack_failed),
        ("InstallPlanFailed", subscription_plan_failed),
        ("CatalogSourcesUnhealthy", catalog_unhealthy),
    ):
        condition = by_type.get(kind)
        if condition is not None and condition.is_true:
            return make(name, condition, desired.package)
    status = subscription.get("status") or {}
    installed = installed_csv(subscription)
    if status.get("state") == AT_LATEST and installed and installed != desired.csv:
        channel = str(get_nested(subscription, "spec", "channel") or "")
        return no_upgrade(name, installed, desired.csv, channel)
    if status.get("currentCSV") == desired.csv and plan_phase(observed.plan_of(subscription)) == "Complete":
        return csv_gone(observed.namespace, desired.csv)
    return None


def _without_plan(observed: Observed, desired: DesiredVersion, subscription: Document) -> Assessment:
    """Assess the installation while OLM has not created the InstallPlan yet."""
    name = f"Subscription {observed.namespace}/{name_of(subscription)}"
    unpacking = conditions(subscription).get("BundleUnpacking")
    if unpacking is not None and unpacking.is_true:
        text = f"{name}: OLM is unpacking the bundle of {desired.csv} ({unpacking.message or unpacking.reason})"
        return Assessment(text=text, unpacking=True)
    return Assessment(text=f"{name}: OLM has not created an InstallPlan for {desired.csv} yet")
