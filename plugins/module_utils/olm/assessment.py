# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines whether an installation through OLM is complete, is waiting, needs an approval, or has a problem (pure).

Neither the Subscription's state nor its installedCSV shows whether the operator runs: both are set as soon as the ClusterServiceVersion exists.
A problem is reported only after it has lasted for its `minimum_seconds`, because OLM's conditions may be wrong for a few seconds during upgrades.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..common.nested import get_nested
from ..kube.metadata import is_deleting, name_of
from ..schema.messages import abbreviate
from . import failures
from .approval import awaits_approval, decide_approval
from .observed import (
    AT_LATEST,
    FAILED,
    Document,
    Observed,
    conditions,
    csv_phase,
    csv_version,
    installed_csv,
    plan_phase,
)
from .operator_group import no_group, several_groups
from .problem import LONG, Problem
from .stability import INSTALL_CHECK_FAILED, unready_deployments, unstable_reason
from .versions import Version


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
        return _problem(failures.subscription_gone(observed.namespace, desired.subscription))
    csv = _desired_csv(observed, desired, subscription)
    if csv is not None and not is_deleting(csv):
        reason = unstable_reason(observed, csv, subscription, desired.former_config)
        if not reason:
            return Assessment(done=True, csv=name_of(csv))
        return _progress(observed, desired, subscription, csv, reason)
    newer = _newer_csv(observed, desired, subscription)
    if newer is not None:
        return _problem(failures.upgraded_by_other(observed.namespace, name_of(newer), desired.csv))
    return _before_csv(observed, desired, subscription)


def _problem(problem: Problem) -> Assessment:
    return Assessment(text=str(problem), problem=problem)


def _namespace_problem(observed: Observed) -> Problem | None:
    if is_deleting(observed.namespace_object):
        return failures.namespace_terminating(observed.namespace, t.cast("Document", observed.namespace_object))
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
        return _problem(failures.csv_failed(observed.namespace, csv))
    return Assessment(text=_detail(reason, csv), unready=unready_deployments(observed, csv))


def _failed_plan(plan: Document, desired: DesiredVersion) -> Assessment:
    """Assess a failed InstallPlan. It is a problem immediately, unless it had already failed before a repair; it is then a problem only if OLM does not
    replace it.
    """
    problem = failures.plan_failed(plan)
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
        ("ResolutionFailed", failures.resolution_failed),
        ("BundleUnpackFailed", failures.unpack_failed),
        ("InstallPlanFailed", failures.subscription_plan_failed),
        ("CatalogSourcesUnhealthy", failures.catalog_unhealthy),
    ):
        condition = by_type.get(kind)
        if condition is not None and condition.is_true:
            return make(name, condition, desired.package)
    status = subscription.get("status") or {}
    installed = installed_csv(subscription)
    if status.get("state") == AT_LATEST and installed and installed != desired.csv:
        channel = str(get_nested(subscription, "spec", "channel") or "")
        return failures.no_upgrade(name, installed, desired.csv, channel)
    if status.get("currentCSV") == desired.csv and plan_phase(observed.plan_of(subscription)) == "Complete":
        return failures.csv_gone(observed.namespace, desired.csv)
    return None


def _without_plan(observed: Observed, desired: DesiredVersion, subscription: Document) -> Assessment:
    """Assess the installation while OLM has not created the InstallPlan yet."""
    name = f"Subscription {observed.namespace}/{name_of(subscription)}"
    unpacking = conditions(subscription).get("BundleUnpacking")
    if unpacking is not None and unpacking.is_true:
        text = f"{name}: OLM is unpacking the bundle of {desired.csv} ({unpacking.message or unpacking.reason})"
        return Assessment(text=text, unpacking=True)
    return Assessment(text=f"{name}: OLM has not created an InstallPlan for {desired.csv} yet")
