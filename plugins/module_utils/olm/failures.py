# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the problems that the statuses of OLM's objects show, with their remedies (pure).

The statuses were recorded with OLM 0.46. Conditions are matched by type and reason. Their message is compared only if OLM uses one reason for several
causes.
"""

from __future__ import annotations

import re
import typing as t

from ..common.nested import get_nested
from ..kube.metadata import name_of
from ..schema.messages import abbreviate
from .observed import Condition, Document, catalog_state, conditions, csv_phase
from .problem import CATALOG_START, LONG, MEDIUM, SHORT, Problem

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
